#include "suites/parts/tail.h"

#include "harness/base/why.h"

size_t ha_tail_rows(const struct ha_shape *shape, size_t unit, size_t keep, size_t most)
{
    return (ha_least(keep + unit - 1 + shape->q_len, most) + unit - 1) / unit * unit;
}

size_t ha_tail_gone(const struct ha_tail *tail, size_t tokens)
{
    return tokens > tail->keep ? (tokens - tail->keep) / tail->unit : 0;
}

enum ha_status ha_tail_load(const struct ha_context *ctx, struct ha_tail *tail, const struct ha_prefill *in, size_t b,
                            size_t origin)
{
    const size_t context = ctx->shape->ctx[b], end = context - ha_least(origin, context);
    struct ha_stretch part[2];
    tail->ring.first = ha_tail_gone(tail, end) * tail->unit;
    tail->ring.end = end;
    const size_t n = ha_ring_stretches(&tail->ring, tail->ring.first, end - tail->ring.first, part);
    for (size_t i = 0; i < n; i++)
        HA_TRY(ha_kv_load(ctx, &tail->ring.kv, part[i].slot, in, b, origin + part[i].position, part[i].count));
    return HA_OK;
}

struct ha_rows ha_tail_block(const struct ha_shape *shape, const struct ha_tail *tail, size_t block)
{
    return ha_kv_rows(shape, &tail->ring.kv, 0, block * tail->unit % tail->ring.kv.cap, tail->unit);
}

enum ha_status ha_tail_leave(const struct ha_context *ctx, struct ha_stream *stream, struct ha_tail *tail,
                             const struct ha_kv *to, size_t *gone)
{
    struct ha_ring *ring = &tail->ring;
    const size_t first = ring->first, edge = ha_tail_gone(tail, ring->end) * tail->unit;
    *gone = (edge - first) / tail->unit;
    ring->first = edge;
    return ha_ring_copy(ctx, stream, ring, first, edge - first, to, first, false);
}

enum ha_status ha_tail_rewind(const struct ha_context *ctx, struct ha_tail *tail, const struct ha_kv *from,
                              size_t tokens)
{
    struct ha_ring *ring = &tail->ring;
    const size_t first = ha_tail_gone(tail, tokens) * tail->unit, back = ha_least(ring->first, tokens);
    ring->first = first;
    ring->end = tokens;
    return ha_ring_copy(ctx, ctx->stream, ring, first, back > first ? back - first : 0, from, first, true);
}

enum ha_status ha_tail_leave_to_store(const struct ha_context *ctx, struct ha_stream *stream, struct ha_tail *tail,
                                      struct ha_kv_store *store, size_t *gone)
{
    struct ha_ring *ring = &tail->ring;
    *gone = ha_tail_gone(tail, ring->end) - ring->first / tail->unit;
    for (size_t i = 0; i < *gone; i++, ring->first += tail->unit)
        HA_TRY(ha_kv_store_append(ctx, stream, store, &ring->kv, ring->first % ring->kv.cap, tail->unit));
    return HA_OK;
}

/* A block from row to its rows of one KV head. */
static enum ha_status put_back(const struct ha_context *ctx, const struct ha_tail *tail, size_t block, size_t head,
                               const unsigned char *row)
{
    const size_t unit = tail->unit, width = ha_kv_head_bytes(ctx->shape), stride = ha_kv_token_bytes(ctx->shape),
                 at = block * unit % tail->ring.kv.cap * stride + head * width;
    HA_TRY(ctx->api->copy_2d(ctx->stream, tail->ring.kv.k + at, stride, row, width, width, unit, HA_H2D));
    HA_TRY(
        ctx->api->copy_2d(ctx->stream, tail->ring.kv.v + at, stride, row + unit * width, width, width, unit, HA_H2D));
    return ctx->api->stream_sync(ctx->stream); /* row is used again */
}

enum ha_status ha_tail_rewind_from_store(const struct ha_context *ctx, struct ha_tail *tail,
                                         const struct ha_kv_store *store, unsigned char *row, size_t tokens)
{
    const size_t unit = tail->unit, width = ha_kv_head_bytes(ctx->shape), first = ha_tail_gone(tail, tokens),
                 end = ha_least(tail->ring.first, tokens);
    for (size_t block = first; block * unit < end; block++)
        for (size_t h = 0; h < ctx->shape->kv_heads; h++) {
            ha_kv_store_read(ctx, store, h, block * unit, unit, row, row + unit * width, width);
            HA_TRY(put_back(ctx, tail, block, h, row));
        }
    tail->ring.first = first * unit;
    tail->ring.end = tokens;
    return HA_OK;
}
