#include "suites/parts/vectors.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"

enum ha_status ha_vectors_create(const struct ha_context *ctx, size_t unit, const size_t *rows, struct ha_vectors *v,
                                 struct ha_why *why)
{
    const size_t heads = ctx->shape->kv_heads;
    size_t end = 0;
    *v = (struct ha_vectors){ .unit = unit };
    v->first = ha_alloc(ctx->arena, heads * sizeof *v->first, HA_TAG_META, why);
    if (!v->first) return HA_ERROR;
    for (size_t h = 0; h < heads; h++) {
        v->first[h] = end > h ? (end - h + unit - 1) / unit * unit + h : h;
        end = v->first[h] + rows[h];
    }
    /* lists of heads without rows name one all the same */
    v->kv = (struct ha_kv){ .memory = HA_MEM_DEVICE, .cap = end + unit };
    const size_t bytes = v->kv.cap * ha_kv_head_bytes(ctx->shape);
    v->kv.k = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_KV, why);
    v->kv.v = v->kv.k ? ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_KV, why) : NULL;
    return v->kv.v ? HA_OK : HA_ERROR;
}

struct ha_rows ha_vectors_run(const struct ha_shape *shape, const struct ha_vectors *v)
{
    const size_t head = ha_kv_head_bytes(shape);
    return (struct ha_rows){ .k = v->kv.k, .v = v->kv.v, .k_stride_bytes = head, .v_stride_bytes = head };
}

struct ha_rows ha_vectors_rows(const struct ha_shape *shape, const struct ha_vectors *v, size_t *head_bytes)
{
    *head_bytes = shape->kv_heads > 1 ? (v->first[1] - v->first[0]) * ha_kv_head_bytes(shape) : 0;
    return ha_vectors_run(shape, v);
}

/* Of one head several tokens by one copy, or of one token the heads that follow each other. */
enum ha_status ha_vectors_put(const struct ha_context *ctx, const struct ha_vectors *v, const bool *mark,
                              const struct ha_kv *src, size_t from, size_t at, size_t count)
{
    const struct ha_shape *s = ctx->shape;
    const size_t head = ha_kv_head_bytes(s), token = ha_kv_token_bytes(s);
    for (size_t h = 0, n; h < s->kv_heads && count; h += n) {
        n = 1;
        if (!mark[h]) continue;
        while (count == 1 && h + n < s->kv_heads && mark[h + n]
               && v->first[h + n] - v->first[h + n - 1] == v->first[h + 1] - v->first[h])
            n++;
        const size_t apart = n > 1 ? (v->first[h + 1] - v->first[h]) * head : head, to = (v->first[h] + at) * head,
                     of = from * token + h * head;
        for (int i = 0; i < 2; i++)
            HA_TRY(ctx->api->copy_2d(ctx->stream, (i ? v->kv.v : v->kv.k) + to, apart, (i ? src->v : src->k) + of,
                                     n > 1 ? head : token, head, n > 1 ? n : count, HA_D2D));
    }
    return HA_OK;
}

enum ha_status ha_vectors_get(const struct ha_context *ctx, const struct ha_vectors *v, size_t at,
                              const struct ha_kv *dst, size_t count)
{
    const struct ha_shape *s = ctx->shape;
    const size_t head = ha_kv_head_bytes(s), token = ha_kv_token_bytes(s);
    for (size_t h = 0; h < s->kv_heads && count; h++)
        for (int i = 0; i < 2; i++)
            HA_TRY(ctx->api->copy_2d(ctx->stream, (i ? dst->v : dst->k) + h * head, token,
                                     (i ? v->kv.v : v->kv.k) + (v->first[h] + at) * head, head, head, count, HA_D2D));
    return HA_OK;
}
