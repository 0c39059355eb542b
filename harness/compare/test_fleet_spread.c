#include "harness/compare/fleet_spread.h"

#include "harness/base/rng.h"
#include "harness/base/test.h"

#include <math.h>

TEST(tails_of_students_t_are_those_of_tables)
{
    static const struct {
        double p, freedom, t;
    } table[] = { { 0.025, 1, 12.7062 },  { 0.025, 4, 2.77645 },   { 0.005, 10, 3.16927 },
                  { 0.0005, 2, 31.5991 }, { 0.025, 1e9, 1.95996 }, { 0.25, 3, 0.764892 },
                  { 0.001, 30, 3.38518 }, { 0.45, 5, 0.132175 },   { 1e-9, 1e9, 5.99781 } };
    for (size_t i = 0; i < COUNT(table); i++) {
        assert_near(ha_t_tail(table[i].t, table[i].freedom) / table[i].p, 1, 1e-4);
        assert_near(ha_t_quantile(table[i].p, table[i].freedom) / table[i].t, 1, 1e-4);
    }
    assert_true(ha_t_tail(0, 3) == 0.5 && ha_t_tail((double)INFINITY, 3) == 0);
    /* in the far tail of 1 degree it is 1 / (pi t) */
    assert_near(ha_t_tail(1e9, 1) * M_PI * 1e9, 1, 1e-6);
}

/* Values of a normal distribution, or of Student's t of 4. */
static void draw(double *x, size_t n, uint64_t stream, bool heavy)
{
    for (size_t i = 0; i < n; i++) {
        double square = 0;
        x[i] = (double)ha_rng_normal(3, stream, 5 * i);
        for (size_t k = 1; k < 5; k++) square += pow((double)ha_rng_normal(3, stream, 5 * i + k), 2);
        if (heavy) x[i] /= sqrt(square / 4);
    }
}

/* Of few machines the farthest is so far out, and no farther, once in a hundred fleets. */
TEST(the_farthest_of_few_is_as_likely_as_it_is_said_to_be)
{
    enum { MOST = 40 };
    const size_t sizes[] = { 4, 5, 6, 7, 8, 9, 10, 13, 20, MOST }, fleets = HA_SANITIZED ? 100 : 4000;
    for (size_t s = 0; s < COUNT(sizes); s++) {
        double x[MOST], work[2 * MOST], sum = 0;
        const size_t n = sizes[s];
        size_t out = 0;
        for (uint64_t i = 0; i < fleets; i++) {
            draw(x, n, 100 + i * 64 + n, false);
            const struct ha_spread spread = ha_spread_find(x, n, work);
            double most = 0;
            for (size_t k = 0; k < n; k++) most = fmax(most, x[k] - spread.middle);
            out += ha_spread_chance(&spread, most) * (double)n < 0.01;
            sum += spread.sd / (double)fleets;
        }
        printf("%zu machines: spread %.3f of what it is on average, the farthest too far out in %.2f%% of fleets\n", n,
               sum, 100 * (double)out / (double)fleets);
        if (HA_SANITIZED) continue;
        assert_near(sum, 1, 0.16);
        assert_true(out * 1000 < 17 * fleets);
        assert_true(n > 20 || out * 1000 > 2 * fleets); /* and it is not called far less often than it may be */
    }
}

TEST(one_that_is_far_out_does_not_widen_the_spread)
{
    double x[2000], work[4000];
    const size_t sizes[] = { 10, 60, 2000 };
    for (size_t s = 0; s < COUNT(sizes); s++) {
        const size_t n = sizes[s];
        draw(x, n, 7, false);
        const double before = ha_spread_find(x, n, work).sd;
        for (size_t i = 0; i < n / 10; i++) x[i] = 100;
        const struct ha_spread after = ha_spread_find(x, n, work);
        assert_true(after.sd < 1.8 * before);
        assert_true(isfinite(after.gap));
    }
}

TEST(values_that_are_not_there_are_passed_over)
{
    double x[] = { (double)NAN, 1, (double)NAN, 2, 3, 4 }, work[12];
    const struct ha_spread s = ha_spread_find(x, 6, work);
    assert_int_equal(s.count, 4);
    assert_true(s.middle == 2.5);
    x[1] = (double)NAN;
    const struct ha_spread few = ha_spread_find(x, 6, work);
    assert_true(ha_spread_chance(&few, 100) == 1 && isinf(ha_spread_distance(&few, 0.5)));
}

TEST(a_distance_has_the_chance_that_it_was_asked_for)
{
    const struct ha_spread s = { .count = 50, .sd = 0.01, .heavy = 0.1 };
    assert_near(ha_spread_chance(&s, ha_spread_distance(&s, 1e-6)) / 1e-6, 1, 1e-6);
}

TEST(a_long_tail_is_told_from_a_normal_one)
{
    enum { N = 20000 };
    static double x[N], work[2 * N];
    for (int heavy = 0; heavy < 2; heavy++) {
        size_t n = 0;
        draw(x, N, 9, heavy);
        const struct ha_spread s = ha_spread_find(x, N, work);
        for (size_t i = 0; i < N; i++)
            if (x[i] > s.middle) x[n++] = (x[i] - s.middle) / s.sd;
        const double tail = ha_spread_heavy(x, n, 0.05, 0);
        printf("1 / freedom of %s: %.3f\n", heavy ? "4 degrees" : "a normal one", tail);
        assert_near(tail, heavy ? 0.25 : 0, 0.05);
        assert_true(ha_spread_heavy(x, n, 0.05, 1) <= tail);
    }
}

TEST(false_alarms_are_held_down_over_all_that_was_looked_at)
{
    double p[] = { 0.004, 0.0001, 0.0021, 0.9 };
    assert_true(ha_spread_threshold(p, 4, 4, 0.01) == 0.004); /* of four the third smallest may be 0.0075 */
    assert_true(ha_spread_threshold(p, 4, 10, 0.01) == 0.0001);
    double few[] = { 0.004, 0.0001 };
    assert_true(ha_spread_threshold(few, 2, 10, 0.01) == 0.0001);
    double none[] = { 0.5 };
    assert_true(ha_spread_threshold(none, 1, 10, 0.01) == -1);
    assert_true(ha_spread_threshold(NULL, 0, 10, 0.01) == -1);
}
