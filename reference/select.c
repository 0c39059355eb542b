/* What the kernels that choose keys have to give, in plain words: exactly, or in binary64 within the sums that
 * harness/api/kernels.h declares. */

#include "reference/rows.h"

#include "harness/api/device.h"
#include "harness/api/reference.h"
#include "harness/base/numeric.h"

#include <float.h>

/* NaN is the worst there is */
static double worse(double worst, double error, double bound)
{
    const double ratio = error == 0 ? 0 : error / bound;
    return isnan(ratio) ? HUGE_VAL : fmax(worst, ratio);
}

static void hold_dots(const struct ha_ref_dots *dots, struct ha_chances *chances)
{
    const struct ha_chance of = ha_ref_chance_dots(dots);
    if (chances) ha_chances_add(chances, 0, sqrt(dots->error2), &of);
}

static const char *key_at(const struct ha_rows *rows, size_t i)
{
    return (const char *)rows->k + (rows->index ? rows->index[i] : i) * rows->k_stride_bytes;
}

double ha_ref_judge_score(const struct ha_score *s, const struct ha_profile *p, struct ha_chances *chances)
{
    const double h = ceil((double)s->head_dim / p->dot_lanes) + p->dot_extra + 2, scale = (double)s->scale;
    double worst = 0;
    struct ha_ref_dots dots = { 0 };
    for (size_t i = 0; i < s->rows.keys; i++) {
        double sum = 0, size = 0, squares = 0;
        for (size_t d = 0; d < s->head_dim; d++) {
            const double x = (double)s->q[d] * (double)ha_load(key_at(&s->rows, i), d, s->dtype);
            sum += x;
            size += fabs(x);
            squares += x * x;
        }
        const double error = fabs((double)s->s[i] - scale * sum);
        worst = worse(worst, error, 1.001 * h * HA_REF_U * fabs(scale) * size + HA_REF_ETA);
        ha_ref_dots_add(&dots, error, scale * sum, scale * scale * squares, h, HA_F32, 0);
    }
    hold_dots(&dots, chances);
    return worst;
}

size_t ha_ref_digest(size_t head_dim, size_t block, size_t d, bool most)
{
    return ((block / HA_PACK_KEYS * head_dim + d) * 2 + most) * HA_PACK_KEYS + block % HA_PACK_KEYS;
}

static bool same(float a, float b) { return a == b || (isnan(a) && isnan(b)); }

/* A sum of binary32 in any order, over their number, and rounded to the type; in both places. */
static double judge_mean(const struct ha_digest *g, size_t b, size_t d)
{
    const float got = ha_load(g->digests, ha_ref_digest(g->head_dim, g->first + b, d, false), g->dtype),
                again = ha_load(g->digests, ha_ref_digest(g->head_dim, g->first + b, d, true), g->dtype);
    double sum = 0, size = 0, n = 0;
    for (size_t i = b * g->unit; i < (b + 1) * g->unit && i < g->rows.keys; i++, n++) {
        const double x = (double)ha_load(key_at(&g->rows, i), d, g->dtype);
        sum += x;
        size += fabs(x);
    }
    if (!same(got, again)) return HUGE_VAL;
    const double mean = n > 0 ? sum / n : 0, bound = 1.001 * (n + 2) * HA_REF_U * (n > 0 ? size / n : 0);
    if (!isfinite(mean)) return same(got, (float)mean) ? 0 : HUGE_VAL;
    if (size > (double)FLT_MAX) return 0; /* a sum in binary32 may overflow */
    return worse(0, fabs((double)got - mean),
                 ha_ref_stored(bound, mean, ha_dtype_unit(g->dtype), ha_dtype_eta(g->dtype)));
}

