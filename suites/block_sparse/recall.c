#include "suites/block_sparse/recall.h"

#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/fit.h"
#include "harness/base/order.h"
#include "harness/base/why.h"
#include "suites/parts/listed.h"

#include <math.h>
#include <string.h>

static size_t units(const struct ha_recall *r) { return r->ctx->shape->batch * r->ctx->shape->kv_heads; }
static size_t table_bytes(const struct ha_recall *r) { return units(r) * r->blocks_max * sizeof(uint32_t); }
size_t ha_recall_held(const struct ha_recall *r, size_t blocks) { return ha_least(r->slots, blocks); }

/* ---- create ---------------------------------------------------------------------------------------------------- */

static uint32_t *numbers(const struct ha_recall *r, enum ha_memory memory, size_t count, enum ha_tag tag,
                         struct ha_why *why)
{
    return ha_device_alloc(r->ctx->device_arena, memory, count * sizeof(uint32_t), tag, why);
}

static enum ha_status make_kv(const struct ha_recall *r, struct ha_recall_layer *l, enum ha_fetch_way way,
                              struct ha_why *why)
{
    const struct ha_context *ctx = r->ctx;
    const size_t batch = ctx->shape->batch;
    l->cache = ha_alloc(ctx->arena, batch * sizeof *l->cache, HA_TAG_META, why);
    l->store = l->cache ? ha_alloc(ctx->arena, batch * sizeof *l->store, HA_TAG_META, why) : NULL;
    if (!l->store) return HA_ERROR;
    for (size_t b = 0; b < batch; b++) {
        const size_t blocks = ha_kv_max_tokens(ctx->shape, b) / r->unit;
        HA_TRY(ha_kv_create(ctx, HA_MEM_DEVICE, ha_recall_held(r, blocks) * r->unit, &l->cache[b], why));
        HA_TRY(ha_kv_create(ctx, ha_fetch_memory(way), blocks * r->unit, &l->store[b], why));
    }
    return HA_OK;
}

static enum ha_status make_layer(const struct ha_recall *r, struct ha_recall_layer *l, enum ha_fetch_way way,
                                 struct ha_why *why)
{
    const struct ha_context *ctx = r->ctx;
    const size_t listed = units(r) * r->slots * sizeof *l->block;
    *l = (struct ha_recall_layer){ .issued = 0 };
    HA_TRY(make_kv(r, l, way, why));
    l->slot = numbers(r, HA_MEM_PINNED, units(r) * r->blocks_max, HA_TAG_META, why);
    l->slot_device = l->slot ? numbers(r, HA_MEM_DEVICE, units(r) * r->blocks_max, HA_TAG_META, why) : NULL;
    l->block = l->slot_device ? ha_alloc(ctx->arena, listed, HA_TAG_META, why) : NULL;
    l->to = l->block ? ha_alloc(ctx->arena, listed, HA_TAG_META, why) : NULL;
    l->count = l->to ? ha_alloc(ctx->arena, units(r) * sizeof *l->count, HA_TAG_META, why) : NULL;
    l->first = l->count ? ha_alloc(ctx->arena, listed, HA_TAG_SCRATCH, why) : NULL;
    if (!l->first) return HA_ERROR;
    HA_TRY(ha_device_event(ctx->device_arena, &l->uploaded, why));
    return ha_device_event(ctx->device_arena, &l->arrived, why);
}

