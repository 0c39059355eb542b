/* Retrieval heads and streaming heads: some KV heads keep all tokens, the others the first and the most recent ones
 * alone. All of it is on the device, in one pool, in which each head has as many rows as it keeps; one attention reads
 * them in place, by a list of blocks for each KV head. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/fit.h"
#include "harness/base/why.h"
#include "suites/parts/frame.h"
#include "suites/parts/reuse.h"
#include "suites/parts/vectors.h"

#include <stdlib.h>

enum { RETRIEVAL, SINK, RECENT };
static const struct ha_param params[] = {
    [RETRIEVAL] = { "retrieval", 0.5, 0, 1, "share of the model's KV heads that keep all tokens",
                    .draw = "0 0.25 0.5 1" },
    [SINK] = { "sink", 64, 0, 1 << 20, "first tokens of a streaming head that stay", .whole = true, .fitted = true,
               .draw = "0..512" },
    [RECENT] = { "recent", 256, 0, 1 << 30, "last tokens before a step of a streaming head that stay", .whole = true,
                 .fitted = true, .draw = "0..8192" },
};

enum { BLOCK = 16 }; /* rows of an entry of a list */

struct model {
    bool *retrieval; /* [layers][kv_heads], and behind them their opposites */
};

struct sequence {
    struct ha_vectors pool; /* device: of a retrieval head token t is row t, of a streaming head as `stretch` says */
    uint32_t *list;         /* device: [kv_heads][list_max] all blocks of each head */
    uint32_t *keys;         /* device: [steps][kv_heads] how many rows of it there are */
    size_t list_max;
};

static struct sequence *sequence(const struct ha_layer *l, size_t b) { return (struct sequence *)l->own + b; }
static size_t option(const struct ha_layer *l, size_t i) { return (size_t)l->ctx->param[i]; }

/* [kv_heads] of a layer, those that are retrieval heads or the streaming ones */
static const bool *heads(const struct ha_layer *l, bool retrieval)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct model *m = l->shared;
    return m->retrieval + ((retrieval ? 0 : s->layers) + l->layer) * s->kv_heads;
}

/* ---- which heads are retrieval heads ----------------------------------------------------------------------------- */

struct ranked {
    float importance;
    size_t order, head; /* layer * kv_heads + KV head */
};

static int most_important_first(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->importance != y->importance) return x->importance > y->importance ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static size_t count_of(double share, size_t n)
{
    size_t k = 0;
    while (k < n && (double)k / (double)n < share) k++;
    return k;
}

/* By importance, which a fit has. Of equals, and without a fit, one head of each layer after the other, another in each
 * layer. */
static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    struct model *m = first->shared;
    const size_t n = s->layers * s->kv_heads, count = count_of(ctx->param[RETRIEVAL], n);
    struct ha_tensor fit = { .name = "importance_kv", .type = HA_T_F32, .dims = 2, .dim = { s->layers, s->kv_heads } };
    if (ctx->fit) HA_TRY(ha_fit_get(ctx->fit, &fit, why));
    m->retrieval = ha_alloc(ctx->arena, 2 * n * sizeof *m->retrieval, HA_TAG_META, why);
    struct ranked *ranked = m->retrieval ? ha_alloc(ctx->arena, n * sizeof *ranked, HA_TAG_SCRATCH, why) : NULL;
    if (!ranked) return HA_ERROR;
    for (size_t i = 0; i < n; i++) {
        const size_t layer = i / s->kv_heads, head = i % s->kv_heads,
                     round = (head + s->kv_heads - layer % s->kv_heads) % s->kv_heads;
        ranked[i] = (struct ranked){ ctx->fit ? ((const float *)fit.data)[i] : 0, round * s->layers + layer, i };
    }
    qsort(ranked, n, sizeof *ranked, most_important_first);
    for (size_t i = 0; i < n; i++) {
        m->retrieval[ranked[i].head] = i < count;
        m->retrieval[n + ranked[i].head] = i >= count;
    }
    ha_free(ctx->arena, ranked);
    return HA_OK;
}

