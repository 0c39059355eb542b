#include "suites/block_sparse/residency.h"

#include "harness/base/arena.h"

#include <string.h>

static size_t heads(const struct ha_residency *r) { return r->shape->batch * r->shape->kv_heads; } /* of a layer */

static struct ha_resident_set set_of(const struct ha_residency *r, uint64_t generation, size_t layer, size_t b,
                                     size_t head)
{
    const size_t at = layer * heads(r) + b * r->shape->kv_heads + head;
    return (struct ha_resident_set){ r->entry[generation % 2] + at * r->slots, r->count[generation % 2] + at,
                                     r->slots };
}

enum ha_status ha_residency_create(struct ha_residency *r, const struct ha_context *ctx, size_t slots,
                                   struct ha_why *why)
{
    const size_t layers = ctx->shape->layers;
    *r = (struct ha_residency){ .shape = ctx->shape, .slots = slots };
    for (int i = 0; i < 2; i++) {
        r->entry[i] = ha_alloc(ctx->arena, layers * heads(r) * slots * sizeof *r->entry[i], HA_TAG_META, why);
        r->count[i] = ha_alloc(ctx->arena, layers * heads(r) * sizeof *r->count[i], HA_TAG_META, why);
        if (!r->entry[i] || !r->count[i]) return HA_ERROR;
    }
    r->generation = ha_alloc(ctx->arena, layers * sizeof *r->generation, HA_TAG_META, why);
    if (!r->generation) return HA_ERROR;
    for (size_t l = 0; l < layers; l++) ha_residency_clear(r, l);
    return HA_OK;
}

/* next begins as now is */
static void follow(struct ha_residency *r, size_t layer)
{
    const struct ha_resident_set now = ha_residency_now(r, layer, 0, 0), next = ha_residency_next(r, layer, 0, 0);
    memcpy(next.entry, now.entry, heads(r) * r->slots * sizeof *next.entry);
    memcpy(next.count, now.count, heads(r) * sizeof *next.count);
}

void ha_residency_clear(struct ha_residency *r, size_t layer)
{
    const struct ha_resident_set now = set_of(r, 0, layer, 0, 0);
    r->generation[layer] = 0;
    memset(now.count, 0, heads(r) * sizeof *now.count);
    for (size_t i = 0; i < heads(r) * r->slots; i++)
        now.entry[i] = (struct ha_resident){ HA_BLOCK_NONE, (uint32_t)(i % r->slots) };
    follow(r, layer);
}

struct ha_resident_set ha_residency_now(const struct ha_residency *r, size_t layer, size_t b, size_t head)
{
    return set_of(r, r->generation[layer], layer, b, head);
}

struct ha_resident_set ha_residency_next(struct ha_residency *r, size_t layer, size_t b, size_t head)
{
    return set_of(r, r->generation[layer] + 1, layer, b, head);
}

void ha_residency_turn(struct ha_residency *r, size_t layer)
{
    r->generation[layer]++;
    follow(r, layer);
}

/* Where the block is among the residents, or would be. */
static size_t place_of(struct ha_resident_set set, uint32_t block)
{
    size_t low = 0, high = *set.count;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (set.entry[mid].block < block) low = mid + 1;
        else high = mid;
    }
    return low;
}
static bool is_at(struct ha_resident_set set, size_t i, uint32_t block)
{
    return i < *set.count && set.entry[i].block == block;
}

uint32_t ha_resident_block(struct ha_resident_set set, uint32_t slot)
{
    for (size_t i = 0; i < *set.count; i++)
        if (set.entry[i].slot == slot) return set.entry[i].block;
    return HA_BLOCK_NONE;
}

uint32_t ha_resident_place(struct ha_resident_set set, uint32_t block)
{
    const size_t i = place_of(set, block), count = *set.count;
    if (is_at(set, i, block)) return set.entry[i].slot;
    if (count == set.slots) return HA_SLOT_NONE;
    const uint32_t slot = set.entry[count].slot;
    memmove(set.entry + i + 1, set.entry + i, (count - i) * sizeof *set.entry);
    set.entry[i] = (struct ha_resident){ block, slot };
    (*set.count)++;
    return slot;
}

uint32_t ha_resident_evict(struct ha_resident_set set, uint32_t block)
{
    const size_t i = place_of(set, block);
    if (!is_at(set, i, block)) return HA_SLOT_NONE;
    const uint32_t slot = set.entry[i].slot;
    memmove(set.entry + i, set.entry + i + 1, (set.slots - 1 - i) * sizeof *set.entry);
    set.entry[set.slots - 1] = (struct ha_resident){ HA_BLOCK_NONE, slot };
    (*set.count)--;
    return slot;
}

size_t ha_resident_split(struct ha_resident_set set, const uint32_t *block, size_t count, uint32_t *slot,
                         uint32_t *missing)
{
    size_t at = 0, here = 0;
    for (size_t i = 0; i < count; i++) {
        while (at < *set.count && set.entry[at].block < block[i]) at++;
        if (!is_at(set, at, block[i])) {
            missing[i - here] = block[i];
            continue;
        }
        slot[here++] = set.entry[at].slot;
    }
    return here;
}