enum ha_status ha_recall_create(struct ha_recall *r, const struct ha_layer *first, size_t unit, size_t slots,
                                bool waits, enum ha_fetch_way way, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    *r = (struct ha_recall){ .ctx = ctx, .unit = unit, .waits = waits };
    r->blocks_max = ha_kv_longest(s) / unit;
    r->slots = ha_least(slots, r->blocks_max);
    if (ctx->api->flag_write == NULL) return ha_why(why, HA_WAIVED, "the device has no operation flag_write");
    HA_TRY(ha_residency_create(&r->resident, ctx, r->slots, why));
    HA_TRY(ha_fetch_create(&r->fetch, ctx, way, s->layers, units(r), units(r) * r->slots * unit,
                           units(r) * r->slots * unit * ha_kv_head_bytes(s), why));
    HA_TRY(ha_frame_stream(first, "recall", &r->stream, why));
    r->list = ha_alloc(ctx->arena, units(r) * sizeof *r->list, HA_TAG_SCRATCH, why);
    r->flag = r->list ? numbers(r, HA_MEM_MAPPED, s->layers, HA_TAG_META, why) : NULL;
    r->wanted_device = r->flag ? numbers(r, HA_MEM_DEVICE, units(r) * r->slots, HA_TAG_SCRATCH, why) : NULL;
    r->wanted = r->wanted_device ? numbers(r, HA_MEM_PINNED, units(r) * r->slots, HA_TAG_SCRATCH, why) : NULL;
    r->wanted_of = r->wanted ? ha_alloc(ctx->arena, s->batch * sizeof *r->wanted_of, HA_TAG_SCRATCH, why) : NULL;
    r->layer = r->wanted_of ? ha_alloc(ctx->arena, s->layers * sizeof *r->layer, HA_TAG_META, why) : NULL;
    if (!r->layer) return HA_ERROR;
    memset(r->flag, 0, s->layers * sizeof *r->flag);
    for (size_t i = 0; i < s->layers; i++) HA_TRY(make_layer(r, &r->layer[i], way, why));
    return ha_device_event(ctx->device_arena, &r->wanted_came, why);
}

enum ha_status ha_recall_every(struct ha_recall *r, size_t interval, struct ha_why *why)
{
    const size_t layers = r->ctx->shape->layers;
    struct ha_tensor fitted = { .name = "interval", .type = HA_T_F32, .dims = 1, .dim = { layers } };
    if (!interval && !r->ctx->fit)
        return ha_why(why, HA_WAIVED, "interval=0 takes the intervals of a fit: fit=FILE, which `habench fit` writes");
    if (!interval) HA_TRY(ha_fit_get(r->ctx->fit, &fitted, why));
    const float *of = fitted.data;
    for (size_t i = 0; i < layers; i++)
        r->layer[i].interval = interval ? interval : (size_t)fminf(fmaxf(1, of[i]), 1 << 24);
    return HA_OK;
}

enum ha_status ha_recall_list_all(struct ha_recall *r, struct ha_why *why)
{
    const size_t slots = units(r) * r->slots;
    r->lists_all = true;
    for (size_t i = 0; i < r->ctx->shape->layers; i++) {
        struct ha_recall_layer *l = &r->layer[i];
        l->all = numbers(r, HA_MEM_PINNED, slots, HA_TAG_SCRATCH, why);
        l->all_keys = l->all ? numbers(r, HA_MEM_PINNED, units(r), HA_TAG_SCRATCH, why) : NULL;
        l->all_device = l->all_keys ? numbers(r, HA_MEM_DEVICE, slots, HA_TAG_SCRATCH, why) : NULL;
        l->all_keys_device = l->all_device ? numbers(r, HA_MEM_DEVICE, units(r), HA_TAG_SCRATCH, why) : NULL;
        if (!l->all_keys_device) return HA_ERROR;
    }
    return HA_OK;
}

/* ---- what the device knows of it ------------------------------------------------------------------------------- */

/* Before the table changes: the last upload has read it. That was enqueued a step ago, or, in a step in which one
 * recall lands and another is issued, ahead of what the host has waited for already. */
static enum ha_status open_table(const struct ha_recall *r, const struct ha_recall_layer *l)
{
    HA_TRY(r->ctx->api->event_sync(l->uploaded));
    ha_order_thread_access("recall", "slots", HA_WRITE, l->slot, 1, 0, table_bytes(r));
    return HA_OK;
}

