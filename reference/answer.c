#include "harness/api/reference.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"
#include "reference/rows.h"

#include <stdlib.h>

enum { AT_ONCE = 32 }; /* queries, as ha_ref_attend_group takes them */

size_t ha_answer_row(const struct ha_answer *w, size_t i)
{
    return w->count > 1 ? i * (w->rows - 1) / (w->count - 1) : 0;
}

static size_t visible(const struct ha_attend *a, size_t keys, size_t token)
{
    const size_t hidden = a->causal ? a->q_len - 1 - token : 0;
    return keys > hidden ? keys - hidden : 0;
}

static const float *query_at(const struct ha_attend *a, size_t token, size_t head)
{
    return a->q + token * a->q_token_stride + head * a->q_head_stride;
}

/* Softmax weights averaged over the query tokens, and what they may be off by: theta of the bound for the weight before
 * it is divided, the bound of the LSE for the sum, a rounding for each step after that. A key that no token sees, and
 * one whose scores are -inf, weighs exactly 0. */
static void weigh(struct ha_answer *w, const struct ha_attend *a, const struct ha_rows *rows,
                  const struct ha_bound *bound)
{
    const double tokens = (double)a->q_len, scale = (double)a->scale;
    float k[HA_REF_DIM_MAX];
    for (size_t j = 0; j < w->keys; j++) {
        const size_t at = rows->index ? rows->index[j] : j;
        ha_load_row((const char *)rows->k + at * rows->k_stride_bytes, a->head_dim, a->dtype, k);
        for (size_t g = 0; g < a->group; g++) {
            double *weight = &w->weight[g * w->keys + j], *slack = &w->slack[g * w->keys + j];
            *weight = *slack = 0;
            for (size_t t = 0; t < a->q_len; t++) {
                if (j >= visible(a, w->keys, t)) continue;
                const struct ha_bound *b = &bound[t];
                const struct ha_ref_state *state = &w->state[t * a->group + g];
                const float *q = query_at(a, t, g);
                double s = 0, size = 0;
                for (size_t d = 0; d < a->head_dim; d++) {
                    const double term = (double)q[d] * (double)k[d];
                    s += term, size += fabs(term);
                }
                s *= scale, size *= fabs(scale);
                if (s == -HUGE_VAL) continue;
                const double one = exp(s - state->lse);
                const double eps = (b->h_dot + b->kappa_s) * HA_REF_U * size + b->kappa_t * HA_REF_U * (state->lse - s)
                                   + (1 + b->rescales) * b->exp_eps + b->u_w + state->lse_bound
                                   + (b->rescales + tokens + 4) * HA_REF_U;
                const double off = (one == 0 ? 0 : one * expm1(eps)) + 4 * HA_REF_ETA + b->eta_w;
                const double most = exp(ha_ref_drift(b->h_sum + b->rescales + 4)); /* a share of a sum */
                *weight += one / tokens;
                *slack += (off > most ? most : off) / tokens;
            }
        }
    }
}

enum ha_status ha_answer_make(struct ha_answer *w, const struct ha_attend *a, const struct ha_rows *rows,
                              const struct ha_profile *profile, size_t most, struct ha_why *why)
{
    const size_t all = a->q_len * a->group, dim = a->head_dim, keys = rows->keys,
                 parts = a->runs_count + (a->packed.keys > 0);
    *w = (struct ha_answer){ .rows = all, .count = most && most < all ? most : all, .keys = keys, .profile = *profile };
    for (size_t t = 0; t < a->q_len; t++)
        HA_TRY(ha_claims_attend("profile", profile, dim, visible(a, keys, t), parts, why));
    const size_t at_once = w->count < AT_ONCE ? w->count : AT_ONCE, weights = a->weights ? a->group * keys : 0;
    w->state = malloc((w->count + 1) * sizeof *w->state);
    w->memory = malloc((w->count * 4 * dim + 2 * weights + 1) * sizeof *w->memory);
    struct ha_ref_query *query = malloc((w->count + 1) * sizeof *query);
    struct ha_bound *bound = malloc((a->q_len + 1) * sizeof *bound);
    double *work = malloc((at_once * (2 * keys + dim) + 1) * sizeof *work);
    const bool room = w->state && w->memory && query && bound && work;
    for (size_t t = 0; room && t < a->q_len; t++) bound[t] = ha_bound_attend(profile, dim, visible(a, keys, t), parts);
    for (size_t i = 0; room && i < w->count; i++) {
        const size_t r = ha_answer_row(w, i), t = r / a->group;
        double *d = w->memory + i * 4 * dim;
        w->state[i] = (struct ha_ref_state){
            .o = d, .bound = d + dim, .v_min = d + 2 * dim, .v_max = d + 3 * dim, .dim = dim
        };
        query[i] = (struct ha_ref_query){
            .q = query_at(a, t, r % a->group), .visible = visible(a, keys, t), .bound = &bound[t], .out = &w->state[i]
        };
    }
    if (room) ha_ref_attend_group(query, w->count, dim, (double)a->scale, rows, a->dtype, work);
    if (room && a->weights) {
        w->weight = w->memory + w->count * 4 * dim;
        w->slack = w->weight + weights;
        weigh(w, a, rows, bound);
    }
    free(query);
    free(bound);
    free(work);
    bool overflows = false;
    for (size_t i = 0; room && i < w->count; i++) overflows = overflows || w->state[i].may_overflow;
    if (room && !overflows) return HA_OK;
    ha_answer_free(w);
    if (overflows)
        return ha_why(why, HA_ERROR, "2^8 times %zu keys times max|V| is beyond binary32: no bound holds", keys);
    return ha_why(why, HA_ERROR, "no memory for the reference over %zu keys", keys);
}

