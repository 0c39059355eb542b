/* HCAttention (arXiv 2507.19823): codes of keys on the device, values in host memory, and of the softmax over what the
 * codes stand for the heaviest weights alone.
 *
 * Of the n tokens before a step the first m = max(0, n - fresh) are coded. The others and the step's own are one state
 * on the device by their keys. What stands for a coded key are the nearest centroids (reference/book.c), joined, and
 * with rotary = before turned to its position; with keys = exact it is the key.
 *
 * a_ti is the weight of coded key i in the softmax of query token t's scores over the m keys. A query head's S is the
 * shortest prefix of the keys by falling W_i = sum over t of floor(2^52 a_ti), of equals the smaller index first, whose
 * W add up to at least q_len tau 2^52; all keys where that is not reached. renorm = 0: the coded part's state is sum
 * over S of a_ti v_i with the LSE of all m keys: S is reported as a part, and the other coded keys as the next one, of
 * weights alone. 1: the same divided by sum over S of a_ti, with the LSE of S: S alone is reported. S is on the host,
 * or with values = device there. Both parts claim by a profile of their own that weights are exp(s - L) (sum_least): 1
 * with renorm = 0, else no more than what any token's weights in S add up to, and no less than half of it. Its types
 * are those of the options table and weights. Notes: kept = |S|, mass = the mean over t of sum over S of a_ti. A weight
 * is known up to what the profile claims; where that decides either answer is right. Nothing is known of weights where
 * an entry of a table may be beyond f16.
 *
 * prefill = anchor, steps of several tokens: a step is a block of a prefill. Its tokens are attended with the first
 * min(anchor, n) of those before it, the anchor block, by their keys on the device, and with nothing else. No key is
 * chosen: both notes are 0.
 *
 * Params: as in the enum; the rule ignores the others. */

#include "reference/definitions.h"
#include "reference/rows.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

enum {
    DIMS,
    C,
    BOOKS, /* shared, separate */
    PACK,
    TAU,
    RENORM,
    KEYS,    /* codes, exact */
    VALUES,  /* device, host */
    WEIGHTS, /* f32, f16 */
    TABLE,   /* f32, f16 */
    FRESH,
    ROTARY = FRESH + 4, /* after, before */
    PREFILL,            /* full, anchor */
    ANCHOR
};

struct counted {
    double kept, coded, weight_bytes;
};

struct ha_def {
    struct ha_shape shape;
    struct ha_def_book book;
    double tau;
    size_t fresh, anchor, bits; /* of a code */
    bool exact, renorm, on_device, in_blocks;
    enum ha_dtype table, weights;
    struct counted *counted; /* [layers] */
    double *memory;          /* [4][most] */
    size_t most;
};

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "hcattention: no memory"); }

static enum ha_status create(struct ha_def **out, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    const struct ha_def_book_rule rule = { .variant = "hcattention",
                                           .dims = (size_t)param[DIMS],
                                           .count = (size_t)param[C],
                                           .shared = param[BOOKS] <= 0,
                                           .before = param[ROTARY] > 0 };
    struct ha_def *def = *out = calloc(1, sizeof *def);
    if (!def) return no_memory(why);
    def->shape = *shape;
    def->tau = param[TAU];
    def->fresh = (size_t)param[FRESH];
    for (def->bits = 1; (size_t)1 << def->bits < rule.count;) def->bits++;
    if (!(param[PACK] > 0)) def->bits = def->bits <= 8 ? 8 : 16;
    def->anchor = (size_t)param[ANCHOR];
    def->in_blocks = param[PREFILL] > 0 && shape->q_len > 1;
    def->exact = param[KEYS] > 0;
    def->renorm = param[RENORM] > 0;
    def->on_device = param[VALUES] <= 0;
    def->table = param[TABLE] > 0 && !def->exact && !rule.before ? HA_F16 : HA_F32;
    def->weights = param[WEIGHTS] > 0 ? HA_F16 : HA_F32;
    def->counted = calloc(shape->layers, sizeof *def->counted);
    if (!def->counted) return no_memory(why);
    return ha_def_book_create(&def->book, &rule, shape, def->exact ? NULL : fit, why);
}

