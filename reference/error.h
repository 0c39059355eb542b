#ifndef HA_REFERENCE_ERROR_H
#define HA_REFERENCE_ERROR_H

/* The vocabulary of the error bounds (docs/measurement.md): u is the unit roundoff of binary32,
 * eta its smallest normal number, the most that one underflow loses. */

#include <math.h>

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

/* the last two steps where o is a quotient: its roundings and the output's */
static inline double ha_ref_stored(double bound, double o, double u_o, double eta_o)
{
    bound += HA_REF_KAPPA_Q * HA_REF_U * (fabs(o) + bound) + HA_REF_ETA;
    return ha_ref_rounded(bound, o, u_o, eta_o);
}

/* how far the output's rounding can take a value at the edge of the range of V out of it */
static inline double ha_ref_overhang(double v, double u_o, double eta_o) { return u_o * fabs(v) + eta_o; }

#endif
