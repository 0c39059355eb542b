#ifndef HA_PARTS_SLOTS_H
#define HA_PARTS_SLOTS_H

/* Caches of blocks on the device, of each KV head one, whose lists the CPU keeps (block_cache.h; CLO, section 2.2.2):
 * slots, and behind them temporary blocks for what a step chooses and the cache does not have. A step looks its blocks
 * up, has the missing ones come over the link to temporary blocks, and attends over both in place. Then, in the
 * background, the CPU updates the lists, and the device copies the temporary blocks into the slots that they got.
 *
 * Who looks up: the CPU by the index maps; or the device by a copy of them, which each merge brings up to date. All is
 * of a layer; layers follow each other on the main stream, their updates on another, and share what is not in struct
 * ha_slots_layer. Lists are [batch][kv_heads][list_max]. Arrays and events are the arenas'. */

#include "suites/parts/block_cache.h"
#include "suites/parts/fetch.h"
#include "suites/parts/frame.h"

enum ha_lookup { HA_LOOKUP_CPU, HA_LOOKUP_DEVICE };
const char *ha_lookup_word(size_t i);
/* An option `lookup` of variants. */
#define HA_SLOTS_LOOKUP(most)                                                                                   \
    {                                                                                                           \
        "lookup", most,                                                                                         \
            .word = ha_lookup_word,                                                                             \
            .doc = "who looks up which blocks the cache has: the CPU, or the device by a copy of the index map" \
    }

struct ha_slots_rule {
    bool by_device;             /* who looks up */
    size_t policy, unit;        /* HA_BLOCK_LRU, ...; tokens of a block */
    const size_t *slots, *most; /* [batch] of a cache, no fewer than `most`, the blocks of a list at most. They stay */
    size_t blocks;              /* that any sequence has, at most */
    enum ha_fetch_way way;
};

struct ha_slots_layer {
    size_t *count, *end;              /* [batch] the caller's, of a step: blocks of a list, each below end */
    uint32_t *chosen;                 /* pinned: the lists of the step */
    uint32_t *hits, *replaced;        /* [batch][kv_heads], in the step; replaced: once the update is over */
    uint32_t *map;                    /* device: of look-up by the device the index maps, as after the last update */
    struct ha_kv *kv, *from;          /* [batch] device: slots and temporary blocks; host memory: where blocks are */
    struct ha_event *came, *attended; /* the lists are here; the attention has been */
    double all, found, evicted, lookup_ns, list_ns, merge_ns; /* sums since a clear */
};

struct ha_slots {
    const struct ha_context *ctx;
    struct ha_slots_rule rule;
    size_t list_max; /* the largest of rule.most, at least 1 */
    struct ha_block_cache cache;
    struct ha_fetch fetch;
    struct ha_fetch_list *list;        /* [batch][kv_heads] */
    struct ha_slots_layer *layer;      /* [layers] */
    uint32_t *place, *place_device;    /* pinned; device: where attention reads the blocks of a list */
    uint32_t *missing, *missing_count; /* mapped: lists of the blocks that are missing; [batch][kv_heads] */
    uint32_t *here_count, *name;       /* by the device: device memory, [batch][kv_heads]; 0, 1, ... */
    uint32_t *named, *named_to;        /* the same: mapped, which of these become which of place_device */
    struct ha_device_split_seq *split; /* the same: [batch] */
    uint32_t *to;                      /* in an update: the slots that blocks get */
    uint32_t *move_from, *move_to;     /* mapped: rows of a head, of one sequence after the other; */
    size_t *rows;                      /* [batch] so many */
    struct ha_stream *merging;
    struct ha_event *merged;
    struct ha_event *begun, *made; /* the choice is */
};

/* From a rule's share. HA_WAIVED: what the way of fetching needs is missing. */
enum ha_status ha_slots_create(struct ha_slots *s, const struct ha_layer *first, const struct ha_slots_rule *rule,
                               struct ha_why *why);
/* In hooks of the rule, whose `shared` begins with struct ha_slots. */
static inline struct ha_slots *ha_slots_of(const struct ha_layer *l) { return l->shared; }
static inline struct ha_slots_layer *ha_slots_layer_of(const struct ha_layer *l)
{
    return &ha_slots_of(l)->layer[l->layer];
}
/* From its open: room for sequence b. from: rows in host memory, of which block i is rows [i * unit, (i + 1) * unit).
 */
enum ha_status ha_slots_open(const struct ha_layer *l, size_t b, const struct ha_kv *from, struct ha_why *why);
/* Nothing is in the caches of a layer; counters are 0. Enqueues on the main stream. */
enum ha_status ha_slots_clear(const struct ha_layer *l);

/* A step of a layer, in this order. The choice of its blocks begins. */
enum ha_status ha_slots_begin(const struct ha_layer *l);
/* Of lists on the device, which the choice has made and of which count and end are set: they are looked up, and what is
 * missing comes to temporary blocks. The update after the step before is over: the frame has waited for it. HA_ERROR,
 * or what ha_list_refuse returns: a list has too many entries, one that is not below its end, or does not rise. Nothing
 * has been read or written by it. */
enum ha_status ha_slots_find(const struct ha_layer *l, const uint32_t *index, struct ha_why *why);
/* In a rule's `device`: adds the blocks of the lists, in place; list_stride is set. */
void ha_slots_device(const struct ha_layer *l, size_t b, struct ha_device_seq *d);
/* Behind the attention: an update is due. */
enum ha_status ha_slots_attended(struct ha_layer *l);
/* the list of a query head's KV head, of count[b] blocks */
const uint32_t *ha_slots_chosen(const struct ha_layer *l, size_t b, size_t q_head);

/* Hooks. Update, in the background: the list is kept while the link and the attention are at work; slots are written
 * when nothing reads them. Who was replaced is known when it is over. Counters: hits, misses and replaced; lookup_ns,
 * list_ns, merge_ns, and of the three manage_ns. */
enum ha_status ha_slots_settle(struct ha_layer *l, struct ha_why *why);
void ha_slots_report(const struct ha_layer *l, size_t b, size_t q_head, struct ha_selection *out);
void ha_slots_count(const struct ha_layer *l, ha_count *say, void *arg);
#define HA_SLOTS_HOOKS \
    .settle = ha_slots_settle, .settle_name = "cache update", .report = ha_slots_report, .count = ha_slots_count

#endif
