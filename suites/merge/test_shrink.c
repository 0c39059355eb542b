/* Rows shrink to the smallest that is known to fail. */

#include "suites/merge/work.h"
#include "suites/merge/test_trial.h"

#include <math.h>

enum { STATES = 37, DIM = 96 };

static struct {
    double o[STATES * DIM], lse[STATES], sum[STATES];
} memory;

static struct ha_merge_row make(uint64_t seed, enum ha_dtype dtype)
{
    struct ha_merge_row row = {
        .states = STATES, .dim = DIM, .dtype = dtype, .seed = seed, .o = memory.o, .lse = memory.lse, .sum = memory.sum
    };
    near_rows(&row);
    return row;
}

/* ---- what fails -------------------------------------------------------------------------- */

static bool two_empty(void *arg, const struct ha_merge_row *row)
{
    size_t empty = 0;
    for (size_t s = 0; s < row->states; s++) empty += row->lse[s] == -HUGE_VAL;
    return empty >= 2;
}

static bool above(void *arg, const struct ha_merge_row *row)
{
    const double limit = *(const double *)arg;
    bool any = false;
    for (size_t i = 0; i < row->states * row->dim; i++) any |= fabs(row->o[i]) > limit;
    return any;
}

static bool has_nan(void *arg, const struct ha_merge_row *row)
{
    bool any = false;
    for (size_t i = 0; i < row->states * row->dim; i++) any |= isnan(row->o[i]);
    return any;
}

/* one component has to stay as it is, so that the other becomes plain only by itself */
static bool first_is_exact(void *arg, const struct ha_merge_row *row)
{
    return (void)arg, row->dim == 2 && row->states == 1 && row->o[0] == 0.3125;
}

static bool many_states(void *arg, const struct ha_merge_row *row) { return row->states >= *(const size_t *)arg; }
static bool many_components(void *arg, const struct ha_merge_row *row) { return row->dim >= *(const size_t *)arg; }

static bool lse_far_apart(void *arg, const struct ha_merge_row *row)
{
    double min = HUGE_VAL, max = -HUGE_VAL;
    for (size_t s = 0; s < row->states; s++) {
        min = fmin(min, row->lse[s]);
        max = fmax(max, row->lse[s]);
    }
    return max - min > 2.5;
}

static bool sum_not_one(void *arg, const struct ha_merge_row *row)
{
    return (void)arg, row->states == STATES && row->sum[3] > 1.5 && row->sum[5] > 1.5;
}

static bool needs_whole(void *arg, const struct ha_merge_row *row) { return (void)arg, row->whole; }
static bool always(void *arg, const struct ha_merge_row *row) { return (void)arg, row->states > 0 && row->dim > 0; }

/* shrunk to so many states and components */
static size_t shrunk(struct ha_merge_row *row, bool (*fails)(void *arg, const struct ha_merge_row *row), void *arg,
                     size_t states, size_t dim)
{
    const size_t asked = ha_merge_shrink(row, fails, arg, 4000);
    assert_int_equal(row->states, states);
    assert_int_equal(row->dim, dim);
    return asked;
}

/* ---- what is left ------------------------------------------------------------------------ */

TEST(to_two_empty_states)
{
    struct ha_merge_row row = make(1, HA_F32);
    memory.lse[5] = memory.lse[17] = memory.lse[30] = -HUGE_VAL;
    const size_t asked = shrunk(&row, two_empty, NULL, 2, 1);
    for (size_t s = 0; s < 2; s++) {
        assert_true(row.lse[s] == -HUGE_VAL);
        assert_true(row.o[s] == 0 && !signbit(row.o[s]));
        assert_true(row.sum[s] == 1);
    }
    printf("two empty states: asked %zu times\n", asked);
    assert_true(asked < 120);
}

TEST(to_one_large_value)
{
    static const struct {
        double limit, put, want;
        enum ha_dtype dtype;
    } all[] = {
        { 60000, 61234.5, 65536, HA_F32 }, /* one bit, and a power of 2 in f32 */
        { 60000, 61234.5, 61440, HA_F16 }, /* 65536 is no number in f16: 15 * 4096, four bits */
        { 2.5, -2.75, -3, HA_F32 },        { 0.5, 0.9, 1, HA_F32 }, { 0, 1e-30, 1, HA_BF16 },
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        double limit = all[i].limit;
        struct ha_merge_row row = make(2, all[i].dtype);
        for (size_t k = 0; k < STATES * DIM; k++) memory.o[k] = fmin(fabs(memory.o[k]), limit);
        memory.o[19 * DIM + 40] = all[i].put;
        shrunk(&row, above, &limit, 1, 1);
        if (row.o[0] != all[i].want) fail_msg("%g for %g", row.o[0], all[i].want);
        assert_true(row.lse[0] == 0 && row.sum[0] == 1);
    }
}

