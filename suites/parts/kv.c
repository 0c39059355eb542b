#include "suites/parts/kv.h"

#include "harness/base/device_arena.h"
#include "harness/base/order.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"

#include <string.h>

HA_SHARED_WORDS(ha_kv_layout_word, [HA_KV_NATURAL] = "natural", [HA_KV_PACKED] = "packed", [HA_KV_PLANNED] = "plan")

bool ha_kv_is_packed(const struct ha_context *ctx, size_t layout)
{
    if (layout == HA_KV_PLANNED) return !ctx->kernels->rows_faster[ctx->shape->dtype];
    return layout == HA_KV_PACKED;
}

size_t ha_kv_head_bytes(const struct ha_shape *shape) { return shape->head_dim * ha_dtype_bytes(shape->dtype); }
size_t ha_kv_token_bytes(const struct ha_shape *shape) { return shape->kv_heads * ha_kv_head_bytes(shape); }
size_t ha_kv_max_tokens(const struct ha_shape *shape, size_t b) { return shape->ctx[b] + shape->steps * shape->q_len; }

size_t ha_kv_longest(const struct ha_shape *shape)
{
    size_t longest = 0;
    for (size_t b = 0; b < shape->batch; b++) longest = ha_most(longest, ha_kv_max_tokens(shape, b));
    return longest;
}

enum ha_status ha_kv_create(const struct ha_context *ctx, enum ha_memory memory, size_t cap, struct ha_kv *kv,
                            struct ha_why *why)
{
    size_t bytes = cap * ha_kv_token_bytes(ctx->shape);
    *kv = (struct ha_kv){ .memory = memory, .cap = cap };
    kv->k = ha_device_alloc(ctx->device_arena, memory, bytes, HA_TAG_KV, why);
    kv->v = kv->k ? ha_device_alloc(ctx->device_arena, memory, bytes, HA_TAG_KV, why) : NULL;
    return kv->v ? HA_OK : HA_ERROR;
}

enum ha_status ha_kv_mapped(const struct ha_context *ctx, struct ha_why *why)
{
    void *some = NULL;
    struct ha_why less = { "" };
    if (ctx->api->mem_alloc(ctx->device, HA_MEM_MAPPED, 64, &some, &less) != HA_OK)
        return ha_why(why, HA_WAIVED, "the device has no mapped memory: %.200s", less.text);
    ctx->api->mem_free(ctx->device, HA_MEM_MAPPED, some);
    return HA_OK;
}

struct ha_rows ha_kv_rows(const struct ha_shape *shape, const struct ha_kv *kv, size_t head, size_t first, size_t count)
{
    size_t token = ha_kv_token_bytes(shape), at = first * token + head * ha_kv_head_bytes(shape);
    return (struct ha_rows){
        .k = kv->k + at, .v = kv->v + at, .k_stride_bytes = token, .v_stride_bytes = token, .keys = count
    };
}

/* tokens of one task of a load */
enum { LOAD_TOKENS = 1024 };

struct load {
    const struct ha_shape *shape;
    const unsigned char *src[2]; /* K, V: [kv_heads][cap][head_dim], from the first token on */
    unsigned char *dst[2];
    size_t cap, count;
};

static void load_task(void *arg, size_t task, size_t worker)
{
    const struct load *l = arg;
    size_t token = ha_kv_token_bytes(l->shape), head = ha_kv_head_bytes(l->shape), first = task * LOAD_TOKENS;
    size_t end = ha_least(first + LOAD_TOKENS, l->count);
    for (int i = 0; i < 2; i++)
        ha_order_thread_access("load", i ? "V" : "K", HA_WRITE, l->dst[i] + first * token, 1, 0, (end - first) * token);
    for (int i = 0; i < 2; i++)
        for (size_t h = 0; h < l->shape->kv_heads; h++)
            for (size_t t = first; t < end; t++)
                memcpy(l->dst[i] + t * token + h * head, l->src[i] + (h * l->cap + t) * head, head);
}

