#ifndef HA_BLOCK_SPARSE_RECALL_H
#define HA_BLOCK_SPARSE_RECALL_H

/* Whole blocks of tokens: all of them in host memory, and for each KV head some in a cache on the device, which is
 * refreshed from time to time (ScoutAttention, section 3.4). A recall is begun behind the attention of a layer and
 * looked at when the layer's next step begins: unless that is to wait, nothing ever waits for it. What a step reads is
 * a snapshot: blocks that the last recall dropped are gone from the next step on, those that it brings are there once
 * they have arrived. */

#include "suites/block_sparse/residency.h"
#include "suites/parts/device_choice.h"
#include "suites/parts/fetch.h"

struct ha_recall_layer {
    struct ha_kv *cache, *store; /* [batch] device, host memory: of a cache the slots are blocks */
    uint32_t *slot;              /* pinned: [batch][kv_heads][blocks_max] of each block, or HA_SLOT_NONE */
    uint32_t *slot_device;       /* the same, as the snapshot has it */
    uint32_t *first; /* [batch][kv_heads][slots] what the cache begins with: the caller's to fill and load */
    /* The snapshot's slots of all residents, and of each head how many tokens they have, where ha_recall_list_all was
     * called: pinned and device, [batch][kv_heads][slots] and [batch][kv_heads]. */
    uint32_t *all, *all_keys, *all_device, *all_keys_device;
    struct ha_event *uploaded, *arrived;
    uint32_t *block, *to, *count; /* [batch][kv_heads][slots] what is under way, and to which slot; [batch][kv_heads] */
    uint32_t issued;              /* recalls so far */
    size_t interval, since;   /* steps from one to the next, 0: there are none; since the last, this one with them */
    bool due, landed;         /* of the step that the last snapshot is of: one is to follow it; one has arrived */
    double recalls, recalled; /* since load: recalls, and blocks that they brought */
    bool under_way;
    bool changed; /* the next snapshot is another one */
};

struct ha_recall {
    const struct ha_context *ctx;
    size_t unit, slots;
    bool waits, lists_all;
    size_t blocks_max; /* of any sequence */
    struct ha_residency resident;
    struct ha_fetch fetch;
    struct ha_fetch_list *list; /* [batch][kv_heads] */
    struct ha_stream *stream;
    uint32_t *flag;                   /* mapped: [layers] recalls that have arrived */
    uint32_t *wanted_device, *wanted; /* device, pinned: [batch][kv_heads][slots], as ha_recall_want has chosen */
    size_t *wanted_of;                /* [batch] whole blocks that they are of */
    struct ha_event *wanted_came;
    struct ha_recall_layer *layer;
};

/* Caches of at most so many blocks for each KV head. first: the first layer of the instance. waits: the layer's next
 * step has the blocks of a recall, whether or not they had arrived. */
enum ha_status ha_recall_create(struct ha_recall *r, const struct ha_layer *first, size_t unit, size_t slots,
                                bool waits, enum ha_fetch_way way, struct ha_why *why);
/* So many steps from one recall to the next; 0: of each layer what the case's fit says as `interval`, [layers], without
 * which it is WAIVED. */
enum ha_status ha_recall_every(struct ha_recall *r, size_t interval, struct ha_why *why);
/* Before the first load: from now on each snapshot comes with lists of all its residents. */
enum ha_status ha_recall_list_all(struct ha_recall *r, struct ha_why *why);
/* blocks that the cache of a sequence has when so many are whole */
size_t ha_recall_held(const struct ha_recall *r, size_t blocks);

/* wanted: [batch][kv_heads][slots] blocks, rising; of sequence b the first ha_recall_held(r, blocks[b]).
 * At once, on the main stream: these, and no others, are resident. Nothing is under way, before (a drain has seen to
 * it) or after. HA_ERROR, and nothing is changed, where a list is not of such blocks; issue, too. */
enum ha_status ha_recall_load(struct ha_recall *r, size_t layer, const uint32_t *wanted, const size_t *blocks,
                              struct ha_why *why);
/* The same with the layer's `first`, of the context's blocks. */
enum ha_status ha_recall_begin(struct ha_recall *r, size_t layer, struct ha_why *why);
/* What the layer's next step reads, enqueued on the main stream ahead of it; once a step. The blocks of the last recall
 * may be there for the first time: it has landed. */
enum ha_status ha_recall_snapshot(struct ha_recall *r, size_t layer, struct ha_why *why);
/* Where one is due. Ahead of the attention, behind a choice that has run, enqueues: of each KV head the blocks of
 * largest score, as many as its cache holds. Behind the attention waits for them, and issues a recall of them. */
enum ha_status ha_recall_want(const struct ha_recall *r, const struct ha_device_choice *by);
enum ha_status ha_recall_refill(struct ha_recall *r, const struct ha_layer *l, struct ha_why *why);
/* notes `recall` and `landed` of the layer's step; recalls and recalled_blocks of the layer, and its recall_interval,
 * if it has one */
void ha_recall_report(const struct ha_recall *r, size_t layer, struct ha_selection *out);
void ha_recall_count(const struct ha_recall *r, size_t layer, ha_count *say, void *arg);
/* Behind everything on the main stream, the layer's attention above all. Not while one is under way. */
enum ha_status ha_recall_issue(struct ha_recall *r, size_t layer, const uint32_t *wanted, const size_t *blocks,
                               struct ha_why *why);

#endif
