#include "suites/parts/turned_keys.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/numeric.h"
#include "harness/base/order.h"
#include "harness/base/pool.h"
#include "harness/base/rotate.h"
#include "harness/base/why.h"

#include <math.h>

enum { TOKENS_AT_ONCE = 4096, ALIGNED = 64 };

static size_t key_bytes(const struct ha_turned *t) { return HA_PQ_KEYS * t->shape.head_dim * sizeof(float); }

/* A row of the tables of a layer, here or there. */
static size_t turn_at(const struct ha_turned *t, size_t layer, size_t token)
{
    return layer * t->turn_floats + token * t->ctx.projection[layer].rotary;
}

static enum ha_status create_tables(struct ha_turned *t, struct ha_why *why)
{
    const struct ha_context *ctx = &t->ctx;
    const size_t tokens = ha_kv_longest(&t->shape);
    for (size_t l = 0; l < t->shape.layers; l++)
        t->turn_floats = ha_most(t->turn_floats, tokens * ctx->projection[l].rotary);
    const size_t bytes = t->shape.layers * t->turn_floats * sizeof *t->turn;
    t->turn = ha_alloc(ctx->arena, bytes, HA_TAG_META, why);
    t->there = t->turn ? ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_META, why) : NULL;
    if (!t->there) return HA_ERROR;
    for (size_t l = 0; l < t->shape.layers; l++)
        for (size_t i = 0; i < tokens; i++) ha_rotate_turn(&ctx->projection[l], i, t->turn + turn_at(t, l, i));
    HA_TRY(ctx->api->copy(ctx->stream, t->there, t->turn, bytes, HA_H2D));
    return ctx->api->stream_sync(ctx->stream);
}

enum ha_status ha_turned_create(struct ha_turned *t, const struct ha_context *ctx, const struct ha_codebooks *books,
                                struct ha_why *why)
{
    *t = (struct ha_turned){ .books = books, .shape = *ctx->shape, .ctx = *ctx };
    const size_t threads = ha_pool_threads(ctx->pool), token = ha_kv_token_bytes(ctx->shape);
    if (!ctx->api->rotate) return ha_why(why, HA_WAIVED, "rotary=before: the device does not turn keys (rotate)");
    t->shape.dtype = HA_F32;
    t->ctx.shape = &t->shape;
    t->at_once = ha_least(TOKENS_AT_ONCE, ha_kv_longest(&t->shape));
    t->scratch_bytes = key_bytes(t) + (ha_pq_block_bytes(&books->pq) + ALIGNED - 1) / ALIGNED * ALIGNED;
    HA_TRY(create_tables(t, why));
    t->scratch = ha_alloc(ctx->arena, threads * t->scratch_bytes, HA_TAG_SCRATCH, why);
    if (!t->scratch) return HA_ERROR;
    t->down = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, t->at_once * token, HA_TAG_SCRATCH, why);
    if (!t->down) return HA_ERROR;
    const size_t up = t->at_once * ha_kv_token_bytes(&t->shape);
    t->up = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, up, HA_TAG_SCRATCH, why);
    return t->up ? HA_OK : HA_ERROR;
}

/* ---- what stands for keys ---------------------------------------------------------------------------------------- */

/* Tokens in host memory. */
struct put {
    struct ha_turned *t;
    size_t layer, first, count;
    const unsigned char *from;
    size_t head_bytes, token_bytes;
};