static void destroy(struct ha_def *def)
{
    ha_def_book_end(&def->book);
    free(def->counted);
    free(def->memory);
    free(def);
}

static enum ha_status hcattention_prefill(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    return def->exact ? HA_OK : ha_def_book_prefill(&def->book, h, why);
}

static size_t coded_of(const struct ha_def *def, size_t tokens)
{
    return tokens > def->fresh ? tokens - def->fresh : 0;
}

/* ---- what is reported -------------------------------------------------------------------------------------------- */

/* The parts of a head; NULL: there is none. */
struct parts {
    const struct ha_part *fresh, *kept, *rest;
};

static enum ha_status judge_fresh(const struct ha_def_head *h, const struct ha_part *part, size_t coded,
                                  struct ha_why *why)
{
    if (!part->on_device) return ha_def_wrong(h, why, "key %u is on the host: it is fresh", (unsigned)part->token[0]);
    if (part->q || part->either_side)
        return ha_def_wrong(h, why, "key %u is not attended by the device and the step's query",
                            (unsigned)part->token[0]);
    for (size_t i = 0; i < part->count; i++)
        if (part->token[i] < coded)
            return ha_def_wrong(h, why, "key %u is in a part without codes: it has left the fresh window",
                                (unsigned)part->token[i]);
    return HA_OK;
}

static enum ha_status judge_profile(const struct ha_def *def, const struct ha_def_head *h, const struct ha_profile *p,
                                    struct ha_why *why)
{
    if (p->score_type != HA_F32 && p->score_type != def->table)
        return ha_def_wrong(h, why, "score_type is %s, the table has %s", ha_dtype_name(p->score_type),
                            ha_dtype_name(def->table));
    if (p->weight_type != HA_F32 && p->weight_type != def->weights)
        return ha_def_wrong(h, why, "weight_type is %s, the weights that cross the link are %s",
                            ha_dtype_name(p->weight_type), ha_dtype_name(def->weights));
    if (!(p->sum_least > 0) || (!def->renorm && p->sum_least < 1))
        return ha_def_wrong(h, why, "sum_least is %g: weights are exp(s - L)%s", p->sum_least,
                            def->renorm ? "" : ", which add up to 1");
    return HA_OK;
}

static enum ha_status judge_coded(const struct ha_def *def, const struct ha_def_head *h, const struct ha_part *part,
                                  size_t coded, struct ha_why *why)
{
    const unsigned first = part->token[0];
    if (!part->profile) return ha_def_wrong(h, why, "key %u is in a part with codes and no profile", first);
    if (part->q || part->either_side) return ha_def_wrong(h, why, "key %u is not weighed by the step's query", first);
    if (!part->k && !def->exact) return ha_def_wrong(h, why, "key %u is in a part without codes", first);
    if (part->k && def->exact) return ha_def_wrong(h, why, "something stands for key %u, and keys are exact", first);
    if (!part->weight_only && part->on_device != def->on_device)
        return ha_def_wrong(h, why, "the value of key %u is summed by the %s", first,
                            def->on_device ? "host" : "device");
    for (size_t i = 0; i < part->count; i++)
        if (part->token[i] >= coded)
            return ha_def_wrong(h, why, "key %u is in a part with codes: it is fresh", (unsigned)part->token[i]);
    return judge_profile(def, h, part->profile, why);
}

