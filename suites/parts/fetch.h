#ifndef HA_PARTS_FETCH_H
#define HA_PARTS_FETCH_H

/* Chosen tokens, or blocks of them, of stores in host memory over the link to the device, in one of four ways. */

#include "suites/parts/crew.h"
#include "suites/parts/kv.h"

/* pieces: copies handed over in one call, a piece for each stretch; move: a kernel reads them in the host's memory;
 * gather: the CPU's threads gather them, then one copy. An option `fetch` of variants. stores: the CPU's threads store
 * them into device memory that is mapped for them (map_device of harness/api/device.h; GDRCopy, CLO, section 4.3). */
enum ha_fetch_way { HA_FETCH_PIECES, HA_FETCH_MOVE, HA_FETCH_GATHER, HA_FETCH_STORES };
const char *ha_fetch_word(size_t i);
#define HA_FETCH_WAY                                                                                                  \
    {                                                                                                                 \
        "fetch", HA_FETCH_PIECES, .word = ha_fetch_word,                                                              \
                                  .doc = "how keys come over the link: copies in one call, a kernel that reads host " \
                                         "memory, or gathered and copied"                                             \
    }
/* what a store has to lie in */
enum ha_memory ha_fetch_memory(enum ha_fetch_way way);

enum { HA_FETCH_ALL_HEADS = 1 << 30 };
struct ha_fetch_list {
    const struct ha_kv *from, *to; /* a store of that memory; device memory */
    size_t head;                   /* of this KV head, or HA_FETCH_ALL_HEADS */
    const uint32_t *index; /* [count], host memory: entry i is tokens [index[i] * unit, (index[i] + 1) * unit) */
    size_t count, unit;
    size_t at;            /* they become rows at, at + 1, ... of `to` */
    const uint32_t *slot; /* NULL, or [count]: entry i becomes rows at + slot[i] * unit, ... instead; none twice */
    bool vectors;         /* `to` has rows of one KV head each, one behind the other (suites/parts/vectors.h) */
    unsigned char *k, *v; /* of stores: where the CPU reaches K and V of `to` */
};

struct ha_fetch {
    const struct ha_context *ctx;
    enum ha_fetch_way way;
    size_t lists_max;
    size_t rows_max;  /* of all lists of a fetch together: rows of a head, or of all */
    size_t bytes_max; /* of gather: of what it writes, K alone */
    size_t slots, next;
    struct ha_fetch_slot {
        struct ha_event *done;
        uint32_t *row;        /* of move, mapped: [2][rows_max], from and to */
        unsigned char *k, *v; /* of gather, pinned: as `to`, one after the other */
    } * slot;                 /* [slots] */
    void **dst;
    const void **src;
    size_t *bytes;                    /* of pieces: [2 * rows_max] each */
    const struct ha_fetch_list *list; /* of gather: what is under way */
    size_t *image;                    /* [lists_max] of gather: where in the slot row 0 of a list is, all heads */
    struct ha_fetch_slot *to;
    struct ha_crew *crew; /* NULL, or who gathers, and stores, in place of the pool */
};

/* slots: of move and gather so many fetches may be under way, and one more waits for the first of them; at least 1.
 * rows_max: of all lists of a fetch, tokens. bytes_max: by gather, K alone, all heads of the rows of each `to` from the
 * first to the last that a fetch writes; of a list with slots, its rows of a head or of all. HA_WAIVED with the
 * operation that the device lacks. Memory and events are the arenas'. */
enum ha_status ha_fetch_create(struct ha_fetch *f, const struct ha_context *ctx, enum ha_fetch_way way, size_t slots,
                               size_t lists_max, size_t rows_max, size_t bytes_max, struct ha_why *why);
/* Enqueues K and V of all lists; lists and indices are the caller's again when it returns. Lists of the same `from` and
 * `to` follow each other.
 * gather reads the stores before it returns. Without slots it writes all heads of the rows of a store's lists, from the
 * first row to the last, by one copy, whatever was there; with slots, or vectors, nothing but the rows of the list, by
 * a copy for each stretch of them. stores enqueues nothing: when it returns, everything is there. HA_ERROR,
 * or what ha_list_refuse returns, and nothing is enqueued: a row that is not in `from` or `to`, more lists, rows or
 * bytes than there is room for. */
enum ha_status ha_fetch_run(struct ha_fetch *f, struct ha_stream *stream, const struct ha_fetch_list *list,
                            size_t count, struct ha_why *why);

/* In device memory, for attention over fetched lists that lie one behind the other: entry i is row (or block) i % each,
 * each: entries of the lists that a KV head has. The arena's. */
enum ha_status ha_fetch_name_rows(const struct ha_context *ctx, size_t entries, size_t each, uint32_t **row,
                                  struct ha_why *why);

#endif
