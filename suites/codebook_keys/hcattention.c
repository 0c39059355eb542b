/* HCAttention: the keys of a context are codes of product quantisation on the device, its values are in host memory.
 * The newest tokens keep exact keys, on the device too.
 *
 * A step of a layer: from the query the device makes tables of its products with all centroids, looks up the score of
 * every coded key, and their softmax; of each query head it takes the fewest keys of largest weight that reach tau, and
 * sends their ids and weights down. The CPU sums up the values of those (section 3.2). Beside that the device attends
 * over the newest tokens, and both are merged. Weights are those of all keys: what is left out counts in the
 * denominator, unless they are renormalised. New tokens are encoded, and their values go down, off the critical path.
 *
 * An append may instead be a block of a prefill (appendix B), which attends over the anchor block, the first tokens of
 * the sequence, and itself alone.
 */

#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"
#include "suites/parts/codebook_fit.h"
#include "suites/parts/coded_keys.h"
#include "suites/codebook_keys/least_prefix.h"
#include "suites/parts/places.h"

#include <string.h>

HA_WORDS(values_word, [HA_MEM_DEVICE] = "device", [HA_MEM_PINNED] = "host")
enum { PREFILL_FULL, PREFILL_ANCHOR };
HA_WORDS(prefill_word, [PREFILL_FULL] = "full", [PREFILL_ANCHOR] = "anchor")
HA_WORDS(float_word, [HA_F32] = "f32", [HA_F16] = "f16")

enum {
    DIMS,
    C,
    BOOKS,
    PACK,
    TAU,
    RENORM,
    KEYS,
    VALUES,
    WEIGHTS,
    TABLE,
    FRESH,
    OVERLAP,
    KMEANS,
    ITERATIONS,
    ROTARY,
    PREFILL,
    ANCHOR
};
static const struct ha_param params[] = {
    [DIMS] = HA_CODEBOOK_DIMS(4),
    [C] = HA_CODEBOOK_COUNT(256),
    [BOOKS] = HA_CODEBOOK_BOOKS,
    [PACK] = HA_CODEBOOK_PACK,
    [TAU] = { "tau", 0.9, 1e-6, 1, "sum of the weights that the fewest keys have to reach",
              .draw = "0.3 0.5 0.9 0.99 1" },
    [RENORM] = { "renorm", 0, 0, 1, "1: the weights of these keys are made to add up to 1", .whole = true },
    [KEYS] = HA_CODED_AS,
    [VALUES] = { "values", HA_MEM_PINNED, .word = values_word, .doc = "where values are, and who sums them up" },
    [WEIGHTS] = { "weights", HA_F32, .word = float_word, .doc = "type of weights that are sent to the CPU" },
    [FRESH] = { "fresh", 64, 0, 1 << 24, "newest tokens that keep exact keys, on the device", .whole = true,
                .draw = "0..200" },
    [OVERLAP] = { "overlap", 1, 0, 1, "1: the CPU sums up for some heads while the device scores others",
                  .whole = true },
    [TABLE] = { "table", HA_F32, .word = float_word, .doc = "type of the tables that scores are looked up in" },
    [KMEANS] = HA_CODEBOOK_KMEANS,
    [ITERATIONS] = HA_CODEBOOK_ITERATIONS,
    [ROTARY] = HA_CODEBOOK_ROTARY,
    [PREFILL] = { "prefill", PREFILL_FULL, .word = prefill_word,
                  .doc = "steps of several tokens attend over all before them, or over the anchor block" },
    [ANCHOR] = { "anchor", 128, 0, 1 << 24, "tokens of the anchor block, the first of a sequence", .whole = true,
                 .draw = "0..200" },
};

/* What a query head has used in the last step: coded tokens, those that were chosen first, and the keys that stood for
 * them: [count][head_dim]. */
struct told {
    uint32_t *token;
    float *key;
    size_t count, chosen;
    double mass;
    struct ha_profile profile;
};