static enum ha_status judge_parts(const struct ha_def *def, const struct ha_def_head *h, size_t coded,
                                  struct parts *out, struct ha_why *why)
{
    *out = (struct parts){ NULL, NULL, NULL };
    for (size_t i = 0; i < h->chosen->parts; i++) {
        const struct ha_part *part = &h->chosen->part[i];
        const bool fresh = !part->k && !part->profile && !part->weight_only;
        const struct ha_part **to = fresh ? &out->fresh : part->weight_only ? &out->rest : &out->kept;
        if (!part->count) continue;
        if (*to) return ha_def_wrong(h, why, "key %u is in a second part of its kind", (unsigned)part->token[0]);
        *to = part;
        HA_TRY(fresh ? judge_fresh(h, part, coded, why) : judge_coded(def, h, part, coded, why));
    }
    if (!out->rest) return HA_OK;
    if (def->renorm) return ha_def_wrong(h, why, "key %u has a weight alone", (unsigned)out->rest->token[0]);
    if (!out->kept || out->rest != out->kept + 1)
        return ha_def_wrong(h, why, "the part of weights alone is not behind that of the chosen keys");
    return HA_OK;
}

static enum ha_status judge_used(const struct ha_def *def, const struct ha_def_head *h, size_t coded,
                                 const uint8_t *mark, struct ha_why *why)
{
    for (size_t j = def->renorm ? coded : 0; j < h->tokens; j++)
        if (mark[j] == HA_MARK_NONE)
            return ha_def_wrong(h, why, "key %zu is missing: it is %s", j,
                                j < coded                     ? "coded, and weighs"
                                : j + h->queries >= h->tokens ? "new"
                                                              : "fresh");
    return HA_OK;
}

static enum ha_status judge_no_notes(const struct ha_def_head *h, struct ha_why *why)
{
    const double kept = ha_def_note(h, "kept"), mass = ha_def_note(h, "mass");
    if (!(kept == 0)) return ha_def_wrong(h, why, "note kept is %g, no key is chosen", kept);
    if (!(mass == 0)) return ha_def_wrong(h, why, "note mass is %g, no key is chosen", mass);
    return HA_OK;
}

