#include "harness/base/test.h"
#include "harness/compare/shift.h"

#include <math.h>

static struct ha_why why;

/* ---- Mann and Whitney -------------------------------------------------------------------------------------------- */

/* Every choice of n out of n + m ranks, one by one. */
static double counted(unsigned n, unsigned m, unsigned u)
{
    size_t all = 0, there = 0;
    for (unsigned set = 0; set < 1u << (n + m); set++) {
        if ((unsigned)__builtin_popcount(set) != n) continue;
        unsigned wins = 0;
        for (unsigned i = 0; i < n + m; i++)
            for (unsigned j = 0; j < i; j++) wins += set >> i & 1 && !(set >> j & 1);
        all++;
        there += wins >= u;
    }
    return (double)there / (double)all;
}

TEST(the_chance_of_u_is_that_of_every_choice_counted)
{
    for (unsigned n = 1; n <= 5; n++)
        for (unsigned m = 1; m <= 5; m++)
            for (unsigned u = 0; u <= n * m; u++) assert_near(ha_mann_whitney(n, m, u), counted(n, m, u), 1e-12);
}

TEST(a_far_tail_keeps_its_digits_and_the_normal_one_goes_on_from_it)
{
    double choices = 1; /* of 35 out of 70 */
    for (int i = 1; i <= 35; i++) choices *= (35.0 + i) / i;
    assert_near(ha_mann_whitney(35, 35, 35 * 35) * choices, 1, 1e-9);
    /* 50 * 50 is the last that is counted, 50 * 51 the first that is not */
    const double exact = ha_mann_whitney(50, 50, 0.6 * 2500), normal = ha_mann_whitney(50, 51, 0.6 * 2550);
    assert_near(exact / normal, 1, 0.05);
}

/* ---- Benjamini and Hochberg -------------------------------------------------------------------------------------- */

TEST(the_threshold_is_the_last_that_is_below_its_share)
{
    static const double p[] = { 0.041, 0.001, 0.039, 0.008, 0.9 };
    /* shares of 0.05: 0.01 0.02 0.03 0.04 0.05 for 0.001 0.008 0.039 0.041 0.9 */
    assert_near(ha_shift_threshold(p, 5, 0.05), 0.008, 0);
    assert_near(ha_shift_threshold(p, 5, 0.07), 0.041, 0); /* and with it 0.039, which alone would not be */
    assert_near(ha_shift_threshold(p, 5, 0.001), -1, 0);
    assert_near(ha_shift_threshold(p, 0, 0.05), -1, 0);
}

/* ---- shifts ------------------------------------------------------------------------------------------------------ */

enum { N = 10 };
static double base_x[N], now_x[N];
static size_t base_night[N], now_night[N];
static const struct ha_side base = { base_x, base_night, N, 2 }, now = { now_x, now_night, N, 1 };

/* Ten values 0.1% apart around `at`, of which the last `slow` are at another speed. */
static void fill(double *x, double at, size_t slow, double apart)
{
    for (size_t i = 0; i < N; i++) {
        x[i] = at + 0.001 * ((double)i - 4.5) + (i + slow >= N ? apart : 0);
        base_night[i] = i >= N / 2;
    }
}

static struct ha_shift found(void)
{
    struct ha_shift s;
    assert_int_equal(ha_shift_find(&s, &base, &now, &(struct ha_shift_nights){ 0.005, 0, 0.01, 10 }, &why), HA_OK);
    return s;
}