TEST(one_value_at_a_time)
{
    struct ha_merge_row row = make(12, HA_F32);
    row.states = 1;
    row.dim = 2;
    memory.o[0] = 0.3125;
    memory.o[1] = 1.1;
    shrunk(&row, first_is_exact, NULL, 1, 2);
    assert_true(row.o[0] == 0.3125 && row.o[1] == 0);
}

TEST(to_one_nan)
{
    struct ha_merge_row row = make(3, HA_F32);
    for (size_t d = 0; d < DIM; d++) memory.o[11 * DIM + d] = (double)NAN;
    memory.o[20 * DIM + 7] = HUGE_VAL;
    shrunk(&row, has_nan, NULL, 1, 1);
    assert_true(isnan(row.o[0]) && row.lse[0] == 0);
}

/* lengths that halves alone do not reach */
TEST(to_the_least_length)
{
    for (size_t n = 1; n <= STATES; n++) {
        struct ha_merge_row row = make(4, HA_F32);
        shrunk(&row, many_states, &n, n, 1);
        for (size_t s = 0; s < n; s++) assert_true(row.o[s] == 0 && row.lse[s] == 0 && row.sum[s] == 1);
        row = make(4, HA_F32);
        shrunk(&row, many_components, &n, 1, n);
    }
}

TEST(lse_and_sum_become_plain)
{
    struct ha_merge_row row = make(5, HA_F32);
    shrunk(&row, lse_far_apart, NULL, 2, 1);
    /* one of them 0, the other an integer just far enough */
    const double a = row.lse[0], b = row.lse[1];
    if (!((a == 0 || b == 0) && fabs(a - b) <= 4 && a == rint(a) && b == rint(b))) fail_msg("LSE %g and %g", a, b);

    row = make(6, HA_F32);
    memory.sum[3] = memory.sum[5] = 7.25;
    shrunk(&row, sum_not_one, NULL, STATES, 1);
    for (size_t s = 0; s < STATES; s++) assert_true(row.sum[s] == (s == 3 || s == 5 ? 7.25 : 1));
}

/* An empty state among those that stay: dropping or not, it is never given keys. */
TEST(empty_stays_empty)
{
    size_t n = STATES;
    struct ha_merge_row row = make(7, HA_F32);
    memory.lse[8] = -HUGE_VAL;
    for (size_t i = 0; i < STATES * DIM; i++) memory.o[i] = i % 2 ? (double)NAN : HUGE_VAL;
    shrunk(&row, many_states, &n, n, 1);
    for (size_t s = 0; s < STATES; s++) {
        assert_true(row.lse[s] == (s == 8 ? -HUGE_VAL : 0));
        assert_true(row.o[s] == 0);
    }
}

TEST(budget_and_flags)
{
    for (size_t budget = 0; budget < 60; budget++) {
        struct ha_merge_row row = make(8, HA_F32);
        memory.lse[5] = memory.lse[17] = -HUGE_VAL;
        row.whole = true;
        const size_t asked = ha_merge_shrink(&row, two_empty, NULL, budget);
        assert_true(asked <= budget);
        assert_true(two_empty(NULL, &row));
        assert_true(row.whole == (budget == 0));
    }
    struct ha_merge_row row = make(9, HA_F32);
    row.whole = true;
    assert_int_equal(ha_merge_shrink(&row, needs_whole, NULL, 100), 1);
    assert_true(row.whole && row.states == STATES && row.dim == DIM);
    const double kept = row.o[5];
    make(9, HA_F32);
    assert_true(kept == memory.o[5]);

    row = make(10, HA_F32);
    row.whole = row.full = true;
    const size_t asked = ha_merge_shrink(&row, always, NULL, SIZE_MAX);
    assert_true(!row.whole && !row.full && row.states == 1 && row.dim == 1 && asked < 60);
}

/* the same answer from the same row */
TEST(deterministic)
{
    double first[2] = { 0, 0 };
    size_t asked[2];
    for (size_t k = 0; k < 2; k++) {
        struct ha_merge_row row = make(11, HA_F32);
        asked[k] = ha_merge_shrink(&row, lse_far_apart, NULL, 333);
        if (k) assert_true(first[0] == row.lse[0] && first[1] == row.lse[1]);
        memcpy(first, row.lse, sizeof first);
    }
    assert_int_equal(asked[0], asked[1]);
}