/* What a fetch may read of a store, to which blocks that become whole are added meanwhile. */
static void say_whole(const struct ha_recall *r, const struct ha_kv *store, size_t blocks)
{
    const size_t bytes = blocks * r->unit * ha_kv_token_bytes(r->ctx->shape);
    const unsigned char *const at[] = { store->k, store->v };
    for (int i = 0; i < 2; i++) {
        ha_order_thread_names(at[i], NULL);
        ha_order_thread_names(at[i], &(struct ha_range){ at[i], 1, 0, bytes });
    }
}

/* What the snapshot has in a cache: what the layer's attention may read, which may go on beside a recall. */
static void say_residents(const struct ha_recall *r, size_t layer, const unsigned char *at, size_t b)
{
    const struct ha_shape *s = r->ctx->shape;
    const size_t token = ha_kv_token_bytes(s), row = ha_kv_head_bytes(s);
    ha_order_thread_names(at, NULL);
    for (size_t h = 0; h < s->kv_heads; h++) {
        const struct ha_resident_set now = ha_residency_now(&r->resident, layer, b, h);
        for (size_t i = 0; i < *now.count; i++)
            ha_order_thread_names(
                at, &(struct ha_range){ at + now.entry[i].slot * r->unit * token + h * row, r->unit, token, row });
    }
}

/* The last upload of these lists is over, as that of the slots, with which they go up. */
static enum ha_status list_all(const struct ha_recall *r, size_t layer)
{
    const struct ha_device_api *api = r->ctx->api;
    const struct ha_recall_layer *l = &r->layer[layer];
    const size_t heads = r->ctx->shape->kv_heads, slots = units(r) * r->slots * sizeof *l->all,
                 keys = units(r) * sizeof *l->all_keys;
    ha_order_thread_access("recall", "residents", HA_WRITE, l->all, 1, 0, slots);
    ha_order_thread_access("recall", "residents", HA_WRITE, l->all_keys, 1, 0, keys);
    for (size_t u = 0; u < units(r); u++) {
        const struct ha_resident_set now = ha_residency_now(&r->resident, layer, u / heads, u % heads);
        for (size_t i = 0; i < *now.count; i++) l->all[u * r->slots + i] = now.entry[i].slot;
        l->all_keys[u] = (uint32_t)(*now.count * r->unit);
    }
    HA_TRY(api->copy(r->ctx->stream, l->all_device, l->all, slots, HA_H2D));
    return api->copy(r->ctx->stream, l->all_keys_device, l->all_keys, keys, HA_H2D);
}

/* next becomes now, on both sides */
static enum ha_status turn(struct ha_recall *r, size_t layer)
{
    struct ha_recall_layer *l = &r->layer[layer];
    l->changed = false;
    ha_residency_turn(&r->resident, layer);
    for (size_t b = 0; b < r->ctx->shape->batch && ha_order_now(); b++) {
        say_residents(r, layer, l->cache[b].k, b);
        say_residents(r, layer, l->cache[b].v, b);
    }
    if (r->lists_all) HA_TRY(list_all(r, layer));
    HA_TRY(r->ctx->api->copy(r->ctx->stream, l->slot_device, l->slot, table_bytes(r), HA_H2D));
    return r->ctx->api->event_record(l->uploaded, r->ctx->stream);
}

static struct ha_resident_set next_of(struct ha_recall *r, size_t layer, size_t unit)
{
    const size_t heads = r->ctx->shape->kv_heads;
    return ha_residency_next(&r->resident, layer, unit / heads, unit % heads);
}

/* The blocks that come are resident, each at the slot that it was given. */
static void place(struct ha_recall *r, size_t layer)
{
    const struct ha_recall_layer *l = &r->layer[layer];
    for (size_t u = 0; u < units(r); u++) {
        const struct ha_resident_set next = next_of(r, layer, u);
        const uint32_t *block = l->block + u * r->slots;
        for (size_t i = 0; i < l->count[u]; i++)
            l->slot[u * r->blocks_max + block[i]] = ha_resident_place(next, block[i]);
    }
}

