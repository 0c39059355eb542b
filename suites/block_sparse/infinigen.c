/* InfiniGen: all KV in host memory; while a layer attends, the keys that the next one will want come over the link.
 * They are chosen by a part of what they are: queries and keys are turned by A, so that few of their columns say most
 * of their products, and those columns of all keys stay on the device. Each layer attends over what was chosen, and
 * the step's own tokens, by its true query.
 *
 * Of the paper: A and the columns are learnt when the context is known (suites/block_sparse/skew.h), not from a sample
 * text; queries and keys are turned by it behind their rotary positions. The first layer, which nothing predicts, reads
 * what its own query chooses, and waits for it. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "suites/parts/ahead.h"
#include "suites/parts/prefetch.h"
#include "suites/block_sparse/skew.h"

enum { ALPHA, MOST, COLUMNS, GROUP, FETCH, PREDICT };
static const struct ha_param params[] = {
    [ALPHA] = { "alpha", 4, 0, 1e9, "keys are chosen whose score is not further below the largest", .draw = "0..8" },
    [MOST] = { "most", 0.2, 1e-6, 1, "of all keys at most this share, those of largest score", .draw = "0.01..1" },
    [COLUMNS] = { "columns", 0.2, 1e-6, 1, "share of the columns that scores are made of", .draw = "0.01..1" },
    [GROUP] = HA_GROUP_RULE(HA_GROUP_HEAD, ha_group_of_device_word),
    [FETCH] = HA_FETCH_WAY,
    [PREDICT] = HA_AHEAD_SIDE,
};

struct sequence {
    struct ha_kv store;
    unsigned char *partial; /* its keys, cut to their columns, on the device */
};

struct chooser {
    struct ha_prefetch prefetch;     /* the first: its hooks find it there */
    size_t lists, list_max, longest; /* lists of a sequence, entries of one, tokens of the longest sequence */
    struct ha_skew skew;
    struct ha_ahead ahead;
    /* device, of the layer that is chosen for: queries, of predict=cpu; their columns; scores, [batch][q_heads][q_len]
     * [longest]; what is chosen, [batch][lists][list_max] and [batch][lists] */
    float *q, *partial_q, *score;
    uint32_t *index, *count;
    struct ha_device_columns_seq *cut; /* [batch] */
    struct ha_device_rows_seq *by;     /* [batch] */
    struct ha_device_topk_seq *best;   /* [batch] */
    struct ha_event *came;
};
_Static_assert(offsetof(struct chooser, prefetch) == 0, "where the hooks of prefetch.h find it");

static size_t option(const struct ha_layer *l, int i) { return (size_t)l->ctx->param[i]; }
static bool is_last(const struct ha_layer *l) { return l->layer + 1 == l->ctx->shape->layers; }
static size_t rows(const struct ha_shape *s) { return s->batch * s->q_len * s->q_heads; }
/* keys that a list has at most, of so many */
static size_t most(const struct ha_layer *l, size_t keys)
{
    return ha_least(keys, ha_most((size_t)(l->ctx->param[MOST] * (double)keys), 1));
}

