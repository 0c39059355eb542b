/* Product quantisation in plain words: codes, tables and scores by them. */

#include "reference/rows.h"

#include "harness/base/numeric.h"

#include <float.h>

uint32_t ha_ref_pq_code(const struct ha_pq *pq, const void *codes, size_t key, size_t group)
{
    const unsigned char *bytes = codes;
    uint32_t code = 0;
    for (size_t b = 0; b < pq->bits; b++) {
        const size_t bit = ((key / HA_PQ_KEYS * pq->groups + group) * HA_PQ_KEYS + key % HA_PQ_KEYS) * pq->bits + b;
        code |= (uint32_t)(bytes[bit / 8] >> bit % 8 & 1) << b;
    }
    return code;
}

static const float *centroid(const struct ha_pq *pq, size_t group, size_t j)
{
    return pq->centroid + (pq->books == 1 ? 0 : group) * pq->dims * pq->count + j;
}

static double distance(const struct ha_pq *pq, const float *c, const float *x)
{
    double sum = 0;
    for (size_t d = 0; d < pq->dims; d++) {
        const double by = (double)x[d] - (double)c[d * pq->count];
        sum += by * by;
    }
    return sum;
}

/* whether binary32 finds two centroids equally far, by the same numbers in the same order */
static bool same(const struct ha_pq *pq, const float *a, const float *b, const float *x)
{
    for (size_t d = 0; d < pq->dims; d++)
        if (fabsf(x[d] - a[d * pq->count]) != fabsf(x[d] - b[d * pq->count])) return false;
    return true;
}

/* A square is off by its difference's rounding, twice, and by its own, a sum by its additions; a square may underflow.
 */
static double judge_code(const struct ha_pq *pq, size_t group, const float *x, uint32_t code)
{
    const double depth = 1.001 * (double)(pq->dims + 3) * HA_REF_U, lost = (double)pq->dims * HA_REF_ETA;
    if (code >= pq->count) return HUGE_VAL;
    const float *of = centroid(pq, group, code);
    const double got = distance(pq, of, x);
    double least = HUGE_VAL;
    bool none = true;
    for (size_t j = 0; j < pq->count; j++) {
        const double one = distance(pq, centroid(pq, group, j), x);
        if (isnan(one)) continue;
        none = false;
        least = fmin(least, one);
        if (j < code && same(pq, centroid(pq, group, j), of, x)) return HUGE_VAL;
    }
    if (isnan(got)) return none && code == 0 ? 0 : HUGE_VAL;
    if (got == least || least * 1.001 > (double)FLT_MAX) return 0;
    return (got - least) / (depth * (got + least) + 2 * lost);
}

double ha_ref_judge_pq_encode(const struct ha_pq_encode *e)
{
    const struct ha_pq *pq = &e->pq;
    float x[HA_PQ_DIMS_MAX];
    double worst = 0;
    for (size_t i = 0; i < e->rows.keys; i++) {
        const char *row = (const char *)e->rows.k + (e->rows.index ? e->rows.index[i] : i) * e->rows.k_stride_bytes;
        for (size_t g = 0; g < pq->groups; g++) {
            ha_load_row(row + g * pq->dims * ha_dtype_bytes(e->dtype), pq->dims, e->dtype, x);
            worst = ha_ref_most(judge_code(pq, g, x, ha_ref_pq_code(pq, e->codes, e->first + i, g)), worst);
        }
    }
    return isnan(worst) ? HUGE_VAL : worst;
}

/* A number that is a sum in binary64, in binary32 of so many roundings of terms of this size together, then stored. */
static double judge_sum(double want, double size, double depth, enum ha_dtype t, double most, float got)
{
    if (isnan(want)) return isnan(got) ? 0 : HUGE_VAL;
    if (isinf(want)) return (double)got == want ? 0 : HUGE_VAL;
    const double bound = ha_ref_rounded(1.001 * depth * (HA_REF_U * size + HA_REF_ETA), want, ha_dtype_unit(t),
                                        ha_dtype_eta(t));
    if (1.001 * size > (double)FLT_MAX) return 0;
    if (isinf(got)) return fabs(want) + bound >= most && (got > 0) == (want > 0) ? 0 : HUGE_VAL;
    return isnan(got) ? HUGE_VAL : fabs((double)got - want) / bound;
}

/* A row that is not there has zeros for its query. */
static double judge_entry(const struct ha_pq_table *t, size_t row, size_t group, size_t j, float got)
{
    static const double f16_most = 65520; /* from here on it rounds to an infinity */
    const struct ha_pq *pq = &t->pq;
    const bool there = row < t->q_len * t->group;
    const size_t at = row % t->q_len * t->q_token_stride + row / t->q_len * t->q_head_stride + group * pq->dims;
    const float *c = centroid(pq, group, j);
    double sum = 0, size = 0;
    for (size_t d = 0; d < pq->dims; d++) {
        const double term = (there ? (double)t->q[at + d] : 0) * (double)c[d * pq->count];
        sum += term;
        size += isfinite(term) ? fabs(term) : 0;
    }
    if (!there) return got == 0 || isnan(sum) ? 0 : HUGE_VAL;
    return judge_sum(sum, size, (double)pq->dims, t->type, t->type == HA_F16 ? f16_most : (double)FLT_MAX, got);
}

static size_t entry_at(const struct ha_pq *pq, size_t row, size_t group, size_t j)
{
    return ((row / HA_PQ_ROWS * pq->groups + group) * pq->count + j) * HA_PQ_ROWS + row % HA_PQ_ROWS;
}

double ha_ref_judge_pq_table(const struct ha_pq_table *t)
{
    const struct ha_pq *pq = &t->pq;
    const size_t rows = (t->q_len * t->group + HA_PQ_ROWS - 1) / HA_PQ_ROWS * HA_PQ_ROWS;
    double worst = 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t g = 0; g < pq->groups; g++)
            for (size_t j = 0; j < pq->count; j++)
                worst = ha_ref_most(judge_entry(t, r, g, j, ha_load(t->table, entry_at(pq, r, g, j), t->type)), worst);
    return worst;
}

double ha_ref_judge_pq_score(const struct ha_pq_score *s)
{
    const struct ha_pq *pq = &s->pq;
    double worst = 0;
    for (size_t r = 0; r < s->rows; r++)
        for (size_t i = 0; i < s->keys; i++) {
            double sum = 0, size = 0;
            for (size_t g = 0; g < pq->groups; g++) {
                const uint32_t code = ha_ref_pq_code(pq, s->codes, i, g);
                const double term = (double)ha_load(s->table, entry_at(pq, r, g, code), s->type);
                sum += term;
                size += isfinite(term) ? fabs(term) : 0;
            }
            const double by = (double)s->scale, got = judge_sum(by * sum, fabs(by) * size, (double)pq->groups + 1,
                                                                HA_F32, (double)FLT_MAX, s->s[r * s->s_stride + i]);
            worst = ha_ref_most(got, worst);
        }
    return worst;
}