struct sequence {
    struct ha_coded_seq keys;
    struct ha_head_rows values;
    struct ha_kv fresh;    /* device: the tokens that may be new, from `first` on, as they come */
    struct ha_kv anchor;   /* device: the anchor block, where steps are blocks */
    size_t first, encoded; /* encoded: the first token without a code */
    struct told *told;     /* [q_heads], where selections are recorded */
};

/* Sums over the steps of a layer. */
struct sums {
    double chosen, coded; /* keys, of all query heads */
};

/* For all layers, which follow each other. */
struct chooser {
    struct ha_coded coded;
    struct ha_prefix prefix;
    struct ha_prefix_seq *seqs; /* [batch] each */
    const struct ha_coded_seq **keys;
    size_t *coded_keys, range; /* KV heads that are scored at a time */
    struct sums *sums;         /* [layers] */
    double *encode_ns;         /* [layers] of the prefill */
    float *stood;              /* of reports: a KV head's keys, and whether each is chosen */
    bool *is_chosen;
    struct ha_profile base; /* exp and ln of the device */
};

static struct ha_codebook_rule book_rule(const double *param)
{
    return (struct ha_codebook_rule){ .dims = (size_t)param[DIMS],
                                      .count = (size_t)param[C],
                                      .books = (enum ha_books)param[BOOKS],
                                      .rotary = (enum ha_rotary)param[ROTARY],
                                      .pack = (int)param[PACK] };
}

static size_t option(const struct ha_layer *l, int i) { return (size_t)l->ctx->param[i]; }
static struct sequence *sequence(const struct ha_layer *l, size_t b) { return (struct sequence *)l->own + b; }
static bool summed_here(const struct ha_layer *l) { return option(l, VALUES) == HA_MEM_PINNED; }

/* Whether steps are blocks of a prefill, for which nothing is chosen. */
static bool in_blocks(const struct ha_layer *l)
{
    return option(l, PREFILL) == PREFILL_ANCHOR && l->ctx->shape->q_len > 1;
}

static size_t anchored(const struct ha_layer *l, size_t tokens) { return ha_least(option(l, ANCHOR), tokens); }

/* tokens whose keys are codes, of so many before a step */
static size_t coded(const struct ha_layer *l, size_t tokens) { return tokens - ha_least(option(l, FRESH), tokens); }

/* ---- before the first step --------------------------------------------------------------------------------------- */

static enum ha_status agree(const double *param, struct ha_why *why)
{
    if ((int)param[RENORM] && (int)param[VALUES] == HA_MEM_DEVICE)
        return ha_why(why, HA_ERROR, "renorm=1 is the CPU's to do: it takes values=host");
    return HA_OK;
}

