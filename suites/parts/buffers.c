#include "suites/parts/buffers.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"

#include <string.h>

static uint32_t *numbers(const struct ha_buffers *o, enum ha_memory memory, size_t count, enum ha_tag tag,
                         struct ha_why *why)
{
    return ha_device_alloc(o->ctx->device_arena, memory, count * sizeof(uint32_t), tag, why);
}

/* From pinned memory, which is given back. */
static enum ha_status bring(const struct ha_buffers *o, uint32_t *to, uint32_t *from, size_t count)
{
    HA_TRY(o->ctx->api->copy(o->ctx->stream, to, from, count * sizeof *to, HA_H2D));
    HA_TRY(o->ctx->api->stream_sync(o->ctx->stream));
    ha_device_free(o->ctx->device_arena, from);
    return HA_OK;
}

enum ha_status ha_buffers_create(struct ha_buffers *o, const struct ha_context *ctx, const struct ha_buffers_rule *rule,
                                 const bool *whole, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    const size_t all = s->batch * s->kv_heads;
    *o = (struct ha_buffers){ .ctx = ctx, .rule = *rule, .whole = whole };
    for (size_t h = 0; h < s->kv_heads; h++) o->count += whole[h];
    o->seq = ha_alloc(ctx->arena, s->batch * sizeof *o->seq, HA_TAG_META, why);
    o->list = o->seq ? numbers(o, HA_MEM_DEVICE, all * rule->list_max, HA_TAG_META, why) : NULL;
    o->here = o->list ? numbers(o, HA_MEM_DEVICE, all, HA_TAG_META, why) : NULL;
    uint32_t *here = o->here ? numbers(o, HA_MEM_PINNED, all, HA_TAG_SCRATCH, why) : NULL;
    if (!here) return HA_ERROR;
    memset(o->seq, 0, s->batch * sizeof *o->seq);
    for (size_t i = 0; i < all; i++) here[i] = whole[i % s->kv_heads];
    return bring(o, o->here, here, all);
}

/* The lists of buffers never change: all of them. */
static enum ha_status name_buffers(const struct ha_buffers *o, size_t b, struct ha_why *why)
{
    const struct ha_buffers_seq *seq = &o->seq[b];
    const size_t each = o->rule.list_max, all = o->ctx->shape->kv_heads * each;
    uint32_t *list = numbers(o, HA_MEM_PINNED, all, HA_TAG_SCRATCH, why);
    if (!list) return HA_ERROR;
    for (size_t i = 0; i < all; i++)
        list[i] = ha_vectors_entry(&seq->pool, i / each) + (uint32_t)(i % each < seq->units ? i % each : 0);
    return bring(o, o->list + b * all, list, all);
}

enum ha_status ha_buffers_open(const struct ha_buffers *o, size_t b, size_t units, struct ha_why *why)
{
    const struct ha_context *ctx = o->ctx;
    const struct ha_shape *s = ctx->shape;
    const size_t most = ha_kv_max_tokens(s, b), unit = o->rule.unit;
    struct ha_buffers_seq *seq = &o->seq[b];
    seq->units = units;
    HA_TRY(ha_kept_create(ctx, o->rule.sink, o->rule.recent, b, &seq->kept, why));
    if (ha_buffers_any(o)) {
        HA_TRY(ha_kv_create(ctx, o->rule.memory, most, &seq->store, why));
        seq->rest = ha_kept_rest(s, &seq->kept, &seq->store);
    }
    size_t *rows = ha_alloc(ctx->arena, s->kv_heads * sizeof *rows, HA_TAG_SCRATCH, why);
    if (!rows) return HA_ERROR;
    for (size_t h = 0; h < s->kv_heads; h++)
        rows[h] = o->whole[h] ? (ha_kept_gone(o->rule.sink, 0, most) + unit - 1) / unit * unit : units * unit;
    HA_TRY(ha_vectors_create(ctx, unit, rows, &seq->pool, why));
    return name_buffers(o, b, why);
}

struct ha_rows ha_buffers_keys(const struct ha_buffers *o, size_t b, size_t *head_bytes)
{
    const struct ha_shape *s = o->ctx->shape;
    if (!ha_buffers_any(o)) return ha_vectors_rows(s, &o->seq[b].pool, head_bytes);
    *head_bytes = ha_kv_head_bytes(s);
    return ha_kv_rows(s, &o->seq[b].rest, 0, 0, 0);
}

enum ha_status ha_buffers_put(const struct ha_buffers *o, size_t b, const struct ha_kv *src, size_t from, size_t first,
                              size_t count, size_t tokens)
{
    const struct ha_buffers_seq *seq = &o->seq[b];
    const size_t sink = o->rule.sink, sinks = first < sink ? ha_least(sink - first, count) : 0;
    HA_TRY(ha_kept_put(o->ctx, &seq->kept, src, from, first, count, tokens));
    return ha_vectors_put(o->ctx, &seq->pool, o->whole, src, from + sinks, first + sinks - sink, count - sinks);
}

enum ha_status ha_buffers_rewind(const struct ha_buffers *o, size_t b, const struct ha_kv *stage, size_t tokens)
{
    const struct ha_buffers_seq *seq = &o->seq[b];
    if (ha_buffers_any(o)) return ha_kept_rewind(o->ctx, &seq->kept, &seq->store, tokens);
    for (size_t first = ha_kept_window(&seq->kept, tokens), count; first < tokens; first += count) {
        count = ha_least(stage->cap, tokens - first);
        HA_TRY(ha_vectors_get(o->ctx, &seq->pool, first - o->rule.sink, stage, 0, count));
        HA_TRY(ha_kept_put(o->ctx, &seq->kept, stage, 0, first, count, tokens));
    }
    return HA_OK;
}

void ha_buffers_device(const struct ha_buffers *o, size_t b, const uint32_t *keys, struct ha_device_seq *d)
{
    const struct ha_shape *s = o->ctx->shape;
    struct ha_rows *listed = &d->runs[d->runs_count++];
    *listed = ha_vectors_run(s, &o->seq[b].pool);
    listed->index = o->list + b * s->kv_heads * o->rule.list_max;
    listed->keys = o->rule.list_max * o->rule.unit;
    d->list_stride = o->rule.list_max;
    d->list_keys = keys + b * s->kv_heads;
}
