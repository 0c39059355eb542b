#include "reference/rows.h"

#include "harness/api/reference.h"

enum { COLUMNS = 64 }; /* of one pass over the states */
enum { KEPT = 64 };    /* states whose weights are kept between the passes; those of others are computed twice */

/* A weight, and how far an implementation's may be from it. */
struct weight {
    double value, spread;
};

struct merge {
    const struct ha_merge_bound *b;
    const struct ha_ref_state *states;
    size_t count;
    double used, max, sum, log_sum; /* of the states that are not empty; weights are relative to exp(max) */
    double exp_eps;                 /* of a weight, with all rescalings and products in it */
    double flush;                   /* the most that one underflow takes */
    double depth;                   /* of the sum of the weights */
    double theta, g, g_dot;         /* of all weights; of their sum; of the weighted sum */
    double least;                   /* sum of a state */
    double lowest;                  /* what weighs less than exp of that weighs nothing */
    bool known;                     /* the weights are: theta < 1 and g < 1 */
    double lse_bound;
    double low, high;    /* of a direct merge: what ln of all weights is off by, L less the number that was stored */
    struct weight *kept; /* [KEPT] */
};

static double smaller(double a, double b) { return a < b ? a : b; }
static double larger(double a, double b) { return a > b ? a : b; }

/* What a state weighs is sum exp(max). */
static double max_of(const struct ha_ref_state *s, enum ha_form form)
{
    return form == HA_FORM_MAX_SUM ? s->max : s->lse;
}
static double sum_of(const struct ha_ref_state *s, enum ha_form form) { return form == HA_FORM_MAX_SUM ? s->sum : 1; }
static bool is_empty(const struct ha_ref_state *s, enum ha_form form) { return max_of(s, form) == -HUGE_VAL; }

static struct weight weigh(const struct merge *m, const struct ha_ref_state *s)
{
    const double below = m->max - max_of(s, m->b->form), sum = sum_of(s, m->b->form), p = exp(-below);
    const double eps = s->lse_bound + HA_REF_KAPPA_T * HA_REF_U * (below + s->lse_bound) + m->exp_eps;
    /* one underflow in exp, one in the product with the sum */
    return (struct weight){ sum * p, sum * (ha_ref_spread_of(p, -below, eps) + m->flush) + m->flush };
}

/* State k's weight as a share of all. A direct merge subtracts the merged LSE in the exponent; what that one is off
 * by is one factor of all weights, and bound() has it. */
static struct weight share(const struct merge *m, size_t k)
{
    const struct ha_ref_state *s = &m->states[k];
    const struct weight w = k < KEPT ? m->kept[k] : weigh(m, s);
    const double p = w.value / m->sum;
    if (m->b->form != HA_FORM_DIRECT) return (struct weight){ p, w.spread / m->sum + m->flush };
    const double below = m->max - s->lse + m->log_sum;
    const double eps = s->lse_bound + HA_REF_KAPPA_T * HA_REF_U * (below + s->lse_bound + m->lse_bound) + m->exp_eps;
    return (struct weight){ p, ha_ref_spread_of(p, -below, eps) + m->flush };
}

/* The logarithm of a state's weight; and what that is off by. */
static double weight_log(const struct merge *m, const struct ha_ref_state *s)
{
    return max_of(s, m->b->form) + log(sum_of(s, m->b->form));
}
static double weight_error(const struct merge *m, const struct ha_ref_state *s)
{
    const double below = m->max - max_of(s, m->b->form);
    return s->lse_bound + HA_REF_KAPPA_T * HA_REF_U * (below + s->lse_bound) + ha_ref_log_drift(m->exp_eps);
}
static bool weighs(const struct merge *m, const struct ha_ref_state *s)
{
    return !is_empty(s, m->b->form) && !(weight_log(m, s) + weight_error(m, s) < m->lowest);
}

/* What holds without any weight: L moves by no more than a state's L does, of those that weigh anything, and by the
 * roundings of the sum, which is at least that of one state. In a chain it grows by what each merge adds. */