void ha_answer_free(struct ha_answer *w)
{
    free(w->state);
    free(w->memory);
    *w = (struct ha_answer){ 0 };
}

static double element(double got, double want, double bound, double lo, double hi)
{
    if (isnan(got) || isnan(want) || isnan(bound)) return HUGE_VAL;
    if (got == want) return 0;
    const double ratio = fabs(got - want) / bound;
    return ratio > 1 || (ratio >= 0 && got >= lo && got <= hi) ? ratio : HUGE_VAL;
}

double ha_ref_ratio(const float *o, float lse, const struct ha_ref_state *want, size_t *worst_dim)
{
    double worst = element((double)lse, want->lse, want->lse_bound, -HUGE_VAL, HUGE_VAL);
    size_t at = want->dim;
    for (size_t i = 0; i < want->dim; i++) {
        const double lo = want->v_min ? want->v_min[i] : -HUGE_VAL, hi = want->v_max ? want->v_max[i] : HUGE_VAL;
        const double r = element((double)o[i], want->o[i], want->bound[i], lo, hi);
        if (r > worst) {
            worst = r;
            at = i;
        }
    }
    if (worst_dim) *worst_dim = at;
    return worst;
}

struct ha_answer_error ha_answer_judge(const struct ha_answer *w, const struct ha_attend *a)
{
    struct ha_answer_error worst = { .ratio = 0 };
    for (size_t i = 0; i < w->count; i++) {
        const size_t r = ha_answer_row(w, i), t = r / a->group, g = r % a->group;
        const float *o = a->o + t * a->q_token_stride + g * a->q_head_stride,
                    lse = a->lse[t * a->lse_token_stride + g * a->lse_head_stride];
        const struct ha_ref_state *s = &w->state[i];
        size_t at, unfit;
        const double ratio = ha_ref_ratio(o, lse, s, &at);
        if (ratio <= 1 && !ha_ref_fits(o, s->dim, lse, &w->profile, &unfit)) {
            const bool is_o = unfit < s->dim;
            return (struct ha_answer_error){ HUGE_VAL,
                                             r,
                                             unfit,
                                             (double)(is_o ? o[unfit] : lse),
                                             is_o ? s->o[unfit] : s->lse,
                                             0,
                                             ha_dtype_name(is_o ? w->profile.out_type : w->profile.lse_type) };
        }
        if (ratio <= worst.ratio) continue;
        worst = at == s->dim ? (struct ha_answer_error){ ratio, r, at, (double)lse, s->lse, s->lse_bound, NULL }
                             : (struct ha_answer_error){ ratio, r, at, (double)o[at], s->o[at], s->bound[at], NULL };
    }
    return worst;
}

static void note(struct ha_answer_error *worst, size_t head, size_t at, double got, double want, double slack)
{
    const double off = fabs(got - want);
    double ratio = off == 0 ? 0 : off / slack;
    if (!(ratio >= 0)) ratio = HUGE_VAL;
    if (ratio > worst->ratio) *worst = (struct ha_answer_error){ ratio, head, at, got, want, slack, NULL };
}

