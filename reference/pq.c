/* Codes of keys by product quantisation, and the scores that they give, in plain words. */

#include "reference/rows.h"

#include "harness/base/numeric.h"

#include <float.h>

uint32_t ha_ref_pq_code(const struct ha_pq *pq, const void *codes, size_t key, size_t group)
{
    const size_t first = (key / HA_PQ_KEYS * pq->groups + group) * HA_PQ_KEYS * pq->bits + key % HA_PQ_KEYS * pq->bits;
    uint32_t code = 0;
    for (size_t j = 0; j < pq->bits; j++)
        code |= (uint32_t)(((const unsigned char *)codes)[(first + j) / 8] >> (first + j) % 8 & 1) << j;
    return code;
}

static const float *book_of(const struct ha_pq *pq, size_t group)
{
    return pq->centroid + (pq->books > 1 ? group : 0) * pq->dims * pq->count;
}

static size_t nearest(const struct ha_pq *pq, size_t group, const float *x, bool fused)
{
    const float *book = book_of(pq, group);
    float least = NAN;
    size_t found = 0;
    for (size_t j = 0; j < pq->count; j++) {
        float sum = 0;
        for (size_t d = 0; d < pq->dims; d++) {
            const float off = x[d] - book[d * pq->count + j], square = off * off;
            sum = fused ? fmaf(off, off, sum) : sum + square;
        }
        if (j == 0 || sum < least || (isnan(least) && !isnan(sum))) {
            least = sum;
            found = j;
        }
    }
    return found;
}

double ha_ref_judge_pq_encode(const struct ha_pq_encode *e)
{
    const struct ha_pq *pq = &e->pq;
    float x[HA_REF_DIM_MAX];
    for (size_t i = 0; i < e->rows.keys; i++) {
        const size_t at = e->rows.index ? e->rows.index[i] : i;
        ha_load_row((const char *)e->rows.k + at * e->rows.k_stride_bytes, pq->groups * pq->dims, e->dtype, x);
        for (size_t g = 0; g < pq->groups; g++) {
            const size_t got = ha_ref_pq_code(pq, e->codes, e->first + i, g);
            if (got != nearest(pq, g, x + g * pq->dims, false) && got != nearest(pq, g, x + g * pq->dims, true))
                return HUGE_VAL;
        }
    }
    return 0;
}

/* A sum of products or of numbers, as binary64 has it. */
struct sum {
    double sum, size, squares;
};
static void add(struct sum *s, double x)
{
    s->sum += x;
    s->size += fabs(x);
    s->squares += x * x;
}

/* What is not finite must be so; h roundings on a term's path, and one of the type. Where sums of binary32 may overflow
 * anything is right, and where the type does so, its infinity. */
static double pq_judge(float got, const struct sum *want, double h, double lost, enum ha_dtype type)
{
    const double error = fabs((double)got - want->sum), bound = 1.001 * (ha_ref_gamma(h) * want->size + lost);
    if (isnan(want->sum)) return isnan(got) ? 0 : HUGE_VAL;
    if (isinf(want->sum)) return (double)got == want->sum ? 0 : HUGE_VAL;
    if (want->size + bound > (double)FLT_MAX) return 0;
    if (isinf(got)) return ha_ref_beyond(got, want->sum, bound, type) ? 0 : HUGE_VAL;
    const double all = type == HA_F32 ? bound
                                      : ha_ref_rounded(bound, want->sum, ha_dtype_unit(type), ha_dtype_eta(type));
    return error == 0 ? 0 : isnan(error) ? HUGE_VAL : error / all;
}

static double judge_entry(const struct ha_pq_table *t, size_t r, size_t g, size_t j, struct ha_ref_dots *dots)
{
    const struct ha_pq *pq = &t->pq;
    const float *q = t->q + r % t->q_len * t->q_token_stride + r / t->q_len * t->q_head_stride + g * pq->dims;
    const float got = ha_load(
        t->table, (((r / HA_PQ_ROWS) * pq->groups + g) * pq->count + j) * HA_PQ_ROWS + r % HA_PQ_ROWS, t->type);
    struct sum want = { 0, 0, 0 };
    const double dims = (double)pq->dims;
    if (r >= t->q_len * t->group) { /* zeros times the centroid, or zeros */
        double zero = 0;
        for (size_t d = 0; d < pq->dims; d++) zero += 0 * (double)book_of(pq, g)[d * pq->count + j];
        return got == 0 || isnan(zero) ? 0 : HUGE_VAL;
    }
    for (size_t d = 0; d < pq->dims; d++) add(&want, (double)q[d] * (double)book_of(pq, g)[d * pq->count + j]);
    if (isfinite(want.sum) && !isinf(got))
        ha_ref_dots_add(dots, fabs((double)got - want.sum), want.sum, want.squares, dims, t->type, 0);
    return pq_judge(got, &want, dims, dims * HA_REF_ETA, t->type);
}

static void hold(const struct ha_ref_dots *dots, struct ha_chances *chances)
{
    const struct ha_chance of = ha_ref_chance_dots(dots);
    if (chances) ha_chances_add(chances, 0, sqrt(dots->error2), &of);
}

double ha_ref_judge_pq_table(const struct ha_pq_table *t, struct ha_chances *chances)
{
    const size_t rows = t->q_len * t->group, all = (rows + HA_PQ_ROWS - 1) / HA_PQ_ROWS * HA_PQ_ROWS;
    double worst = 0;
    for (size_t r = 0; r < all; r++) {
        struct ha_ref_dots dots = { 0 };
        for (size_t g = 0; g < t->pq.groups; g++)
            for (size_t j = 0; j < t->pq.count; j++) worst = fmax(worst, judge_entry(t, r, g, j, &dots));
        if (r < rows) hold(&dots, chances);
    }
    return worst;
}

double ha_ref_judge_pq_score(const struct ha_pq_score *s, struct ha_chances *chances)
{
    const struct ha_pq *pq = &s->pq;
    const double scale = (double)s->scale, h = (double)pq->groups + 1;
    double worst = 0;
    for (size_t r = 0; r < s->rows; r++) {
        struct ha_ref_dots dots = { 0 };
        for (size_t i = 0; i < s->keys; i++) {
            const float got = s->s[r * s->s_stride + i];
            struct sum want = { 0, 0, 0 };
            for (size_t g = 0; g < pq->groups; g++) {
                const size_t at = (r / HA_PQ_ROWS * pq->groups + g) * pq->count + ha_ref_pq_code(pq, s->codes, i, g);
                add(&want, scale * (double)ha_load(s->table, at * HA_PQ_ROWS + r % HA_PQ_ROWS, s->type));
            }
            worst = fmax(worst, pq_judge(got, &want, h, HA_REF_ETA, HA_F32));
            if (isfinite(want.sum))
                ha_ref_dots_add(&dots, fabs((double)got - want.sum), want.sum, want.squares, h, HA_F32, 0);
        }
        hold(&dots, chances);
    }
    return worst;
}