TEST(a_shift_is_found_with_its_interval_and_its_direction)
{
    fill(base_x, 1, 0, 0);
    fill(now_x, 1.1, 0, 0);
    struct ha_shift s = found();
    assert_near(s.size, 0.1, 1e-12);
    assert_true(s.lo > 0.08 && s.lo < 0.1 && s.hi > 0.1 && s.hi < 0.12);
    assert_true(s.p < 1e-4 && s.p_better > 0.99 && s.beyond && !s.beyond_better && s.suspicious);
    fill(now_x, 0.9, 0, 0);
    s = found();
    assert_near(s.size, -0.1, 1e-12);
    assert_true(s.p > 0.99 && s.p_better < 1e-4 && !s.beyond && s.beyond_better && s.suspicious);
    fill(now_x, 1, 0, 0);
    s = found();
    assert_true(s.p > 0.5 && s.p_better > 0.5 && !s.beyond && !s.beyond_better && !s.suspicious && s.lo < 0
                && s.hi > 0);
    assert_true(s.noticed > HA_SHIFT_LEAST && s.noticed < 0.06);
}

TEST(less_than_what_counts_is_no_change_however_sure_it_is)
{
    fill(base_x, 1, 0, 0);
    fill(now_x, 1 + 0.9 * HA_SHIFT_LEAST, 0, 0);
    const struct ha_shift s = found();
    assert_true(s.beyond && s.p > 0.5 && !s.suspicious);
}

TEST(of_two_speeds_each_is_held_against_its_own)
{
    fill(base_x, 1, 4, 0.3);
    fill(now_x, 1, 8, 0.3);
    struct ha_shift s = found();
    assert_true(s.speeds.two && s.slow[0] == 4 && s.slow[1] == 8 && fabs(s.size) < 0.01 && !s.suspicious);
    fill(now_x, 1.05, 8, 0.3);
    s = found();
    assert_near(s.size, 0.05, 0.01);
    assert_true(s.p < 1e-3);
    /* all that is known of these is that it is worse */
    fill(now_x, 1.15, 0, 0.3);
    s = found();
    assert_true(s.slow[1] == 0 && fabs(s.size - 0.15) < 0.01 && s.p < 1e-3);
    fill(now_x, 1.35, 0, 0.3);
    s = found();
    assert_true(s.slow[1] == 10 && fabs(s.size - 0.05) < 0.01);
    /* and of these nothing is */
    fill(now_x, 1.3, 0, 0.3);
    s = found();
    assert_true(s.slow[1] == 10 && fabs(s.size) < 0.01 && !s.suspicious);
    /* both are there: the same change of both, over any way */
    for (int percent = -60; percent <= 60; percent += 5) {
        fill(now_x, 1 + percent / 100.0, 5, 0.3);
        s = found();
        assert_int_equal(s.slow[1], 5);
        assert_near(s.size, percent / 100.0, 0.01);
    }
    /* the base has one speed: the second one is news */
    fill(base_x, 1, 0, 0);
    fill(now_x, 1, 8, 0.3);
    s = found();
    assert_true(!s.speeds.two && s.size > 0.2 && s.p < 0.05);
}

TEST(one_process_against_one_says_nothing_and_says_so)
{
    static double a[] = { 1 }, b[] = { 2 };
    static size_t night[] = { 0 };
    const struct ha_side one = { a, night, 1, 1 }, other = { b, night, 1, 1 };
    struct ha_shift s;
    assert_int_equal(ha_shift_find(&s, &one, &other, &(struct ha_shift_nights){ 0.01, 0, 0.01, 1 }, &why), HA_OK);
    assert_true(s.p >= 0.5 && isinf(s.noticed) && !s.suspicious);
}

/* ---- nights ------------------------------------------------------------------------------------------------------ */