/* A device may have written anything: what is looked up by it is looked at first. */
static enum ha_status check(const struct ha_recall *r, size_t layer, const uint32_t *wanted, const size_t *blocks,
                            struct ha_why *why)
{
    static const char what[] = "blocks to recall";
    for (size_t u = 0; u < units(r); u++) {
        const size_t b = u / r->ctx->shape->kv_heads, has = blocks[b], n = ha_recall_held(r, has),
                     room = r->layer[layer].store[b].cap / r->unit;
        const uint32_t *want = wanted + u * r->slots;
        if (has > room)
            return ha_why(why, HA_ERROR, "recall: layer %zu, sequence %zu: %zu blocks, with room for %zu", layer, b,
                          has, room);
        HA_TRY(ha_list_check(r->ctx, what, want, n, r->slots, has, why));
        for (size_t i = 1; i < n; i++)
            if (want[i] <= want[i - 1])
                return ha_list_refuse(r->ctx, why, "%s: a list does not rise: %u behind %u", what, (unsigned)want[i],
                                      (unsigned)want[i - 1]);
    }
    return HA_OK;
}

/* What is not wanted goes; what is wanted and absent is to come, to the slots that are free. */
static size_t plan(struct ha_recall *r, size_t layer, const uint32_t *wanted, const size_t *blocks)
{
    struct ha_recall_layer *l = &r->layer[layer];
    size_t coming = 0;
    for (size_t u = 0; u < units(r); u++) {
        const struct ha_resident_set next = next_of(r, layer, u);
        const uint32_t *want = wanted + u * r->slots;
        const size_t n = ha_recall_held(r, blocks[u / r->ctx->shape->kv_heads]);
        for (size_t i = *next.count, at = n; i-- > 0;) {
            const uint32_t block = next.entry[i].block;
            while (at > 0 && want[at - 1] > block) at--;
            if (at > 0 && want[at - 1] == block) continue;
            ha_resident_evict(next, block);
            l->slot[u * r->blocks_max + block] = HA_SLOT_NONE;
        }
        uint32_t *to = l->to + u * r->slots;
        l->count[u] = (uint32_t)(n - ha_resident_split(next, want, n, to, l->block + u * r->slots));
        for (size_t i = 0; i < l->count[u]; i++) to[i] = next.entry[*next.count + i].slot;
        coming += l->count[u];
    }
    return coming;
}

static enum ha_status fetch(struct ha_recall *r, size_t layer, struct ha_stream *stream, struct ha_why *why)
{
    const struct ha_recall_layer *l = &r->layer[layer];
    const size_t heads = r->ctx->shape->kv_heads;
    for (size_t u = 0; u < units(r); u++)
        r->list[u] = (struct ha_fetch_list){ .from = &l->store[u / heads],
                                             .to = &l->cache[u / heads],
                                             .head = u % heads,
                                             .index = l->block + u * r->slots,
                                             .slot = l->to + u * r->slots,
                                             .count = l->count[u],
                                             .unit = r->unit };
    return ha_fetch_run(&r->fetch, stream, r->list, units(r), why);
}

/* ---- what is resident ------------------------------------------------------------------------------------------ */

enum ha_status ha_recall_load(struct ha_recall *r, size_t layer, const uint32_t *wanted, const size_t *blocks,
                              struct ha_why *why)
{
    struct ha_recall_layer *l = &r->layer[layer];
    HA_TRY(check(r, layer, wanted, blocks, why));
    HA_TRY(open_table(r, l));
    ha_residency_clear(&r->resident, layer);
    for (size_t i = 0; i < units(r) * r->blocks_max; i++) l->slot[i] = HA_SLOT_NONE;
    l->under_way = l->due = l->landed = false;
    l->since = 0;
    l->recalls = l->recalled = 0;
    plan(r, layer, wanted, blocks);
    HA_TRY(fetch(r, layer, r->ctx->stream, why));
    place(r, layer);
    return turn(r, layer);
}