/* HA_PQ_KEYS keys of a head: the centroids of their codes, joined. */
static void join_task(void *arg, size_t task, size_t worker)
{
    const struct put *p = arg;
    struct ha_turned *t = p->t;
    const struct ha_context *ctx = &t->ctx;
    const struct ha_projection *projection = &ctx->projection[p->layer];
    const size_t tasks = (p->count + HA_PQ_KEYS - 1) / HA_PQ_KEYS, head = task / tasks,
                 first = task % tasks * HA_PQ_KEYS, n = ha_least(HA_PQ_KEYS, p->count - first), dim = t->shape.head_dim;
    unsigned char *codes = t->scratch + worker * t->scratch_bytes + key_bytes(t);
    float *key = (float *)(void *)(t->scratch + worker * t->scratch_bytes);
    const struct ha_pq pq = ha_codebooks_here(t->books, p->layer, head);
    struct ha_why none;
    for (size_t i = 0; i < n; i++) {
        const unsigned char *from = p->from + head * p->head_bytes + (first + i) * p->token_bytes;
        ha_load_row(from, dim, t->books->ctx->shape->dtype, key + i * dim);
        ha_rotate_back(projection, t->turn + turn_at(t, p->layer, p->first + first + i), key + i * dim);
    }
    ctx->kernels->pq_encode(&(struct ha_pq_encode){
        .pq = pq,
        .rows = { .k = key, .k_stride_bytes = dim * sizeof *key, .keys = n },
        .dtype = HA_F32,
        .codes = codes,
    });
    float *up = t->up + (head * t->at_once + first) * dim;
    if (ha_codebooks_join(ctx, &pq, codes, n, up, &none) == HA_OK) return;
    for (size_t i = 0; i < n * dim; i++) up[i] = NAN; /* codes that are none stand for no key */
}

static enum ha_status put(const struct put *p, struct ha_stream *stream, const struct ha_head_rows *rows)
{
    struct ha_turned *t = p->t;
    const struct ha_device_api *api = t->ctx.api;
    const struct ha_projection *projection = &t->ctx.projection[p->layer];
    const size_t heads = t->shape.kv_heads, row = ha_kv_head_bytes(&t->shape);
    struct put task = *p;
    ha_order_thread_access("encode", "joined", HA_WRITE, t->up, 1, 0, heads * t->at_once * row);
    ha_pool_run(t->ctx.pool, "encode", heads * ((p->count + HA_PQ_KEYS - 1) / HA_PQ_KEYS), join_task, &task);
    HA_TRY(api->copy_2d(stream, rows->at + p->first * row, rows->head_bytes, t->up, t->at_once * row, p->count * row,
                        heads, HA_H2D));
    for (size_t h = 0; h < heads; h++)
        HA_TRY(api->rotate(stream, &(struct ha_device_rotate){
                                       .q = (float *)(void *)(rows->at + h * rows->head_bytes + p->first * row),
                                       .tokens = p->count,
                                       .heads = 1,
                                       .head_dim = t->shape.head_dim,
                                       .turn = t->there + turn_at(t, p->layer, p->first),
                                       .rotary = projection->rotary,
                                       .adjacent = projection->adjacent }));
    return api->stream_sync(stream);
}

enum ha_status ha_turned_prefill(struct ha_turned *t, size_t layer, size_t b, const struct ha_prefill *in,
                                 const struct ha_head_rows *rows)
{
    const size_t tokens = t->shape.ctx[b], row = ha_kv_head_bytes(t->books->ctx->shape);
    struct put p = { .t = t, .layer = layer, .head_bytes = in->cap * row, .token_bytes = row };
    for (; p.first < tokens; p.first += p.count) {
        p.count = ha_least(t->at_once, tokens - p.first);
        p.from = (const unsigned char *)in->k[b] + p.first * row;
        HA_TRY(put(&p, t->ctx.stream, rows));
    }
    return HA_OK;
}

enum ha_status ha_turned_put(struct ha_turned *t, struct ha_stream *stream, size_t layer,
                             const struct ha_head_rows *rows, const unsigned char *k, size_t first, size_t count)
{
    const size_t row = ha_kv_head_bytes(t->books->ctx->shape), token = t->shape.kv_heads * row;
    struct put p = { .t = t, .layer = layer, .from = t->down, .head_bytes = row, .token_bytes = token };
    for (size_t at = 0; at < count; at += p.count) {
        p.first = first + at;
        p.count = ha_least(t->at_once, count - at);
        HA_TRY(t->ctx.api->copy(stream, t->down, k + at * token, p.count * token, HA_D2H));
        HA_TRY(t->ctx.api->stream_sync(stream));
        ha_order_thread_access("encode", "K", HA_READ, t->down, 1, 0, p.count * token);
        HA_TRY(put(&p, stream, rows));
    }
    return HA_OK;
}