static double reach(struct merge *m)
{
    const enum ha_form form = m->b->form;
    double lowest = -HUGE_VAL, error = 0, lost = 0;
    for (size_t k = 0; k < m->count; k++)
        if (!is_empty(&m->states[k], form))
            lowest = fmax(lowest, weight_log(m, &m->states[k]) - weight_error(m, &m->states[k]));
    m->lowest = lowest - HA_REF_NOTHING;
    for (size_t k = 0; k < m->count; k++) {
        if (weighs(m, &m->states[k])) error = ha_ref_most(error, weight_error(m, &m->states[k]));
        if (!is_empty(&m->states[k], form)) lost += m->flush * (1 + sum_of(&m->states[k], form)) / m->least;
    }
    return error * (1 + 8 * HA_REF_U) + ha_ref_drift(m->depth) + ha_ref_log_drift(lost);
}

/* L is stored in binary32, and a direct merge subtracts what it stored. Where such numbers are far apart u |L| is
 * units, but most numbers within it are not to be had: rounding is monotonous, so that what is stored lies between what
 * L - bound and L + bound are rounded to. As a rule that is the largest L, the weights are no longer divided by their
 * sum, and o is their sum times too large: which is what binary32 has to offer. */
static void store(struct merge *m)
{
    const double lse = m->max + m->log_sum, size = fabs(lse), off = m->lse_bound + 0x1p-51 * size;
    m->lse_bound += HA_REF_U * size;
    m->high = m->lse_bound;
    m->low = -m->lse_bound;
    if (m->b->form != HA_FORM_DIRECT || HA_REF_U * size < 0.125) return;
    /* volatile: GCC 12 leaves out both roundings where it makes one vector of them */
    const volatile float least = (float)(lse - off), most = (float)(lse + off);
    m->high = lse - (double)least + 0x1p-51 * size;
    m->low = lse - (double)most - 0x1p-51 * size;
    m->lse_bound = larger(m->high, -m->low);
}

/* An LSE to base 2 is the natural one over ln 2, and each of its roundings is relative to an LSE, to a difference of
 * two or to the logarithm of the sum: the natural bound holds as it is. In (max, sum) states the maximum is exact and
 * the logarithm the judge's: what is left of L is 2^-52, of two numbers of the judge's. The product with the sum is
 * one rounding more in each weight. */
static void measure(struct merge *m)
{
    const bool logs = m->b->form != HA_FORM_MAX_SUM;
    const double rescales = m->b->rescales * (m->used - 1), depth = m->used + m->b->depth_extra + rescales;
    m->depth = depth;
    m->g = ha_ref_gamma(depth);
    m->g_dot = ha_ref_gamma(depth + 2);
    m->flush = (1 + m->b->rescales) * HA_REF_ETA;
    m->exp_eps = (1 + rescales) * m->b->exp_eps + (logs ? 0 : HA_REF_U);
    for (size_t k = 0; k < m->count; k++) {
        if (is_empty(&m->states[k], m->b->form)) continue;
        const struct weight w = weigh(m, &m->states[k]);
        m->sum += w.value;
        m->theta += w.spread;
        if (k < KEPT) m->kept[k] = w;
    }
    m->theta /= m->sum;
    m->log_sum = log(m->sum);
    m->known = m->theta < 1 && m->g_dot < 1;
    const double lse = fabs(m->max + m->log_sum);
    double log_sum = fabs(m->log_sum);
    m->lse_bound = m->known ? -log1p(-m->theta) - log1p(-m->g) : HUGE_VAL;
    if (!(m->theta <= 0.5 && m->known)) {
        const double linear = reach(m);
        if (!(m->lse_bound <= linear)) m->lse_bound = linear;
        log_sum = fmax(log(m->used), log_sum);
    }
    m->lse_bound += logs ? m->b->log_eps * (log_sum + 1e-3) : 0x1p-52 * lse;
    if (logs) store(m);
}

static void average(const struct merge *m, struct ha_ref_state *out)
{
    double *restrict o = out->o;
    for (size_t i = 0; i < out->dim; i++) o[i] = 0;
    for (size_t k = 0; k < m->count; k++) {
        if (is_empty(&m->states[k], m->b->form)) continue;
        const double *restrict x = m->states[k].o, p = (k < KEPT ? m->kept[k] : weigh(m, &m->states[k])).value / m->sum;
        for (size_t i = 0; i < out->dim; i++) o[i] += p * x[i];
    }
}

/* B1 and gamma A' in one sum, then what is common to all weights, then the quotient, then the output's rounding. A
 * direct merge has no quotient, and the weights' own errors do not cancel: they count against |x|, not |x - o|. */
