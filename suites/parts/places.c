#include "suites/parts/places.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"

size_t ha_fence_rows(const struct ha_context *ctx) { return ctx->record_selection ? HA_FENCE_ROWS : 0; }

static enum ha_status create(struct ha_layer *l, size_t (*rows)(const struct ha_layer *l, size_t b), struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const size_t token = ha_kv_token_bytes(ctx->shape), fences = ctx->shape->batch * ha_fence_rows(ctx);
    size_t all = 0;
    for (size_t b = 0; b < ctx->shape->batch; b++) all += rows(l, b);
    unsigned char **const at[] = { &l->rows.k, &l->rows.v };
    l->rows = (struct ha_kv){ .memory = HA_MEM_DEVICE, .cap = all + fences };
    l->rows_used = 0;
    for (size_t i = 0; i < 2; i++)
        if (!(*at[i] = ha_device_alloc_fenced(ctx->device_arena, HA_MEM_DEVICE, all * token, fences * token, HA_TAG_KV,
                                              why)))
            return HA_ERROR;
    return HA_OK;
}

enum ha_status ha_places_rows(struct ha_layer *l, size_t b, size_t (*rows)(const struct ha_layer *l, size_t b),
                              struct ha_kv *kv, struct ha_why *why)
{
    if (b == 0) HA_TRY(create(l, rows, why));
    *kv = ha_places_part(l->ctx->shape, &l->rows, l->rows_used, rows(l, b));
    l->rows_used += kv->cap + ha_fence_rows(l->ctx);
    const size_t token = ha_kv_token_bytes(l->ctx->shape), fence_bytes = ha_fence_rows(l->ctx) * token;
    ha_device_fence(l->ctx->device_arena, kv->k + kv->cap * token, fence_bytes);
    ha_device_fence(l->ctx->device_arena, kv->v + kv->cap * token, fence_bytes);
    return HA_OK;
}

struct ha_kv ha_places_part(const struct ha_shape *shape, const struct ha_kv *kv, size_t first, size_t count)
{
    const size_t bytes = first * ha_kv_token_bytes(shape);
    return (struct ha_kv){ .memory = kv->memory, .k = kv->k + bytes, .v = kv->v + bytes, .cap = count };
}

enum ha_status ha_places_create(const struct ha_layer *first, ha_place *place, uint32_t **out, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    const size_t of_step = s->batch * s->q_len, count = s->steps * of_step, bytes = count * sizeof **out;
    *out = NULL;
    if (!ctx->api->move || first->rows.cap > UINT32_MAX) return HA_OK;
    uint32_t *row = ha_alloc(ctx->arena, bytes, HA_TAG_SCRATCH, why);
    *out = row ? ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_SCRATCH, why) : NULL;
    if (!*out) return HA_ERROR;
    for (size_t i = 0; i < count; i++) {
        const size_t b = i / s->q_len % s->batch, position = s->ctx[b] + i / of_step * s->q_len + i % s->q_len;
        const unsigned char *to = place(first, b, position);
        row[i] = (uint32_t)((size_t)(to - first->rows.k) / ha_kv_token_bytes(s));
    }
    HA_TRY(ctx->api->copy(ctx->stream, *out, row, bytes, HA_H2D));
    return ctx->api->stream_sync(ctx->stream);
}

enum ha_status ha_places_put(const struct ha_layer *l, const uint32_t *row, size_t step, const void *k, const void *v)
{
    const struct ha_context *ctx = l->ctx;
    const size_t token = ha_kv_token_bytes(ctx->shape), rows = ctx->shape->batch * ctx->shape->q_len;
    struct ha_device_move move = { .dst = l->rows.k,
                                   .src = k,
                                   .dst_index = row + step * rows,
                                   .rows = rows,
                                   .row_bytes = token,
                                   .dst_stride_bytes = token,
                                   .src_stride_bytes = token };
    HA_TRY(ctx->api->move(ctx->stream, &move));
    move.dst = l->rows.v;
    move.src = v;
    return ctx->api->move(ctx->stream, &move);
}