double ha_ref_judge_digest(const struct ha_digest *g)
{
    float row[HA_REF_DIM_MAX], least[HA_REF_DIM_MAX], most[HA_REF_DIM_MAX];
    double worst = 0;
    for (size_t b = 0; b < g->blocks; b++) {
        const size_t first = b * g->unit;
        for (size_t d = 0; g->kind == HA_DIGEST_MEAN && d < g->head_dim; d++) worst = fmax(worst, judge_mean(g, b, d));
        if (g->kind == HA_DIGEST_MEAN) continue;
        for (size_t d = 0; d < g->head_dim; d++) least[d] = most[d] = 0;
        for (size_t i = first; i < first + g->unit && i < g->rows.keys; i++) {
            ha_load_row(key_at(&g->rows, i), g->head_dim, g->dtype, row);
            for (size_t d = 0; d < g->head_dim; d++) {
                least[d] = i == first || isnan(row[d]) || row[d] < least[d] ? row[d] : least[d];
                most[d] = i == first || isnan(row[d]) || row[d] > most[d] ? row[d] : most[d];
            }
        }
        for (size_t d = 0; d < g->head_dim; d++)
            if (!same(ha_load(g->digests, ha_ref_digest(g->head_dim, g->first + b, d, false), g->dtype), least[d])
                || !same(ha_load(g->digests, ha_ref_digest(g->head_dim, g->first + b, d, true), g->dtype), most[d]))
                return HUGE_VAL;
    }
    return worst;
}

double ha_ref_digest_depth(size_t head_dim)
{
    enum { TERMS = 32 };
    return (double)((head_dim < TERMS ? head_dim : TERMS) + (head_dim + TERMS - 1) / TERMS + 2);
}

double ha_ref_judge_digest_score(const struct ha_digest_score *s, struct ha_chances *chances)
{
    const double scale = (double)s->scale, h = ha_ref_digest_depth(s->head_dim);
    double worst = 0;
    for (size_t r = 0; r < s->q_rows; r++) {
        struct ha_ref_dots dots = { 0 };
        for (size_t b = 0; b < s->blocks; b++) {
            double sum = 0, size = 0, squares = 0;
            for (size_t d = 0; d < s->head_dim; d++) {
                const double q = (double)s->q[r * s->q_stride + d];
                const double x = q * (double)ha_load(s->digests, ha_ref_digest(s->head_dim, b, d, false), s->dtype);
                const double y = q * (double)ha_load(s->digests, ha_ref_digest(s->head_dim, b, d, true), s->dtype);
                sum += fmax(x, y);
                size += fabs(fmax(x, y));
                squares += fmax(x, y) * fmax(x, y);
            }
            const double error = fabs((double)s->s[r * s->s_stride + b] - scale * sum);
            worst = worse(worst, error, 1.001 * h * HA_REF_U * fabs(scale) * size + HA_REF_ETA);
            ha_ref_dots_add(&dots, error, scale * sum, scale * scale * squares, h, HA_F32, 0);
        }
        hold_dots(&dots, chances);
    }
    return worst;
}

/* is a chosen before b? */
static bool before(const float *x, size_t a, size_t b)
{
    if (isnan(x[a]) || isnan(x[b])) return isnan(x[a]) == isnan(x[b]) ? a < b : isnan(x[b]);
    return x[a] > x[b] || (x[a] == x[b] && a < b);
}

double ha_ref_judge_topk(const struct ha_topk *t)
{
    const size_t chosen = t->k < t->n ? t->k : t->n;
    bool right = true;
    size_t last = 0; /* of those that are chosen, in the order of choice */
    for (size_t i = 0; right && i < chosen; i++) {
        right = t->index[i] < t->n && (i == 0 || t->index[i] > t->index[i - 1]);
        if (right && (i == 0 || before(t->x, last, t->index[i]))) last = t->index[i];
    }
    for (size_t j = 0, i = 0; right && chosen && j < t->n; j++)
        if (i < chosen && t->index[i] == j) i++;
        else right = before(t->x, last, j);
    return right ? 0 : HUGE_VAL;
}

/* One head of dim numbers, x, in place; gives how many roundings are in each. The bias is one. The squares then have
 * two of it, and of their sum `dim`; the mean, epsilon, the root and its inverse have one each, and the first three,
 * under the root, count half; the product with that and with the norm have one each. */
static double rotate_roundings(const struct ha_device_rotate *r, const float *bias, double *x)
{
    const size_t dim = r->head_dim;
    const double biased = bias ? 1 : 0;
    double squares = 0;
    for (size_t d = 0; d < dim; d++) {
        x[d] += bias ? (double)bias[d] : 0;
        squares += x[d] * x[d];
    }
    if (!r->norm) return biased;
    const double root = sqrt(squares / (double)dim + (double)r->norm_eps);
    for (size_t d = 0; d < dim; d++) x[d] *= (double)r->norm[d] / root;
    return biased + (2 * biased + (double)dim + 2) / 2 + 4;
}