/* So many KV heads that each worker has something to sum up, and that there is another range to score meanwhile. */
static size_t range_of(const struct ha_layer *l)
{
    const struct ha_shape *s = l->ctx->shape;
    const size_t tasks = s->batch * ha_shape_group(s), threads = ha_pool_threads(l->ctx->pool);
    if (!option(l, OVERLAP) || !summed_here(l)) return s->kv_heads;
    return ha_most(1, ha_least((threads + tasks - 1) / tasks, s->kv_heads / 2));
}

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = first->shared;
    const struct ha_codebook_rule rule = book_rule(ctx->param);
    HA_TRY(ha_coded_create(&c->coded, ctx, (enum ha_coded_as)option(first, KEYS), &rule,
                           (enum ha_dtype)option(first, TABLE), in_blocks(first) ? 0 : s->q_len * ha_shape_group(s),
                           why));
    if (!in_blocks(first))
        HA_TRY(ha_prefix_create(&c->prefix, first, ctx->param[TAU], option(first, RENORM),
                                (enum ha_dtype)option(first, WEIGHTS), ha_kv_longest(s), why));
    c->range = range_of(first);
    c->seqs = ha_alloc(ctx->arena, s->batch * sizeof *c->seqs, HA_TAG_SCRATCH, why);
    c->keys = c->seqs ? ha_alloc(ctx->arena, s->batch * sizeof *c->keys, HA_TAG_SCRATCH, why) : NULL;
    c->coded_keys = c->keys ? ha_alloc(ctx->arena, s->batch * sizeof *c->coded_keys, HA_TAG_SCRATCH, why) : NULL;
    c->sums = c->coded_keys ? ha_alloc(ctx->arena, s->layers * sizeof *c->sums, HA_TAG_SCRATCH, why) : NULL;
    c->encode_ns = c->sums ? ha_alloc(ctx->arena, s->layers * sizeof *c->encode_ns, HA_TAG_SCRATCH, why) : NULL;
    if (!c->encode_ns) return HA_ERROR;
    struct ha_device_info info;
    ctx->api->info(ctx->device, &info);
    c->base = info.profile[s->dtype];
    if (!ctx->record_selection) return HA_OK;
    c->stood = ha_alloc(ctx->arena, ha_kv_longest(s) * s->head_dim * sizeof *c->stood, HA_TAG_SCRATCH, why);
    c->is_chosen = c->stood ? ha_alloc(ctx->arena, ha_kv_longest(s) * sizeof *c->is_chosen, HA_TAG_SCRATCH, why) : NULL;
    return c->is_chosen ? HA_OK : HA_ERROR;
}

static enum ha_status make_told(const struct ha_layer *l, struct sequence *seq, size_t tokens, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    const size_t all = ha_most(1, s->q_heads * tokens);
    seq->told = ha_alloc(l->ctx->arena, s->q_heads * sizeof *seq->told, HA_TAG_SCRATCH, why);
    uint32_t *token = seq->told ? ha_alloc(l->ctx->arena, all * sizeof *token, HA_TAG_SCRATCH, why) : NULL;
    float *key = token ? ha_alloc(l->ctx->arena, all * s->head_dim * sizeof *key, HA_TAG_SCRATCH, why) : NULL;
    for (size_t h = 0; key && h < s->q_heads; h++)
        seq->told[h] = (struct told){ .token = token + h * tokens, .key = key + h * tokens * s->head_dim };
    return key ? HA_OK : HA_ERROR;
}

static size_t rows(const struct ha_layer *l, size_t b, size_t piece)
{
    return ha_kv_max_tokens(l->ctx->shape, b) - coded(l, l->ctx->shape->ctx[b]);
}

static const unsigned char *place(const struct ha_layer *l, size_t b, size_t position)
{
    const struct sequence *seq = sequence(l, b);
    return seq->fresh.k + (position - seq->first) * ha_kv_token_bytes(l->ctx->shape);
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = l->shared;
    struct sequence *seq = sequence(l, b);
    const size_t most = ha_kv_max_tokens(s, b);
    seq->first = coded(l, s->ctx[b]);
    HA_TRY(ha_coded_open(&c->coded, b, &seq->keys, why));
    HA_TRY(ha_head_rows_create(ctx, (enum ha_memory)option(l, VALUES), b, &seq->values, why));
    HA_TRY(ha_places_open(l, b, 1, rows, &seq->fresh, why));
    if (in_blocks(l)) HA_TRY(ha_kv_create(ctx, HA_MEM_DEVICE, anchored(l, most), &seq->anchor, why));
    return ctx->record_selection ? make_told(l, seq, in_blocks(l) ? 0 : coded(l, most), why) : HA_OK;
}

