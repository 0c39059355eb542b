#include "suites/similarity_cache/buffers.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "suites/parts/listed.h"

#include <string.h>

static uint32_t *numbers(const struct ha_context *ctx, enum ha_memory memory, size_t count, enum ha_tag tag,
                         struct ha_why *why)
{
    return ha_device_alloc(ctx->device_arena, memory, count * sizeof(uint32_t), tag, why);
}

/* From pinned memory, which is given back. */
static enum ha_status bring(const struct ha_context *ctx, uint32_t *to, uint32_t *from, size_t count)
{
    HA_TRY(ctx->api->copy(ctx->stream, to, from, count * sizeof *to, HA_H2D));
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    ha_device_free(ctx->device_arena, from);
    return HA_OK;
}

static enum ha_status make_layer(const struct ha_buffers *o, struct ha_buffers_layer *l, const bool *whole,
                                 struct ha_why *why)
{
    const struct ha_context *ctx = o->ctx;
    const struct ha_shape *s = ctx->shape;
    const size_t all = s->batch * s->kv_heads;
    *l = (struct ha_buffers_layer){ .of = o, .whole = whole };
    for (size_t h = 0; h < s->kv_heads; h++) l->count += whole[h];
    l->seq = ha_alloc(ctx->arena, s->batch * sizeof *l->seq, HA_TAG_META, why);
    l->list = l->seq ? numbers(ctx, HA_MEM_DEVICE, all * o->rule.list_max, HA_TAG_META, why) : NULL;
    l->here = l->list ? numbers(ctx, HA_MEM_DEVICE, all, HA_TAG_META, why) : NULL;
    uint32_t *here = l->here ? numbers(ctx, HA_MEM_PINNED, all, HA_TAG_SCRATCH, why) : NULL;
    if (!here) return HA_ERROR;
    memset(l->seq, 0, s->batch * sizeof *l->seq);
    for (size_t i = 0; i < all; i++) here[i] = whole[i % s->kv_heads];
    return bring(ctx, l->here, here, all);
}

enum ha_status ha_buffers_create(struct ha_buffers *o, const struct ha_context *ctx, const struct ha_buffers_rule *rule,
                                 const bool *whole, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    *o = (struct ha_buffers){ .ctx = ctx, .rule = *rule };
    o->layer = ha_alloc(ctx->arena, s->layers * sizeof *o->layer, HA_TAG_META, why);
    o->known = o->layer ? numbers(ctx, HA_MEM_PINNED, s->batch * s->kv_heads * rule->list_max, HA_TAG_SCRATCH, why)
                        : NULL;
    if (!o->known) return HA_ERROR;
    for (size_t i = 0; i < s->layers; i++) HA_TRY(make_layer(o, &o->layer[i], whole + i * s->kv_heads, why));
    return ha_kv_create(ctx, HA_MEM_DEVICE, HA_BUFFERS_STAGE, &o->stage, why);
}

/* The lists of buffers never change: all of them. */
static enum ha_status name_buffers(const struct ha_buffers_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_buffers_seq *seq = &l->seq[b];
    const size_t each = l->of->rule.list_max, all = l->of->ctx->shape->kv_heads * each;
    uint32_t *list = numbers(l->of->ctx, HA_MEM_PINNED, all, HA_TAG_SCRATCH, why);
    if (!list) return HA_ERROR;
    for (size_t i = 0; i < all; i++)
        list[i] = ha_vectors_entry(&seq->pool, i / each) + (uint32_t)(i % each < seq->units ? i % each : 0);
    return bring(l->of->ctx, l->list + b * all, list, all);
}

enum ha_status ha_buffers_open(const struct ha_buffers_layer *l, size_t b, size_t units, struct ha_why *why)
{
    const struct ha_context *ctx = l->of->ctx;
    const struct ha_shape *s = ctx->shape;
    const size_t most = ha_kv_max_tokens(s, b), unit = l->of->rule.unit;
    struct ha_buffers_seq *seq = &l->seq[b];
    seq->units = units;
    HA_TRY(ha_kept_create(ctx, l->of->rule.sink, l->of->rule.recent, b, &seq->kept, why));
    if (ha_buffers_any(l)) {
        HA_TRY(ha_kv_create(ctx, l->of->rule.memory, most, &seq->store, why));
        seq->rest = ha_kept_rest(s, &seq->kept, &seq->store);
    }
    size_t *rows = ha_alloc(ctx->arena, s->kv_heads * sizeof *rows, HA_TAG_SCRATCH, why);
    if (!rows) return HA_ERROR;
    for (size_t h = 0; h < s->kv_heads; h++)
        rows[h] = l->whole[h] ? (ha_kept_gone(l->of->rule.sink, 0, most) + unit - 1) / unit * unit : units * unit;
    HA_TRY(ha_vectors_create(ctx, unit, rows, &seq->pool, why));
    return name_buffers(l, b, why);
}

