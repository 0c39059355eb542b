/* Codes of keys and queries, of which binary32 leaves some bits open. */

#include "reference/definitions.h"
#include "reference/rows.h"

#include <float.h>
#include <string.h>

void ha_def_code_squares(const float *a, size_t bits, size_t dim, double *square)
{
    for (size_t i = 0; i < bits; i++) {
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t d = 0; d < dim; d++) sum += (double)a[i * dim + d] * (double)a[i * dim + d];
        square[i] = sum;
    }
}

/* Of four rows side by side, as each sum waits for itself. */
static void four_sums(const float *row, size_t dim, const double *restrict x, double *restrict sum)
{
    const float *restrict r0 = row, *restrict r1 = row + dim, *restrict r2 = row + 2 * dim,
                          *restrict r3 = row + 3 * dim;
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (size_t d = 0; d < dim; d++) {
        s0 += (double)r0[d] * x[d];
        s1 += (double)r1[d] * x[d];
        s2 += (double)r2[d] * x[d];
        s3 += (double)r3[d] * x[d];
    }
    sum[0] = s0;
    sum[1] = s1;
    sum[2] = s2;
    sum[3] = s3;
}

/* |x| times the norm of a row of the matrix is not less than the sum of the magnitudes of their products. */
void ha_def_code(const float *a, const double *square, size_t bits, size_t dim, const double *x, const double *off,
                 struct ha_def_code *out)
{
    double squares = 0, sums[HA_CODE_BITS_MAX];
    memset(out, 0, sizeof *out);
    for (size_t d = 0; d < dim; d++) squares += x[d] * x[d];
    for (size_t i = 0; i < bits; i += 4) four_sums(a + i * dim, dim, x, sums + i);
    for (size_t i = 0; i < bits; i++) {
        double from = 0;
        for (size_t d = 0; off && d < dim; d++) from += fabs((double)a[i * dim + d]) * off[d];
        const double sum = sums[i], size = sqrt(square[i] * squares) + from;
        const double tol = from + ha_ref_gamma((double)dim + 1) * size + (size > 0 ? (double)dim * HA_REF_ETA : 0);
        if (sum > tol) out->bit[i / 32] |= 1u << i % 32;
        if (!(fabs(sum) > tol || tol == 0) || !(size < (double)FLT_MAX / 2)) out->open[i / 32] |= 1u << i % 32;
    }
    const double tol = ha_ref_gamma((double)dim + 4), lost = squares > 0 ? (double)dim * HA_REF_ETA : 0;
    out->least = sqrt(fmax(0, squares * (1 - tol) - lost));
    out->most = squares < (double)FLT_MAX / 2 ? sqrt(squares * (1 + tol) + lost) : HUGE_VAL;
}

/* A product with an integer, rounded. */
static double product(double norm, double by, double up)
{
    const double x = by == 0 ? 0 : norm * by;
    return x + up * HA_REF_U * fabs(x);
}

struct ha_ref_score ha_def_code_score(const struct ha_def_code *q, const struct ha_def_code *k, size_t bits)
{
    int differ = 0, open = 0;
    for (size_t w = 0; w < bits / 32; w++) {
        const uint32_t unsure = q->open[w] | k->open[w];
        open += __builtin_popcount(unsure);
        differ += __builtin_popcount((q->bit[w] ^ k->bit[w]) & ~unsure);
    }
    const double most = (double)bits - 2.0 * differ, least = most - 2.0 * open;
    return (struct ha_ref_score){ (k->least + (isfinite(k->most) ? k->most : k->least)) / 2 * (most + least) / 2,
                                  isfinite(k->most) ? product(least < 0 ? k->most : k->least, least, -1) : -HUGE_VAL,
                                  isfinite(k->most) ? product(most > 0 ? k->most : k->least, most, 1) : HUGE_VAL };
}