static enum ha_status hcattention_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const size_t tokens = l->ctx->shape->ctx[b];
    struct chooser *c = l->shared;
    struct sequence *seq = sequence(l, b);
    const uint64_t begin = ha_now_ns();
    if (b == 0) c->encode_ns[l->layer] = 0;
    HA_TRY(ha_coded_prefill(&c->coded, l->layer, b, in, &seq->keys, why));
    c->encode_ns[l->layer] += (double)(ha_now_ns() - begin);
    seq->encoded = tokens;
    HA_TRY(ha_head_rows_load(l->ctx, &seq->values, 0, in->v[b], in->cap, 0, tokens));
    if (in_blocks(l)) HA_TRY(ha_kv_load(l->ctx, &seq->anchor, 0, in, b, 0, anchored(l, tokens)));
    return ha_kv_load(l->ctx, &seq->fresh, 0, in, b, seq->first, tokens - seq->first);
}

static enum ha_status ready(struct ha_layer *l, struct ha_why *why)
{
    ((struct chooser *)l->shared)->sums[l->layer] = (struct sums){ 0 };
    return HA_OK;
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    const struct sequence *seq = sequence(l, b);
    const size_t before = l->tokens[b], count = l->ctx->shape->q_len, had = anchored(l, before);
    if (in_blocks(l))
        HA_TRY(ha_kv_copy(l->ctx, l->ctx->stream, &seq->anchor, had, fresh, 0, anchored(l, before + count) - had));
    return l->placed ? HA_OK : ha_kv_copy(l->ctx, l->ctx->stream, &seq->fresh, before - seq->first, fresh, 0, count);
}

/* the newest tokens, the step's own among them; in blocks the anchor and the step's own */
static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct sequence *seq = sequence(l, b);
    const size_t from = in_blocks(l) ? l->tokens[b] : coded(l, l->tokens[b]);
    if (in_blocks(l))
        d->runs[d->runs_count++] = ha_kv_rows(l->ctx->shape, &seq->anchor, 0, 0, anchored(l, l->tokens[b]));
    d->runs[d->runs_count++] = ha_kv_rows(l->ctx->shape, &seq->fresh, 0, from - seq->first,
                                          l->tokens[b] + step->q_len - from);
}

/* Scores, weights and the choice of all heads, some at a time. */
static enum ha_status ask(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    struct chooser *c = l->shared;
    if (in_blocks(l)) return HA_OK;
    for (size_t b = 0; b < s->batch; b++) {
        c->keys[b] = &sequence(l, b)->keys;
        c->coded_keys[b] = coded(l, l->tokens[b]);
        c->seqs[b] = (struct ha_prefix_seq){ c->coded_keys[b], &sequence(l, b)->values };
    }
    HA_TRY(ha_coded_ask(&c->coded, step));
    for (size_t h = 0, n; h < s->kv_heads; h += n) {
        n = ha_least(c->range, s->kv_heads - h);
        HA_TRY(ha_coded_score(&c->coded, step, c->keys, c->coded_keys, h, n, c->prefix.x, c->prefix.stride));
        HA_TRY(ha_prefix_choose(&c->prefix, c->seqs, h, n));
    }
    return HA_OK;
}

static enum ha_status work(struct ha_layer *l, const struct ha_step *step, const float *q, const struct ha_state *host,
                           const struct ha_state *there, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    struct chooser *c = l->shared;
    struct sums *sums = &c->sums[l->layer];
    size_t keys = 0, chosen = 0;
    if (in_blocks(l)) return HA_OK;
    for (size_t b = 0; b < s->batch; b++) keys += c->coded_keys[b] * s->q_heads;
    for (size_t h = 0, n; h < s->kv_heads && summed_here(l); h += n) {
        n = ha_least(c->range, s->kv_heads - h);
        HA_TRY(ha_prefix_sum_here(&c->prefix, c->seqs, h, n, host, why));
    }
    if (!summed_here(l)) HA_TRY(ha_prefix_sum_there(&c->prefix, c->seqs, there));
    else chosen = ha_prefix_chosen(&c->prefix);
    ha_frame_worked(l, chosen, option(l, RENORM) ? 0 : keys - chosen);
    sums->coded += (double)keys;
    sums->chosen += (double)chosen;
    return HA_OK;
}