enum ha_status ha_recall_begin(struct ha_recall *r, size_t layer, struct ha_why *why)
{
    for (size_t b = 0; b < r->ctx->shape->batch; b++) r->wanted_of[b] = r->ctx->shape->ctx[b] / r->unit;
    return ha_recall_load(r, layer, r->layer[layer].first, r->wanted_of, why);
}

enum ha_status ha_recall_snapshot(struct ha_recall *r, size_t layer, struct ha_why *why)
{
    struct ha_recall_layer *l = &r->layer[layer];
    l->landed = l->under_way && (r->waits || __atomic_load_n(&r->flag[layer], __ATOMIC_ACQUIRE) == l->issued);
    if (l->landed) {
        HA_TRY(open_table(r, l));
        place(r, layer);
        l->under_way = false;
        l->changed = true;
        HA_TRY(r->ctx->api->stream_wait(r->ctx->stream, l->arrived)); /* over already, unless the step is to wait */
    }
    l->since++;
    l->due = l->interval && l->since >= l->interval && !l->under_way;
    return l->changed ? turn(r, layer) : HA_OK;
}

enum ha_status ha_recall_want(const struct ha_recall *r, const struct ha_device_choice *by)
{
    const struct ha_device_api *api = r->ctx->api;
    for (size_t b = 0; b < r->ctx->shape->batch; b++) r->wanted_of[b] = by->by[b].blocks;
    HA_TRY(ha_device_choice_again(by, r->ctx->shape->kv_heads, r->slots, r->wanted_device));
    HA_TRY(api->copy(r->ctx->stream, r->wanted, r->wanted_device, units(r) * r->slots * sizeof *r->wanted, HA_D2H));
    return api->event_record(r->wanted_came, r->ctx->stream);
}

enum ha_status ha_recall_issue(struct ha_recall *r, size_t layer, const uint32_t *wanted, const size_t *blocks,
                               struct ha_why *why)
{
    const struct ha_device_api *api = r->ctx->api;
    struct ha_recall_layer *l = &r->layer[layer];
    if (l->under_way) return ha_why(why, HA_ERROR, "recall: one of layer %zu is under way", layer);
    HA_TRY(check(r, layer, wanted, blocks, why));
    HA_TRY(open_table(r, l));
    l->recalled += (double)plan(r, layer, wanted, blocks);
    l->recalls++;
    l->since = 0;
    for (size_t b = 0; b < r->ctx->shape->batch; b++) say_whole(r, &l->store[b], blocks[b]);
    l->under_way = l->changed = true;
    HA_TRY(api->event_record(l->arrived, r->ctx->stream)); /* for now: the attention is over */
    HA_TRY(api->stream_wait(r->stream, l->arrived));
    HA_TRY(fetch(r, layer, r->stream, why));
    HA_TRY(api->event_record(l->arrived, r->stream));
    return api->flag_write(r->stream, &r->flag[layer], ++l->issued);
}

enum ha_status ha_recall_refill(struct ha_recall *r, const struct ha_layer *l, struct ha_why *why)
{
    const uint64_t begin = ha_now_ns();
    HA_TRY(r->ctx->api->event_sync(r->wanted_came));
    ha_order_thread_access("recall", "wanted", HA_READ, r->wanted, 1, 0, units(r) * r->slots * sizeof *r->wanted);
    HA_TRY(ha_recall_issue(r, l->layer, r->wanted, r->wanted_of, why));
    ha_frame_selected(l, begin);
    return HA_OK;
}

void ha_recall_report(const struct ha_recall *r, size_t layer, struct ha_selection *out)
{
    out->note[out->notes++] = (struct ha_note){ "recall", r->layer[layer].due };
    out->note[out->notes++] = (struct ha_note){ "landed", r->layer[layer].landed };
}

void ha_recall_count(const struct ha_recall *r, size_t layer, ha_count *say, void *arg)
{
    const struct ha_recall_layer *l = &r->layer[layer];
    if (l->interval) say(arg, "recall_interval", layer, (double)l->interval);
    say(arg, "recalls", layer, l->recalls);
    say(arg, "recalled_blocks", layer, l->recalled);
}