static void bound(const struct merge *m, struct ha_ref_state *out)
{
    const bool direct = m->b->form == HA_FORM_DIRECT;
    double *restrict to = out->bound;
    const double *restrict o = out->o;
    const size_t dim = out->dim;
    for (size_t i = 0; i < dim; i++) to[i] = 0;
    for (size_t k = 0; k < m->count; k++) {
        if (is_empty(&m->states[k], m->b->form)) continue;
        const double *restrict x = m->states[k].o, *restrict own = m->states[k].bound;
        const struct weight w = share(m, k);
        const double most = w.value + w.spread, deviation = direct ? 0 : w.spread;
        const double size = m->g_dot * most + (direct ? w.spread : 0), inherited = most + m->g_dot * most;
        for (size_t i = 0; i < dim; i++)
            to[i] += deviation * fabs(x[i] - o[i]) + size * fabs(x[i]) + inherited * own[i];
    }
    const double scale = direct ? exp(m->high) : 1 / ((1 - m->theta) * (1 - m->g));
    const double common = direct ? larger(expm1(m->high), -expm1(m->low)) : m->g / (1 - m->g);
    const double kappa = direct ? 0 : HA_REF_KAPPA_Q, lost = m->used * m->flush * (1 + 1 / m->sum);
    for (size_t i = 0; i < dim; i++) {
        double all = to[i] * scale + common * fabs(o[i]) + lost;
        all = ha_ref_rounded(all, o[i], kappa * HA_REF_U, HA_REF_ETA);
        all = ha_ref_rounded(all, o[i], m->b->u_o, m->b->eta_o);
        to[i] = all < HUGE_VAL ? all : HUGE_VAL; /* NaN in a state: the bound is infinite */
    }
}

static double value_min(const struct ha_ref_state *s, size_t i)
{
    return s->v_min ? s->v_min[i] : s->o[i] - s->bound[i];
}
static double value_max(const struct ha_ref_state *s, size_t i)
{
    return s->v_max ? s->v_max[i] : s->o[i] + s->bound[i];
}

/* columns from .. from + n of what a state says: into all, and if it counts into lo and hi */
static void widen(const struct ha_ref_state *s, size_t from, size_t n, bool counts, bool direct, double *restrict lo,
                  double *restrict hi, double *restrict all)
{
    double least[COLUMNS], most[COLUMNS];
    for (size_t i = 0; i < n && !s->v_min; i++) least[i] = value_min(s, from + i);
    for (size_t i = 0; i < n && !s->v_max; i++) most[i] = value_max(s, from + i);
    const double *restrict x_lo = s->v_min ? s->v_min + from : least, *restrict x_hi = s->v_max ? s->v_max + from
                                                                                                : most;
    for (size_t i = 0; i < n; i++) all[i] = larger(larger(-x_lo[i], x_hi[i]), all[i]);
    if (!counts) return;
    for (size_t i = 0; i < n && direct; i++) lo[i] += smaller(x_lo[i], 0);
    for (size_t i = 0; i < n && direct; i++) hi[i] += larger(x_hi[i], 0);
    for (size_t i = 0; i < n && !direct; i++) lo[i] = smaller(x_lo[i], lo[i]);
    for (size_t i = 0; i < n && !direct; i++) hi[i] = larger(x_hi[i], hi[i]);
}

/* By how much the largest L may be above the merged one, whatever the states' own errors: what that is off by for
 * states that are given, and as much again where it is rounded, since the largest L is a number that is stored, too. */
static double excess(const struct merge *m)
{
    const double off = ha_ref_log_drift(m->exp_eps) + ha_ref_drift(m->depth) + m->used * m->flush
                       + m->b->log_eps * (log(m->used) + 1e-3);
    return 2 * off;
}

/* A convex combination stays between the values, of states that weigh anything. Weights that are used as they are reach
 * from 0 to 1 each, since the merged L is no less than any, but for its rounding, at any size of L. Without known
 * weights that range is all there is; and where the stored L is too far off for a bound of a direct merge. */
