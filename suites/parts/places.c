#include "suites/parts/places.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/order_api.h"
#include "harness/base/why.h"

size_t ha_fence_rows(const struct ha_context *ctx) { return ctx->record_selection ? HA_FENCE_ROWS : 0; }

static enum ha_status create(struct ha_layer *l, size_t pieces, ha_piece_rows *rows, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const size_t token = ha_kv_token_bytes(ctx->shape), fences = pieces * ctx->shape->batch * ha_fence_rows(ctx);
    size_t all = 0;
    for (size_t i = 0; i < pieces * ctx->shape->batch; i++) all += rows(l, i / pieces, i % pieces);
    unsigned char **const at[] = { &l->rows.k, &l->rows.v };
    l->rows = (struct ha_kv){ .memory = HA_MEM_DEVICE, .cap = all + fences };
    l->rows_used = 0;
    for (size_t i = 0; i < 2; i++)
        if (!(*at[i] = ha_device_alloc_fenced(ctx->device_arena, HA_MEM_DEVICE, all * token, fences * token, HA_TAG_KV,
                                              why)))
            return HA_ERROR;
    return HA_OK;
}

enum ha_status ha_places_open(struct ha_layer *l, size_t b, size_t pieces, ha_piece_rows *rows, struct ha_kv *kv,
                              struct ha_why *why)
{
    const size_t token = ha_kv_token_bytes(l->ctx->shape), fence = ha_fence_rows(l->ctx);
    if (b == 0) HA_TRY(create(l, pieces, rows, why));
    for (size_t i = 0; i < pieces; i++) {
        const size_t at = l->rows_used * token, count = rows(l, b, i), end = at + count * token;
        kv[i] = (struct ha_kv){ .memory = HA_MEM_DEVICE, .k = l->rows.k + at, .v = l->rows.v + at, .cap = count };
        ha_device_fence(l->ctx->device_arena, l->rows.k + end, fence * token);
        ha_device_fence(l->ctx->device_arena, l->rows.v + end, fence * token);
        l->rows_used += count + fence;
    }
    return HA_OK;
}

static size_t position_of(const struct ha_shape *s, size_t step, size_t b, size_t t)
{
    return s->ctx[b] + step * s->q_len + t;
}

enum ha_status ha_places_create(const struct ha_layer *first, ha_place *place, uint32_t **out, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    const size_t of_step = s->batch * s->q_len, count = s->steps * of_step, bytes = count * sizeof **out;
    *out = NULL;
    if (!ctx->api->move || first->rows.cap > UINT32_MAX) return HA_OK;
    for (size_t i = 0; i < s->batch; i++)
        for (size_t t = 0; t < s->steps * s->q_len; t++)
            if (!place(first, i, s->ctx[i] + t)) return HA_OK;
    uint32_t *row = ha_alloc(ctx->arena, bytes, HA_TAG_SCRATCH, why);
    *out = row ? ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_SCRATCH, why) : NULL;
    if (!*out) return HA_ERROR;
    for (size_t i = 0; i < count; i++) {
        const size_t b = i / s->q_len % s->batch;
        const unsigned char *to = place(first, b, position_of(s, i / of_step, b, i % s->q_len));
        row[i] = (uint32_t)((size_t)(to - first->rows.k) / ha_kv_token_bytes(s));
    }
    HA_TRY(ctx->api->copy(ctx->stream, *out, row, bytes, HA_H2D));
    return ctx->api->stream_sync(ctx->stream);
}

static void tell_order(const struct ha_layer *l, ha_place *place, size_t step)
{
    const struct ha_shape *s = l->ctx->shape;
    const size_t token = ha_kv_token_bytes(s);
    for (size_t i = 0; i < s->batch * s->q_len; i++) {
        const size_t b = i / s->q_len;
        const unsigned char *k = place(l, b, position_of(s, step, b, i % s->q_len)), *v = l->rows.v + (k - l->rows.k);
        ha_order_moves_to(l->ctx->stream, "K", k, token);
        ha_order_moves_to(l->ctx->stream, "V", v, token);
    }
}

enum ha_status ha_places_put(const struct ha_layer *l, ha_place *place, const uint32_t *row, const struct ha_step *step)
{
    const struct ha_context *ctx = l->ctx;
    const size_t token = ha_kv_token_bytes(ctx->shape), rows = ctx->shape->batch * ctx->shape->q_len;
    struct ha_device_move move = { .dst = l->rows.k,
                                   .src = step->k,
                                   .dst_index = row + step->step * rows,
                                   .rows = rows,
                                   .row_bytes = token,
                                   .dst_stride_bytes = token,
                                   .src_stride_bytes = token };
    if (ha_order_now()) tell_order(l, place, step->step);
    HA_TRY(ctx->api->move(ctx->stream, &move));
    move.dst = l->rows.v;
    move.src = step->v;
    return ctx->api->move(ctx->stream, &move);
}
