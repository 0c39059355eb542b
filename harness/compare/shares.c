#include "harness/compare/shares.h"

#include <math.h>

void ha_shares_add(struct ha_shares *s, const size_t *slow, const size_t *all, size_t nights)
{
    double sum = 0, of = 0, squares = 0, known = 0;
    for (size_t i = 0; i < nights; i++) {
        sum += (double)slow[i];
        of += (double)all[i];
        squares += (double)(all[i] * all[i]);
        known += all[i] > 0;
    }
    const double p = sum / of, free = known - 1;
    if (!(free > 0) || !(p > 0 && p < 1)) return;
    for (size_t i = 0; i < nights; i++) {
        const double expected = p * (double)all[i], apart = (double)slow[i] - expected;
        if (all[i]) s->chi += apart * apart / (expected * (1 - p));
    }
    s->freedom += free;
    s->size += of - squares / of; /* free times the usual size of a night */
}

double ha_shares_correlation(const struct ha_shares *s, size_t nights)
{
    /* Of few nights the sum of squares is often too small: it is taken as one that a fourth of such estimates are below
     * (Wilson & Hilferty, PNAS 17, 1931). */
    static const double fourth = 0.6745;
    if (nights < 2 || !(s->freedom > 0)) return HA_SHARES_ASSUMED;
    const double size = s->size / s->freedom, excess = s->chi / s->freedom - 1, free = 2 / (9 * (double)(nights - 1));
    if (!(size > 1) || !(excess > 0)) return 0;
    return fmin(0.95, excess / (size - 1) / pow(1 - free - fourth * sqrt(free), 3));
}

static double log_beta(double a, double b) { return lgamma(a) + lgamma(b) - lgamma(a + b); }

double ha_shares_tail(size_t n, size_t k, size_t base_slow, size_t base, double correlation)
{
    const double of = (double)base, p = ((double)base_slow + 0.5) / (of + 1);
    /* the base knows its share no better than its processes are many, which are as one where a night is */
    const double rho = fmin(0.95, correlation + (1 - correlation) / of), a = p * (1 / rho - 1),
                 b = (1 - p) * (1 / rho - 1);
    double sum = 0;
    for (size_t i = k; i <= n; i++) {
        const double x = (double)i, y = (double)(n - i);
        sum += exp(log_beta(a + x, b + y) - log_beta(a, b) + lgamma((double)n + 1) - lgamma(x + 1) - lgamma(y + 1));
    }
    return fmin(1, sum);
}
