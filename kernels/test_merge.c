/* merge, through every table: against the binary64 merge and its bound, and the cases whose
 * outcome is exact. */

#include "harness/api/reference.h"
#include "harness/base/rng.h"
#include "kernels/test_data.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FOR_TABLES(t) for (const struct ha_kernels *t = ha_test_tables; t < ha_test_tables + ha_test_tables_count; t++)

enum { STATES_MAX = 512, SMALL_DIM = 19 };

static double worst[HA_TEST_TABLES_MAX];
static bool small;

/* one row; state i is o[i], lse[i] */
static void merge_one(const struct ha_kernels *t, const float (*o)[SMALL_DIM], const float *lse, size_t count, float *out, float *out_lse)
{
    struct ha_merge_state states[STATES_MAX];
    for (size_t i = 0; i < count; i++)
        states[i] = (struct ha_merge_state){ .o = o[i], .lse = &lse[i], .o_stride = SMALL_DIM, .lse_stride = 1 };
    const struct ha_merge m = {
        .states = states, .states_count = count, .rows = 1, .dim = SMALL_DIM, .o = out, .lse = out_lse, .o_stride = SMALL_DIM, .lse_stride = 1,
    };
    t->merge(&m);
}

static void fill(float *o, size_t n, uint64_t seed) { ha_rng_normals(seed, 1, 0, n, o); }

/* ---- within bound -------------------------------------------------------------------------- */

enum spread { EQUAL, NEAR, FAR, OFFSET, SOME_EMPTY, SPREADS };

static float lse_for(enum spread spread, uint64_t seed, size_t state, size_t row)
{
    const float x = ha_rng_normal(seed, 2 + state, row);
    switch (spread) {
    case EQUAL: return 3.5f;
    case NEAR: return x;
    case FAR: return 40 * x;
    case OFFSET: return 3e5f + 2 * x;
    default: return (ha_rng_bits(seed, 3000 + state, row) & 1) ? -INFINITY : x;
    }
}

static void check_bound(size_t count, size_t rows, size_t dim, enum spread spread, uint64_t seed)
{
    /* every state and the output with a stride of its own; the last row ends at the guard */
    struct ha_merge_state *states = calloc(count, sizeof *states);
    struct ha_ref_state *refs = calloc(count, sizeof *refs);
    double *numbers = calloc(count * 2 * dim + 2 * dim, sizeof *numbers);
    const size_t pad = 2 * count, most = dim + pad;
    float *o = ha_guard_alloc(count * rows * most * sizeof *o), *lse = ha_guard_alloc(count * rows * 3 * sizeof *lse);
    float *out = ha_guard_alloc(rows * most * sizeof *out), *out_lse = ha_guard_alloc(rows * sizeof *out_lse);
    assert_non_null(states);
    assert_non_null(refs);
    assert_non_null(numbers);
    for (size_t i = 0; i < count; i++) {
        const size_t stride = dim + 2 * i + 1, lse_stride = 1 + i % 3;
        /* the last element of the last row is the last of the state's part */
        float *base = o + (i + 1) * rows * most - ((rows - 1) * stride + dim), *l = lse + (i + 1) * rows * 3 - ((rows - 1) * lse_stride + 1);
        for (size_t r = 0; r < rows; r++) {
            l[r * lse_stride] = lse_for(spread, seed, i, r);
            if (l[r * lse_stride] != -INFINITY) fill(base + r * stride, dim, seed * 7919 + i * 131 + r);
        }
        states[i] = (struct ha_merge_state){ .o = base, .lse = l, .o_stride = stride, .lse_stride = lse_stride };
    }
    const struct ha_merge m = {
        .states = states, .states_count = count, .rows = rows, .dim = dim, .o = out + rows * most - ((rows - 1) * (dim + 3) + dim),
        .lse = out_lse, .o_stride = dim + 3, .lse_stride = 1,
    };
    FOR_TABLES(t) {
        memset(out, 0xFF, rows * most * sizeof *out);
        t->merge(&m);
        for (size_t r = 0; r < rows; r++) {
            for (size_t i = 0; i < count; i++) {
                refs[i] = (struct ha_ref_state){ .o = numbers + i * 2 * dim, .bound = numbers + (i * 2 + 1) * dim, .dim = dim, .keys = 1 };
                refs[i].lse = (double)states[i].lse[r * states[i].lse_stride];
                for (size_t d = 0; d < dim; d++) {
                    refs[i].o[d] = refs[i].lse == -HUGE_VAL ? 0 : (double)states[i].o[r * states[i].o_stride + d];
                    refs[i].bound[d] = 0;
                }
            }
            struct ha_ref_state want = { .o = numbers + count * 2 * dim, .bound = numbers + (count * 2 + 1) * dim, .dim = dim };
            ha_ref_merge(refs, count, t->profile.exp_eps, t->profile.log_eps, 0, 0, &want);
            const double ratio = ha_ref_ratio(m.o + r * m.o_stride, m.lse[r], &want, NULL);
            if (!(ratio <= 1)) printf("%s: %zu states, dim %zu, spread %d, row %zu: ratio %g\n", t->name, count, dim, spread, r, ratio);
            assert_true(ratio <= 1);
            if (ratio > worst[t - ha_test_tables]) worst[t - ha_test_tables] = ratio;
        }
    }
    free(states);
    free(refs);
    free(numbers);
    ha_guard_free(o);
    ha_guard_free(lse);
    ha_guard_free(out);
    ha_guard_free(out_lse);
}

