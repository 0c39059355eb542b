#ifndef HA_PARTS_BLOCK_CACHE_H
#define HA_PARTS_BLOCK_CACHE_H

/* A cache of blocks for each KV head whose replacement is decided by a list that the CPU keeps, as RetroInfer and
 * PQCache have it (CLO, section 2.2.2): an index map says which slot a block has, a linked list of the slots who is
 * replaced next. The bytes of the blocks are the caller's; what is to move is the plan that an update makes. Nothing is
 * allocated after create. Lists are independent: different ones may be used by different threads. */

#include "harness/base/block_list.h"
#include "suites/parts/kv.h"

/* An option `policy` of variants (harness/base/block_list.h). */
const char *ha_block_policy_word(size_t i);
#define HA_BLOCK_POLICY(most)                                                                             \
    {                                                                                                     \
        "policy", most, .word = ha_block_policy_word,                                                     \
                        .doc = "which block of the cache is replaced: least recently or least often used" \
    }

/* The lists of all layers, sequences and KV heads. */
struct ha_block_cache {
    const struct ha_shape *shape;
    size_t blocks;              /* of any sequence, at most */
    struct ha_block_list *list; /* [layers][batch][kv_heads] */
    uint32_t *map; /* pinned: [layers][batch][kv_heads][blocks], the index maps, so that a device can have them */
};

/* slots: [batch] of each KV head of a sequence. uses: no block is used more often (ha_block_list_use) between two
 * clears; what is counted of LFU stays there. */
enum ha_status ha_block_cache_create(struct ha_block_cache *c, const struct ha_context *ctx, size_t policy,
                                     const size_t *slots, size_t blocks, size_t uses, struct ha_why *why);
/* of a layer: nothing is in its caches */
void ha_block_cache_clear(struct ha_block_cache *c, size_t layer);
struct ha_block_list *ha_block_list_of(const struct ha_block_cache *c, size_t layer, size_t b, size_t head);
/* the index maps of a layer: [batch][kv_heads][blocks] */
static inline uint32_t *ha_block_map_of(const struct ha_block_cache *c, size_t layer)
{
    return c->map + layer * c->shape->batch * c->shape->kv_heads * c->blocks;
}

#endif
