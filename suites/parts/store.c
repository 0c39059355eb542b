#include "suites/parts/store.h"

#include "harness/base/arena.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"

#include <string.h>

/* Tokens of one task of a load: of one head some MiB at most. */
enum { LOAD_TOKENS = 128 * HA_PACK_KEYS };

static size_t whole(size_t tokens) { return tokens / HA_PACK_KEYS * HA_PACK_KEYS; }
static size_t held(const struct ha_kv_store *store) { return store->tokens - store->packed; }

enum ha_status ha_kv_store_create(const struct ha_context *ctx, bool packed, size_t b, struct ha_kv_store *store,
                                  struct ha_why *why)
{
    return ha_kv_store_create_for(ctx, packed, ha_kv_max_tokens(ctx->shape, b), ctx->shape->q_len, store, why);
}

enum ha_status ha_kv_store_create_for(const struct ha_context *ctx, bool packed, size_t most, size_t burst,
                                      struct ha_kv_store *store, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    *store = (struct ha_kv_store){ .blocks = NULL };
    if (!packed || !ha_packs(s->head_dim)) return ha_kv_create(ctx, HA_MEM_PINNED, most, &store->open, why);
    store->head_bytes = most / HA_PACK_KEYS * ha_packed_block_bytes(s->head_dim, s->dtype);
    store->blocks = ha_alloc(ctx->arena, s->kv_heads * store->head_bytes, HA_TAG_KV, why);
    if (!store->blocks) return HA_ERROR;
    /* rows: a block not yet whole, and what is appended at once */
    return ha_kv_create(ctx, HA_MEM_PINNED, ha_least(HA_PACK_KEYS - 1 + burst, most), &store->open, why);
}

static void pack(const struct ha_context *ctx, const struct ha_kv_store *store, size_t head, size_t at,
                 const struct ha_rows *rows)
{
    ctx->kernels->pack(&(struct ha_pack){ .blocks = store->blocks + head * store->head_bytes,
                                          .at = at,
                                          .rows = *rows,
                                          .head_dim = ctx->shape->head_dim,
                                          .dtype = ctx->shape->dtype });
}

struct load {
    const struct ha_context *ctx;
    const struct ha_kv_store *store;
    const unsigned char *k, *v; /* [kv_heads][cap][head_dim] */
    size_t cap, tokens, slices;
};

static void load_task(void *arg, size_t task, size_t worker)
{
    const struct load *l = arg;
    size_t row = ha_kv_head_bytes(l->ctx->shape), head = task / l->slices, first = task % l->slices * LOAD_TOKENS;
    size_t left = whole(l->tokens) - first, at = (head * l->cap + first) * row;
    pack(l->ctx, l->store, head, first,
         &(struct ha_rows){ .k = l->k + at,
                            .v = l->v + at,
                            .k_stride_bytes = row,
                            .v_stride_bytes = row,
                            .keys = ha_least(left, LOAD_TOKENS) });
}

enum ha_status ha_kv_store_load(const struct ha_context *ctx, struct ha_kv_store *store, const struct ha_prefill *in,
                                size_t b)
{
    return ha_kv_store_load_range(ctx, store, in, b, 0, ctx->shape->ctx[b]);
}

enum ha_status ha_kv_store_load_range(const struct ha_context *ctx, struct ha_kv_store *store,
                                      const struct ha_prefill *in, size_t b, size_t first, size_t count)
{
    const struct ha_shape *s = ctx->shape;
    const size_t from = first * ha_kv_head_bytes(s);
    store->tokens = count;
    store->packed = store->blocks ? whole(count) : 0;
    if (store->packed) {
        struct load l = { .ctx = ctx,
                          .store = store,
                          .k = (const unsigned char *)in->k[b] + from,
                          .v = (const unsigned char *)in->v[b] + from,
                          .cap = in->cap,
                          .tokens = count,
                          .slices = (store->packed + LOAD_TOKENS - 1) / LOAD_TOKENS };
        ha_pool_run(ctx->pool, "pack", s->kv_heads * l.slices, load_task, &l);
    }
    return ha_kv_load(ctx, &store->open, 0, in, b, first + store->packed, held(store));
}

