#include "suites/parts/slots.h"

#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/order.h"
#include "harness/base/why.h"
#include "harness/base/worker.h"
#include "suites/parts/listed.h"

#include <string.h>

HA_SHARED_WORDS(ha_lookup_word, [HA_LOOKUP_CPU] = "cpu", [HA_LOOKUP_DEVICE] = "device")

static size_t heads_of(const struct ha_slots *s) { return s->ctx->shape->kv_heads; }
static size_t lists(const struct ha_slots *s) { return s->ctx->shape->batch * heads_of(s); }
static struct ha_block_list *list_of(const struct ha_slots *s, const struct ha_layer *l, size_t i)
{
    return ha_block_list_of(&s->cache, l->layer, i / heads_of(s), i % heads_of(s));
}

/* ---- create ------------------------------------------------------------------------------------------------------ */

/* Arrays that are to be made, and what they are of. */
struct array {
    uint32_t **at;
    enum ha_memory memory;
    size_t count;
    enum ha_tag tag;
};
static enum ha_status make_device(const struct ha_context *ctx, const struct array *array, size_t count,
                                  struct ha_why *why)
{
    for (size_t i = 0; i < count; i++) {
        const struct array *a = &array[i];
        *a->at = ha_device_alloc(ctx->device_arena, a->memory, a->count * sizeof **a->at, a->tag, why);
        if (!*a->at) return HA_ERROR;
    }
    return HA_OK;
}

static void *host(const struct ha_slots *s, size_t count, size_t bytes, enum ha_tag tag, struct ha_why *why)
{
    void *x = ha_alloc(s->ctx->arena, count * bytes, tag, why);
    return x ? memset(x, 0, count * bytes) : NULL;
}

static enum ha_status make_shared(struct ha_slots *s, const struct ha_layer *first, struct ha_why *why)
{
    const size_t all = lists(s) * s->list_max, rows = all * s->rule.unit, batch = s->ctx->shape->batch;
    const struct array arrays[] = {
        { &s->place, HA_MEM_PINNED, all, HA_TAG_SCRATCH },
        { &s->place_device, HA_MEM_DEVICE, all, HA_TAG_SCRATCH },
        { &s->missing, HA_MEM_MAPPED, all, HA_TAG_SCRATCH },
        { &s->missing_count, HA_MEM_MAPPED, lists(s), HA_TAG_SCRATCH },
        { &s->move_from, HA_MEM_MAPPED, rows, HA_TAG_SCRATCH },
        { &s->move_to, HA_MEM_MAPPED, rows, HA_TAG_SCRATCH },
    };
    HA_TRY(make_device(s->ctx, arrays, sizeof arrays / sizeof *arrays, why));
    s->list = host(s, lists(s), sizeof *s->list, HA_TAG_SCRATCH, why);
    s->to = s->list ? host(s, all, sizeof *s->to, HA_TAG_SCRATCH, why) : NULL;
    s->rows = s->to ? host(s, batch, sizeof *s->rows, HA_TAG_SCRATCH, why) : NULL;
    s->layer = s->rows ? host(s, s->ctx->shape->layers, sizeof *s->layer, HA_TAG_META, why) : NULL;
    if (!s->layer) return HA_ERROR;
    HA_TRY(ha_device_event(s->ctx->device_arena, &s->merged, why));
    return ha_frame_stream(first, "merge", &s->merging, why);
}

/* What a look-up by the device takes besides. */
static enum ha_status make_by_device(struct ha_slots *s, struct ha_why *why)
{
    const size_t all = lists(s) * s->list_max, batch = s->ctx->shape->batch;
    const struct array arrays[] = { { &s->here_count, HA_MEM_DEVICE, lists(s), HA_TAG_SCRATCH },
                                    { &s->named, HA_MEM_MAPPED, all, HA_TAG_SCRATCH },
                                    { &s->named_to, HA_MEM_MAPPED, all, HA_TAG_SCRATCH } };
    size_t places = 0;
    for (size_t b = 0; b < batch; b++) places = ha_most(places, s->rule.slots[b] + s->rule.most[b]);
    s->split = host(s, batch, sizeof *s->split, HA_TAG_SCRATCH, why);
    if (!s->split) return HA_ERROR;
    HA_TRY(make_device(s->ctx, arrays, sizeof arrays / sizeof *arrays, why));
    return ha_fetch_name_rows(s->ctx, places, places + 1, &s->name, why);
}

