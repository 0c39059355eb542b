/* mma.m16n8k8 for tf32: a cautious model of tensor cores. Four products at a time and c are cut to 24 bits of the
 * largest one's exponent, and what they add up to is cut to binary32. (Fasi, Higham, Mikaitis and Pranesh, Numerical
 * behavior of NVIDIA tensor cores, 2021, found one to three bits more in the newer ones.) */

#include "kernels/cuda/emulation/simt_crew.h"

#include <math.h>
#include <string.h>

enum { M = 16, N = 8, K = 8, SLICE = 4 };

static uint64_t bits_of(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static double double_of(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* without the low 13 bits; NaN stays */
static double cut(float x)
{
    const double d = (double)x;
    return x - x == 0 ? double_of(bits_of(d) & ~(((uint64_t)1 << (29 + 13)) - 1)) : d;
}

static inline double larger(double x, double y) { return x > y ? x : y; }

/* c[col] += the sum over k of a[k] b[k][col] (b [4][8]), all of them finite. Loops over the columns, for the compiler's
 * vectors. */
static void add_slice(double *restrict c, const double *restrict a, const double *restrict b)
{
    const uint64_t field = (uint64_t)0x7ff << 52, one = (uint64_t)1 << 52;
    double addend[SLICE + 1][N], largest[N], up[N], down[N];
    int32_t units[N] = { 0 };
    for (unsigned col = 0; col < N; col++) {
        addend[SLICE][col] = c[col];
        largest[col] = larger(fabs(c[col]), 0x1p-320); /* under every product */
    }
    for (unsigned k = 0; k < SLICE; k++)
        for (unsigned col = 0; col < N; col++) {
            addend[k][col] = a[k] * b[k * N + col];
            largest[col] = larger(largest[col], fabs(addend[k][col]));
        }
    /* powers of two: of the last of 24 bits, and its inverse */
    for (unsigned col = 0; col < N; col++) down[col] = double_of((bits_of(largest[col]) & field) - 23 * one);
    for (unsigned col = 0; col < N; col++) up[col] = double_of(2046 * one - bits_of(down[col]));
    for (unsigned k = 0; k <= SLICE; k++)
        for (unsigned col = 0; col < N; col++) units[col] += (int32_t)(addend[k][col] * up[col]);
    for (unsigned col = 0; col < N; col++) {
        const double sum = (double)units[col] * down[col];
        c[col] = (double)(float)double_of(bits_of(sum) & ~(((uint64_t)1 << 29) - 1));
    }
}

static void add_plainly(double *restrict c, const double *restrict a, const double *restrict b)
{
    for (unsigned col = 0; col < N; col++)
        for (unsigned k = 0; k < SLICE; k++) c[col] += a[k] * b[k * N + col];
}

void ha_crew_mma(const struct ha_crew *crew, const struct ha_emulated_site *site, unsigned mask, void *const records[])
{
    double a[M][K], b[K][N], c[M][N];
    for (unsigned lane = 0; lane < HA_EMULATED_WARP; lane++) {
        const struct ha_crew_fragments *f = records[lane];
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned i = 0; i < 4; i++) {
            a[g + i % 2 * 8][t + i / 2 * 4] = cut(f->a[i]);
            c[g + i / 2 * 8][2 * t + i % 2] = (double)f->c[i];
        }
        for (unsigned i = 0; i < 2; i++) b[t + i * 4][g] = cut(f->b[i]);
    }
    double finite = 0; /* NaN if one of b is not */
    for (unsigned k = 0; k < K; k++)
        for (unsigned col = 0; col < N; col++) finite += b[k][col] * 0;
    for (unsigned row = 0; row < M; row++)
        for (unsigned k = 0; k < K; k += SLICE) {
            double rest = finite;
            for (unsigned i = 0; i < SLICE; i++) rest += a[row][k + i] * 0;
            for (unsigned col = 0; col < N; col++) rest += c[row][col] * 0;
            (rest == 0 ? add_slice : add_plainly)(c[row], a[row] + k, b[k]);
        }
    for (unsigned lane = 0; lane < HA_EMULATED_WARP; lane++) {
        const struct ha_crew_fragments *f = records[lane];
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned i = 0; i < 4; i++) f->c[i] = (float)c[g + i / 2 * 8][2 * t + i % 2];
    }
}