/* ---- what they keep ---------------------------------------------------------------------------------------------- */

/* Tokens whose rows follow each other. */
struct stretch {
    size_t token, row, count;
};

/* Of `tokens` tokens those that a streaming head keeps from token `from` on, the first stretch of them: a sink has the
 * row of its number, the recent ones are a ring behind the sinks. */
static struct stretch stretch(const struct ha_layer *l, size_t from, size_t tokens)
{
    const size_t sink = option(l, SINK), recent = option(l, RECENT);
    if (from < sink) return (struct stretch){ from, from, ha_least(sink, tokens) - ha_least(from, tokens) };
    const size_t token = ha_most(from, ha_most(tokens - ha_least(recent, tokens), sink));
    if (token >= tokens) return (struct stretch){ .token = tokens };
    const size_t row = (token - sink) % recent;
    return (struct stretch){ token, sink + row, ha_least(recent - row, tokens - token) };
}

/* how many rows a head has of so many tokens */
static size_t rows_of(const struct ha_layer *l, bool retrieval, size_t tokens)
{
    return retrieval ? tokens : ha_least(tokens, option(l, SINK) + option(l, RECENT));
}

static enum ha_status upload(const struct ha_context *ctx, uint32_t *host, size_t count, uint32_t **device,
                             struct ha_why *why)
{
    *device = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, count * sizeof **device, HA_TAG_META, why);
    if (!*device) return HA_ERROR;
    HA_TRY(ctx->api->copy(ctx->stream, *device, host, count * sizeof *host, HA_H2D));
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    ha_free(ctx->arena, host);
    return HA_OK;
}

/* All that attention goes by: neither lists nor counts hang on what a step brings. */
static enum ha_status make_lists(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct sequence *seq = sequence(l, b);
    const bool *retrieval = heads(l, true);
    uint32_t *list = ha_alloc(ctx->arena, s->kv_heads * seq->list_max * sizeof *list, HA_TAG_SCRATCH, why);
    uint32_t *keys = list ? ha_alloc(ctx->arena, s->steps * s->kv_heads * sizeof *keys, HA_TAG_SCRATCH, why) : NULL;
    if (!keys) return HA_ERROR;
    for (size_t h = 0; h < s->kv_heads; h++) {
        const size_t rows = rows_of(l, retrieval[h], ha_kv_max_tokens(s, b));
        for (size_t i = 0; i < seq->list_max; i++)
            list[h * seq->list_max + i] = ha_vectors_entry(&seq->pool, h) + (uint32_t)(i * BLOCK < rows ? i : 0);
        for (size_t i = 0; i < s->steps; i++)
            keys[i * s->kv_heads + h] = (uint32_t)rows_of(l, retrieval[h], s->ctx[b] + i * s->q_len);
    }
    HA_TRY(upload(ctx, list, s->kv_heads * seq->list_max, &seq->list, why));
    return upload(ctx, keys, s->steps * s->kv_heads, &seq->keys, why);
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct sequence *seq = sequence(l, b);
    size_t *rows = ha_alloc(ctx->arena, s->kv_heads * sizeof *rows, HA_TAG_SCRATCH, why), most = 1;
    if (!rows) return HA_ERROR;
    for (size_t h = 0; h < s->kv_heads; h++) {
        rows[h] = (rows_of(l, heads(l, true)[h], ha_kv_max_tokens(s, b)) + BLOCK - 1) / BLOCK * BLOCK;
        most = ha_most(most, rows[h] / BLOCK);
    }
    HA_TRY(ha_vectors_create(ctx, BLOCK, rows, &seq->pool, why));
    ha_free(ctx->arena, rows);
    seq->list_max = most;
    l->lists = s->kv_heads;
    l->block = BLOCK;
    return make_lists(l, b, why);
}

