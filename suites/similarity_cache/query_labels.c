#include "suites/similarity_cache/query_labels.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"

#include <string.h>

static float *floats(const struct ha_context *ctx, enum ha_memory memory, size_t count, enum ha_tag tag,
                     struct ha_why *why)
{
    return ha_device_alloc(ctx->device_arena, memory, count * sizeof(float), tag, why);
}

static size_t label_bytes(const struct ha_shape *s) { return s->batch * s->q_heads * s->head_dim * sizeof(float); }

static enum ha_status create_layer(const struct ha_query_labels *q, const struct ha_reuse *reuse, size_t layer,
                                   float *stage, struct ha_why *why)
{
    const struct ha_context *ctx = q->ctx;
    const struct ha_shape *s = ctx->shape;
    struct ha_query_labels_layer *l = &q->layer[layer];
    l->threshold = floats(ctx, HA_MEM_DEVICE, s->kv_heads, HA_TAG_META, why);
    l->importance = l->threshold ? floats(ctx, HA_MEM_DEVICE, s->q_heads, HA_TAG_META, why) : NULL;
    l->label = l->importance ? floats(ctx, HA_MEM_DEVICE, label_bytes(s) / sizeof(float), HA_TAG_META, why) : NULL;
    l->similarity = l->label ? floats(ctx, HA_MEM_MAPPED, s->batch * s->kv_heads, HA_TAG_META, why) : NULL;
    if (!l->similarity) return HA_ERROR;
    for (size_t h = 0; h < s->kv_heads; h++) {
        const size_t at = layer * s->kv_heads + h;
        stage[h] = reuse->persistent[at] ? -2 : reuse->threshold[at];
    }
    memcpy(stage + s->kv_heads, reuse->importance + layer * s->q_heads, s->q_heads * sizeof *stage);
    HA_TRY(ctx->api->copy(ctx->stream, l->threshold, stage, s->kv_heads * sizeof *stage, HA_H2D));
    HA_TRY(ctx->api->copy(ctx->stream, l->importance, stage + s->kv_heads, s->q_heads * sizeof *stage, HA_H2D));
    return ctx->api->stream_sync(ctx->stream);
}

enum ha_status ha_query_labels_create(struct ha_query_labels *q, const struct ha_context *ctx,
                                      const struct ha_reuse *reuse, enum ha_similar group, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    *q = (struct ha_query_labels){ .ctx = ctx, .group = group };
    HA_TRY(ha_kv_mapped(ctx, why));
    q->layer = ha_alloc(ctx->arena, s->layers * sizeof *q->layer, HA_TAG_META, why);
    q->seq = q->layer ? ha_alloc(ctx->arena, s->batch * sizeof *q->seq, HA_TAG_SCRATCH, why) : NULL;
    q->zeros = q->seq ? ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, label_bytes(s), HA_TAG_SCRATCH, why) : NULL;
    float *stage = q->zeros ? floats(ctx, HA_MEM_PINNED, s->kv_heads + s->q_heads, HA_TAG_SCRATCH, why) : NULL;
    if (!stage) return HA_ERROR;
    memset(q->zeros, 0, label_bytes(s));
    for (size_t i = 0; i < s->layers; i++) HA_TRY(create_layer(q, reuse, i, stage, why));
    ha_device_free(ctx->device_arena, stage);
    return HA_OK;
}

enum ha_status ha_query_labels_clear(const struct ha_query_labels *q, size_t layer)
{
    return q->ctx->api->copy(q->ctx->stream, q->layer[layer].label, q->zeros, label_bytes(q->ctx->shape), HA_H2D);
}

enum ha_status ha_query_labels_look_up(const struct ha_query_labels *q, size_t layer, const float *queries,
                                       uint32_t *missed)
{
    const struct ha_shape *s = q->ctx->shape;
    const struct ha_query_labels_layer *l = &q->layer[layer];
    const size_t width = s->q_heads * s->head_dim;
    for (size_t b = 0; b < s->batch; b++)
        q->seq[b] = (struct ha_device_similarity_seq){ .q = queries + b * s->q_len * width,
                                                       .label = l->label + b * width,
                                                       .similarity = l->similarity + b * s->kv_heads,
                                                       .missed = missed + b * s->kv_heads };
    return q->ctx->api->similarity(q->ctx->stream, &(struct ha_device_similarity){ .batch = s->batch,
                                                                                   .q_len = s->q_len,
                                                                                   .q_heads = s->q_heads,
                                                                                   .kv_heads = s->kv_heads,
                                                                                   .head_dim = s->head_dim,
                                                                                   .group = q->group,
                                                                                   .importance = l->importance,
                                                                                   .threshold = l->threshold,
                                                                                   .seqs = q->seq });
}
