/* PQCache (Zhang et al., SIGMOD 2025): what HCAttention and CLO are compared with. All KV is in host memory; the device
 * has codes of all keys (product quantisation), the newest tokens, and for each KV head a cache of tokens. In a step
 * it makes tables of the query's products with the centroids, looks up the score of every key that is not recent, and
 * chooses those of largest score; which of them the cache has is looked up, the exact keys and values of the others
 * come over the link, and attention is over the chosen and the newest tokens. The cache is kept in the background, as
 * in lru_blocks.
 *
 * What the paper leaves open is decided in docs/variants/pqcache.md. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "suites/parts/choose.h"
#include "suites/parts/codebook_fit.h"
#include "suites/parts/coded_keys.h"
#include "suites/parts/kept.h"
#include "suites/parts/places.h"
#include "suites/parts/slots.h"

enum { PARTS, C, BUDGET, CAPACITY, POLICY, LOOKUP, FETCH, KMEANS, ITERATIONS };
static const struct ha_param params[] = {
    [PARTS] = { "parts", 2, 1, 128, "parts of a key, for each of which a code stands", .power_of_2 = true,
                .draw = "1 2 4 8", .fitted = true },
    [C] = HA_CODEBOOK_COUNT(64),
    [BUDGET] = { "budget", 0.2, 1e-6, 1, "share of the tokens that a KV head reads, half of them the newest",
                 .draw = "0.02 0.1 0.2 0.5 1" },
    [CAPACITY] = { "capacity", 1, 1, 1e6, "tokens of a cache, times those that are chosen of the context",
                   .draw = "1..4" },
    [POLICY] = HA_BLOCK_POLICY(HA_BLOCK_LFU),
    [LOOKUP] = HA_SLOTS_LOOKUP(HA_LOOKUP_DEVICE),
    [FETCH] = HA_FETCH_WAY,
    [KMEANS] = HA_CODEBOOK_KMEANS,
    [ITERATIONS] = HA_CODEBOOK_ITERATIONS,
};

struct sequence {
    struct ha_kv store; /* host memory: all tokens */
    struct ha_kept kept;
    struct ha_coded_seq keys;
};

/* For all layers, which follow each other on one stream, and their updates on another. */
struct caches {
    struct ha_slots slots; /* first */
    struct ha_coded coded;
    float *score;      /* device: [batch][q_heads][q_len][stride] */
    uint32_t *index;   /* device: [batch][kv_heads][slots.list_max] */
    size_t stride;     /* tokens of the longest sequence */
    size_t *most, *in; /* [batch] each: tokens of a list, and of a cache */
    const struct ha_coded_seq **keys;
    struct ha_device_topk_seq *best;
};

static size_t option(const struct ha_layer *l, int i) { return (size_t)l->ctx->param[i]; }
static struct sequence *sequence(const struct ha_layer *l, size_t b) { return (struct sequence *)l->own + b; }

/* ---- how many ---------------------------------------------------------------------------------------------------- */

/* of so many tokens before a step those that are read as the newest ones, those that can be chosen, and those that are
 */
static size_t recent(const struct ha_layer *l, size_t tokens) { return ha_share_of(l->ctx->param[BUDGET], tokens) / 2; }
static size_t candidates(const struct ha_layer *l, size_t tokens) { return tokens - recent(l, tokens); }
static size_t chosen(const struct ha_layer *l, size_t tokens)
{
    return ha_share_of(l->ctx->param[BUDGET], tokens) - recent(l, tokens);
}

static void size_caches(const struct ha_layer *l, size_t *most, size_t *in)
{
    const struct ha_shape *s = l->ctx->shape;
    for (size_t b = 0; b < s->batch; b++) {
        const size_t last = ha_kv_max_tokens(s, b), ever = candidates(l, last);
        const double wanted = l->ctx->param[CAPACITY] * (double)chosen(l, s->ctx[b]) * (1 + 1e-12);
        most[b] = chosen(l, last);
        in[b] = wanted < (double)ever ? ha_most((size_t)wanted, most[b]) : ever;
    }
}

/* ---- before the first step --------------------------------------------------------------------------------------- */

static enum ha_status make(struct caches *c, const struct ha_context *ctx, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    const size_t scores = s->batch * s->q_heads * s->q_len * c->stride,
                 entries = s->batch * s->kv_heads * c->slots.list_max;
    c->score = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, scores * sizeof *c->score, HA_TAG_SCRATCH, why);
    c->index = c->score
                   ? ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, entries * sizeof *c->index, HA_TAG_SCRATCH, why)
                   : NULL;
    c->keys = c->index ? ha_alloc(ctx->arena, s->batch * sizeof *c->keys, HA_TAG_SCRATCH, why) : NULL;
    c->best = c->keys ? ha_alloc(ctx->arena, s->batch * sizeof *c->best, HA_TAG_SCRATCH, why) : NULL;
    return c->best ? HA_OK : HA_ERROR;
}

