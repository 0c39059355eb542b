#include "suites/parts/ring.h"

#include "harness/base/why.h"

size_t ha_ring_stretches(const struct ha_ring *ring, size_t first, size_t count, struct ha_stretch out[2])
{
    size_t n = 0;
    while (count) {
        size_t slot = first % ring->kv.cap, room = ring->kv.cap - slot, part = ha_least(count, room);
        out[n++] = (struct ha_stretch){ .position = first, .slot = slot, .count = part };
        first += part;
        count -= part;
    }
    return n;
}

size_t ha_ring_runs(const struct ha_shape *shape, const struct ha_ring *ring, struct ha_rows *runs)
{
    struct ha_stretch part[2];
    size_t n = ha_ring_stretches(ring, ring->first, ring->end - ring->first, part);
    for (size_t i = 0; i < n; i++) runs[i] = ha_kv_rows(shape, &ring->kv, 0, part[i].slot, part[i].count);
    return n;
}

enum ha_status ha_ring_copy(const struct ha_context *ctx, struct ha_stream *stream, const struct ha_ring *ring,
                            size_t first, size_t count, const struct ha_kv *other, size_t at, bool to_ring)
{
    struct ha_stretch part[2];
    size_t n = ha_ring_stretches(ring, first, count, part);
    for (size_t i = 0; i < n; i++) {
        size_t slot = part[i].slot, row = at + part[i].position - first;
        HA_TRY(to_ring ? ha_kv_copy(ctx, stream, &ring->kv, slot, other, row, part[i].count)
                       : ha_kv_copy(ctx, stream, other, row, &ring->kv, slot, part[i].count));
    }
    return HA_OK;
}

enum ha_status ha_ring_append(const struct ha_context *ctx, struct ha_stream *stream, struct ha_ring *ring,
                              const struct ha_kv *src, size_t from, size_t count)
{
    ring->end += count;
    return ha_ring_copy(ctx, stream, ring, ring->end - count, count, src, from, true);
}

const unsigned char *ha_ring_place(const struct ha_shape *shape, const struct ha_ring *ring, size_t position)
{
    return ring->kv.k + position % ring->kv.cap * ha_kv_token_bytes(shape);
}

enum ha_status ha_ring_load(const struct ha_context *ctx, struct ha_ring *ring, const struct ha_prefill *in, size_t b,
                            size_t first)
{
    struct ha_stretch part[2];
    size_t end = ctx->shape->ctx[b], n = ha_ring_stretches(ring, first, end - first, part);
    for (size_t i = 0; i < n; i++)
        HA_TRY(ha_kv_load(ctx, &ring->kv, part[i].slot, in, b, part[i].position, part[i].count));
    ring->first = first;
    ring->end = end;
    return HA_OK;
}

size_t ha_ring_evict_count(size_t l_cur, size_t blk_size, size_t blk_num)
{
    size_t l_max = blk_size * blk_num;
    if (l_cur < l_max) return 0;
    return (l_cur - l_max + 1 + blk_size - 1) / blk_size * blk_size;
}
