#include "suites/parts/kept.h"

#include "harness/base/why.h"

size_t ha_kept_cap(const struct ha_shape *shape, size_t sink, size_t recent, size_t b)
{
    return ha_least(sink + recent, ha_kv_max_tokens(shape, b));
}

const unsigned char *ha_kept_place(const struct ha_shape *shape, const struct ha_kept *k, size_t position)
{
    if (k->recent < shape->q_len) return NULL;
    const size_t row = position < k->sink ? position : k->sink + (position - k->sink) % k->recent;
    return k->kv.k + row * ha_kv_token_bytes(shape);
}

enum ha_status ha_kept_create(const struct ha_context *ctx, size_t sink, size_t recent, size_t b, struct ha_kept *k,
                              struct ha_why *why)
{
    *k = (struct ha_kept){ .sink = sink, .recent = recent };
    return ha_kv_create(ctx, HA_MEM_DEVICE, ha_kept_cap(ctx->shape, sink, recent, b), &k->kv, why);
}

size_t ha_kept_window(const struct ha_kept *k, size_t tokens)
{
    return ha_most(tokens > k->recent ? tokens - k->recent : 0, ha_least(k->sink, tokens));
}

enum ha_status ha_kept_put(const struct ha_context *ctx, const struct ha_kept *k, const struct ha_kv *src, size_t from,
                           size_t first, size_t count, size_t tokens)
{
    const size_t end = first + count, sinks = first < k->sink ? ha_least(k->sink - first, count) : 0;
    HA_TRY(ha_kv_copy(ctx, ctx->stream, &k->kv, first, src, from, sinks));
    for (size_t t = ha_most(first + sinks, ha_kept_window(k, tokens)), n; t < end; t += n) {
        const size_t row = (t - k->sink) % k->recent;
        n = ha_least(k->recent - row, end - t);
        HA_TRY(ha_kv_copy(ctx, ctx->stream, &k->kv, k->sink + row, src, from + t - first, n));
    }
    return HA_OK;
}

enum ha_status ha_kept_rewind(const struct ha_context *ctx, const struct ha_kept *k, const struct ha_kv *store,
                              size_t tokens)
{
    const size_t window = ha_kept_window(k, tokens);
    return ha_kept_put(ctx, k, store, window, window, tokens - window, tokens);
}

struct ha_kv ha_kept_rest(const struct ha_shape *shape, const struct ha_kept *k, const struct ha_kv *store)
{
    const size_t sinks = ha_least(k->sink, store->cap), bytes = sinks * ha_kv_token_bytes(shape);
    return (struct ha_kv){ store->memory, store->k + bytes, store->v + bytes, store->cap - sinks };
}

struct ha_rows ha_kept_rows(const struct ha_shape *shape, const struct ha_kept *k, size_t tokens)
{
    return ha_kv_rows(shape, &k->kv, 0, 0, ha_least(tokens, k->sink + k->recent));
}

enum ha_status ha_kept_use(const struct ha_context *ctx, const struct ha_kept *k, size_t tokens, size_t fresh,
                           struct ha_positions *used, struct ha_why *why)
{
    HA_TRY(ha_positions_add_range(ctx, used, 0, ha_least(k->sink, tokens), why));
    return ha_positions_add_range(ctx, used, ha_kept_window(k, tokens), tokens + fresh, why);
}

void ha_kept_device(const struct ha_layer *l, const struct ha_kept *k, const struct ha_step *step, size_t b,
                    struct ha_device_seq *d)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct ha_kv fresh = ha_kv_of_step(s, step, b);
    d->runs[d->runs_count++] = ha_kept_rows(s, k, l->tokens[b]);
    d->runs[d->runs_count++] = ha_kv_rows(s, &fresh, 0, 0, step->q_len);
}