static enum ha_status book_rule(const double *param, const struct ha_shape *s, struct ha_codebook_rule *rule,
                                struct ha_why *why)
{
    const size_t parts = (size_t)param[PARTS];
    if (s->head_dim % parts)
        return ha_why(why, HA_ERROR, "parts=%zu does not divide head_dim=%zu: the most that does is %zu", parts,
                      s->head_dim, s->head_dim & -s->head_dim);
    *rule = (struct ha_codebook_rule){ .dims = s->head_dim / parts,
                                       .count = (size_t)param[C],
                                       .books = HA_BOOKS_SEPARATE };
    return HA_OK;
}

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    struct caches *c = first->shared;
    struct ha_codebook_rule rule;
    HA_TRY(book_rule(ctx->param, s, &rule, why));
    HA_TRY(ha_kv_mapped(ctx, why)); /* lists are */
    HA_TRY(ha_coded_create(&c->coded, ctx, HA_KEYS_CODES, &rule, HA_F32, s->q_len * ha_shape_group(s), why));
    c->stride = ha_kv_longest(s);
    c->most = ha_alloc(ctx->arena, 2 * s->batch * sizeof *c->most, HA_TAG_META, why);
    if (!c->most) return HA_ERROR;
    c->in = c->most + s->batch;
    size_caches(first, c->most, c->in);
    HA_TRY(ha_slots_create(&c->slots, first,
                           &(struct ha_slots_rule){ .by_device = option(first, LOOKUP) == HA_LOOKUP_DEVICE,
                                                    .policy = option(first, POLICY),
                                                    .unit = 1,
                                                    .slots = c->in,
                                                    .most = c->most,
                                                    .blocks = c->stride,
                                                    .way = (enum ha_fetch_way)option(first, FETCH) },
                           why));
    return make(c, ctx, why);
}

static size_t rows(const struct ha_layer *l, size_t b, size_t piece)
{
    return ha_kept_cap(l->ctx->shape, 0, recent(l, ha_kv_max_tokens(l->ctx->shape, b)), b);
}

static const unsigned char *place(const struct ha_layer *l, size_t b, size_t position)
{
    return ha_kept_place(l->ctx->shape, &sequence(l, b)->kept, position);
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct caches *c = l->shared;
    struct sequence *seq = sequence(l, b);
    l->lists = ctx->shape->kv_heads;
    l->block = 1;
    HA_TRY(ha_kv_create(ctx, ha_fetch_memory((enum ha_fetch_way)option(l, FETCH)), ha_kv_max_tokens(ctx->shape, b),
                        &seq->store, why));
    seq->kept = (struct ha_kept){ .sink = 0, .recent = recent(l, ha_kv_max_tokens(l->ctx->shape, b)) };
    HA_TRY(ha_places_open(l, b, 1, rows, &seq->kept.kv, why));
    HA_TRY(ha_slots_open(l, b, &seq->store, why));
    return ha_coded_open(&c->coded, b, &seq->keys, why);
}

static enum ha_status pqcache_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const size_t tokens = l->ctx->shape->ctx[b];
    struct caches *c = l->shared;
    struct sequence *seq = sequence(l, b);
    HA_TRY(ha_coded_prefill(&c->coded, l->layer, b, in, &seq->keys, why));
    HA_TRY(ha_kv_load(l->ctx, &seq->store, 0, in, b, 0, tokens));
    return ha_kept_put(l->ctx, &seq->kept, &seq->store, 0, 0, tokens, tokens);
}

/* Before the first step the caches are empty. */
static enum ha_status ready(struct ha_layer *l, struct ha_why *why)
{
    HA_TRY(ha_slots_clear(l));
    return l->ctx->api->stream_sync(l->ctx->stream);
}