enum ha_status ha_kv_store_append(const struct ha_context *ctx, struct ha_stream *stream, struct ha_kv_store *store,
                                  const struct ha_kv *src, size_t from, size_t count)
{
    HA_TRY(ha_kv_copy(ctx, stream, &store->open, held(store), src, from, count));
    store->tokens += count;
    return HA_OK;
}

bool ha_kv_store_due(const struct ha_kv_store *store) { return store->blocks && held(store) >= HA_PACK_KEYS; }

void ha_kv_store_pack(const struct ha_context *ctx, struct ha_kv_store *store)
{
    size_t count = whole(held(store)), left = held(store) - count, token = ha_kv_token_bytes(ctx->shape);
    if (!ha_kv_store_due(store)) return;
    for (size_t h = 0; h < ctx->shape->kv_heads; h++) {
        struct ha_rows rows = ha_kv_rows(ctx->shape, &store->open, h, 0, count);
        pack(ctx, store, h, store->packed, &rows);
    }
    memmove(store->open.k, store->open.k + count * token, left * token);
    memmove(store->open.v, store->open.v + count * token, left * token);
    store->packed += count;
}

struct ha_packed ha_kv_store_packed(const struct ha_kv_store *store, size_t head)
{
    if (!store->blocks) return (struct ha_packed){ .keys = 0 };
    return (struct ha_packed){ .blocks = store->blocks + head * store->head_bytes, .keys = store->packed };
}

struct ha_rows ha_kv_store_open(const struct ha_shape *shape, const struct ha_kv_store *store, size_t head)
{
    return ha_kv_rows(shape, &store->open, head, 0, held(store));
}

void ha_kv_store_blocks(const struct ha_shape *shape, const struct ha_kv_store *store, size_t head, size_t unit,
                        const uint32_t *index, size_t count, struct ha_attend *a, struct ha_rows *run)
{
    a->packed = ha_kv_store_packed(store, head);
    *run = ha_kv_store_open(shape, store, head);
    if (!store->blocks) {
        run->index = index;
        run->keys = count * unit;
        a->block = unit;
        return;
    }
    a->packed.index = index;
    a->packed.unit = unit;
    a->packed.units = count;
    if (count == 0 || index[count - 1] * unit < store->packed) run->keys = 0;
    else a->packed.units--;
}

void ha_kv_store_read(const struct ha_context *ctx, const struct ha_kv_store *store, size_t head, size_t first,
                      size_t count, void *k, void *v, size_t stride_bytes)
{
    const struct ha_shape *s = ctx->shape;
    size_t packed = first >= store->packed ? 0 : store->packed - first < count ? store->packed - first : count;
    unsigned char *to_k = k, *to_v = v;
    if (packed)
        ctx->kernels->unpack(&(struct ha_unpack){ .blocks = store->blocks + head * store->head_bytes,
                                                  .first = first,
                                                  .keys = packed,
                                                  .head_dim = s->head_dim,
                                                  .dtype = s->dtype,
                                                  .k = k,
                                                  .v = v,
                                                  .k_stride_bytes = stride_bytes,
                                                  .v_stride_bytes = stride_bytes });
    if (packed == count) return;
    struct ha_rows rows = ha_kv_rows(s, &store->open, head, first + packed - store->packed, count - packed);
    for (size_t i = 0; i < rows.keys; i++) {
        memcpy(to_k + (packed + i) * stride_bytes, (const unsigned char *)rows.k + i * rows.k_stride_bytes,
               ha_kv_head_bytes(s));
        memcpy(to_v + (packed + i) * stride_bytes, (const unsigned char *)rows.v + i * rows.v_stride_bytes,
               ha_kv_head_bytes(s));
    }
}

void ha_kv_store_rewind(const struct ha_context *ctx, struct ha_kv_store *store, size_t context)
{
    const struct ha_shape *s = ctx->shape;
    const size_t first = store->blocks ? whole(context) : 0, head = ha_kv_head_bytes(s);
    for (size_t h = 0; h < s->kv_heads && store->packed > first; h++)
        ha_kv_store_read(ctx, store, h, first, context - first, store->open.k + h * head, store->open.v + h * head,
                         ha_kv_token_bytes(s));
    store->packed = first;
    store->tokens = context;
}