/* error over bound; a NaN is asked for where the reference has one */
static double judge_number(double worst, float got, double want, double bound)
{
    if (isnan(want)) return isnan(got) ? worst : HUGE_VAL;
    return (double)got == want ? worst : worse(worst, fabs((double)got - want), 1.001 * bound + 2 * HA_REF_ETA);
}

double ha_ref_judge_rotate(const struct ha_device_rotate *r, const float *from)
{
    const size_t dim = r->head_dim, turned = r->turn ? r->rotary : 0, pairs = turned / 2;
    double x[HA_REF_DIM_MAX], worst = 0;
    for (size_t row = 0; row < r->tokens * r->heads; row++) {
        const float *got = r->q + row * dim, *turn = r->turn ? r->turn + row / r->heads * turned : NULL;
        for (size_t d = 0; d < dim; d++) x[d] = (double)from[row * dim + d];
        const double h = rotate_roundings(r, r->bias ? r->bias + row % r->heads * dim : NULL, x);
        for (size_t j = 0; j < pairs; j++) {
            const size_t a = r->adjacent ? 2 * j : j, b = r->adjacent ? a + 1 : a + pairs;
            const double c = (double)turn[2 * j], s = (double)turn[2 * j + 1];
            /* a product and a sum more */
            worst = judge_number(worst, got[a], x[a] * c - x[b] * s,
                                 (h + 2) * HA_REF_U * (fabs(x[a] * c) + fabs(x[b] * s)));
            worst = judge_number(worst, got[b], x[b] * c + x[a] * s,
                                 (h + 2) * HA_REF_U * (fabs(x[b] * c) + fabs(x[a] * s)));
        }
        for (size_t d = turned; d < dim; d++) worst = judge_number(worst, got[d], x[d], h * HA_REF_U * fabs(x[d]));
    }
    return worst;
}

/* A sum of products and what it is held to. Where binary64 has a NaN or an infinity, it is asked for; the numbers are
 * such that no sum of binary32 overflows. */
struct dot {
    double sum, size, squares;
};
static struct dot dot_of(const void *a, enum ha_dtype a_type, const void *b, enum ha_dtype b_type, size_t dim)
{
    struct dot x = { 0, 0, 0 };
    for (size_t d = 0; d < dim; d++) {
        const double term = (double)ha_load(a, d, a_type) * (double)ha_load(b, d, b_type);
        x.sum += term;
        x.size += fabs(term);
        x.squares += term * term;
    }
    return x;
}

/* dim products and as many additions less one, in any order: no term is rounded more than dim times */
double ha_ref_judge_columns(const struct ha_device_columns *c, size_t seq, size_t head, struct ha_chances *chances)
{
    const struct ha_device_columns_seq *s = &c->seqs[seq];
    const size_t kv = head / (c->heads / c->kv_heads), e = ha_dtype_bytes(c->y_type);
    const bool rounded = c->y_type != HA_F32;
    const double h = (double)c->head_dim, unit = rounded ? ha_dtype_unit(c->y_type) : 0,
                 eta = rounded ? ha_dtype_eta(c->y_type) : 0;
    double worst = 0;
    for (size_t t = 0; t < s->tokens; t++) {
        struct ha_ref_dots dots = { 0 };
        const char *x = (const char *)s->x + (t * c->heads + head) * c->head_dim * ha_dtype_bytes(c->x_type),
                   *y = (const char *)s->y + (t * s->y_token_stride + head * s->y_head_stride) * e;
        for (size_t j = 0; j < c->columns; j++) {
            const struct dot want = dot_of(x, c->x_type, c->a + (kv * c->columns + j) * c->head_dim, HA_F32,
                                           c->head_dim);
            const float got = ha_load(y, j, c->y_type);
            const double bound = h * HA_REF_U * want.size;
            if (rounded && ha_ref_beyond(got, want.sum, bound, c->y_type)) continue;
            worst = judge_number(worst, got, want.sum, ha_ref_rounded(bound, want.sum, unit, eta));
            ha_ref_dots_add(&dots, fabs((double)got - want.sum), want.sum, want.squares, h, c->y_type, 0);
        }
        hold_dots(&dots, chances);
    }
    return worst;
}