static enum ha_status make_layer(const struct ha_slots *s, struct ha_slots_layer *of, struct ha_why *why)
{
    const size_t batch = s->ctx->shape->batch;
    const struct array arrays[] = { { &of->chosen, HA_MEM_PINNED, lists(s) * s->list_max, HA_TAG_SCRATCH },
                                    { &of->map, HA_MEM_DEVICE, lists(s) * s->cache.blocks, HA_TAG_META } };
    HA_TRY(make_device(s->ctx, arrays, s->rule.by_device ? 2 : 1, why));
    of->count = host(s, 2 * batch, sizeof *of->count, HA_TAG_SCRATCH, why);
    of->hits = of->count ? host(s, 2 * lists(s), sizeof *of->hits, HA_TAG_SCRATCH, why) : NULL;
    of->kv = of->hits ? host(s, 2 * batch, sizeof *of->kv, HA_TAG_SCRATCH, why) : NULL;
    if (!of->kv) return HA_ERROR;
    of->end = of->count + batch;
    of->replaced = of->hits + lists(s);
    of->from = of->kv + batch;
    HA_TRY(ha_device_event(s->ctx->device_arena, &of->came, why));
    return ha_device_event(s->ctx->device_arena, &of->attended, why);
}

enum ha_status ha_slots_create(struct ha_slots *s, const struct ha_layer *first, const struct ha_slots_rule *rule,
                               struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *shape = ctx->shape;
    *s = (struct ha_slots){ .ctx = ctx, .rule = *rule, .list_max = 1 };
    if (rule->by_device && !ctx->api->split)
        return ha_why(why, HA_WAIVED, "the device has no operation split; lookup=cpu needs none");
    for (size_t b = 0; b < shape->batch; b++) s->list_max = ha_most(s->list_max, rule->most[b]);
    const size_t rows = lists(s) * s->list_max * rule->unit;
    HA_TRY(ha_block_cache_create(&s->cache, ctx, rule->policy, rule->slots, rule->blocks, shape->steps, why));
    HA_TRY(ha_fetch_create(&s->fetch, ctx, rule->way, 2, lists(s), rows, rows * ha_kv_head_bytes(shape), why));
    HA_TRY(make_shared(s, first, why));
    if (rule->by_device) HA_TRY(make_by_device(s, why));
    for (size_t i = 0; i < shape->layers; i++) HA_TRY(make_layer(s, &s->layer[i], why));
    HA_TRY(ha_device_event(ctx->device_arena, &s->begun, why));
    return ha_device_event(ctx->device_arena, &s->made, why);
}

enum ha_status ha_slots_open(const struct ha_layer *l, size_t b, const struct ha_kv *from, struct ha_why *why)
{
    const struct ha_slots *s = ha_slots_of(l);
    const size_t blocks = s->rule.slots[b] + s->rule.most[b];
    ha_slots_layer_of(l)->from[b] = *from;
    return ha_kv_create(s->ctx, HA_MEM_DEVICE, blocks * s->rule.unit, &ha_slots_layer_of(l)->kv[b], why);
}

/* The index maps to the device. */
static enum ha_status tell(const struct ha_slots *s, const struct ha_layer *l, struct ha_stream *stream)
{
    const size_t bytes = lists(s) * s->cache.blocks * sizeof(uint32_t);
    if (!s->rule.by_device || !bytes) return HA_OK;
    return s->ctx->api->copy(stream, ha_slots_layer_of(l)->map, ha_block_map_of(&s->cache, l->layer), bytes, HA_H2D);
}

enum ha_status ha_slots_clear(const struct ha_layer *l)
{
    struct ha_slots *s = ha_slots_of(l);
    struct ha_slots_layer *of = ha_slots_layer_of(l);
    of->all = of->found = of->evicted = of->lookup_ns = of->list_ns = of->merge_ns = 0;
    ha_block_cache_clear(&s->cache, l->layer);
    return tell(s, l, s->ctx->stream);
}

/* ---- look-up: which blocks the cache has, and where attention reads each of the list ----------------------------- */

