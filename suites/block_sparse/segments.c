#include "suites/block_sparse/segments.h"

#include "harness/base/pool.h"
#include "harness/base/why.h"

size_t ha_segments_rows(const struct ha_shape *shape, size_t b, size_t sink, size_t recent)
{
    return ha_kv_max_tokens(shape, b) - ha_label_host(shape->ctx[b], sink, recent);
}

enum ha_status ha_segments_open(const struct ha_context *ctx, size_t b, size_t sink, size_t recent,
                                enum ha_memory memory, struct ha_segments *seg, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    seg->sinks = ha_least(sink, s->ctx[b]);
    seg->host = ha_label_host(s->ctx[b], sink, recent);
    HA_TRY(ha_kv_create(ctx, memory, seg->host, &seg->store, why));
    for (size_t i = 0; i < HA_GRANULARITIES; i++)
        HA_TRY(ha_digests_create(ctx, HA_MEM_PINNED, ha_granularity_block(i), b, &seg->digests[i], why));
    return HA_OK;
}

struct summary {
    const struct ha_context *ctx;
    enum ha_digest_kind kind;
    const struct ha_segments *seg;
    struct ha_device_digest_seq due[HA_GRANULARITIES];
};

/* One KV head, blocks of every size. */
static void summarise(void *arg, size_t head, size_t worker)
{
    const struct summary *of = arg;
    for (size_t i = 0; i < HA_GRANULARITIES; i++)
        ha_digests_make(of->ctx, of->kind, &of->seg->digests[i], &of->due[i], head);
}

enum ha_status ha_segments_prefill(const struct ha_context *ctx, size_t b, const struct ha_prefill *in,
                                   enum ha_digest_kind kind, struct ha_segments *seg, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    const size_t last = seg->sinks + seg->host;
    struct summary of = { .ctx = ctx, .kind = kind, .seg = seg };
    HA_TRY(ha_kv_load(ctx, &seg->device, 0, in, b, 0, seg->sinks));
    HA_TRY(ha_kv_load(ctx, &seg->device, seg->sinks, in, b, last, s->ctx[b] - last));
    HA_TRY(ha_kv_load(ctx, &seg->store, 0, in, b, seg->sinks, seg->host));
    for (size_t i = 0; i < HA_GRANULARITIES; i++)
        of.due[i] = ha_digests_due(s, &seg->digests[i], &seg->store, seg->host);
    ha_pool_run(ctx->pool, "digest", s->kv_heads, summarise, &of);
    return HA_OK;
}

enum ha_status ha_segments_append(const struct ha_context *ctx, const struct ha_segments *seg, size_t tokens,
                                  const struct ha_kv *fresh)
{
    return ha_kv_copy(ctx, ctx->stream, &seg->device, tokens - seg->host, fresh, 0, fresh->cap);
}

struct ha_rows ha_segments_sink(const struct ha_shape *shape, const struct ha_segments *seg)
{
    return ha_kv_rows(shape, &seg->device, 0, 0, seg->sinks);
}

struct ha_rows ha_segments_local(const struct ha_shape *shape, const struct ha_segments *seg, size_t tokens)
{
    return ha_kv_rows(shape, &seg->device, 0, seg->sinks, tokens - seg->host - seg->sinks);
}

enum ha_status ha_segments_use(const struct ha_context *ctx, const struct ha_segments *seg, size_t tokens,
                               struct ha_positions *device, struct ha_why *why)
{
    HA_TRY(ha_positions_add_range(ctx, device, 0, seg->sinks, why));
    return ha_positions_add_range(ctx, device, seg->sinks + seg->host, tokens, why);
}