static void *room(const struct ha_context *ctx, size_t bytes, struct ha_why *why)
{
    return ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_SCRATCH, why);
}

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = first->shared;
    c->longest = ha_kv_longest(s);
    c->lists = option(first, GROUP) == HA_GROUP_HEAD ? s->q_heads : s->kv_heads;
    c->list_max = most(first, c->longest);
    if (s->layers > 1)
        HA_TRY(ha_ahead_create(&c->ahead, first, (enum ha_ahead_side)option(first, PREDICT), false, why));
    HA_TRY(ha_skew_create(&c->skew, ctx, ha_skew_columns(s->head_dim, ctx->param[COLUMNS]), why));
    HA_TRY(ha_prefetch_create(&c->prefetch, first, (enum ha_fetch_way)option(first, FETCH), c->lists / s->kv_heads,
                              c->list_max, true, why));
    c->q = room(ctx, rows(s) * s->head_dim * sizeof *c->q, why);
    c->partial_q = room(ctx, rows(s) * c->skew.columns * sizeof *c->partial_q, why);
    c->score = room(ctx, rows(s) * c->longest * sizeof *c->score, why);
    c->index = room(ctx, s->batch * c->lists * c->list_max * sizeof *c->index, why);
    c->count = room(ctx, s->batch * c->lists * sizeof *c->count, why);
    c->cut = ha_alloc(ctx->arena, s->batch * sizeof *c->cut, HA_TAG_SCRATCH, why);
    c->by = ha_alloc(ctx->arena, s->batch * sizeof *c->by, HA_TAG_SCRATCH, why);
    c->best = ha_alloc(ctx->arena, s->batch * sizeof *c->best, HA_TAG_SCRATCH, why);
    if (!c->q || !c->partial_q || !c->score || !c->index || !c->count || !c->cut || !c->by || !c->best) return HA_ERROR;
    return ha_device_event(ctx->device_arena, &c->came, why);
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct sequence *seq = (struct sequence *)l->own + b;
    const struct chooser *c = l->shared;
    const size_t cap = ha_kv_max_tokens(l->ctx->shape, b);
    l->lists = c->lists;
    HA_TRY(ha_kv_create(l->ctx, ha_fetch_memory((enum ha_fetch_way)option(l, FETCH)), cap, &seq->store, why));
    return ha_skew_keys_create(&c->skew, cap, &seq->partial, why);
}

/* With the last sequence all are known: what the layer goes by is learnt, and the partial keys are made. */
static enum ha_status infinigen_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct sequence *seq = l->own;
    struct chooser *c = l->shared;
    HA_TRY(ha_kv_load(ctx, &seq[b].store, 0, in, b, 0, s->ctx[b]));
    if (b + 1 < s->batch) return HA_OK;
    HA_TRY(ha_skew_learn(&c->skew, l->layer, in, why));
    for (size_t i = 0; i < s->batch; i++)
        HA_TRY(ha_skew_keys_load(&c->skew, l->layer, &seq[i].store, s->ctx[i], seq[i].partial));
    return HA_OK;
}

/* Enqueues what chooses a layer's keys, by queries in device memory: of all that were there before the step. */
static enum ha_status choose(const struct ha_layer *l, struct ha_stream *stream, const float *q)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct sequence *seq = l->own;
    struct chooser *c = l->shared;
    const struct ha_prefetch_buffer *to = ha_prefetch_of(&c->prefetch, l);
    const size_t heads = s->q_len * s->q_heads;
    for (size_t b = 0; b < s->batch; b++) {
        float *partial = c->partial_q + b * heads * c->skew.columns, *score = c->score + b * heads * c->longest;
        c->cut[b] = ha_skew_queries_from(&c->skew, q + b * heads * s->head_dim, s->q_len, partial);
        c->by[b] = (struct ha_device_rows_seq){ .q = partial,
                                                .rows = ha_skew_keys(&c->skew, seq[b].partial, l->tokens[b]),
                                                .k_head_bytes = ha_skew_keys_head_bytes(&c->skew),
                                                .s = score,
                                                .s_stride = c->longest };
        c->best[b] = (struct ha_device_topk_seq){ .x = score,
                                                  .n = l->tokens[b],
                                                  .k = most(l, l->tokens[b]),
                                                  .stride = c->longest,
                                                  .index = c->index + b * c->lists * c->list_max,
                                                  .index_stride = c->list_max,
                                                  .keys = c->count + b * c->lists,
                                                  .within = (float)ctx->param[ALPHA] };
    }
    HA_TRY(ha_skew_cut(&c->skew, l->layer, stream, s->q_heads, HA_F32, c->cut, s->batch));
    HA_TRY(ctx->api->score(stream, &(struct ha_device_score){ .batch = s->batch,
                                                              .q_len = s->q_len,
                                                              .q_heads = s->q_heads,
                                                              .kv_heads = s->kv_heads,
                                                              .head_dim = c->skew.columns,
                                                              .dtype = s->dtype,
                                                              .scale = s->scale,
                                                              .seqs = c->by }));
    HA_TRY(ctx->api->topk(
        stream, &(struct ha_device_topk){
                    .batch = s->batch, .lists = c->lists, .rows = s->q_heads / c->lists * s->q_len, .seqs = c->best }));
    HA_TRY(ctx->api->copy(stream, to->count, c->count, s->batch * c->lists * sizeof *c->count, HA_D2H));
    HA_TRY(ctx->api->copy(stream, to->index, c->index, s->batch * c->lists * c->list_max * sizeof *c->index, HA_D2H));
    return ctx->api->event_record(c->came, stream);
}