static enum ha_status ask(const struct ha_slots *s, const struct ha_layer *l, const uint32_t *index)
{
    const struct ha_context *ctx = s->ctx;
    const struct ha_slots_layer *of = ha_slots_layer_of(l);
    const size_t heads = heads_of(s), batch = ctx->shape->batch, blocks = s->cache.blocks;
    for (size_t b = 0; b < batch && s->rule.by_device; b++) {
        const size_t list = b * heads, at = list * s->list_max;
        s->split[b] = (struct ha_device_split_seq){ .index = index + at,
                                                    .count = of->count[b],
                                                    .index_stride = s->list_max,
                                                    .slot = of->map + list * blocks,
                                                    .blocks = blocks,
                                                    .slot_stride = blocks,
                                                    .here = s->place_device + at,
                                                    .here_count = s->here_count + list,
                                                    .missing = s->missing + at,
                                                    .missing_count = s->missing_count + list,
                                                    .out_stride = s->list_max };
    }
    const struct ha_device_split split = { batch, heads, heads, s->split };
    if (s->rule.by_device) HA_TRY(ctx->api->split(ctx->stream, &split));
    HA_TRY(ctx->api->copy(ctx->stream, of->chosen, index, lists(s) * s->list_max * sizeof *index, HA_D2H));
    return ctx->api->event_record(of->came, ctx->stream);
}

/* A list of blocks that the device has made: what is looked up, read and written by it is looked at first. */
static enum ha_status check(const struct ha_slots *s, const struct ha_slots_layer *of, const char *what,
                            const uint32_t *block, size_t count, size_t b, struct ha_why *why)
{
    ha_order_thread_access("look-up", what, HA_READ, block, 1, 0, count * sizeof *block);
    HA_TRY(ha_list_check(s->ctx, what, block, count, of->count[b], of->end[b], why));
    for (size_t i = 1; i < count; i++)
        if (block[i] <= block[i - 1])
            return ha_list_refuse(s->ctx, why, "%s: a list does not rise: %u behind %u", what, (unsigned)block[i],
                                  (unsigned)block[i - 1]);
    return HA_OK;
}

static enum ha_status look_up_by_cpu(const struct ha_slots *s, const struct ha_layer *l)
{
    const struct ha_slots_layer *of = ha_slots_layer_of(l);
    const size_t bytes = lists(s) * s->list_max * sizeof *s->place;
    ha_order_thread_access("look-up", "places", HA_WRITE, s->place, 1, 0, bytes);
    for (size_t i = 0; i < lists(s); i++) {
        const size_t at = i * s->list_max;
        s->missing_count[i] = (uint32_t)ha_block_list_find(list_of(s, l, i), of->chosen + at,
                                                           of->count[i / heads_of(s)], s->place + at, s->missing + at);
    }
    return s->ctx->api->copy(s->ctx->stream, s->place_device, s->place, bytes, HA_H2D);
}

/* The device has written the slots of those that are there; the temporary blocks follow. */
static enum ha_status name_missing(const struct ha_slots *s, const struct ha_layer *l, struct ha_why *why)
{
    const struct ha_slots_layer *of = ha_slots_layer_of(l);
    const size_t all = lists(s) * s->list_max;
    size_t n = 0;
    ha_order_thread_access("look-up", "missing", HA_READ, s->missing_count, 1, 0, lists(s) * sizeof *s->missing_count);
    ha_order_thread_access("look-up", "names", HA_WRITE, s->named, 1, 0, all * sizeof *s->named);
    ha_order_thread_access("look-up", "names", HA_WRITE, s->named_to, 1, 0, all * sizeof *s->named_to);
    for (size_t i = 0; i < lists(s); i++) {
        const size_t b = i / heads_of(s), missing = s->missing_count[i];
        HA_TRY(check(s, of, "blocks that the device misses", s->missing + i * s->list_max, missing, b, why));
        for (size_t j = 0; j < missing; j++, n++) {
            s->named[n] = (uint32_t)(s->rule.slots[b] + j);
            s->named_to[n] = (uint32_t)(i * s->list_max + of->count[b] - missing + j);
        }
    }
    if (!n) return HA_OK;
    return s->ctx->api->move(s->ctx->stream, &(struct ha_device_move){ .dst = s->place_device,
                                                                       .src = s->name,
                                                                       .dst_index = s->named_to,
                                                                       .src_index = s->named,
                                                                       .rows = n,
                                                                       .row_bytes = sizeof *s->name,
                                                                       .dst_stride_bytes = sizeof *s->name,
                                                                       .src_stride_bytes = sizeof *s->name });
}