/* Codes of tokens that are to come again are written again. */
static enum ha_status rewind(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct sequence *seq = sequence(l, b);
    return ha_kept_rewind(l->ctx, &seq->kept, &seq->store, l->tokens[b]);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Of the tokens that are not recent those of largest score by their codes, for each KV head. */
static enum ha_status choose(const struct ha_layer *l, const struct ha_step *step)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct caches *c = l->shared;
    const struct ha_slots_layer *of = ha_slots_layer_of(l);
    const size_t rows = s->q_heads * s->q_len, lists = s->kv_heads;
    for (size_t b = 0; b < s->batch; b++) {
        c->keys[b] = &sequence(l, b)->keys;
        of->end[b] = candidates(l, l->tokens[b]);
        of->count[b] = chosen(l, l->tokens[b]);
        c->best[b] = (struct ha_device_topk_seq){ .x = c->score + b * rows * c->stride,
                                                  .n = of->end[b],
                                                  .k = of->count[b],
                                                  .stride = c->stride,
                                                  .index = c->index + b * lists * c->slots.list_max,
                                                  .index_stride = c->slots.list_max };
    }
    HA_TRY(ha_slots_begin(l));
    HA_TRY(ha_coded_ask(&c->coded, step));
    HA_TRY(ha_coded_score(&c->coded, step, c->keys, of->end, 0, lists, c->score, c->stride));
    return ctx->api->topk(ctx->stream, &(struct ha_device_topk){ s->batch, lists, rows / lists, c->best });
}

/* The choice, the look-up, and what is missing over the link. */
static enum ha_status before(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    HA_TRY(choose(l, step));
    return ha_slots_find(l, ((const struct caches *)l->shared)->index, why);
}

/* Slots and temporary tokens; the newest ones, which may go round the end of where they are kept; the step's
 * own. */
static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct ha_kept *kept = &sequence(l, b)->kept;
    const struct ha_kv fresh = ha_kv_of_step(s, step, b);
    const size_t count = recent(l, l->tokens[b]), row = count ? (l->tokens[b] - count) % kept->recent : 0,
                 first = ha_least(count, kept->recent - row);
    ha_slots_device(l, b, d);
    d->runs[d->runs_count++] = ha_kv_rows(s, &kept->kv, 0, row, first);
    if (first < count) d->runs[d->runs_count++] = ha_kv_rows(s, &kept->kv, 0, 0, count - first);
    d->runs[d->runs_count++] = ha_kv_rows(s, &fresh, 0, 0, step->q_len);
}

/* The new tokens to where they are kept, to host memory, and to codes. */
static enum ha_status after(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    struct caches *c = l->shared;
    HA_TRY(ha_slots_attended(l));
    for (size_t b = 0; b < ctx->shape->batch; b++) {
        struct sequence *seq = sequence(l, b);
        const struct ha_kv fresh = ha_kv_of_step(ctx->shape, step, b);
        const size_t first = l->tokens[b] - step->q_len;
        if (!l->placed) HA_TRY(ha_kept_put(ctx, &seq->kept, &fresh, 0, first, step->q_len, l->tokens[b]));
        HA_TRY(ha_kv_copy(ctx, ctx->stream, &seq->store, first, &fresh, 0, step->q_len));
        HA_TRY(ha_coded_put(&c->coded, ctx->stream, l->layer, &seq->keys, fresh.k, first, step->q_len));
    }
    return HA_OK;
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct ha_slots_layer *of = ha_slots_layer_of(l);
    const uint32_t *token = ha_slots_chosen(l, b, q_head);
    HA_TRY(ha_positions_add(l->ctx, &used->device, token, of->count[b], why));
    return ha_positions_add_range(l->ctx, &used->device, of->end[b], l->tokens[b] + l->ctx->shape->q_len, why);
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct sequence),
    .shared_bytes = sizeof(struct caches),
    .share = share,
    .open = open,
    .prefill = pqcache_prefill,
    .ready = ready,
    .before = before,
    .use = use,
    .device = device,
    .place = place,
    .appends_last = true,
    .after = after,
    .rewind = rewind,
    HA_SLOTS_HOOKS,
};

/* ---- a fit ------------------------------------------------------------------------------------------------------- */

static enum ha_status fit(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why)
{
    struct ha_codebook_learning learning = { .kmeans = (enum ha_kmeans_way)in->param[KMEANS],
                                             .iterations = (size_t)in->param[ITERATIONS] };
    HA_TRY(book_rule(in->param, in->shape, &learning.rule, why));
    return ha_codebook_fit(in, out, &learning, why);
}

extern const struct ha_variant ha_variant_pqcache;
const struct ha_variant ha_variant_pqcache = {
    .name = "pqcache",
    .family = "codebook_keys",
    .doc = "all KV in host memory; tokens chosen by codes of their keys come over the link through a cache of tokens",
    .source = "PQCache (Zhang et al., SIGMOD 2025), as HCAttention and CLO are compared with it",
    .contract = HA_BOUNDED,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .fit = fit,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_PQ | HA_NEEDS_TOPK | HA_NEEDS_MOVE,
    .counters = ha_frame_counters,
    .rewind = ha_frame_rewind,
    HA_FRAME(rule),
};
