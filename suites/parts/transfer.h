#ifndef HA_PARTS_TRANSFER_H
#define HA_PARTS_TRANSFER_H

/* Keys and values of those KV heads of a layer that a look-up on the device has found to miss, from host memory straight
 * to their final places on the device, beside whatever the main stream does meanwhile (CLO, sections 4.3 and 4.4). The
 * device says in mapped memory what is wanted; an engine in the background moves it.
 *
 * sync=device: the thread that launches never waits. The device sets a flag behind the lists, the engine polls it, moves
 * the keys, and sets another, which the main stream waits for. sync=cpu: the launching thread waits for the lists, and
 * again for the keys. */

#include "suites/parts/fetch.h"
#include "suites/parts/frame.h"

enum ha_transfer_sync { HA_SYNC_DEVICE, HA_SYNC_CPU };
const char *ha_transfer_sync_word(size_t i);
#define HA_TRANSFER_SYNC                                                                                            \
    {                                                                                                               \
        "sync", HA_SYNC_DEVICE, .word = ha_transfer_sync_word,                                                      \
                                .doc = "who waits for keys: the device, by a flag, or the thread that launches work" \
    }

/* Of one KV head of one sequence. */
#define HA_TRANSFER_WAY { "transfer", 0, .word = ha_transfer_word, .doc = "how" }
const char *ha_transfer_word(size_t i);
enum ha_fetch_way ha_transfer_way(size_t i);
struct ha_transfer_place {
    const struct ha_kv *from; /* token-major in host memory; NULL: nothing is ever moved for this head */
    const struct ha_kv *to;   /* vectors on the device (struct ha_fetch_list) */
    size_t at;                /* the row of `to` that entry 0 begins at */
};

struct ha_transfer_layer {
    /* Mapped, the device's to write. Index and count of a head are left as they are in a request that does not move it:
     * they are what its place holds. */
    uint32_t *missed, *index; /* [batch][kv_heads]: 0, or to be moved; [batch][kv_heads][list_max] */
    uint32_t *count;          /* [batch][kv_heads] keys, entries times unit */
    struct ha_transfer_place *place; /* [batch][kv_heads], the caller's to fill before the first request */
    uint32_t asked;                  /* requests so far */
    uint64_t ticket;                 /* of the last one's job */
    enum ha_status status;           /* of it, once it is over */
    struct ha_why why;
    double moved, bytes; /* heads and bytes, since create or forget */
    struct ha_transfer *engine;
};

struct ha_transfer {
    const struct ha_context *ctx;
    enum ha_transfer_sync sync;
    size_t unit, list_max;
    struct ha_fetch fetch;
    struct ha_fetch_list *list; /* [batch][kv_heads] */
    struct ha_stream *stream;   /* of what the engine has the device move */
    uint32_t *ask, *done;       /* mapped: [layers] requests that the device has made, and that are over */
    struct ha_event *came, *arrived;
    struct ha_transfer_layer *layer; /* [layers] */
    void (*answered)(void *arg, size_t layer, uint32_t request);
    void *arg;
};

/* From a rule's share. unit: keys of an entry; list_max: entries of a head at most. threads: of way HA_FETCH_STORES.
 * HA_WAIVED with what the device or the machine lacks. */
enum ha_status ha_transfer_create(struct ha_transfer *t, const struct ha_layer *first, enum ha_fetch_way way,
                                  enum ha_transfer_sync sync, size_t threads, size_t unit, size_t list_max,
                                  struct ha_why *why);
/* Makes what lies in device memory reachable by CPU stores, where the way is that: all that a place's `to` may be of,
 * once, before the first request. */
enum ha_status ha_transfer_reach(struct ha_transfer *t, const struct ha_kv *to, struct ha_why *why);
/* Behind what fills missed, index and count of the layer on the main stream: asks for it. The one before is over. */
enum ha_status ha_transfer_ask(struct ha_transfer *t, const struct ha_layer *l, struct ha_why *why);
/* What the main stream does from now on finds the keys of the layer's last request in their places. */
enum ha_status ha_transfer_wait(struct ha_transfer *t, const struct ha_layer *l, struct ha_why *why);
/* Returns when no request of any layer is under way, whatever became of it; of a half-made one, too. From the rule's
 * end, and before a rewind. */
void ha_transfer_end(struct ha_transfer *t);

#endif
