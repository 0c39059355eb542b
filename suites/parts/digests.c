#include "suites/parts/digests.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"

HA_SHARED_WORDS(ha_digest_word, [HA_DIGEST_RANGE] = "range", [HA_DIGEST_MEAN] = "mean")

enum ha_status ha_digests_create(const struct ha_context *ctx, enum ha_memory memory, size_t unit, size_t b,
                                 struct ha_digests *d, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    *d = (struct ha_digests){ .unit = unit };
    /* a multiple of 64 bytes, as every head must begin at one */
    d->head_bytes = (ha_digest_bytes(ha_kv_max_tokens(s, b) / unit, s->head_dim, s->dtype) + 63) / 64 * 64;
    d->bytes = ha_device_alloc(ctx->device_arena, memory, s->kv_heads * d->head_bytes, HA_TAG_META, why);
    if (!d->bytes || memory == HA_MEM_DEVICE) return d->bytes ? HA_OK : HA_ERROR;
    d->row = ha_alloc(ctx->arena, 2 * unit * ha_kv_head_bytes(s), HA_TAG_SCRATCH, why);
    return d->row ? HA_OK : HA_ERROR;
}

struct ha_device_digest_seq ha_digests_due(const struct ha_shape *shape, struct ha_digests *d, const struct ha_kv *kv,
                                           size_t tokens)
{
    const size_t first = d->blocks;
    d->blocks = ha_most(first, tokens / d->unit);
    return (struct ha_device_digest_seq){
        .digests = d->bytes,
        .head_bytes = d->head_bytes,
        .first = first,
        .blocks = d->blocks - first,
        .rows = ha_kv_rows(shape, kv, 0, first * d->unit, (d->blocks - first) * d->unit),
        .k_head_bytes = ha_kv_head_bytes(shape),
    };
}

void ha_digests_make(const struct ha_context *ctx, enum ha_digest_kind kind, const struct ha_digests *d,
                     const struct ha_device_digest_seq *due, size_t head)
{
    struct ha_digest one = { .kind = kind,
                             .digests = d->bytes + head * d->head_bytes,
                             .first = due->first,
                             .blocks = due->blocks,
                             .unit = d->unit,
                             .rows = due->rows,
                             .head_dim = ctx->shape->head_dim,
                             .dtype = ctx->shape->dtype };
    one.rows.k = (const unsigned char *)one.rows.k + head * due->k_head_bytes;
    ctx->kernels->digest(&one);
}

void ha_digests_of_store(const struct ha_context *ctx, enum ha_digest_kind kind, struct ha_digests *d,
                         const struct ha_kv_store *store)
{
    const struct ha_shape *s = ctx->shape;
    const size_t row = ha_kv_head_bytes(s);
    for (; (d->blocks + 1) * d->unit <= store->tokens; d->blocks++)
        for (size_t h = 0; h < s->kv_heads; h++) {
            ha_kv_store_read(ctx, store, h, d->blocks * d->unit, d->unit, d->row, d->row + d->unit * row, row);
            ctx->kernels->digest(&(struct ha_digest){
                .kind = kind,
                .digests = d->bytes + h * d->head_bytes,
                .first = d->blocks,
                .blocks = 1,
                .unit = d->unit,
                .rows = { .k = d->row, .v = NULL, .k_stride_bytes = row, .v_stride_bytes = row, .keys = d->unit },
                .head_dim = s->head_dim,
                .dtype = s->dtype });
        }
}
