#include "reference/rows.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <float.h>

/* ---- what may be claimed of one shape ---------------------------------------------------------------------------- */

/* Beside the additions of its terms a sum has those that join its parts. Kernels for tensor cores, which add four
 * products without rounding to nearest, have 104 of them at any length. */
enum { JOINS = 128, JOINS_MERGE = 16 };
static const double most_unknown = 0.125;

static enum ha_status extra_fits(const char *of, const char *field, unsigned extra, const char *where, size_t terms,
                                 struct ha_why *why)
{
    if (extra <= terms + JOINS) return HA_OK;
    return ha_why(why, HA_FAIL, "its %s: %s is %u, not from 0 to %zu where %s %zu", of, field, extra, terms + JOINS,
                  where, terms);
}

enum ha_status ha_claims_attend(const char *of, const struct ha_profile *p, size_t head_dim, size_t keys, size_t runs,
                                struct ha_why *why)
{
    const struct ha_bound b = ha_bound_attend(p, head_dim, keys, runs);
    const double g = ha_ref_gamma(b.h_sum + b.rescales), weight = expm1((1 + b.rescales) * p->exp_eps);
    HA_TRY(extra_fits(of, "dot_extra", p->dot_extra, "head_dim is", head_dim, why));
    HA_TRY(extra_fits(of, "sum_extra", p->sum_extra, "the keys are", keys, why));
    if (!(weight <= most_unknown))
        return ha_why(
            why, HA_FAIL,
            "its %s: exp_eps is %g: a weight that is rescaled %.0f times (join_keys is %u) may be off by %.2g "
            "of itself, more than 1/8, over %zu keys",
            of, p->exp_eps, b.rescales, p->join_keys, weight, keys);
    if (!(g <= most_unknown))
        return ha_why(why, HA_FAIL,
                      "its %s: sum_lanes is %u and join_keys is %u: a sum over %zu keys may be off by %.2g of its "
                      "terms, more than 1/8",
                      of, p->sum_lanes, p->join_keys, keys, g);
    return HA_OK;
}

enum ha_status ha_claims_merge(const struct ha_merge_traits *t, size_t states, struct ha_why *why)
{
    const double m = (double)states, rescales = t->rescales * (states ? m - 1 : 0);
    const double g = ha_ref_gamma(m + t->depth_extra + rescales), weight = expm1((1 + rescales) * t->exp_eps);
    if (!(t->depth_extra <= m + JOINS_MERGE))
        return ha_why(why, HA_FAIL, "its traits: depth_extra is %g, not from 0 to %g where %zu states are merged",
                      t->depth_extra, m + JOINS_MERGE, states);
    if (!(weight <= most_unknown))
        return ha_why(why, HA_FAIL,
                      "its traits: exp_eps is %g: a weight of %zu states, rescaled %.0f times, may be off by %.2g of "
                      "itself, more than 1/8",
                      t->exp_eps, states, rescales, weight);
    if (!(g <= most_unknown))
        return ha_why(why, HA_FAIL,
                      "its traits: rescales is %g: a sum over %zu states may be off by %.2g, more than 1/8",
                      t->rescales, states, g);
    return HA_OK;
}

/* ---- what others claim of the same ------------------------------------------------------------------------------- */

struct ha_profile ha_profile_usual(const struct ha_profile *of, const struct ha_profile *ours, double exp_seen,
                                   double log_seen)
{
    struct ha_profile p = *of;
    p.dot_lanes = p.sum_lanes = 1;
    p.dot_extra = ours->dot_extra;
    p.sum_extra = ours->sum_extra;
    p.exp_eps = fmax(ours->exp_eps, exp_seen);
    p.log_eps = fmax(ours->log_eps, log_seen);
    p.truncates = false;
    return p;
}