/* What was chosen has come down, and is sent for. */
static enum ha_status fetch(const struct ha_layer *l, struct ha_why *why)
{
    const struct sequence *seq = l->own;
    struct chooser *c = l->shared;
    HA_TRY(l->ctx->api->event_sync(c->came));
    return ha_prefetch_run(&c->prefetch, l, &seq->store, sizeof *seq, why);
}

/* Ahead of the attention of a layer: the keys of the next one are chosen; the first layer has to choose its own. */
static enum ha_status before(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    struct chooser *c = l->shared;
    if (l->layer == 0) HA_TRY(choose(l, l->ctx->stream, step->q));
    if (l->layer == 0) HA_TRY(fetch(l, why));
    if (!is_last(l)) HA_TRY(ha_ahead_begin(&c->ahead, step, l->tokens));
    if (!is_last(l) && c->ahead.side == HA_AHEAD_DEVICE) HA_TRY(choose(l + 1, l->ctx->stream, c->ahead.q_device));
    return ha_prefetch_wait(&c->prefetch, l);
}

/* Beside the attention: the new tokens to the store and the partial keys; and the next layer's keys are on their way
 * when it begins. */
static enum ha_status after(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct sequence *seq = l->own;
    struct chooser *c = l->shared;
    for (size_t b = 0; b < s->batch; b++) {
        const struct ha_kv fresh = ha_kv_of_step(s, step, b);
        const size_t first = l->tokens[b] - s->q_len;
        HA_TRY(ha_kv_copy(ctx, ctx->stream, &seq[b].store, first, &fresh, 0, s->q_len));
        c->cut[b] = ha_skew_keys_from(&c->skew, fresh.k, s->q_len, seq[b].partial, first);
    }
    HA_TRY(ha_skew_cut(&c->skew, l->layer, ctx->stream, s->kv_heads, s->dtype, c->cut, s->batch));
    if (is_last(l)) return HA_OK;
    if (c->ahead.side == HA_AHEAD_CPU) {
        HA_TRY(ha_ahead_end(&c->ahead));
        HA_TRY(ctx->api->copy(c->prefetch.link, c->q, c->ahead.q, rows(s) * s->head_dim * sizeof *c->q, HA_H2D));
        HA_TRY(choose(l + 1, c->prefetch.link, c->q));
    }
    return fetch(l + 1, why);
}

static void report(const struct ha_layer *l, size_t b, size_t q_head, struct ha_selection *out)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct chooser *c = l->shared;
    out->learnt_count = ha_skew_numbers(s->head_dim, c->skew.columns);
    out->learnt = c->skew.layer[l->layer].numbers + q_head / ha_shape_group(s) * out->learnt_count;
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct sequence),
    .shared_bytes = sizeof(struct chooser),
    .share = share,
    .open = open,
    .prefill = infinigen_prefill,
    .before = before,
    HA_PREFETCH_HOOKS,
    .after = after,
    .report = report,
};

extern const struct ha_variant ha_variant_infinigen;
const struct ha_variant ha_variant_infinigen = {
    .name = "infinigen",
    .family = "block_sparse",
    .doc = "all KV in host memory; the next layer's keys are chosen by a few columns of them, and come over the link",
    .source = "InfiniGen (Lee et al., OSDI 2024), section 4; baseline of ScoutAttention and CLO",
    .contract = HA_BOUNDED,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_COPY_2D | HA_NEEDS_TOPK | HA_NEEDS_COLUMNS,
    .rewind = ha_frame_rewind,
    HA_FRAME(rule),
};