static enum ha_status look_up(const struct ha_slots *s, const struct ha_layer *l, struct ha_why *why)
{
    struct ha_slots_layer *of = ha_slots_layer_of(l);
    const uint64_t begin = ha_now_ns();
    HA_TRY(s->ctx->api->event_sync(of->came));
    for (size_t i = 0; i < lists(s); i++) {
        const size_t b = i / heads_of(s);
        HA_TRY(check(s, of, "blocks that the device chose", of->chosen + i * s->list_max, of->count[b], b, why));
    }
    HA_TRY(s->rule.by_device ? name_missing(s, l, why) : look_up_by_cpu(s, l));
    for (size_t i = 0; i < lists(s); i++) {
        const size_t count = of->count[i / heads_of(s)];
        of->hits[i] = (uint32_t)count - s->missing_count[i];
        of->all += (double)count;
        of->found += of->hits[i];
    }
    of->lookup_ns += (double)(ha_now_ns() - begin);
    return HA_OK;
}

/* ---- data access ------------------------------------------------------------------------------------------------- */

static enum ha_status fetch(struct ha_slots *s, const struct ha_layer *l, struct ha_why *why)
{
    const struct ha_slots_layer *of = ha_slots_layer_of(l);
    for (size_t i = 0; i < lists(s); i++) {
        const size_t b = i / heads_of(s);
        s->list[i] = (struct ha_fetch_list){ .from = &of->from[b],
                                             .to = &of->kv[b],
                                             .head = i % heads_of(s),
                                             .index = s->missing + i * s->list_max,
                                             .count = s->missing_count[i],
                                             .unit = s->rule.unit,
                                             .at = s->rule.slots[b] * s->rule.unit };
    }
    return ha_fetch_run(&s->fetch, s->ctx->stream, s->list, lists(s), why);
}

enum ha_status ha_slots_begin(const struct ha_layer *l)
{
    return l->ctx->api->event_record(ha_slots_of(l)->begun, l->ctx->stream);
}

enum ha_status ha_slots_find(const struct ha_layer *l, const uint32_t *index, struct ha_why *why)
{
    const struct ha_device_api *api = l->ctx->api;
    struct ha_slots *s = ha_slots_of(l);
    HA_TRY(api->event_record(s->made, l->ctx->stream));
    HA_TRY(ask(s, l, index));
    HA_TRY(api->event_sync(s->begun));
    const uint64_t begin = ha_now_ns();
    HA_TRY(api->event_sync(s->made));
    ha_frame_selected(l, begin);
    HA_TRY(look_up(s, l, why));
    return fetch(s, l, why);
}

void ha_slots_device(const struct ha_layer *l, size_t b, struct ha_device_seq *d)
{
    const struct ha_slots *s = ha_slots_of(l);
    const struct ha_slots_layer *of = ha_slots_layer_of(l);
    struct ha_rows *run = &d->runs[d->runs_count++];
    *run = ha_kv_rows(s->ctx->shape, &of->kv[b], 0, 0, of->count[b] * s->rule.unit);
    run->index = s->place_device + b * heads_of(s) * s->list_max;
    d->list_stride = s->list_max;
}

enum ha_status ha_slots_attended(struct ha_layer *l)
{
    l->due = true;
    return l->ctx->api->event_record(ha_slots_layer_of(l)->attended, l->ctx->stream);
}

/* ---- update ------------------------------------------------------------------------------------------------------ */

/* Of a list: its temporary blocks are to be copied to the slots `to`. The number of rows. */
static size_t plan(const struct ha_slots *s, const struct ha_slots_layer *of, size_t list, size_t at)
{
    const size_t heads = heads_of(s), b = list / heads, unit = s->rule.unit, begin = at;
    size_t temporary = s->rule.slots[b];
    for (size_t i = 0; i < of->count[b]; i++) {
        const uint32_t slot = s->to[list * s->list_max + i];
        if (slot == HA_SLOT_NONE) continue;
        for (size_t t = 0; t < unit; t++, at++) {
            s->move_from[at] = (uint32_t)((temporary * unit + t) * heads + list % heads);
            s->move_to[at] = (uint32_t)((slot * unit + t) * heads + list % heads);
        }
        temporary++;
    }
    return at - begin;
}

