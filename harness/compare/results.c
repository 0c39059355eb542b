#include "harness/compare/results.h"

#include <math.h>
#include <string.h>

/* within: of its value, and least: by which it may be another one where something else computed it. */
static const struct result {
    const char *name;
    enum ha_better better;
    double within, least;
} results[] = {
    { "err_over_bound", HA_LESS, 3, 1e-3 },
    { "rel_l2", HA_LESS, 1e-3, 1e-5 },
    { "rel_l2_wo", HA_LESS, 1e-3, 1e-5 },
    { "rel_l2_head_max", HA_LESS, 1e-3, 1e-5 },
    { "mass_mean", HA_MORE, 1e-3, 1e-6 },
    { "mass_min", HA_MORE, 1e-2, 1e-6 },
    { "recall", HA_MORE, 1e-3, 1e-6 },
    { "hit_ratio", HA_MORE, 1e-3, 1e-6 },
    { "cert_slack", HA_LESS, 1e-2, 1e-6 },
    { "heads_off", HA_LESS, 1e-3, 1e-6 },
    { "keys_mean", HA_NEITHER, 1e-7, 0 },
    { "cpu_tokens", HA_NEITHER, 1e-7, 0 },
    { "cpu_ratio", HA_NEITHER, 1e-3, 1e-6 },
    { "kept_least", HA_NEITHER, 1e-3, 1e-6 },
    { "kept_most", HA_NEITHER, 1e-3, 1e-6 },
    { "kv_gpu_bytes", HA_LESS, 0, 0 },
    { "kv_cpu_bytes", HA_LESS, 0, 0 },
    { "loss", HA_LESS, 1e-3, 1e-3 },
    { "loss_change", HA_LESS, 1e-2, 1e-3 },
    { "kl", HA_LESS, 1e-2, 1e-4 },
    { "top1", HA_MORE, 0, 0.05 },
};

static const struct result *result_of(const char *name)
{
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (!strcmp(results[i].name, name)) return &results[i];
    return NULL;
}

bool ha_is_result(const char *name) { return result_of(name) != NULL; }

static bool same_digits(const struct ha_night *a, const struct ha_night *b)
{
    const char *const plan = ha_night_fact(a, "plan"), *const other = ha_night_fact(b, "plan");
    return ha_night_same_bits(a, b) && (plan == other || (plan && other && !strcmp(plan, other)));
}

/* What the figure was in the nights that count: in those alone that must have the same digits, if there are any. */
struct range {
    double lo, hi;
    bool exact;
};

static struct range range_of(const struct ha_comparison *c, const struct ha_recorded_figure *base, const bool *counts,
                             const struct ha_night *night)
{
    struct range r = { (double)INFINITY, -(double)INFINITY, false };
    for (size_t i = 0; i < base->count; i++) {
        const struct ha_observation *at = &base->at[i];
        if (!counts[at->night]) continue;
        const bool exact = same_digits(&c->base->night[at->night], night);
        if (exact && !r.exact) r = (struct range){ at->value, at->value, true };
        if (exact != r.exact) continue;
        r.lo = fmin(r.lo, at->value);
        r.hi = fmax(r.hi, at->value);
    }
    return r;
}

void ha_result_judge(struct ha_change *k, const struct ha_comparison *c, const bool *counts)
{
    const struct result *is = result_of(k->figure->name);
    size_t last = SIZE_MAX, below = 0, above = 0;
    struct range r = { 0 };
    double farthest = 0, slack = 0;
    for (size_t i = 0; i < k->figure->count; i++) {
        const struct ha_observation *at = &k->figure->at[i];
        if (at->night != last) {
            r = range_of(c, k->base_figure, counts, &c->now->night[at->night]);
            r.exact = r.exact && r.lo == r.hi; /* a figure that does not repeat has no digits to keep */
            slack = r.exact ? 0 : is->within * fmax(fabs(r.lo), fabs(r.hi)) + is->least + r.hi - r.lo;
            last = at->night;
        }
        const double beyond = fmax(r.lo - slack - at->value, at->value - r.hi - slack);
        if (!(beyond > 0)) continue;
        *(at->value < r.lo ? &below : &above) += 1;
        if (beyond < farthest) continue;
        farthest = beyond;
        k->result = (struct ha_result_change){ at->value < r.lo ? r.lo : r.hi, at->value, 0, r.exact };
    }
    k->result.outside = below + above;
    const size_t better = is->better == HA_LESS ? below : is->better == HA_MORE ? above : 0;
    k->kind = !k->result.outside            ? HA_CHANGE_SAME
              : better == k->result.outside ? HA_CHANGE_BETTER
                                            : HA_CHANGE_OTHER_RESULT;
}
