#ifndef HA_REFERENCE_ROWS_H
#define HA_REFERENCE_ROWS_H

#include "harness/api/reference.h"
#include "harness/base/numeric.h"

#include <math.h>

/* ---- the vocabulary of the error bounds (docs/measurement.md) -----------------------------------------------------
 * u is the unit roundoff of binary32, eta its smallest normal number, the most that one underflow loses. */

#define HA_REF_U       0x1p-24
#define HA_REF_ETA     0x1p-126
#define HA_REF_KAPPA_T 3.0
#define HA_REF_KAPPA_Q 3.0
#define HA_REF_KAPPA_L 3.0

/* gamma_h: the most that h roundings change a product or a path of a sum */
static inline double ha_ref_gamma(double h)
{
    const double x = h * HA_REF_U;
    return x < 1 ? x / (1 - x) : HUGE_VAL;
}

/* p * expm1(eps) for p = exp(log_p), without overflow of the factor where p is tiny */
static inline double ha_ref_spread_of(double p, double log_p, double eps)
{
    return eps < 1 ? p * expm1(eps) : exp(log_p + eps) - p;
}
static inline double ha_ref_spread(double log_p, double eps)
{
    return log_p == -HUGE_VAL ? 0 : ha_ref_spread_of(exp(log_p), log_p, eps);
}

/* what rounding to the output's type adds */
static inline double ha_ref_rounded(double bound, double o, double u_o, double eta_o)
{
    return bound + u_o * (fabs(o) + bound) + eta_o;
}

/* Is it the infinity that the type has for a number that is at most `bound` from o? */
static inline bool ha_ref_beyond(float got, double o, double bound, enum ha_dtype type)
{
    return isinf(got) && (got > 0) == (o > 0) && fabs(o) + bound >= ha_dtype_beyond(type);
}

/* the last two steps where o is a quotient: its roundings and the output's */
static inline double ha_ref_stored(double bound, double o, double u_o, double eta_o)
{
    bound += HA_REF_KAPPA_Q * HA_REF_U * (fabs(o) + bound) + HA_REF_ETA;
    return ha_ref_rounded(bound, o, u_o, eta_o);
}

/* the most that h roundings move the logarithm of a product or of a sum of positive terms; under gamma_h, and finite
 * where that is not */
static inline double ha_ref_drift(double h) { return h * HA_REF_U * (1 + HA_REF_U); }

/* the most that relative errors of eps move a logarithm: at least -ln(1 - eps) up to 2/3 */
static inline double ha_ref_log_drift(double eps) { return eps * (1 + eps); }

/* How far a quotient of two sums with the same weights, whatever these are, may be outside the range of the values that
 * it averages. A path through either sum has h roundings, which change a weight by G = exp(drift) at most, up or down,
 * and one of u_p beside V: sum w v (1 + a) / sum w (1 + b) is sum w (1 + b) v / sum w (1 + b), which is inside,
 * and max |v| times |a - b| / (1 + b) <= G (G (1 + u_p) - 1 / G). */
static inline double ha_ref_overhang(double v, double h, double u_p)
{
    return expm1(2 * ha_ref_drift(h) + log1p(u_p)) * v;
}

/* the larger one, and NaN if either is */
static inline double ha_ref_most(double a, double b) { return a > b || isnan(a) ? a : b; }

/* A score's distance from the largest below which a weight is 0 in binary32. */
#define HA_REF_NOTHING 104.0

/* ---- what passes over K and V share: rows converted to binary32 once, a few at a time, for all queries --- */

static inline size_t ha_ref_smaller(size_t a, size_t b) { return a < b ? a : b; }

/* HA_REF_TILE is also the width of the pairwise sums over keys: a sum of n terms has a path of
 * 3 additions, then one compensated addition for each tile. */
enum { HA_REF_TILE = 8 };

struct ha_ref_tile {
    size_t first, rows, dim;                  /* rows past `rows` are zero */
    float data[HA_REF_TILE * HA_REF_DIM_MAX]; /* [HA_REF_TILE][dim] */
};

/* of K, or of V */
enum ha_ref_side { HA_REF_K, HA_REF_V };
void ha_ref_tile_load(struct ha_ref_tile *tile, const struct ha_rows *rows, enum ha_ref_side side, size_t first,
                      size_t dim, enum ha_dtype dtype);

/* s[first + r] = scale q.k and a[first + r] = |scale| sum |q_l k_l|, of the tile's first `rows` rows */
void ha_ref_tile_score(const struct ha_ref_tile *tile, size_t rows, const float *q, double scale, double *s, double *a);

/* sum[i] + rest[i] += sum over rows of w[first + r] * row r[i], for the first `rows` rows; two-sum, so that
 * sum + rest is good to a few ulp at any number of keys */
void ha_ref_tile_weigh(const struct ha_ref_tile *tile, size_t rows, const double *w, double *sum, double *rest);

/* lo and hi over the tile's first `rows` rows; w: NULL, or only those that have a weight w[first + r] */
void ha_ref_tile_range(const struct ha_ref_tile *tile, size_t rows, const double *w, double *lo, double *hi);

/* A softmax beside what an implementation with the bound's parameters may make of it. */
struct ha_ref_softmax {
    double sum, max;    /* D = sum of exp(s - max), and max */
    double theta, lost; /* Theta, and its part n (eta + eta_w) / D */
};

/* What a score s, of which the rest is off by `off`, is off by where it is rounded to a type. */
static inline double ha_ref_logit(const struct ha_bound *b, double s, double off)
{
    return b->u_g > 0 && s > -HUGE_VAL ? b->u_g * (fabs(s) + off) + b->eta_g : 0;
}

/* Scores and magnitudes become weights w_j = exp(s_j - max) and spreads p_j theta_j, p_j = w_j / D, in
 * place. A score of -inf weighs 0. No key, or scores of -inf only: D = 0 and max = -inf. */
struct ha_ref_softmax ha_ref_softmax(double *s, double *a, size_t keys, const struct ha_bound *b);

/* What holds where Theta >= 1 and no weight is known: L moves by no more than the scores do. e_j is what a score, less
 * the largest one, may be off by. A key whose s_j + e_j is 104 below the largest of all s_i - e_i weighs nothing; J are
 * the others. */
struct ha_ref_reach {
    double error; /* E, the largest e_j of J */
    size_t keys;  /* n', of J */
};
/* s: scores, which become 1 for keys of J and 0 for others; max: the largest */
struct ha_ref_reach ha_ref_reach(double *s, const double *a, size_t keys, double max, const struct ha_bound *b);

#endif
