#include "harness/compare/fleet_spread.h"

#include "harness/compare/shift.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double mad_to_sd = 1.4826, qn_to_sd = 2.2219; /* of a normal */
/* Qn costs the square of how many there are. */
enum { QN_MOST = 100 };

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double sorted_median(const double *x, size_t n) { return n ? (x[(n - 1) / 2] + x[n / 2]) / 2 : (double)NAN; }

/* ---- Student's t ------------------------------------------------------------------------------------------------- */

/* The regularized incomplete beta function by its continued fraction (Abramowitz & Stegun 26.5.8), by Lentz's method;
 * x below (a + 1) / (a + b + 2), where it converges fast. */
static double incomplete_beta(double a, double b, double x)
{
    const double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a;
    double c = 1, d = 1 / (1 - (a + b) * x / (a + 1)), h = d;
    for (int m = 1; m < 300; m++) {
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        d = 1 / (1 + even * d);
        c = 1 + even / c;
        h *= d * c;
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 / (1 + odd * d);
        c = 1 + odd / c;
        h *= d * c;
        if (fabs(d * c - 1) < 1e-12) break;
    }
    return front * h;
}

double ha_t_tail(double t, double freedom)
{
    if (!(t > 0)) return 0.5;
    if (isinf(t)) return 0;
    if (freedom > 1e6) return 0.5 * erfc(t / M_SQRT2);
    const double a = freedom / 2, b = 0.5, x = freedom / (freedom + t * t);
    if (x < (a + 1) / (a + b + 2)) return 0.5 * incomplete_beta(a, b, x);
    return 0.5 * (1 - incomplete_beta(b, a, 1 - x));
}

double ha_t_quantile(double p, double freedom)
{
    double lo = 0, hi = 1;
    while (ha_t_tail(hi, freedom) > p && hi < 1e12) hi *= 2;
    for (int i = 0; i < 60; i++) {
        const double middle = (lo + hi) / 2;
        if (ha_t_tail(middle, freedom) > p) lo = middle;
        else hi = middle;
    }
    return lo;
}

/* ---- a spread ---------------------------------------------------------------------------------------------------- */

/* Of so few: what makes the median of Qn that of a normal distribution, and as how many degrees of freedom the farthest
 * value behaves that is divided by it, at chances of one in a thousand (test_fleet_spread.c simulates both). */
static const struct {
    double factor, freedom;
} few[] = { [4] = { 0.547, 2.6 }, [5] = { 0.899, 2.4 }, [6] = { 0.630, 4.0 },
            [7] = { 0.883, 4.0 }, [8] = { 0.680, 5.5 }, [9] = { 0.886, 5.5 } };
enum { FEW = sizeof few / sizeof *few };

static double factor_of(size_t n) { return n < FEW ? few[n].factor : (double)n / ((double)n + (n % 2 ? 1.4 : 3.8)); }

static double freedom_of(size_t n)
{
    return n < FEW ? few[n].freedom : n <= QN_MOST ? (double)n - 2 : 0.37 * (double)n;
}

/* x: [n] sorted */
static double qn(const double *x, size_t n)
{
    double apart[QN_MOST * (QN_MOST - 1) / 2];
    size_t pairs = 0;
    const size_t half = n / 2 + 1;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++) apart[pairs++] = x[j] - x[i];
    qsort(apart, pairs, sizeof *apart, by_size);
    return qn_to_sd * factor_of(n) * apart[half * (half - 1) / 2 - 1];
}

/* The larger one of all and of the worse half, which is that of a figure whose worse side is the longer. */
static double median_distance(const double *x, size_t n, double middle, double *work)
{
    for (size_t i = 0; i < n; i++) work[i] = fabs(x[i] - middle);
    qsort(work, n, sizeof *work, by_size);
    const double all = sorted_median(work, n), worse = sorted_median(x + n / 2, n - n / 2) - middle;
    return mad_to_sd * fmax(all, worse);
}

/* Where values begin that are apart from the others: fewer than a tenth, four sd out or more, behind a gap of two. */
static double gap_of(const double *x, size_t n, double middle, double sd)
{
    for (size_t i = n - n / 10; i < n; i++)
        if (i && x[i] - middle > 4 * sd && x[i] - x[i - 1] > 2 * sd) return (x[i] - middle) / sd;
    return (double)INFINITY;
}

struct ha_spread ha_spread_find(const double *x, size_t n, double *work)
{
    struct ha_spread s = { 0, (double)NAN, (double)NAN, 0, (double)INFINITY };
    for (size_t i = 0; i < n; i++)
        if (!isnan(x[i])) work[s.count++] = x[i];
    if (s.count) qsort(work, s.count, sizeof *work, by_size);
    s.middle = sorted_median(work, s.count);
    if (s.count < HA_SPREAD_LEAST) return s;
    s.sd = s.count <= QN_MOST ? qn(work, s.count) : median_distance(work, s.count, s.middle, work + n);
    s.sd = fmax(s.sd, HA_SHIFT_NIGHTS_LEAST);
    s.gap = gap_of(work, s.count, s.middle, s.sd);
    return s;
}

/* Where the last part of the worse half begins, over where half of it does. */
static double ratio_of(double heavy, double part)
{
    const double freedom = heavy > 0 ? 1 / heavy : (double)INFINITY;
    return ha_t_quantile(part / 2, freedom) / ha_t_quantile(0.25, freedom);
}

double ha_spread_heavy(double *above, size_t n, double part, double doubt)
{
    const double heaviest = 0.5, error = 4.2 * sqrt(0.05 / part) / sqrt((double)n + 1); /* of the ratio, of a normal */
    if (n < 20) return 0;
    qsort(above, n, sizeof *above, by_size);
    const double ratio = above[n - 1 - (size_t)(part * (double)n)] / sorted_median(above, n) - doubt * error;
    double lo = 0, hi = heaviest;
    if (!(ratio > ratio_of(0, part))) return 0;
    for (int i = 0; i < 20; i++) {
        const double middle = (lo + hi) / 2;
        if (ratio_of(middle, part) < ratio) lo = middle;
        else hi = middle;
    }
    return lo;
}

/* Doubt of the spread, and tails of machines. */
static double freedom(const struct ha_spread *s) { return 1 / (1 / freedom_of(s->count) + s->heavy); }

double ha_spread_chance(const struct ha_spread *s, double above)
{
    return s->count < HA_SPREAD_LEAST ? 1 : ha_t_tail(above / s->sd, freedom(s));
}

double ha_spread_distance(const struct ha_spread *s, double p)
{
    return s->count < HA_SPREAD_LEAST ? (double)INFINITY : s->sd * ha_t_quantile(p, freedom(s));
}

double ha_spread_threshold(double *p, size_t count, double of, double alpha)
{
    double threshold = -1;
    if (count) qsort(p, count, sizeof *p, by_size);
    for (size_t i = 0; i < count; i++)
        if (p[i] <= alpha * (double)(i + 1) / of) threshold = p[i];
    return threshold;
}