/* Keys to codes, so many at once, as a book is read once for all of them; fewer where one leaves the fresh ones. */
enum { ENCODED_AT_ONCE = 16 };
static enum ha_status encode(struct ha_layer *l, struct ha_stream *stream, size_t b)
{
    const struct ha_shape *s = l->ctx->shape;
    struct chooser *c = l->shared;
    struct sequence *seq = sequence(l, b);
    const size_t now = l->tokens[b], at = ha_least(seq->encoded, now - s->q_len); /* less: steps are taken again */
    seq->encoded = at;
    if (now - at < ENCODED_AT_ONCE && coded(l, now) <= at) return HA_OK;
    seq->encoded = now;
    return ha_coded_put(&c->coded, stream, l->layer, &seq->keys,
                        seq->fresh.k + (at - seq->first) * ha_kv_token_bytes(s), at, now - at);
}

/* New tokens to codes, and their values to where values are. */
static enum ha_status post(struct ha_layer *l, struct ha_stream *stream, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    for (size_t b = 0; b < s->batch; b++) {
        struct sequence *seq = sequence(l, b);
        const size_t at = l->tokens[b] - s->q_len, row = (at - seq->first) * ha_kv_token_bytes(s);
        HA_TRY(encode(l, stream, b));
        HA_TRY(ha_head_rows_put(l->ctx, stream, &seq->values, at, seq->fresh.v + row, s->q_len));
    }
    return HA_OK;
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

static void tell(const struct ha_layer *l, size_t b, size_t q_head)
{
    const struct chooser *c = l->shared;
    const size_t dim = l->ctx->shape->head_dim;
    struct told *told = &sequence(l, b)->told[q_head];
    const uint32_t *list = ha_prefix_list(&c->prefix, b, q_head, &told->chosen);
    told->count = told->chosen;
    told->mass = c->prefix.mass[b * l->ctx->shape->q_heads + q_head];
    told->profile = c->base;
    ha_coded_claim(&c->coded, &told->profile);
    ha_prefix_claim(&c->prefix, b, q_head, &told->profile);
    memset(c->is_chosen, 0, c->coded_keys[b] * sizeof *c->is_chosen);
    for (size_t i = 0; i < told->chosen; i++) {
        told->token[i] = list[i];
        c->is_chosen[list[i]] = true;
    }
    for (size_t i = 0; i < c->coded_keys[b]; i++)
        if (!c->is_chosen[i]) told->token[told->count++] = (uint32_t)i;
    for (size_t i = 0; i < told->count; i++)
        memcpy(told->key + i * dim, c->stood + told->token[i] * dim, dim * sizeof *told->key);
}

/* Of all heads of a sequence, at its first one. */
static enum ha_status learn(const struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct chooser *c = l->shared;
    const size_t n = c->coded_keys[b];
    if (b == 0 && !summed_here(l)) HA_TRY(ha_prefix_learn(&((struct chooser *)l->shared)->prefix, c->seqs, why));
    for (size_t h = 0; h < s->q_heads; h++) {
        if (h % ha_shape_group(s) == 0)
            HA_TRY(ha_coded_read(&c->coded, l->layer, &sequence(l, b)->keys, h / ha_shape_group(s), n, c->stood, why));
        tell(l, b, h);
    }
    return HA_OK;
}

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct chooser *c = l->shared;
    const struct told *told = &sequence(l, b)->told[q_head];
    const size_t before = l->tokens[b], now = before + l->ctx->shape->q_len;
    if (in_blocks(l)) {
        HA_TRY(ha_positions_add_range(l->ctx, &used->device, 0, anchored(l, before), why));
        return ha_positions_add_range(l->ctx, &used->device, before, now, why);
    }
    if (q_head == 0) HA_TRY(learn(l, b, why));
    HA_TRY(ha_positions_add_range(l->ctx, &used->device, c->coded_keys[b], now, why));
    return ha_positions_add(l->ctx, &used->host, told->token, told->count, why);
}