struct ha_rows ha_buffers_keys(const struct ha_buffers_layer *l, size_t b, size_t *head_bytes)
{
    const struct ha_shape *s = l->of->ctx->shape;
    if (!ha_buffers_any(l)) return ha_vectors_rows(s, &l->seq[b].pool, head_bytes);
    *head_bytes = ha_kv_head_bytes(s);
    return ha_kv_rows(s, &l->seq[b].rest, 0, 0, 0);
}

enum ha_status ha_buffers_put(const struct ha_buffers_layer *l, size_t b, const struct ha_kv *src, size_t from,
                              size_t first, size_t count, size_t tokens)
{
    const struct ha_buffers_seq *seq = &l->seq[b];
    const size_t sink = l->of->rule.sink, sinks = first < sink ? ha_least(sink - first, count) : 0;
    HA_TRY(ha_kept_put(l->of->ctx, &seq->kept, src, from, first, count, tokens));
    return ha_vectors_put(l->of->ctx, &seq->pool, l->whole, src, from + sinks, first + sinks - sink, count - sinks);
}

enum ha_status ha_buffers_rewind(const struct ha_buffers_layer *l, size_t b, size_t tokens)
{
    const struct ha_buffers_seq *seq = &l->seq[b];
    const struct ha_kv *stage = &l->of->stage;
    if (ha_buffers_any(l)) return ha_kept_rewind(l->of->ctx, &seq->kept, &seq->store, tokens);
    for (size_t first = ha_kept_window(&seq->kept, tokens), count; first < tokens; first += count) {
        count = ha_least(stage->cap, tokens - first);
        HA_TRY(ha_vectors_get(l->of->ctx, &seq->pool, first - l->of->rule.sink, stage, count));
        HA_TRY(ha_kept_put(l->of->ctx, &seq->kept, stage, 0, first, count, tokens));
    }
    return HA_OK;
}

void ha_buffers_device(const struct ha_buffers_layer *l, const struct ha_layer *layer, const struct ha_step *step,
                       size_t b, const uint32_t *keys, struct ha_device_seq *d)
{
    const struct ha_shape *s = l->of->ctx->shape;
    const struct ha_buffers_rule *rule = &l->of->rule;
    struct ha_rows *listed = &d->runs[d->runs_count++];
    *listed = ha_vectors_run(s, &l->seq[b].pool);
    listed->index = l->list + b * s->kv_heads * rule->list_max;
    listed->keys = rule->list_max * rule->unit;
    d->list_stride = rule->list_max;
    d->list_keys = keys + b * s->kv_heads;
    ha_kept_device(layer, &l->seq[b].kept, step, b, d);
}

enum ha_status ha_buffers_learn(const struct ha_buffers_layer *l, const uint32_t *index, const uint32_t *keys,
                                const size_t *tokens, struct ha_why *why)
{
    const struct ha_context *ctx = l->of->ctx;
    const struct ha_buffers_rule *rule = &l->of->rule;
    const size_t heads = ctx->shape->kv_heads, lists = ctx->shape->batch * heads;
    HA_TRY(ctx->api->copy(ctx->stream, l->of->known, l->list, lists * rule->list_max * sizeof *index, HA_D2H));
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    for (size_t i = 0; i < lists; i++) {
        const bool whole = l->whole[i % heads];
        const size_t units = keys[i] / rule->unit,
                     of = ha_kept_gone(rule->sink, rule->recent, tokens[i / heads]) / rule->unit;
        uint32_t *known = l->of->known + i * rule->list_max;
        const uint32_t *unit = whole ? known : index + i * rule->list_max,
                       from = whole ? ha_vectors_entry(&l->seq[i / heads].pool, i % heads) : 0;
        HA_TRY(ha_list_check(ctx, "keys that the device chose", unit, units, rule->list_max, from + of, why));
        for (size_t j = 0; j < units; j++) known[j] = unit[j] - from;
    }
    return HA_OK;
}

enum ha_status ha_buffers_use(const struct ha_buffers_layer *l, size_t b, size_t head, size_t keys, size_t tokens,
                              struct ha_positions *used, struct ha_why *why)
{
    const struct ha_context *ctx = l->of->ctx;
    const struct ha_buffers_rule *rule = &l->of->rule;
    const uint32_t *known = l->of->known + (b * ctx->shape->kv_heads + head) * rule->list_max;
    HA_TRY(ha_positions_add_blocks(ctx, used, rule->sink, rule->unit, known, keys / rule->unit, why));
    return ha_kept_use(ctx, &l->seq[b].kept, tokens, ctx->shape->q_len, used, why);
}
