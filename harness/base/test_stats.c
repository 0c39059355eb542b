#include "harness/base/stats.h"
#include "harness/base/test.h"

#include <math.h>

static void median_of(const double *x, size_t n, double want)
{
    double before[32];
    assert_true(n <= 32);
    memcpy(before, x, n * sizeof *x);
    assert_true(ha_median(x, n) == want);
    assert_memory_equal(before, x, n * sizeof *x);
}

TEST(median)
{
    median_of((const double[]){ 3, 1, 2 }, 3, 2);
    median_of((const double[]){ 4, 1, 3, 2 }, 4, 2.5);
    median_of((const double[]){ 5 }, 1, 5);
    median_of((const double[]){ 2, 1, 2, 2, 9 }, 5, 2);
    median_of((const double[]){ -1, -7, -3 }, 3, -3);
    median_of((const double[]){ 1, HUGE_VAL, 2 }, 3, 2);
    median_of((const double[]){ 1, HUGE_VAL, HUGE_VAL }, 3, HUGE_VAL);
}

TEST(quantiles_interpolate)
{
    const double x[] = { 50, 10, 40, 20, 30 };
    assert_true(ha_quantile(x, 5, 0) == 10);
    assert_true(ha_quantile(x, 5, 1) == 50);
    assert_true(ha_quantile(x, 5, 0.25) == 20);
    assert_true(fabs(ha_quantile(x, 5, 0.9) - 46) < 1e-12);
    assert_true(fabs(ha_quantile(x, 4, 0.05) - 11.5) < 1e-12);
    assert_true(ha_quantile(x, 1, 0.7) == 50);
    assert_true(isnan(ha_quantile(x, 5, -0.1)));
    assert_true(isnan(ha_quantile(x, 5, 1.1)));
    assert_true(isnan(ha_quantile(x, 5, nan(""))));
}

TEST(nan_or_nothing_gives_nan)
{
    for (size_t at = 0; at < 7; at++) {
        double x[7] = { 1, 2, 3, 4, 5, 6, 7 }, lo = 0, hi = 0;
        x[at] = nan("");
        assert_true(isnan(ha_median(x, 7)));
        assert_true(isnan(ha_quantile(x, 7, 0)));
        assert_true(isnan(ha_slope(x, 7)));
        ha_median_interval(x, 7, &lo, &hi);
        assert_true(isnan(lo) && isnan(hi));
    }
    double lo = 0, hi = 0;
    assert_true(isnan(ha_median(NULL, 0)));
    assert_true(isnan(ha_slope(NULL, 0)));
    ha_median_interval(NULL, 0, &lo, &hi);
    assert_true(isnan(lo) && isnan(hi));
}

/* Ranks from the published table of the sign test at 95% (1 + its critical value). */
TEST(interval_has_the_tabled_ranks)
{
    static const struct {
        size_t n, rank;
    } table[] = {
        { 1, 1 },  { 2, 1 },  { 5, 1 },  { 6, 1 },   { 8, 1 },   { 9, 2 },   { 11, 2 },   { 12, 3 },
        { 15, 4 }, { 20, 6 }, { 25, 8 }, { 30, 10 }, { 40, 14 }, { 50, 18 }, { 100, 40 },
    };
    double x[100];
    for (size_t i = 0; i < COUNT(table); i++) {
        size_t n = table[i].n;
        for (size_t j = 0; j < n; j++) x[j] = (double)((j * 37) % n + 1);
        if (n % 37 == 0) continue;
        double lo, hi;
        ha_median_interval(x, n, &lo, &hi);
        assert_true(lo == (double)table[i].rank);
        assert_true(hi == (double)(n + 1 - table[i].rank));
    }
}

/* Confidence at least 95%, and one rank further in less: by exact sums of Pascal's triangle. */
TEST(interval_is_the_tightest)
{
    double row[201] = { 1 }, x[200];
    for (size_t n = 1; n <= 200; n++) {
        for (size_t k = n; k > 0; k--) row[k] += row[k - 1];
        x[n - 1] = (double)n;
        double lo, hi, below = 0;
        ha_median_interval(x, n, &lo, &hi);
        assert_true(hi == (double)n + 1 - lo);
        size_t rank = (size_t)lo;
        for (size_t k = 0; k < rank; k++) below += ldexp(row[k], -(int)n);
        if (n >= 6) assert_true(2 * below <= 0.05);
        assert_true(2 * (below + ldexp(row[rank], -(int)n)) > 0.05);
    }
}

/* Where 2^-n is no binary64 any more: n/2 - 0.98 sqrt(n). */
TEST(interval_of_many_samples)
{
    enum { N = 20000 };
    static double x[N];
    for (size_t i = 0; i < N; i++) x[i] = (double)(i + 1);
    double lo, hi;
    ha_median_interval(x, N, &lo, &hi);
    assert_true(fabs(lo - (N / 2 - 0.98 * sqrt(N))) < 2);
    assert_true(hi == N + 1 - lo);
}

TEST(slope)
{
    assert_true(fabs(ha_slope((const double[]){ 1, 3, 5, 7 }, 4) - 2) < 1e-12);
    assert_true(fabs(ha_slope((const double[]){ 9, 8, 7 }, 3) + 1) < 1e-12);
    assert_true(ha_slope((const double[]){ 4, 4, 4, 4, 4 }, 5) == 0);
    /* by hand: sum (i - 1.5)(x - mean) = 4, sum (i - 1.5)^2 = 5 */
    assert_true(fabs(ha_slope((const double[]){ 1, 2, 1, 4 }, 4) - 0.8) < 1e-12);
    assert_true(fabs(ha_slope((const double[]){ 1e15, 1e15 + 2 }, 2) - 2) < 1e-9);
    assert_true(isnan(ha_slope((const double[]){ 4 }, 1)));
}
