/* How similar queries are that are known up to rounding. */

#include "reference/definitions.h"
#include "reference/rows.h"

/* Squares outside this are not known to be normal numbers, nor are the products of two such sums. */
#define LEAST 0x1p-60
#define MOST  0x1p+60

/* of a vector: the square of its length, that of its error, and whether it is 0 for certain */
struct length {
    double square, off;
    bool none;
};
static struct length length_of(const double *x, const double *off, size_t dim)
{
    struct length l = { 0, 0, true };
    for (size_t d = 0; d < dim; d++) {
        l.square += x[d] * x[d];
        if (off) l.off += off[d] * off[d];
        l.none &= x[d] == 0 && !(off && off[d] > 0);
    }
    return l;
}

/* A vector that is off by e turns by no more than asin(e / |a|). Of a product over the roots of two sums of squares
 * each rounding is a share of what is at most 1. */
struct ha_ref_score ha_def_cosine(const double *a, const double *a_off, const double *b, const double *b_off,
                                  size_t dim)
{
    const struct length la = length_of(a, a_off, dim), lb = length_of(b, b_off, dim);
    const double nan = (double)NAN;
    if (la.none || lb.none) return (struct ha_ref_score){ nan, nan, nan };
    double ab = 0;
    for (size_t d = 0; d < dim; d++) ab += a[d] * b[d];
    const double value = ab / sqrt(la.square * lb.square), turn_a = sqrt(la.off / la.square),
                 turn_b = sqrt(lb.off / lb.square), tol = 2 * ha_ref_gamma((double)dim + 10);
    const bool known = la.square > LEAST && la.square < MOST && lb.square > LEAST && lb.square < MOST;
    if (!(known && turn_a < 1 && turn_b < 1)) return (struct ha_ref_score){ value, -HUGE_VAL, HUGE_VAL };
    const double angle = acos(fmin(1, fmax(-1, value))), turn = asin(turn_a) + asin(turn_b);
    return (struct ha_ref_score){ value, cos(fmin(acos(-1), angle + turn)) - tol, cos(fmax(0, angle - turn)) + tol };
}

/* Where a head may be positive or not the mean is anything between the least and the mean of the largest ones, since it
 * comes to 0 with a head. */
struct ha_ref_score ha_def_cosine_group(const struct ha_ref_score *x, const double *importance, size_t heads,
                                        bool harmonic)
{
    struct ha_ref_score least = x[0], by = { 0, 0, 0 };
    double sum = 0;
    for (size_t i = 0; i < heads; i++) {
        if (isnan(x[i].low)) return x[i];
        least = (struct ha_ref_score){ fmin(least.value, x[i].value), fmin(least.low, x[i].low),
                                       fmin(least.high, x[i].high) };
        sum += importance[i];
        by.value += importance[i] / x[i].value;
        by.low += importance[i] / x[i].low;
        by.high += importance[i] / x[i].high;
    }
    if (!harmonic || !(least.high > 0)) return least;
    const double tol = ha_ref_gamma(3 * (double)heads + 4);
    return (struct ha_ref_score){ least.value > 0 ? sum / by.value : least.value,
                                  least.low > 0 ? sum / by.low * (1 - tol) : least.low,
                                  isfinite(least.low) ? sum / by.high * (1 + tol) : HUGE_VAL };
}
