#include "suites/parts/block_store.h"

#include "harness/base/why.h"

enum ha_status ha_block_store_create(const struct ha_context *ctx, size_t unit, size_t b, const struct ha_kv *kv,
                                     struct ha_block_store *store, struct ha_why *why)
{
    store->kv = *kv;
    HA_TRY(ha_tail_create(ctx, unit, 0, ha_kv_max_tokens(ctx->shape, b), &store->tail, why));
    return ha_digests_create(ctx, HA_MEM_DEVICE, unit, b, &store->digests, why);
}

enum ha_status ha_block_store_load(const struct ha_context *ctx, struct ha_block_store *store,
                                   const struct ha_prefill *in, size_t b)
{
    const size_t unit = store->tail.unit;
    HA_TRY(ha_kv_load(ctx, &store->kv, 0, in, b, 0, ctx->shape->ctx[b] / unit * unit));
    return ha_tail_load(ctx, &store->tail, in, b, 0);
}

enum ha_status ha_block_store_append(const struct ha_context *ctx, struct ha_block_store *store,
                                     const struct ha_kv *fresh)
{
    return ha_ring_append(ctx, ctx->stream, &store->tail.ring, fresh, 0, fresh->cap);
}

/* What makes the digest of the next block, if it is whole with so many tokens. */
static struct ha_device_digest_seq next_digest(const struct ha_shape *s, struct ha_block_store *store, size_t tokens)
{
    const size_t block = store->digests.blocks, end = (block + 1) * store->tail.unit;
    struct ha_device_digest_seq due = ha_digests_due(s, &store->digests, &store->kv, ha_least(tokens, end));
    if (tokens >= end) due.rows = ha_tail_block(s, &store->tail, block);
    return due;
}

enum ha_status ha_block_store_close(const struct ha_device_choice *c, struct ha_block_store *store,
                                    const size_t *tokens)
{
    const struct ha_context *ctx = c->ctx;
    for (bool any = true; any;) {
        for (size_t b = 0; b < ctx->shape->batch; b++) c->digest[b] = next_digest(ctx->shape, &store[b], tokens[b]);
        HA_TRY(ha_device_choice_digest(c, &any));
    }
    size_t gone;
    for (size_t b = 0; b < ctx->shape->batch; b++)
        HA_TRY(ha_tail_leave(ctx, ctx->stream, &store[b].tail, &store[b].kv, &gone));
    return HA_OK;
}

void ha_block_store_device(const struct ha_shape *shape, const struct ha_block_store *store, const struct ha_kv *fresh,
                           struct ha_device_seq *d)
{
    d->runs_count += ha_ring_runs(shape, &store->tail.ring, d->runs + d->runs_count);
    d->runs[d->runs_count++] = ha_kv_rows(shape, fresh, 0, 0, shape->q_len);
}

enum ha_status ha_block_store_use(const struct ha_context *ctx, const struct ha_block_store *store,
                                  struct ha_positions *used, struct ha_why *why)
{
    const struct ha_ring *tail = &store->tail.ring;
    return ha_positions_add_range(ctx, used, tail->first, tail->end + ctx->shape->q_len, why);
}

enum ha_status ha_block_store_rewind(const struct ha_context *ctx, struct ha_block_store *store, size_t tokens)
{
    store->digests.blocks = ha_least(store->digests.blocks, tokens / store->tail.unit);
    return ha_tail_rewind(ctx, &store->tail, &store->kv, tokens);
}
