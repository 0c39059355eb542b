/* Codes of rows and the scores that they give, in plain words. */

#include "reference/rows.h"

#include "harness/base/numeric.h"

#include <float.h>
#include <string.h>

size_t ha_ref_code(size_t bits, size_t row, size_t word)
{
    return (row / HA_CODE_KEYS * (bits / 32 + 1) + word) * HA_CODE_KEYS + row % HA_CODE_KEYS;
}

static uint32_t word_of(const void *codes, size_t bits, size_t row, size_t word)
{
    return ((const uint32_t *)codes)[ha_ref_code(bits, row, word)];
}

static float norm_of(const void *codes, size_t bits, size_t row)
{
    return ((const float *)codes)[ha_ref_code(bits, row, bits / 32)];
}

/* A term passes one product and fewer additions than there are terms, of which each may underflow. A sum with a NaN or
 * an infinity is what binary64 makes of it, in any order, unless its other terms alone overflow. */
static double judge_bit(const float *a, const float *x, size_t dim, bool got)
{
    double sum = 0, size = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t d = 0; d < dim; d++) sum += (double)a[d] * (double)x[d];
    if (got == (sum > 0)) return 0;
    for (size_t d = 0; d < dim; d++) {
        const double term = fabs((double)a[d] * (double)x[d]);
        size += isfinite(term) ? term : 0;
    }
    if (size == 0) return HUGE_VAL; /* so is binary32's sum */
    if (1.001 * size > (double)FLT_MAX) return 0;
    return isfinite(sum) ? fabs(sum) / (1.001 * (double)dim * (HA_REF_U * size + HA_REF_ETA)) : HUGE_VAL;
}

/* The root halves what the sum of squares is off by, in proportion, and rounds once more; of a sum near 0 what is lost
 * by underflow counts. */
static double judge_norm(const float *x, size_t dim, float got)
{
    double sum = 0;
    for (size_t d = 0; d < dim; d++) sum += (double)x[d] * (double)x[d];
    if (isnan(sum)) return isnan(got) ? 0 : HUGE_VAL;
    if (got == HUGE_VALF) return 1.001 * sum > (double)FLT_MAX ? 0 : HUGE_VAL;
    const double want = sqrt(sum), lost = (double)dim * HA_REF_ETA,
                 off = ((double)dim / 2 + 1) * HA_REF_U * want + fmin(sqrt(lost), lost / want);
    return ha_ref_most(fabs((double)got - want) / (1.001 * off), 0);
}

double ha_ref_judge_hash(const struct ha_hash *h)
{
    float x[HA_REF_DIM_MAX];
    double worst = 0;
    for (size_t i = 0; i < h->rows.keys; i++) {
        const size_t at = h->rows.index ? h->rows.index[i] : i, row = h->first + i;
        ha_load_row((const char *)h->rows.k + at * h->rows.k_stride_bytes, h->head_dim, h->dtype, x);
        for (size_t b = 0; b < h->bits; b++)
            worst = fmax(worst, judge_bit(h->a + b * h->head_dim, x, h->head_dim,
                                          word_of(h->codes, h->bits, row, b / 32) >> b % 32 & 1));
        const double norm = judge_norm(x, h->head_dim, norm_of(h->codes, h->bits, row));
        worst = isnan(norm) ? HUGE_VAL : fmax(worst, norm);
    }
    return worst;
}

double ha_ref_judge_hamming(const struct ha_hamming *h)
{
    for (size_t r = 0; r < h->q_rows; r++)
        for (size_t i = 0; i < h->keys; i++) {
            int differ = 0;
            for (size_t w = 0; w < h->bits / 32; w++)
                for (uint32_t x = word_of(h->q, h->bits, r, w) ^ word_of(h->codes, h->bits, i, w); x; x &= x - 1)
                    differ++;
            const float want = norm_of(h->codes, h->bits, i) * (float)((int)h->bits - 2 * differ),
                        got = h->s[r * h->s_stride + i];
            if (isnan(want) ? !isnan(got) : memcmp(&want, &got, sizeof got) != 0) return HUGE_VAL;
        }
    return 0;
}