/* ... and the scale */
double ha_ref_judge_rows(const struct ha_device_score *s, size_t seq, size_t head, struct ha_chances *chances)
{
    const struct ha_device_rows_seq *r = &s->seqs[seq];
    const double h = (double)s->head_dim + 1, scale = (double)s->scale;
    struct ha_rows rows = r->rows;
    double worst = 0;
    rows.k = (const char *)rows.k + head / (s->q_heads / s->kv_heads) * r->k_head_bytes;
    for (size_t t = 0; t < s->q_len; t++) {
        struct ha_ref_dots dots = { 0 };
        const float *q = r->q + (t * s->q_heads + head) * s->head_dim,
                    *got = r->s + (head * s->q_len + t) * r->s_stride;
        for (size_t i = 0; i < rows.keys; i++) {
            const struct dot want = dot_of(q, HA_F32, key_at(&rows, i), s->dtype, s->head_dim);
            worst = judge_number(worst, got[i], scale * want.sum, h * HA_REF_U * fabs(scale) * want.size);
            ha_ref_dots_add(&dots, fabs((double)got[i] - scale * want.sum), scale * want.sum,
                            scale * scale * want.squares, h, HA_F32, 0);
        }
        hold_dots(&dots, chances);
    }
    return worst;
}

/* additions on the longest path of a sum of n weights */
static double softmax_depth(size_t n) { return fmin((double)n, 320 + (double)n / 1024); }

/* A weight is off by the rounding of its exponent, exp, and a sum over all of them, of which each has such a rounding.
 */
static double judge_softmax_row(const float *x, size_t n, double exp_eps, const float *got, const float *lse)
{
    const double h = softmax_depth(n);
    double most = -HUGE_VAL, sum = 0, drift = 0, worst = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, (double)x[i]);
    for (size_t i = 0; i < n; i++) {
        const double w = exp((double)x[i] - most);
        sum += w;
        drift += w > 0 ? w * HA_REF_U * (most - (double)x[i]) : 0;
    }
    const double common = 1.01 * (drift / sum + 4 * exp_eps + (h + 4) * HA_REF_U);
    for (size_t i = 0; i < n; i++) {
        const double want = exp((double)x[i] - most) / sum,
                     own = want > 0 ? 1.01 * HA_REF_U * (most - (double)x[i]) : 0;
        worst = worse(worst, fabs((double)got[i] - want), want * (common + own) + 0x1p-148);
    }
    const double want = most + log(sum);
    return lse ? worse(worst, fabs((double)*lse - want), common + 1.01 * HA_REF_U * fabs(want)) : worst;
}

double ha_ref_judge_softmax(const struct ha_softmax *s, const float *x, double exp_eps)
{
    double worst = 0;
    for (size_t r = 0; r < s->rows; r++)
        worst = fmax(worst, judge_softmax_row(x + r * s->stride, s->n, exp_eps, s->x + r * s->stride,
                                              s->lse ? s->lse + r : NULL));
    return worst;
}

void ha_ref_hold_softmax(const struct ha_softmax *s, const float *from, double exp_eps, size_t most, float *work,
                         struct ha_chances *chances)
{
    for (size_t r = 0; r < s->rows && r < most; r++) {
        const float *x = from + r * s->stride, *got = s->x + r * s->stride;
        struct ha_chance of = ha_ref_chance_softmax(x, s->n, softmax_depth(s->n), exp_eps, work);
        double max = -HUGE_VAL, sum = 0, squares = 0;
        for (size_t i = 0; i < s->n; i++) max = fmax(max, (double)x[i]);
        for (size_t i = 0; i < s->n; i++) sum += exp((double)x[i] - max);
        for (size_t i = 0; i < s->n; i++) {
            const double error = (double)got[i] - exp((double)x[i] - max) / sum;
            squares += error * error;
        }
        if (!s->lse) of.lse_bias = of.lse_size = 0;
        ha_chances_add(chances, s->lse ? (double)s->lse[r] - max - log(sum) : 0, sqrt(squares), &of);
    }
}