TEST(the_spread_between_nights_is_what_processes_do_not_explain)
{
    fill(base_x, 1, 0, 0);
    for (size_t i = N / 2; i < N; i++) base_x[i] += 0.04;
    const double apart = ha_shift_nights_squared(&base);
    assert_true(apart > 0.0009 && apart < 0.00102); /* of two medians that are 0.045 apart, 0.00101 */
    static double x[N];
    static size_t night[N];
    const struct ha_side one = { x, night, N, 1 };
    assert_true(isnan(ha_shift_nights_squared(&one)));
    double squares[] = { 4e-4, (double)NAN, 1e-4, 9e-4, (double)NAN };
    assert_near(ha_shift_nights(squares, COUNT(squares), 5), sqrt(4e-4 / 0.842), 1e-5);
    /* of two nights the median square is 0.455 of the mean one */
    assert_near(ha_shift_nights(squares, 3, 2), sqrt(4e-4 / 0.47), 1e-4);
    double few[] = { (double)NAN }, none[] = { -1e-4 };
    assert_near(ha_shift_nights(few, 1, 5), HA_SHIFT_NIGHTS, 0);
    assert_near(ha_shift_nights(none, 1, 5), HA_SHIFT_NIGHTS_LEAST, 0);
}

TEST(what_is_the_same_in_each_process_is_neither)
{
    for (size_t i = 0; i < N; i++) base_x[i] = now_x[i] = i < N / 2 ? 1 : 1 + HA_SHIFT_LEAST;
    struct ha_shift s = found();
    assert_true(s.p > 0.5 && s.p_better > 0.5 && !s.suspicious);
    /* just as much as counts: each pair is half a win, which proves nothing */
    for (size_t i = 0; i < N; i++) base_x[i] = 0, now_x[i] = HA_SHIFT_LEAST;
    s = found();
    assert_true(s.p > 0.4 && s.p < 0.6);
}

/* More pairs than are held at once: the same shift, since their order says it. */
/* Five nights of five processes, 0.1% apart within a night; `apart` from night to night. What is 4% above all of them?
 */
static double chance_above(double apart)
{
    enum { NIGHTS = 5, EACH = 5 };
    static const double level[NIGHTS] = { 0, 1, -1, 0.5, -0.5 };
    double x[NIGHTS * EACH], above[N];
    size_t night[NIGHTS * EACH], one[N] = { 0 };
    struct ha_shift s;
    for (size_t i = 0; i < COUNT(x); i++) {
        night[i] = i / EACH;
        x[i] = apart * level[night[i]] + 0.001 * ((double)(i % EACH) - 2);
    }
    for (size_t i = 0; i < N; i++) above[i] = 2 * apart + 0.04 + 0.001 * ((double)i - 4.5);
    const struct ha_side before = { x, night, COUNT(x), NIGHTS }, after = { above, one, N, 1 };
    assert_int_equal(ha_shift_find(&s, &before, &after, &(struct ha_shift_nights){ 0.003, 0, 0.01, 10 }, &why), HA_OK);
    return s.p;
}

TEST(a_figure_whose_own_nights_differ_has_their_spread)
{
    assert_true(chance_above(0.0005) < 1e-6);
    const double p = chance_above(0.05);
    assert_true(p > 0.02 && p < 0.2); /* 2.9 of its errors above the least, of four degrees of freedom */
}

TEST(a_shift_of_a_million_pairs_is_the_median_difference)
{
    enum { MANY = 1500 };
    static double before[MANY], after[MANY];
    static size_t night[MANY];
    for (size_t i = 0; i < MANY; i++) {
        before[i] = (double)(i * 7919 % MANY) / MANY;
        after[i] = before[i] + 0.25;
    }
    const struct ha_side old = { before, night, MANY, 1 }, few = { after, night, 600, 1 },
                         many = { after, night, MANY, 1 };
    struct ha_shift all, part;
    assert_int_equal(ha_shift_find(&all, &old, &many, &(struct ha_shift_nights){ 0.003, 0, 0.01, 1 }, &why), HA_OK);
    assert_near(all.size, 0.25, 1e-3);
    assert_true(all.p < 1e-9 && all.p_better > 0.999);
    assert_int_equal(ha_shift_find(&part, &old, &few, &(struct ha_shift_nights){ 0.003, 0, 0.01, 1 }, &why), HA_OK);
    assert_near(part.size, all.size, 0.02);
}
