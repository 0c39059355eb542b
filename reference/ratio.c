#include "harness/api/reference.h"

#include <math.h>

static double element(double got, double want, double bound, double lo, double hi)
{
    if (isnan(got) || isnan(want) || isnan(bound)) return HUGE_VAL;
    if (got == want) return 0;
    if (bound == HUGE_VAL) {
        const double slack = 1e-3 * fmax(fabs(lo), fabs(hi));
        const bool inside = isfinite(got) && got >= lo - slack && got <= hi + slack;
        return inside ? 0 : HUGE_VAL;
    }
    const double ratio = fabs(got - want) / bound;
    return ratio >= 0 ? ratio : HUGE_VAL;
}

double ha_ref_ratio(const float *o, float lse, const struct ha_ref_state *want, size_t *worst_dim)
{
    /* where the bound is infinite an LSE need only be finite */
    double worst = element((double)lse, want->lse, want->lse_bound, -HUGE_VAL, HUGE_VAL);
    size_t at = want->dim;
    for (size_t i = 0; i < want->dim; i++) {
        const double lo = want->v_min ? want->v_min[i] : -HUGE_VAL, hi = want->v_max ? want->v_max[i] : HUGE_VAL;
        const double r = element((double)o[i], want->o[i], want->bound[i], lo, hi);
        if (r > worst) {
            worst = r;
            at = i;
        }
    }
    if (worst_dim) *worst_dim = at;
    return worst;
}