static void within_bound(void **state)
{
    (void)state;
    static const size_t counts[] = { 1, 2, 3, 33, 130, 4, 8, 15, 16, 17, 63, 64, 65, 160, 512 };
    static const size_t dims[] = { 8, 80, 300, 1, 31, 64, 96, 112, 128, 256, 520 };
    uint64_t seed = 1;
    for (size_t c = 0; c < (small ? 5 : sizeof counts / sizeof *counts); c++)
        for (size_t d = 0; d < (small ? 3 : sizeof dims / sizeof *dims); d++)
            for (enum spread s = EQUAL; s < SPREADS; s++) check_bound(counts[c], 3, dims[d], s, seed++);
}

static void wide_gaps(void **state)
{
    (void)state;
    static const float pairs[][2] = {
        { 0, 0 }, { 0, -0.0f }, { 1e-7f, -0.0f }, { 100, 99 }, { 1000, 999 }, { -120, -121 }, { -1000, -1001 }, { -6e4f, -6e4f },
        { -1e5f, -1e5f }, { 88, 0 }, { 94, 0 }, { 104, 0 }, { 150, 0 }, { FLT_MAX, -FLT_MAX }, { 1e30f, -1e30f },
    };
    float o[2][SMALL_DIM], out[SMALL_DIM], lse;
    fill(o[0], 2 * SMALL_DIM, 9);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        FOR_TABLES(t) {
            merge_one(t, (const float(*)[SMALL_DIM])o, pairs[i], 2, out, &lse);
            const double a = (double)pairs[i][0], b = (double)pairs[i][1], w = exp(b - a);
            assert_true(fabs((double)lse - (a + log1p(w))) <= 4 * 0x1p-24 * (fabs(a) + 1));
            for (size_t d = 0; d < SMALL_DIM; d++) {
                const double want = ((double)o[0][d] + w * (double)o[1][d]) / (1 + w);
                assert_true(fabs((double)out[d] - want) <= 10 * 0x1p-24 * (fabs((double)o[0][d]) + fabs((double)o[1][d])));
            }
        }
}

/* ---- exact --------------------------------------------------------------------------------- */