static void range(const struct merge *m, struct ha_ref_state *out)
{
    const bool direct = m->b->form == HA_FORM_DIRECT;
    const double depth = m->depth + 2, kappa = direct ? 0 : HA_REF_KAPPA_Q, u_o = m->b->u_o, eta_o = m->b->eta_o;
    const double lost = m->used * m->flush, each = 1 + 1 / m->least;
    if (m->known && !direct && !out->v_min && !out->v_max) return; /* nobody asks */
    /* what a weight that is used as it is may be above 1 */
    const double stretch = excess(m) * (1 + HA_REF_KAPPA_T * HA_REF_U) + ha_ref_log_drift(m->exp_eps)
                           + ha_ref_drift(depth);
    const double over = direct ? expm1(stretch) : ha_ref_overhang(1, depth, 0);
    for (size_t from = 0; from < out->dim; from += COLUMNS) {
        const size_t n = ha_ref_smaller(out->dim - from, COLUMNS);
        double lo[COLUMNS], hi[COLUMNS], all[COLUMNS];
        for (size_t i = 0; i < n; i++) {
            lo[i] = direct ? 0 : HUGE_VAL;
            hi[i] = -lo[i];
            all[i] = 0;
        }
        for (size_t k = 0; k < m->count; k++)
            if (!is_empty(&m->states[k], m->b->form))
                widen(&m->states[k], from, n, m->known || weighs(m, &m->states[k]), direct, lo, hi, all);
        for (size_t i = 0; i < n; i++) {
            const double v = larger(fabs(lo[i]), fabs(hi[i])), o = out->o[from + i];
            double beyond = over * v;
            beyond += lost * (1 + all[i]) * each;
            beyond = ha_ref_rounded(beyond, v, kappa * HA_REF_U, HA_REF_ETA);
            beyond = ha_ref_rounded(beyond, v, u_o, eta_o);
            if (!(beyond < HUGE_VAL)) beyond = HUGE_VAL; /* NaN or infinity in a state */
            lo[i] -= beyond;
            hi[i] += beyond;
            if (out->v_min) out->v_min[from + i] = lo[i];
            if (out->v_max) out->v_max[from + i] = hi[i];
            const double within = isfinite(o) ? larger(hi[i] - o, o - lo[i]) : HUGE_VAL;
            if (!m->known || (direct && within < out->bound[from + i])) out->bound[from + i] = within;
        }
    }
}

/* no keys, or NaN */
static void fill(struct ha_ref_state *out, double value, double lse, double sum)
{
    for (size_t i = 0; i < out->dim; i++) {
        out->o[i] = out->bound[i] = value;
        if (out->v_min) out->v_min[i] = value;
        if (out->v_max) out->v_max[i] = value;
    }
    out->lse = out->max = lse;
    out->lse_bound = value;
    out->sum = sum;
}

/* a state that is alone is not rounded: it is stored in the output's type already */
static void copy(const struct ha_ref_state *s, enum ha_form form, struct ha_ref_state *out)
{
    for (size_t i = 0; i < out->dim; i++) {
        out->o[i] = s->o[i];
        out->bound[i] = s->bound[i];
        if (out->v_min) out->v_min[i] = value_min(s, i);
        if (out->v_max) out->v_max[i] = value_max(s, i);
    }
    out->max = max_of(s, form);
    out->sum = sum_of(s, form);
    out->lse = out->max + log(out->sum);
    out->lse_bound = s->lse_bound;
}

void ha_ref_merge(const struct ha_ref_state *states, size_t count, const struct ha_merge_bound *b,
                  struct ha_ref_state *out)
{
    struct weight kept[KEPT];
    struct merge m = { .b = b, .states = states, .count = count, .max = -HUGE_VAL, .least = HUGE_VAL, .kept = kept };
    const struct ha_ref_state *last = NULL;
    out->keys = 0;
    for (size_t k = 0; k < count; k++) {
        out->keys += states[k].keys;
        if (is_empty(&states[k], b->form)) continue;
        const double max = isfinite(sum_of(&states[k], b->form)) ? max_of(&states[k], b->form) : (double)NAN;
        m.max = max > m.max || isnan(max) ? max : m.max;
        m.least = fmin(sum_of(&states[k], b->form), m.least);
        m.used++;
        last = &states[k];
    }
    if (!last) fill(out, 0, -HUGE_VAL, 0);
    else if (!isfinite(m.max)) fill(out, (double)NAN, (double)NAN, (double)NAN);
    else if (m.used <= 1) copy(last, b->form, out);
    else {
        measure(&m);
        average(&m, out);
        if (m.known) bound(&m, out);
        const bool far = b->form == HA_FORM_DIRECT && m.lse_bound > 1;
        if (!m.known || far || out->v_min || out->v_max) range(&m, out);
        out->lse = m.max + m.log_sum;
        out->lse_bound = m.lse_bound;
        out->max = m.max;
        out->sum = m.sum;
    }
}
