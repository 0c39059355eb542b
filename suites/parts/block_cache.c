#include "suites/parts/block_cache.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"

HA_SHARED_WORDS(ha_block_policy_word, [HA_BLOCK_LRU] = "lru", [HA_BLOCK_LFU] = "lfu")

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static size_t lists(const struct ha_block_cache *c) { return c->shape->batch * c->shape->kv_heads; } /* of a layer */

struct ha_block_list *ha_block_list_of(const struct ha_block_cache *c, size_t layer, size_t b, size_t head)
{
    return &c->list[layer * lists(c) + b * c->shape->kv_heads + head];
}

static void clear(struct ha_block_list *l)
{
    l->used = 0;
    l->first = l->last = HA_SLOT_NONE;
    for (size_t i = 0; i < l->blocks; i++) l->slot[i] = HA_SLOT_NONE;
    for (size_t i = 0; i <= l->counts; i++) l->last_of[i] = HA_SLOT_NONE;
    for (size_t i = 0; i < l->slots; i++) l->entry[i] = (struct ha_block_entry){ .block = HA_BLOCK_NONE };
}

void ha_block_cache_clear(struct ha_block_cache *c, size_t layer)
{
    for (size_t i = 0; i < lists(c); i++) clear(&c->list[layer * lists(c) + i]);
}

enum ha_status ha_block_cache_create(struct ha_block_cache *c, const struct ha_context *ctx, size_t policy,
                                     const size_t *slots, size_t blocks, size_t uses, struct ha_why *why)
{
    const size_t layers = ctx->shape->layers;
    *c = (struct ha_block_cache){ .shape = ctx->shape, .blocks = blocks };
    const size_t all = layers * lists(c), counts = policy == HA_BLOCK_LFU ? ha_most(uses, 1) : 0;
    c->list = ha_alloc(ctx->arena, all * sizeof *c->list, HA_TAG_META, why);
    c->map = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, all * blocks * sizeof *c->map, HA_TAG_META, why);
    if (!c->list || !c->map) return HA_ERROR;
    for (size_t i = 0; i < all; i++) {
        struct ha_block_list *l = &c->list[i];
        *l = (struct ha_block_list){ .policy = ha_block_policy_of(policy),
                                     .blocks = blocks,
                                     .slots = slots[i % lists(c) / ctx->shape->kv_heads],
                                     .slot = c->map + i * blocks,
                                     .counts = counts };
        l->entry = ha_alloc(ctx->arena, l->slots * sizeof *l->entry, HA_TAG_META, why);
        l->last_of = ha_alloc(ctx->arena, (counts + 1) * sizeof *l->last_of, HA_TAG_META, why);
        if (!l->entry || !l->last_of) return HA_ERROR;
        clear(l);
    }
    return HA_OK;
}