/* tokens whose K and V go up at a time, in each half of the staging */
static size_t staged_tokens(const struct ha_shape *shape)
{
    enum { HALF_BYTES = 8 << 20 };
    return ha_least(ha_kv_longest(shape), ha_most(1, HALF_BYTES / (2 * ha_kv_token_bytes(shape))));
}

void *ha_kv_staging(const struct ha_context *ctx, struct ha_why *why)
{
    return ha_device_staging(ctx->device_arena, 4 * staged_tokens(ctx->shape) * ha_kv_token_bytes(ctx->shape), why);
}

static void load_all(const struct ha_context *ctx, struct load *l)
{
    ha_pool_run(ctx->pool, "load", (l->count + LOAD_TOKENS - 1) / LOAD_TOKENS, load_task, l);
}

/* Into device memory by way of pinned memory: rows of pageable memory would be taken through a buffer of the driver's,
 * while nothing else moves. While one half goes up, the workers fill the other. */
static enum ha_status load_staged(const struct ha_context *ctx, const struct load *all)
{
    const size_t token = ha_kv_token_bytes(all->shape), head = ha_kv_head_bytes(all->shape),
                 piece = staged_tokens(all->shape);
    unsigned char *const staging = ha_kv_staging(ctx, NULL);
    if (!staging) return HA_ERROR;
    for (size_t first = 0, half = 0; first < all->count; first += piece, half = !half) {
        struct load part = *all;
        part.count = ha_least(piece, all->count - first);
        for (size_t i = 0; i < 2; i++) {
            part.src[i] += first * head;
            part.dst[i] = staging + (2 * half + i) * piece * token;
        }
        load_all(ctx, &part);
        HA_TRY(ctx->api->stream_sync(ctx->stream)); /* the other half is up */
        for (size_t i = 0; i < 2; i++)
            HA_TRY(ctx->api->copy(ctx->stream, all->dst[i] + first * token, part.dst[i], part.count * token, HA_H2D));
    }
    return ctx->api->stream_sync(ctx->stream);
}

enum ha_status ha_kv_load(const struct ha_context *ctx, const struct ha_kv *kv, size_t at, const struct ha_prefill *in,
                          size_t b, size_t first, size_t count)
{
    const struct ha_shape *s = ctx->shape;
    size_t token = ha_kv_token_bytes(s), head = ha_kv_head_bytes(s);
    struct load l = { .shape = s,
                      .src = { (const unsigned char *)in->k[b] + first * head,
                               (const unsigned char *)in->v[b] + first * head },
                      .dst = { kv->k + at * token, kv->v + at * token },
                      .cap = in->cap,
                      .count = count };
    if (!count) return HA_OK;
    if (kv->memory == HA_MEM_DEVICE) return load_staged(ctx, &l);
    load_all(ctx, &l);
    return HA_OK;
}

struct ha_kv ha_kv_of_step(const struct ha_shape *shape, const struct ha_step *step, size_t b)
{
    size_t at = b * step->q_len * ha_kv_token_bytes(shape);
    /* the ring and the stores copy out of it and never write: the cast only serves the shared struct */
    return (struct ha_kv){ .memory = HA_MEM_DEVICE,
                           .k = (unsigned char *)(uintptr_t)step->k + at,
                           .v = (unsigned char *)(uintptr_t)step->v + at,
                           .cap = step->q_len };
}

enum ha_status ha_kv_copy(const struct ha_context *ctx, struct ha_stream *stream, const struct ha_kv *dst, size_t at,
                          const struct ha_kv *src, size_t from, size_t count)
{
    size_t token = ha_kv_token_bytes(ctx->shape);
    enum ha_direction dir = src->memory != HA_MEM_DEVICE ? HA_H2D : dst->memory != HA_MEM_DEVICE ? HA_D2H : HA_D2D;
    if (!count) return HA_OK;
    HA_TRY(ctx->api->copy(stream, dst->k + at * token, src->k + from * token, count * token, dir));
    return ctx->api->copy(stream, dst->v + at * token, src->v + from * token, count * token, dir);
}