/* A block of a prefill. */
static enum ha_status judge_block(const struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                  struct ha_why *why)
{
    const size_t before = h->tokens - h->queries, anchor = before < def->anchor ? before : def->anchor;
    struct parts parts;
    HA_TRY(judge_parts(def, h, 0, &parts, why));
    for (size_t j = 0; j < h->tokens; j++) {
        const bool wanted = j < anchor || j >= before;
        if (wanted && mark[j] == HA_MARK_NONE)
            return ha_def_wrong(h, why, "key %zu is missing: it is %s", j, j < anchor ? "in the anchor block" : "new");
        if (!wanted && mark[j] != HA_MARK_NONE)
            return ha_def_wrong(h, why, "key %zu is attended: it is neither in the anchor block nor new", j);
    }
    return judge_no_notes(h, why);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* What the weights of all query tokens may add up to, of each coded key. */
struct weights {
    double *low, *high, *s, *a; /* [coded] */
    double least_sum, most_sum; /* of the token whose weights in S are the least */
    const uint8_t *mark;
    const struct ha_part *kept;
};

/* Scores s and magnitudes a of a query. False: an entry of the table may be beyond its type. */
static bool score(const struct ha_def *def, const struct ha_def_head *h, const float *q, size_t coded,
                  const struct ha_bound *b, double *s, double *a)
{
    const size_t dim = def->shape.head_dim, dims = def->book.rule.dims;
    const struct ha_def_coded *of = ha_def_book_coded(&def->book, h);
    const double by = (ha_ref_gamma(b->h_dot) * (1 + b->u_s) + b->u_s) * (1 + b->u_x) + b->u_x + b->kappa_s * HA_REF_U,
                 scale = (double)def->shape.scale;
    double most = 0;
    for (size_t j = 0; j < coded; j++) {
        double sum = 0, size = 0, off = 0, entry = 0;
        for (size_t d = 0; d < dim; d++) {
            const double x = def->exact ? (double)ha_load(h->k, j * dim + d, def->shape.dtype)
                                        : (double)of->k[j * dim + d];
            const double e = def->exact ? 0 : (double)of->off[j * dim + d], term = (double)q[d] * x;
            entry = (d % dims ? entry : 0) + fabs(term) + fabs((double)q[d]) * e;
            most = fmax(most, entry);
            sum += term;
            size += fabs(term) + b->least_s;
            off += fabs((double)q[d]) * e;
        }
        s[j] = scale * sum;
        a[j] = scale * (size + off + off / by);
    }
    return b->u_s <= 0 || most < 65504 * (1 - 0x1p-10);
}

/* w: weights of scores, which softmax has made; spread: p theta. */
static void add_weights(const struct ha_ref_softmax *of, const struct ha_bound *b, double lambda, struct weights *w,
                        size_t coded)
{
    double least = 0, most = 0;
    for (size_t j = 0; j < coded; j++) {
        const double p = w->s[j] / of->sum, top = p + w->a[j], high = fmin(top * exp(lambda) + HA_REF_ETA, 1 + 0x1p-20),
                     low = top > 0 ? fmax(p * (p / top) * exp(-lambda) - HA_REF_ETA, 0) : 0;
        w->low[j] += low;
        w->high[j] += high;
        if (w->mark[j] != HA_MARK_NONE) least += low, most += high;
    }
    w->least_sum = fmin(w->least_sum, least);
    w->most_sum = fmin(w->most_sum, most);
}

static void add_unknown(struct weights *w, size_t coded)
{
    for (size_t j = 0; j < coded; j++) w->high[j] += 1;
    w->least_sum = 0;
}

static void add_query(const struct ha_def *def, const struct ha_def_head *h, const float *q, size_t coded,
                      const struct ha_bound *b, struct weights *w)
{
    const bool known = score(def, h, q, coded, b, w->s, w->a);
    const struct ha_ref_softmax of = ha_ref_softmax(w->s, w->a, coded, b);
    const double g = ha_ref_gamma(b->h_sum + b->rescales);
    if (!known || !(of.theta < 1) || !(g < 1) || !(of.sum > 0)) {
        add_unknown(w, coded);
        return;
    }
    const double log_sum = log(of.sum), lse = of.max + log_sum;
    const double lambda = -log1p(-of.theta) - log1p(-g) + b->log_eps * (fabs(log_sum) + 1e-3)
                          + HA_REF_KAPPA_L * HA_REF_U * fabs(of.max) + HA_REF_U * fabs(lse);
    add_weights(&of, b, lambda * (1 + 4 * HA_REF_U), w, coded);
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

static bool is_kept(const struct weights *w, const uint8_t *rest, size_t j)
{
    return w->mark[j] != HA_MARK_NONE && !rest[j];
}

/* S may be a prefix by weight, may reach tau, and may not reach it without the least of its keys. */
static enum ha_status judge_choice(const struct ha_def *def, const struct ha_def_head *h, const struct weights *w,
                                   const uint8_t *rest, size_t coded, struct ha_why *why)
{
    const double want = def->tau * (double)h->queries, lost = (double)h->queries * 0x1p-52;
    double least = HUGE_VAL, most = -HUGE_VAL, low = 0, high = 0, last = 0;
    size_t weakest = 0, strongest = 0, count = 0;
    for (size_t j = 0; j < coded; j++) {
        const bool in = is_kept(w, rest, j);
        if (in && w->high[j] < least) least = w->high[j], weakest = j;
        if (!in && w->low[j] > most) most = w->low[j], strongest = j;
        if (!in) continue;
        count++;
        low += fmax(w->low[j] - lost, 0);
        high += w->high[j];
    }
    if (!(least >= most - lost))
        return ha_def_wrong(h, why, "key %zu (weight at most %.9g) was chosen, key %zu (at least %.9g) was not",
                            weakest, least / (double)h->queries, strongest, most / (double)h->queries);
    if (count < coded && !(high >= want * (1 - 0x1p-48)))
        return ha_def_wrong(h, why, "%zu keys are chosen, whose weights add up to %.9g at most, and tau is %.9g", count,
                            high / (double)h->queries, def->tau);
    for (size_t j = 0; j < coded; j++)
        if (is_kept(w, rest, j) && w->low[j] - lost <= least) last = fmax(last, fmax(w->low[j] - lost, 0));
    if (count > 0 && !(low - last < want * (1 + 0x1p-48)))
        return ha_def_wrong(h, why,
                            "%zu keys are chosen, and without the least of them weights add up to %.9g, tau is %.9g",
                            count, (low - last) / (double)h->queries, def->tau);
    return HA_OK;
}

static enum ha_status judge_notes(const struct ha_def *def, const struct ha_def_head *h, const struct weights *w,
                                  const uint8_t *rest, size_t coded, size_t count, struct ha_why *why)
{
    const double kept = ha_def_note(h, "kept"), mass = ha_def_note(h, "mass"), queries = (double)h->queries,
                 unit = ha_dtype_unit(def->weights), eta = ha_dtype_eta(def->weights) * (double)count;
    double low = 0, high = 0;
    for (size_t j = 0; j < coded; j++)
        if (is_kept(w, rest, j)) low += w->low[j], high += w->high[j];
    if (!(kept == (double)count)) return ha_def_wrong(h, why, "note kept is %g, %zu keys are chosen", kept, count);
    low = low / queries * (1 - unit) * (1 - 0x1p-40) - eta;
    high = high / queries * (1 + unit) * (1 + 0x1p-40) + eta;
    if (!(mass >= low && mass <= high))
        return ha_def_wrong(h, why, "note mass is %.9g, not %.9g to %.9g", mass, low, high);
    return HA_OK;
}

static enum ha_status judge_sum_least(const struct ha_def *def, const struct ha_def_head *h, const struct weights *w,
                                      struct ha_why *why)
{
    const double said = w->kept->profile->sum_least;
    if (!def->renorm || (said <= w->most_sum && said >= w->least_sum / 2)) return HA_OK;
    return ha_def_wrong(h, why, "sum_least is %.9g, and the weights of a token add up to %.9g to %.9g", said,
                        w->least_sum, w->most_sum);
}

static enum ha_status room_for(struct ha_def *def, size_t coded, struct ha_why *why)
{
    if (coded <= def->most) return HA_OK;
    free(def->memory);
    def->most = 0;
    def->memory = malloc((4 * sizeof *def->memory + 1) * coded);
    if (!def->memory) return no_memory(why);
    def->most = coded;
    return HA_OK;
}

static enum ha_status judge_weights(struct ha_def *def, const struct ha_def_head *h, const struct parts *parts,
                                    size_t coded, const uint8_t *mark, struct ha_why *why)
{
    const size_t dim = def->shape.head_dim, count = parts->kept ? parts->kept->count : 0;
    HA_TRY(room_for(def, coded, why));
    double *x = def->memory;
    uint8_t *rest = (uint8_t *)(x + 4 * coded);
    struct weights w = { x, x + coded, x + 2 * coded, x + 3 * coded, HUGE_VAL, HUGE_VAL, mark, parts->kept };
    memset(rest, 0, coded);
    for (size_t j = 0; j < coded; j++) w.low[j] = w.high[j] = 0;
    for (size_t i = 0; parts->rest && i < parts->rest->count; i++) rest[parts->rest->token[i]] = 1;
    if (!parts->kept) return ha_def_wrong(h, why, "no coded key is chosen, of %zu", coded);
    const struct ha_bound b = ha_bound_attend(parts->kept->profile, dim, coded, HA_RUNS_MAX + 1);
    for (size_t t = 0; t < h->queries; t++) add_query(def, h, h->q + t * def->shape.q_heads * dim, coded, &b, &w);
    HA_TRY(judge_choice(def, h, &w, rest, coded, why));
    HA_TRY(judge_notes(def, h, &w, rest, coded, count, why));
    return judge_sum_least(def, h, &w, why);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static void count_step(const struct ha_def *def, const struct ha_def_head *h, size_t coded, size_t kept)
{
    struct counted *c = &def->counted[h->layer];
    c->kept += (double)kept;
    c->coded += (double)coded;
    c->weight_bytes += (double)(kept * (sizeof(uint32_t) + h->queries * ha_dtype_bytes(def->weights)));
}

static enum ha_status hcattention_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                        struct ha_why *why)
{
    const size_t coded = coded_of(def, h->tokens - h->queries);
    struct parts parts;
    if (def->in_blocks) return judge_block(def, h, mark, why);
    if (!def->exact) HA_TRY(ha_def_book_code(&def->book, h, coded, why));
    HA_TRY(judge_parts(def, h, coded, &parts, why));
    HA_TRY(judge_used(def, h, coded, mark, why));
    const struct ha_part *of[] = { parts.kept, parts.rest };
    for (size_t i = 0; i < 2 && !def->exact; i++)
        if (of[i]) HA_TRY(ha_def_book_judge(&def->book, h, of[i], why));
    HA_TRY(coded > 0 ? judge_weights(def, h, &parts, coded, mark, why) : judge_no_notes(h, why));
    count_step(def, h, coded, parts.kept ? parts.kept->count : 0);
    return HA_OK;
}

/* what is kept of all sequences, for as many tokens as they reach; of each head it may be aligned */
static void count_memory(const struct ha_def *def, size_t layer, ha_def_count *say, void *arg)
{
    enum { CODED = 32, ROWS = 4, ALIGNED = 256 };
    const struct ha_shape *s = &def->shape;
    const bool is_coded = !def->exact && !def->book.rule.before;
    const double heads = (double)s->kv_heads, slack = is_coded ? heads * (double)s->batch * (ALIGNED - 1) : 0,
                 book = (double)(def->book.books * def->book.rule.dims * def->book.rule.count) * sizeof(float),
                 rows = (double)((ha_shape_group(s) * s->q_len + ROWS - 1) / ROWS * ROWS),
                 entries = rows * (double)(def->book.groups * def->book.rule.count);
    double codes = 0, values = 0;
    for (size_t b = 0; b < s->batch; b++) {
        const size_t tokens = s->ctx[b] + s->steps * s->q_len, blocks = (tokens + CODED - 1) / CODED;
        codes += is_coded ? heads * (double)(blocks * CODED / 8 * def->book.groups * def->bits) : 0;
        values += heads * (double)(tokens * s->head_dim * ha_dtype_bytes(s->dtype));
    }
    const double tables = is_coded && !def->in_blocks
                              ? heads * (double)s->batch * entries * (double)ha_dtype_bytes(def->table)
                              : 0;
    say(arg, "book_bytes", layer, def->exact ? 0 : heads * book, def->exact ? 0 : heads * book);
    say(arg, "code_bytes", layer, codes, codes + slack);
    say(arg, "v_host_bytes", layer, def->on_device ? 0 : values, def->on_device ? 0 : values);
    if (layer == 0) say(arg, "table_bytes", 0, tables, def->in_blocks ? 0 : tables + slack);
}

static void hcattention_count(const struct ha_def *def, ha_def_count *say, void *arg)
{
    for (size_t l = 0; l < def->shape.layers; l++) {
        const struct counted *c = &def->counted[l];
        count_memory(def, l, say, arg);
        if (def->on_device) continue;
        if (c->kept > 0) say(arg, "kept_share", l, c->kept / c->coded, c->kept / c->coded);
        say(arg, "weight_bytes", l, c->weight_bytes, c->weight_bytes);
    }
}

const struct ha_definition ha_definition_hcattention = { .variant = "hcattention",
                                                         .create = create,
                                                         .prefill = hcattention_prefill,
                                                         .judge = hcattention_judge,
                                                         .count = hcattention_count,
                                                         .destroy = destroy };
