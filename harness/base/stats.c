#include "harness/base/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A sorted copy, the caller's to free; NULL for no samples, a NaN among them, or no memory. */
static double *sorted(const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (isnan(x[i])) return NULL;
    double *copy = n ? malloc(n * sizeof *copy) : NULL;
    if (!copy) return NULL;
    memcpy(copy, x, n * sizeof *copy);
    qsort(copy, n, sizeof *copy, by_value);
    return copy;
}

static double sorted_quantile(const double *s, size_t n, double p)
{
    double position = p * (double)(n - 1);
    size_t below = (size_t)position;
    double share = position - (double)below;
    /* next to an infinity, 0 * inf must not become NaN */
    return share > 0 ? (1 - share) * s[below] + share * s[below + 1] : s[below];
}

double ha_quantile(const double *x, size_t n, double p)
{
    if (!(p >= 0 && p <= 1)) return nan("");
    double *s = sorted(x, n), q = s ? sorted_quantile(s, n, p) : nan("");
    free(s);
    return q;
}

double ha_median(const double *x, size_t n) { return ha_quantile(x, n, 0.5); }

/* The k-th smallest and k-th largest sample enclose the median with 95%: the largest k with
 * P(Binomial(n, 1/2) < k) <= 2.5%, or 0. In logarithms, because 2^-n underflows. */
static size_t interval_rank(size_t n)
{
    double total = 0, log_choices = 0; /* of k out of n */
    for (size_t k = 0; k < n / 2; k++) {
        total += exp(log_choices - (double)n * M_LN2);
        if (!(total <= 0.025)) return k;
        log_choices += log((double)(n - k)) - log((double)(k + 1));
    }
    return 0;
}

void ha_median_interval(const double *x, size_t n, double *lo, double *hi)
{
    *lo = *hi = nan("");
    double *s = sorted(x, n);
    if (!s) return;
    size_t k = interval_rank(n), edge = k ? k - 1 : 0;
    *lo = s[edge];
    *hi = s[n - 1 - edge];
    free(s);
}

double ha_slope(const double *x, size_t n)
{
    double centre = ((double)n - 1) / 2, mean = 0, product = 0, square = 0;
    for (size_t i = 0; i < n; i++) mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        double t = (double)i - centre;
        product += t * (x[i] - mean);
        square += t * t;
    }
    return product / square; /* fewer than two: 0 / 0 */
}