/* One state alone, or among empty ones whose o is NaN, is copied bit for bit, its zeros' signs too. */
static void a_single_state_is_copied(void **state)
{
    (void)state;
    static const float lses[] = { 0, -0.0f, 1e-7f, -1e5f, 88, FLT_MAX };
    static const size_t counts[] = { 1, 2, 3, 16, 17, 64, 65, 200 };
    static float o[STATES_MAX][SMALL_DIM], lse[STATES_MAX];
    for (size_t l = 0; l < sizeof lses / sizeof *lses; l++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (size_t at = 0; at < counts[c]; at += 1 + at / 3)
                FOR_TABLES(t) {
                    float out[SMALL_DIM], out_lse;
                    memset(o, 0xFF, sizeof o);
                    for (size_t i = 0; i < counts[c]; i++) lse[i] = -INFINITY;
                    fill(o[at], SMALL_DIM, at + 1);
                    o[at][3] = -0.0f;
                    o[at][18] = FLT_MAX;
                    lse[at] = lses[l];
                    merge_one(t, (const float(*)[SMALL_DIM])o, lse, counts[c], out, &out_lse);
                    assert_memory_equal(out, o[at], sizeof out);
                    assert_memory_equal(&out_lse, &lse[at], sizeof out_lse);
                }
}

static void empties_only(void **state)
{
    (void)state;
    static float o[STATES_MAX][SMALL_DIM], lse[STATES_MAX];
    memset(o, 0xFF, sizeof o);
    for (size_t i = 0; i < STATES_MAX; i++) lse[i] = -INFINITY;
    for (size_t count = 0; count <= 130; count += 1 + count / 4)
        FOR_TABLES(t) {
            float out[SMALL_DIM], out_lse;
            merge_one(t, (const float(*)[SMALL_DIM])o, lse, count, out, &out_lse);
            assert_true(out_lse == -INFINITY);
            for (size_t d = 0; d < SMALL_DIM; d++) assert_true(out[d] == 0);
        }
}

/* a,b = b,a, bit for bit; and the mean of o and -o is 0 */
static void two_states_commute(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++)
        FOR_TABLES(t) {
            float o[2][SMALL_DIM], swapped[2][SMALL_DIM], a[SMALL_DIM], b[SMALL_DIM], a_lse, b_lse;
            fill(o[0], 2 * SMALL_DIM, seed);
            memcpy(swapped[0], o[1], sizeof o[1]);
            memcpy(swapped[1], o[0], sizeof o[0]);
            const float x = 3 * ha_rng_normal(seed, 5, 0), y = 3 * ha_rng_normal(seed, 5, 1);
            merge_one(t, (const float(*)[SMALL_DIM])o, (float[]){ x, y }, 2, a, &a_lse);
            merge_one(t, (const float(*)[SMALL_DIM])swapped, (float[]){ y, x }, 2, b, &b_lse);
            assert_memory_equal(a, b, sizeof a);
            assert_memory_equal(&a_lse, &b_lse, sizeof a_lse);
            for (size_t d = 0; d < SMALL_DIM; d++) swapped[1][d] = -(swapped[0][d] = 1e30f * o[0][d]);
            merge_one(t, (const float(*)[SMALL_DIM])swapped, (float[]){ x, x }, 2, a, &a_lse);
            for (size_t d = 0; d < SMALL_DIM; d++) assert_true(a[d] == 0);
        }
}

static void no_overflow_of_a_convex_combination(void **state)
{
    (void)state;
    float o[4][SMALL_DIM], out[SMALL_DIM], lse;
    for (size_t i = 0; i < 4; i++)
        for (size_t d = 0; d < SMALL_DIM; d++) o[i][d] = 3.3e38f;
    FOR_TABLES(t) {
        merge_one(t, (const float(*)[SMALL_DIM])o, (float[]){ 1, 1, 1, 1 }, 4, out, &lse);
        for (size_t d = 0; d < SMALL_DIM; d++) assert_true(out[d] == 3.3e38f);
        merge_one(t, (const float(*)[SMALL_DIM])o, (float[]){ 1, 1.5f, 0.3f, -2 }, 4, out, &lse);
        for (size_t d = 0; d < SMALL_DIM; d++) assert_true(fabsf(out[d] - 3.3e38f) <= 1e33f);
    }
}