/* The newest tokens; the coded ones that were chosen, and the others, whose weights count. */
static void report(const struct ha_layer *l, size_t b, size_t q_head, struct ha_selection *out)
{
    const struct told *told = &sequence(l, b)->told[q_head];
    struct ha_part *chosen = &out->part[1], *others = &out->part[2];
    out->note[out->notes++] = (struct ha_note){ "kept", (double)told->chosen };
    out->note[out->notes++] = (struct ha_note){ "mass", told->mass };
    if (in_blocks(l)) return;
    chosen->token = told->token;
    chosen->on_device = !summed_here(l);
    chosen->k = option(l, KEYS) == HA_KEYS_EXACT ? NULL : told->key;
    chosen->profile = &told->profile;
    chosen->count = told->chosen;
    if (!option(l, RENORM)) {
        *others = *chosen;
        others->token += told->chosen;
        if (others->k) others->k += told->chosen * l->ctx->shape->head_dim;
        others->count = told->count - told->chosen;
        others->weight_only = true;
        others->on_device = true;
        out->parts = 3;
    }
}

static void hcattention_count(const struct ha_layer *l, ha_count *say, void *arg)
{
    const struct chooser *c = l->shared;
    const struct sums *sums = &c->sums[l->layer];
    if (sums->chosen > 0) say(arg, "kept_share", l->layer, sums->chosen / sums->coded);
    const size_t key_bytes = in_blocks(l) ? 0 : ha_prefix_key_bytes(&c->prefix);
    if (summed_here(l)) say(arg, "weight_bytes", l->layer, sums->chosen * (double)key_bytes);
    const struct ha_shape *s = l->ctx->shape;
    size_t codes = 0, values = 0;
    for (size_t b = 0; b < s->batch; b++) {
        codes += ha_coded_code_bytes(&c->coded, &sequence(l, b)->keys);
        values += summed_here(l) ? s->kv_heads * sequence(l, b)->values.head_bytes : 0;
    }
    say(arg, "book_bytes", l->layer, (double)ha_coded_book_bytes(&c->coded));
    say(arg, "code_bytes", l->layer, (double)codes);
    say(arg, "v_host_bytes", l->layer, (double)values);
    if (l->layer == 0) say(arg, "table_bytes", 0, (double)ha_coded_table_bytes(&c->coded));
    say(arg, "encode_ns", l->layer, c->encode_ns[l->layer]);
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct sequence),
    .shared_bytes = sizeof(struct chooser),
    .share = share,
    .open = open,
    .prefill = hcattention_prefill,
    .ready = ready,
    .append = append,
    .place = place,
    .use = use,
    .report = report,
    .device = device,
    .ask = ask,
    .work = work,
    .post = post,
    .count = hcattention_count,
    .asks_itself = true,
};

/* ---- a fit ------------------------------------------------------------------------------------------------------- */

static enum ha_status fit(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why)
{
    return ha_codebook_fit(in, out,
                           &(struct ha_codebook_learning){ .rule = book_rule(in->param),
                                                           .kmeans = (enum ha_kmeans_way)in->param[KMEANS],
                                                           .iterations = (size_t)in->param[ITERATIONS] },
                           why);
}

extern const struct ha_variant ha_variant_hcattention;
const struct ha_variant ha_variant_hcattention = {
    .name = "hcattention",
    .family = "codebook_keys",
    .doc =
        "keys as codes on the device, values in host memory: weights and ids of the fewest keys that reach tau go down",
    .source = "HCAttention, sections 3.1, 3.2 and appendix B",
    .contract = HA_BOUNDED,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .agree = agree,
    .fit = fit,
    .own_states = true,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_MERGE | HA_NEEDS_COPY_2D | HA_NEEDS_PQ | HA_NEEDS_TOPP,
    .counters = ha_frame_counters,
    .rewind = ha_frame_rewind,
    HA_FRAME(rule),
};