/* Whether any block came: if none did, the device has nothing to do. */
static bool update(const struct ha_slots *s, const struct ha_layer *l)
{
    struct ha_slots_layer *of = ha_slots_layer_of(l);
    const size_t bytes = lists(s) * s->list_max * s->rule.unit * sizeof *s->move_from;
    const uint64_t begin = ha_now_ns();
    size_t at = 0;
    ha_order_thread_access("update", "index maps", HA_WRITE, ha_block_map_of(&s->cache, l->layer), 1, 0,
                           lists(s) * s->cache.blocks * sizeof(uint32_t));
    ha_order_thread_access("update", "plan", HA_WRITE, s->move_from, 1, 0, bytes);
    ha_order_thread_access("update", "plan", HA_WRITE, s->move_to, 1, 0, bytes);
    memset(s->rows, 0, s->ctx->shape->batch * sizeof *s->rows);
    for (size_t i = 0; i < lists(s); i++) {
        const size_t b = i / heads_of(s), first = i * s->list_max;
        of->replaced[i] = (uint32_t)ha_block_list_use(list_of(s, l, i), of->chosen + first, of->count[b],
                                                      s->to + first);
        of->evicted += of->replaced[i];
        const size_t rows = plan(s, of, i, at);
        s->rows[b] += rows;
        at += rows;
    }
    of->list_ns += (double)(ha_now_ns() - begin);
    return at > 0;
}

static enum ha_status merge(const struct ha_slots *s, const struct ha_layer *l)
{
    const struct ha_context *ctx = s->ctx;
    struct ha_slots_layer *of = ha_slots_layer_of(l);
    const size_t row = ha_kv_head_bytes(ctx->shape);
    HA_TRY(ctx->api->event_sync(of->attended));
    const uint64_t begin = ha_now_ns();
    for (size_t b = 0, at = 0; b < ctx->shape->batch; at += s->rows[b++])
        for (int v = 0; v < 2 && s->rows[b]; v++)
            HA_TRY(ctx->api->move(s->merging, &(struct ha_device_move){ .dst = v ? of->kv[b].v : of->kv[b].k,
                                                                        .src = v ? of->kv[b].v : of->kv[b].k,
                                                                        .dst_index = s->move_to + at,
                                                                        .src_index = s->move_from + at,
                                                                        .rows = s->rows[b],
                                                                        .row_bytes = row,
                                                                        .dst_stride_bytes = row,
                                                                        .src_stride_bytes = row }));
    HA_TRY(tell(s, l, s->merging));
    HA_TRY(ctx->api->event_record(s->merged, s->merging));
    HA_TRY(ctx->api->event_sync(s->merged));
    of->merge_ns += (double)(ha_now_ns() - begin);
    return HA_OK;
}

enum ha_status ha_slots_settle(struct ha_layer *l, struct ha_why *why)
{
    return update(ha_slots_of(l), l) ? merge(ha_slots_of(l), l) : HA_OK;
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

static size_t number_of(const struct ha_layer *l, size_t b, size_t q_head)
{
    return b * l->ctx->shape->kv_heads + q_head / ha_shape_group(l->ctx->shape);
}

const uint32_t *ha_slots_chosen(const struct ha_layer *l, size_t b, size_t q_head)
{
    return ha_slots_layer_of(l)->chosen + number_of(l, b, q_head) * ha_slots_of(l)->list_max;
}

void ha_slots_report(const struct ha_layer *l, size_t b, size_t q_head, struct ha_selection *out)
{
    const size_t list = number_of(l, b, q_head);
    ha_worker_wait(l->ctx->worker, l->ticket);
    out->note[out->notes++] = (struct ha_note){ "hits", ha_slots_layer_of(l)->hits[list] };
    out->note[out->notes++] = (struct ha_note){ "replaced", ha_slots_layer_of(l)->replaced[list] };
}

void ha_slots_count(const struct ha_layer *l, ha_count *say, void *arg)
{
    const struct ha_slots_layer *of = ha_slots_layer_of(l);
    const struct {
        const char *name;
        double value;
    } counters[] = { { "hits", of->found },
                     { "misses", of->all - of->found },
                     { "replaced", of->evicted },
                     { "lookup_ns", of->lookup_ns },
                     { "list_ns", of->list_ns },
                     { "merge_ns", of->merge_ns },
                     { "manage_ns", of->lookup_ns + of->list_ns + of->merge_ns } };
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        say(arg, counters[i].name, l->layer, counters[i].value);
}
