#include "suites/parts/block_store.h"

#include "harness/base/why.h"
#include "suites/parts/places.h"

static size_t rows(const struct ha_layer *l, size_t b, size_t piece)
{
    return ha_tail_rows(l->ctx->shape, l->block, 0, ha_kv_max_tokens(l->ctx->shape, b));
}

const unsigned char *ha_block_store_place(const struct ha_layer *l, size_t b, size_t position)
{
    return ha_ring_place(l->ctx->shape, &ha_block_store_of(l, b)->tail.ring, position);
}

enum ha_status ha_block_store_open(struct ha_layer *l, size_t b, size_t unit, const struct ha_kv *kv,
                                   struct ha_why *why)
{
    struct ha_block_store *store = ha_block_store_of(l, b);
    l->block = unit;
    store->kv = *kv;
    struct ha_kv tail;
    HA_TRY(ha_places_open(l, b, 1, rows, &tail, why));
    store->tail = ha_tail_of(unit, 0, &tail);
    return ha_digests_create(l->ctx, HA_MEM_DEVICE, unit, b, &store->digests, why);
}

enum ha_status ha_block_store_prefill(const struct ha_layer *l, size_t b, const struct ha_prefill *in)
{
    struct ha_block_store *store = ha_block_store_of(l, b);
    HA_TRY(ha_kv_load(l->ctx, &store->kv, 0, in, b, 0, l->ctx->shape->ctx[b] / l->block * l->block));
    return ha_tail_load(l->ctx, &store->tail, in, b, 0);
}

void ha_block_store_device(const struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct ha_kv fresh = ha_kv_of_step(s, step, b);
    d->runs_count += ha_ring_runs(s, &ha_block_store_of(l, b)->tail.ring, d->runs + d->runs_count);
    d->runs[d->runs_count++] = ha_kv_rows(s, &fresh, 0, 0, step->q_len);
}

enum ha_status ha_block_store_use(const struct ha_layer *l, size_t b, struct ha_positions *used, struct ha_why *why)
{
    const struct ha_ring *tail = &ha_block_store_of(l, b)->tail.ring;
    return ha_positions_add_range(l->ctx, used, tail->first, tail->end + l->ctx->shape->q_len, why);
}

/* What makes the digest of the next block, if it is whole. */
static struct ha_device_digest_seq next_digest(const struct ha_layer *l, size_t b)
{
    struct ha_block_store *store = ha_block_store_of(l, b);
    const size_t block = store->digests.blocks, end = (block + 1) * l->block, tokens = ha_least(l->tokens[b], end);
    struct ha_device_digest_seq due = ha_digests_due(l->ctx->shape, &store->digests, &store->kv, tokens);
    if (tokens == end) due.rows = ha_tail_block(l->ctx->shape, &store->tail, block);
    return due;
}

/* The digests of one block of each sequence at a time. */
enum ha_status ha_block_store_close(const struct ha_layer *l, const struct ha_device_choice *c)
{
    const size_t batch = l->ctx->shape->batch;
    size_t gone;
    for (bool any = true; any;) {
        for (size_t b = 0; b < batch; b++) c->digest[b] = next_digest(l, b);
        HA_TRY(ha_device_choice_digest(c, &any));
    }
    for (size_t b = 0; b < batch; b++) {
        struct ha_block_store *store = ha_block_store_of(l, b);
        HA_TRY(ha_tail_leave(l->ctx, l->ctx->stream, &store->tail, &store->kv, &gone));
    }
    return HA_OK;
}

enum ha_status ha_block_store_append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    struct ha_ring *tail = &ha_block_store_of(l, b)->tail.ring;
    if (!l->placed) return ha_ring_append(l->ctx, l->ctx->stream, tail, fresh, 0, fresh->cap);
    tail->end += fresh->cap;
    return HA_OK;
}

enum ha_status ha_block_store_rewind(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct ha_block_store *store = ha_block_store_of(l, b);
    store->digests.blocks = ha_least(store->digests.blocks, l->tokens[b] / l->block);
    return ha_tail_rewind(l->ctx, &store->tail, &store->kv, l->tokens[b]);
}
