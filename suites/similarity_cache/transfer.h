#ifndef HA_SIMILARITY_CACHE_TRANSFER_H
#define HA_SIMILARITY_CACHE_TRANSFER_H

/* Keys and values of those KV heads of a layer that a look-up on the device has found to miss, from host memory
 * straight to their final places on the device, beside whatever the main stream does meanwhile (CLO, sections 4.3
 * and 4.4). The device says in mapped memory what is wanted; an engine in the background moves it.
 *
 * sync=device: the thread that launches never waits. The device sets a flag behind the lists, the engine polls it,
 * moves the keys, and sets another, which the main stream waits for. sync=cpu: the launching thread waits for the
 * lists, and again for the keys. */

#include "suites/parts/fetch.h"
#include "suites/parts/frame.h"

enum ha_transfer_sync { HA_SYNC_DEVICE, HA_SYNC_CPU };
const char *ha_transfer_sync_word(size_t i);
#define HA_TRANSFER_SYNC                                                                                             \
    {                                                                                                                \
        "sync", HA_SYNC_DEVICE, .word = ha_transfer_sync_word,                                                       \
                                .doc = "who waits for keys: the device, by a flag, or the thread that launches work" \
    }

/* An option `transfer`, and what it stands for. */
const char *ha_transfer_word(size_t i);
enum ha_fetch_way ha_transfer_way(size_t i);
#define HA_TRANSFER_WAY                                                                                           \
    {                                                                                                             \
        "transfer", 0, .word = ha_transfer_word,                                                                  \
                       .doc = "how keys come over the link: stored by CPU threads into device memory, read by a " \
                              "kernel, gathered and copied, or copies in one call"                                \
    }

/* Of one KV head of one sequence. */
struct ha_transfer_place {
    const struct ha_kv *from; /* token-major in host memory; NULL: nothing is ever moved for this head */
    const struct ha_kv *to;   /* vectors on the device (struct ha_fetch_list) */
    size_t at;                /* the row of `to` that entry 0 begins at */
    unsigned char *k, *v;     /* the engine's: where the CPU reaches `to` */
};

struct ha_transfer_layer {
    /* Mapped, the device's to write. Index and count of a head are left as they are in a request that does not move it:
     * they are what its place holds. */
    uint32_t *missed, *index;        /* [batch][kv_heads]: 0, or to be moved; [batch][kv_heads][list_max] */
    uint32_t *count;                 /* [batch][kv_heads] keys, entries times unit */
    struct ha_transfer_place *place; /* [batch][kv_heads], the caller's to fill before the first request */
    uint32_t asked, served;          /* requests so far; those that are handed over, or stored: atomic */
    uint64_t ticket;                 /* of the last one's job */
    double moved, bytes;             /* heads, and bytes of theirs; the caller's to reset between requests */
    struct ha_transfer *engine;
};

struct ha_transfer {
    const struct ha_context *ctx;
    enum ha_transfer_sync sync;
    size_t unit, list_max;
    struct ha_fetch fetch;
    struct ha_crew crew;        /* of ways by the CPU's threads */
    struct ha_fetch_list *list; /* [batch][kv_heads] */
    struct ha_stream *stream;   /* of what the engine has the device move */
    uint32_t *ask, *done;       /* mapped: [layers] requests that the device has made, and that are over */
    struct ha_event *came;
    struct ha_transfer_layer *layer; /* [layers] */
    void **window;                   /* [windows] of map_device */
    size_t windows;
    bool ending;           /* atomic */
    enum ha_status status; /* atomic: of the engine, with its words */
    struct ha_why why;
    /* NULL, or called by the engine when it has read a request of a layer, its first being 1, and found it right */
    void (*answered)(void *arg, size_t layer, uint32_t request);
    void *arg;
};

/* From a rule's share. unit: keys of an entry; list_max: entries of a head at most. threads: of ways by the CPU's, at
 * most HA_CREW_MAX. HA_WAIVED with what the device or the machine lacks. */
enum ha_status ha_transfer_create(struct ha_transfer *t, const struct ha_layer *first, enum ha_fetch_way way,
                                  enum ha_transfer_sync sync, size_t threads, size_t unit, size_t list_max,
                                  struct ha_why *why);
/* Of a layer's places those that lead to `to`: makes it reachable by CPU stores, where the way is that. */
enum ha_status ha_transfer_reach(struct ha_transfer *t, size_t layer, const struct ha_kv *to, struct ha_why *why);
/* Behind what fills missed, index and count of the layer on the main stream: asks for it. */
enum ha_status ha_transfer_ask(struct ha_transfer *t, const struct ha_layer *l, struct ha_why *why);
/* What the main stream does from now on finds the keys of the layer's last request in their places. What was wrong with
 * a request is said here, by a later wait or by a drain; nothing then waits for it. */
enum ha_status ha_transfer_wait(struct ha_transfer *t, const struct ha_layer *l, struct ha_why *why);
/* Returns when no request is under way, and says what was wrong with any; of a half-made one, too. */
enum ha_status ha_transfer_drain(struct ha_transfer *t, struct ha_why *why);
/* From the rule's end, of a half-made one, too: a request that the device will not make is given up. */
void ha_transfer_end(struct ha_transfer *t);

#endif