struct ha_answer_error ha_answer_judge_weights(const struct ha_answer *w, const struct ha_attend *a)
{
    struct ha_answer_error worst = { .ratio = 0 };
    for (size_t g = 0; g < a->group; g++) {
        const float *got = a->weights + g * a->weights_stride;
        double sum = 0, due = 0, slack = 0;
        for (size_t j = 0; j < w->keys; j++) {
            const size_t at = g * w->keys + j;
            note(&worst, g, j, (double)got[j], w->weight[at], w->slack[at]);
            sum += (double)got[j];
            slack += w->slack[at] + 0x1p-40 * w->weight[at];
        }
        for (size_t t = 0; t < a->q_len; t++)
            due += w->state[t * a->group + g].lse == -HUGE_VAL ? 0 : 1 / (double)a->q_len;
        note(&worst, g, w->keys, sum, due, slack);
    }
    return worst;
}

/* ---- against chance ---------------------------------------------------------------------------------------------- */

struct held {
    const struct ha_answer *answer;
    const struct ha_attend *a;
    const struct ha_rows *rows;
    size_t parts;
    float *work;
};

static double apart2(const float *got, const double *want, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
    return sum;
}

/* Row i of those that are answered; weights: as ha_ref_chance. */
static void hold_row(const struct held *h, size_t i, struct ha_chances *chances, struct ha_chance *weights)
{
    const struct ha_attend *a = h->a;
    const size_t r = ha_answer_row(h->answer, i), t = r / a->group, g = r % a->group;
    const struct ha_ref_state *want = &h->answer->state[i];
    const float *o = a->o + t * a->q_token_stride + g * a->q_head_stride,
                lse = a->lse[t * a->lse_token_stride + g * a->lse_head_stride];
    const struct ha_bound b = ha_bound_attend(&h->answer->profile, a->head_dim, want->keys, h->parts);
    const struct ha_chance of = ha_ref_chance(query_at(a, t, g), a->head_dim, (double)a->scale, h->rows, a->dtype, &b,
                                              want, h->work, weights);
    ha_chances_add(chances, (double)lse - want->lse, sqrt(apart2(o, want->o, a->head_dim)), &of);
}

/* All rows of query head g. Its weights are the mean over tokens, whose roundings differ; those of the sum over them
 * need not, as tokens that have a key all to themselves weigh it alike. */
static void hold_head(const struct held *h, size_t g, struct ha_chances *chances, struct ha_chances *weights)
{
    const struct ha_attend *a = h->a;
    const size_t keys = h->answer->keys;
    const double tokens = (double)a->q_len;
    struct ha_chance of, mean = { 0 };
    for (size_t t = 0; t < a->q_len; t++) {
        hold_row(h, t * a->group + g, chances, &of);
        mean.o_bias += of.o_bias / tokens;
        mean.o_size += of.o_size * of.o_size / (tokens * tokens);
    }
    const float *got = a->weights + g * a->weights_stride;
    const double *want = h->answer->weight + g * keys;
    double squares = 0; /* the mean is a sum over tokens, and a quotient */
    for (size_t j = 0; j < keys; j++) squares += want[j] * want[j];
    mean.o_size = sqrt(mean.o_size + HA_REF_U * HA_REF_U * (tokens / 3 + 1) * squares);
    mean.o_bias += HA_REF_U * (tokens - 1) / 2 * sqrt(squares);
    ha_chances_add(weights, 0, sqrt(apart2(got, want, keys)), &mean);
}

enum ha_status ha_answer_hold(const struct ha_answer *w, const struct ha_attend *a, const struct ha_rows *rows,
                              size_t most, struct ha_chances *chances, struct ha_chances *weights, struct ha_why *why)
{
    const bool heads = weights && w->weight && w->count == w->rows && a->q_len <= most;
    const size_t n = heads             ? most / a->q_len
                     : most < w->count ? most
                                       : w->count,
                 of = heads ? a->group : w->count, asked = n < of ? n : of;
    struct held h = { w, a, rows, a->runs_count + (a->packed.keys > 0), malloc((2 * w->keys + 1) * sizeof(float)) };
    if (!h.work) return ha_why(why, HA_ERROR, "no memory for the reference over %zu keys", w->keys);
    for (size_t i = 0; i < asked; i++) {
        const size_t at = asked > 1 ? i * (of - 1) / (asked - 1) : 0;
        if (heads) hold_head(&h, at, chances, weights);
        else hold_row(&h, at, chances, NULL);
    }
    free(h.work);
    return HA_OK;
}