struct ha_merge_traits ha_traits_usual(const struct ha_merge_traits *of, const struct ha_merge_traits *ours,
                                       double exp_seen, double log_seen)
{
    struct ha_merge_traits t = *of;
    t.exp_eps = fmax(ours->exp_eps, exp_seen);
    t.log_eps = fmax(ours->log_eps, log_seen);
    t.depth_extra = ours->depth_extra;
    t.rescales = fmin(of->rescales, 1);
    return t;
}

/* ---- sensitivity ------------------------------------------------------------------------------------------------- */

/* Below it bounds are proportional to what is claimed, and a factor between two of them is one between claims. */
static const double known = 1 / 64.0;

struct ha_ref_sense ha_ref_sensitivity(const struct ha_ref_state *want)
{
    struct ha_ref_sense s = { (double)NAN, (double)NAN };
    if (want->lse > -HUGE_VAL) s.lse = want->lse_bound < HUGE_VAL ? fmin(expm1(want->lse_bound), DBL_MAX) : HUGE_VAL;
    for (size_t i = 0; i < want->dim; i++) {
        const double x = want->bound[i] / fabs(want->o[i]);
        if (!(want->bound[i] < HUGE_VAL)) return (struct ha_ref_sense){ HUGE_VAL, s.lse };
        if (want->o[i] < 0 || want->o[i] > 0) s.o = x < s.o || isnan(s.o) ? x : s.o;
    }
    return s;
}

/* NaN where either has nothing to be relative to; what is exact, as one state that is copied, is no less so by any
 * claim
 */
static double times(double by, double usual) { return by > usual || usual > 0 ? by / usual : (double)NAN; }

double ha_ref_insensitivity(const struct ha_ref_sense *by, const struct ha_ref_sense *usual)
{
    if ((isinf(by->o) && !isinf(usual->o)) || (isinf(by->lse) && !isinf(usual->lse))) return HUGE_VAL;
    if (!(usual->lse <= known)) return 1;
    const double x = fmax(times(by->o, usual->o), times(by->lse, usual->lse));
    return isnan(x) ? 1 : x;
}

float ha_ref_planted(float got, double want, double bound)
{
    const bool down = (double)got < want;
    const double by = bound * (1 + 0x1p-10), to = (double)got + (down ? -by : by);
    const float x = (float)to;
    /* no rounding brings it back */
    return nextafterf(x, down ? -INFINITY : INFINITY);
}

/* the element of o that the least relative error is seen in; dim: none */
static size_t keenest(const struct ha_ref_state *want)
{
    size_t at = want->dim;
    double least = HUGE_VAL;
    for (size_t i = 0; i < want->dim; i++) {
        const double x = want->bound[i] / fabs(want->o[i]);
        if (x < least) least = x, at = i;
    }
    return at;
}

bool ha_ref_sees(const float *o, float lse, const struct ha_ref_state *want, float *copy)
{
    const size_t at = keenest(want);
    bool seen = true;
    for (size_t i = 0; i < want->dim; i++) copy[i] = o[i];
    if (at < want->dim) {
        copy[at] = ha_ref_planted(o[at], want->o[at], want->bound[at]);
        const double ratio = ha_ref_ratio(copy, lse, want, NULL);
        seen = !(ratio <= 1);
    }
    if (isfinite(want->lse) && want->lse_bound < HUGE_VAL) {
        const double ratio = ha_ref_ratio(o, ha_ref_planted(lse, want->lse, want->lse_bound), want, NULL);
        seen = seen && !(ratio <= 1);
    }
    return seen;
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

static bool is_of(float x, enum ha_dtype t)
{
    const float y = ha_round(x, t);
    return y == x || isnan(x);
}

bool ha_ref_fits(const float *o, size_t dim, float lse, const struct ha_profile *p, size_t *at)
{
    size_t i = 0;
    if (p->out_type == HA_F32 && p->lse_type == HA_F32) return true;
    while (i < dim && is_of(o[i], p->out_type)) i++;
    *at = i;
    return i == dim && is_of(lse, p->lse_type);
}