/* Tokens of one head from the prefill to its rows. */
static enum ha_status load(const struct ha_context *ctx, const struct sequence *seq, const struct ha_prefill *in,
                           size_t b, size_t head, struct stretch of)
{
    const size_t row = ha_kv_head_bytes(ctx->shape), to = (seq->pool.first[head] + of.row) * row,
                 from = (head * in->cap + of.token) * row;
    if (!of.count) return HA_OK;
    HA_TRY(ctx->api->copy(ctx->stream, seq->pool.kv.k + to, (const char *)in->k[b] + from, of.count * row, HA_H2D));
    return ctx->api->copy(ctx->stream, seq->pool.kv.v + to, (const char *)in->v[b] + from, of.count * row, HA_H2D);
}

static enum ha_status duo_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct sequence *seq = sequence(l, b);
    const size_t n = ctx->shape->ctx[b];
    for (size_t h = 0; h < ctx->shape->kv_heads; h++) {
        if (heads(l, true)[h]) HA_TRY(load(ctx, seq, in, b, h, (struct stretch){ 0, 0, n }));
        else
            for (struct stretch s = stretch(l, 0, n); s.count; s = stretch(l, s.token + s.count, n))
                HA_TRY(load(ctx, seq, in, b, h, s));
    }
    return ctx->api->stream_sync(ctx->stream); /* what is copied is only valid until prefill returns */
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct sequence *seq = sequence(l, b);
    const struct ha_kv fresh = ha_kv_of_step(s, step, b);
    struct ha_rows *listed = &d->runs[d->runs_count++];
    *listed = ha_vectors_run(s, &seq->pool);
    listed->index = seq->list;
    listed->keys = seq->list_max * BLOCK;
    d->list_stride = seq->list_max;
    d->list_keys = seq->keys + (l->tokens[b] - s->ctx[b]) / s->q_len * s->kv_heads;
    d->runs[d->runs_count++] = ha_kv_rows(s, &fresh, 0, 0, step->q_len);
}

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const size_t n = l->tokens[b], end = n + l->ctx->shape->q_len;
    const bool all = heads(l, true)[q_head / ha_shape_group(l->ctx->shape)];
    const size_t sinks = ha_least(option(l, SINK), n), recent = n - ha_least(option(l, RECENT), n);
    HA_TRY(ha_positions_add_range(l->ctx, &used->device, 0, all ? end : sinks, why));
    return ha_positions_add_range(l->ctx, &used->device, all ? end : ha_most(recent, sinks), end, why);
}

static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    const struct sequence *seq = sequence(l, b);
    const size_t n = l->tokens[b], first = n - fresh->cap;
    HA_TRY(ha_vectors_put(l->ctx, &seq->pool, heads(l, true), fresh, 0, first, fresh->cap));
    for (struct stretch s = stretch(l, first, n); s.count; s = stretch(l, s.token + s.count, n))
        HA_TRY(ha_vectors_put(l->ctx, &seq->pool, heads(l, false), fresh, s.token - first, s.row, s.count));
    return HA_OK;
}

static void duo_count(const struct ha_layer *l, ha_count *say, void *arg)
{
    const size_t all = l->ctx->shape->kv_heads;
    double streaming = 0;
    for (size_t h = 0; h < all; h++) streaming += heads(l, false)[h];
    say(arg, "streaming_heads", l->layer, streaming / (double)all);
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct sequence),
    .shared_bytes = sizeof(struct model),
    .share = share,
    .open = open,
    .prefill = duo_prefill,
    .use = use,
    .device = device,
    .append = append,
    .appends_last = true,
    .count = duo_count,
};

static enum ha_status fit(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why)
{
    return ha_reuse_fit(in, out, (size_t)in->param[SINK], (size_t)in->param[RECENT], why);
}

extern const struct ha_variant ha_variant_duo;
const struct ha_variant ha_variant_duo = {
    .name = "duo",
    .family = "recency_split",
    .doc = "retrieval heads keep all tokens, streaming heads sinks and recent ones, all on the device",
    .source = "DuoAttention (Xiao et al. 2024), section 2",
    .contract = HA_STATISTICAL,
    .checked = true,
    .one_stream = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_COPY_2D,
    .fit = fit,
    HA_FRAME(rule),
};
