#include "reference/error.h"

#include "harness/api/reference.h"

/* A state's weight exp(L_k - max L), and how far an implementation's may be from it. */
struct weight {
    double value, spread;
};

static struct weight weigh(const struct ha_ref_state *s, double max, double exp_eps)
{
    const double below = max - s->lse;
    const double eps = s->lse_bound + 3 * HA_REF_U * (below + s->lse_bound) + exp_eps;
    return (struct weight){ exp(-below), ha_ref_spread(-below, eps) };
}

static double value_min(const struct ha_ref_state *s, size_t i) { return s->v_min ? s->v_min[i] : s->o[i] - s->bound[i]; }
static double value_max(const struct ha_ref_state *s, size_t i) { return s->v_max ? s->v_max[i] : s->o[i] + s->bound[i]; }

static void clear(struct ha_ref_state *out, double lo, double hi)
{
    for (size_t i = 0; i < out->dim; i++) {
        out->o[i] = out->bound[i] = 0;
        if (out->v_min) out->v_min[i] = lo;
        if (out->v_max) out->v_max[i] = hi;
    }
}

void ha_ref_merge(const struct ha_ref_state *states, size_t count, double exp_eps, double log_eps, double u_o, double eta_o,
                  struct ha_ref_state *out)
{
    double max = -HUGE_VAL, sum = 0, theta = 0, used = 0;
    out->keys = 0;
    for (size_t k = 0; k < count; k++) {
        out->keys += states[k].keys;
        max = states[k].lse > max || isnan(states[k].lse) ? states[k].lse : max;
    }
    out->lse = max;
    out->lse_bound = 0;
    if (max == -HUGE_VAL) {
        clear(out, 0, 0);
        return;
    }
    clear(out, HUGE_VAL, -HUGE_VAL);
    for (size_t k = 0; k < count; k++) {
        if (states[k].lse == -HUGE_VAL) continue;  /* weighs exactly 0 and is not read: costs no rounding */
        const struct weight w = weigh(&states[k], max, exp_eps);
        sum += w.value;
        theta += w.spread;
        used++;
        for (size_t i = 0; i < out->dim; i++) {
            out->o[i] += w.value * states[k].o[i];
            if (out->v_min) out->v_min[i] = fmin(out->v_min[i], value_min(&states[k], i));
            if (out->v_max) out->v_max[i] = fmax(out->v_max[i], value_max(&states[k], i));
        }
    }
    for (size_t i = 0; i < out->dim; i++) out->o[i] /= sum;

    double size[HA_REF_DIM_MAX] = { 0 }, most[HA_REF_DIM_MAX] = { 0 };
    for (size_t k = 0; k < count; k++) {
        if (states[k].lse == -HUGE_VAL) continue;
        const struct weight w = weigh(&states[k], max, exp_eps);
        const double p = (w.value + w.spread) / sum;
        for (size_t i = 0; i < out->dim; i++) {
            const double reach = fabs(states[k].o[i]) + states[k].bound[i];
            out->bound[i] += w.spread / sum * fabs(states[k].o[i] - out->o[i]) + p * states[k].bound[i];
            size[i] += p * reach;
            most[i] = fmax(most[i], reach);
        }
    }
    const double lost = used * HA_REF_ETA / sum, g = ha_ref_gamma(used), g2 = ha_ref_gamma(used + 2);
    theta = theta / sum + lost;
    const bool bounded = theta < 1 && g2 < 1;
    for (size_t i = 0; i < out->dim; i++) {
        const double o = fabs(out->o[i]), b1 = (out->bound[i] + lost * (most[i] + o)) / (1 - theta);
        const double a = (size[i] + lost * most[i]) / (1 - theta);
        const double b = b1 + (g2 * a + (o + b1) * g) / (1 - g) + lost;
        out->bound[i] = bounded && b < HUGE_VAL ? ha_ref_stored(b, o, u_o, eta_o) : HUGE_VAL;
        if (out->v_min) out->v_min[i] -= ha_ref_overhang(out->v_min[i], u_o, eta_o);
        if (out->v_max) out->v_max[i] += ha_ref_overhang(out->v_max[i], u_o, eta_o);
    }
    const double log_sum = log(sum);
    out->lse = max + log_sum;
    out->lse_bound = -log1p(-theta) - log1p(-g) + log_eps * (fabs(log_sum) + 1e-3) + HA_REF_U * fabs(out->lse);
    if (!bounded) out->lse_bound = HUGE_VAL;
}