/* ---- not a number ---------------------------------------------------------------------------- */

static void bad_lse_is_never_silent(void **state)
{
    (void)state;
    static const size_t counts[] = { 1, 2, 3, 17, 65, 130 };
    static float o[STATES_MAX][SMALL_DIM], lse[STATES_MAX];
    fill(o[0], STATES_MAX * SMALL_DIM, 4);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t at = 0; at < counts[c]; at += 1 + at / 3)
            for (int others_empty = 0; others_empty < 2; others_empty++)
                for (int inf = 0; inf < 2; inf++)
                    FOR_TABLES(t) {
                        float out[SMALL_DIM], out_lse;
                        for (size_t i = 0; i < counts[c]; i++) lse[i] = others_empty ? -INFINITY : (float)i;
                        lse[at] = inf ? INFINITY : NAN;
                        merge_one(t, (const float(*)[SMALL_DIM])o, lse, counts[c], out, &out_lse);
                        assert_true(isnan(out_lse));
                        for (size_t d = 0; d < SMALL_DIM; d++) assert_true(isnan(out[d]));
                    }
}

static void nan_in_one_component(void **state)
{
    (void)state;
    for (size_t at = 0; at < SMALL_DIM; at++)
        FOR_TABLES(t) {
            float o[3][SMALL_DIM], out[SMALL_DIM], lse;
            fill(o[0], 3 * SMALL_DIM, 4);
            o[at % 3][at] = NAN;
            merge_one(t, (const float(*)[SMALL_DIM])o, (float[]){ 1, 2, 3 }, 3, out, &lse);
            for (size_t d = 0; d < SMALL_DIM; d++) assert_true(isnan(out[d]) == (d == at));
            assert_true(isfinite(lse));
        }
}

/* ---- in place --------------------------------------------------------------------------------- */

static void in_place(void **state)
{
    (void)state;
    enum { ROWS = 5, DIM = 270, STATES = 70 };
    static float o[STATES][ROWS][DIM], lse[STATES][ROWS], want[ROWS][DIM], want_lse[ROWS];
    static const size_t counts[] = { 1, 2, 3, 70 };
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t into = 0; into < counts[c]; into += counts[c] / 2 + 1)
            FOR_TABLES(t) {
                struct ha_merge_state states[STATES];
                fill(o[0][0], STATES * ROWS * DIM, c);
                fill(lse[0], STATES * ROWS, c + 50);
                lse[0][2] = -INFINITY;
                for (size_t i = 0; i < STATES; i++)
                    states[i] = (struct ha_merge_state){ .o = o[i][0], .lse = lse[i], .o_stride = DIM, .lse_stride = 1 };
                struct ha_merge m = {
                    .states = states, .states_count = counts[c], .rows = ROWS, .dim = DIM, .o = want[0], .lse = want_lse,
                    .o_stride = DIM, .lse_stride = 1,
                };
                t->merge(&m);
                m.o = o[into][0];
                m.lse = lse[into];
                t->merge(&m);
                assert_memory_equal(o[into], want, sizeof want);
                assert_memory_equal(lse[into], want_lse, sizeof want_lse);
            }
}

static int report(void **state)
{
    (void)state;
    FOR_TABLES(t) printf("%s: worst error / bound %.3f\n", t->name, worst[t - ha_test_tables]);
    return 0;
}

int main(int argc, char **argv)
{
    small = argc > 1 && strcmp(argv[1], "small") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_bound),
        cmocka_unit_test(wide_gaps),
        cmocka_unit_test(a_single_state_is_copied),
        cmocka_unit_test(empties_only),
        cmocka_unit_test(two_states_commute),
        cmocka_unit_test(no_overflow_of_a_convex_combination),
        cmocka_unit_test(bad_lse_is_never_silent),
        cmocka_unit_test(nan_in_one_component),
        cmocka_unit_test(in_place),
    };
    return cmocka_run_group_tests(tests, ha_test_tables_setup, report);
}
