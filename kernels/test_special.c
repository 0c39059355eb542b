/* Values that are not numbers, keys that are not seen, sums that are exact: every table must say
 * the same. */

#include "kernels/test_problem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DIM = 24, KEYS = 71, ROWS = 9 };

static bool small;

/* With it the exponents of two are the products of queries and keys, exactly. */
static const float LN2 = 0x1.62e43p-1f;

/* the results of attend_chunk for ROWS equal positive queries */
struct result {
    float level[ROWS], sum[ROWS], acc[ROWS][DIM], weights[ROWS][KEYS];
};

static struct result chunk(const struct ha_kernels *t, const struct ha_test_kv *kv, const uint32_t *visible)
{
    struct result x;
    float q[ROWS][DIM];
    memset(&x, 0xFF, sizeof x);
    for (size_t r = 0; r < ROWS; r++)
        for (size_t d = 0; d < DIM; d++) q[r][d] = 0.25f;
    const struct ha_chunk c = {
        .q = q[0],
        .q_rows = ROWS,
        .q_stride = DIM,
        .head_dim = DIM,
        .rows = kv->rows,
        .dtype = kv->dtype,
        .scale = LN2,
        .visible = visible,
        .weights = x.weights[0],
        .weights_stride = KEYS,
        .level = x.level,
        .sum = x.sum,
        .acc = x.acc[0],
    };
    t->attend_chunk(&c);
    return x;
}

static void assert_empty(const struct result *x, size_t r, size_t keys)
{
    assert_true(x->level[r] == -INFINITY && x->sum[r] == 0);
    for (size_t d = 0; d < DIM; d++) assert_true(x->acc[r][d] == 0);
    for (size_t j = 0; j < keys; j++) assert_true(x->weights[r][j] == 0);
}

/* acc and the level may then be anything */
static void assert_nan(const struct result *x, size_t r) { assert_true(isnan(x->sum[r])); }

#define FOR_TABLES(t) for (const struct ha_kernels *t = ha_test_tables; t < ha_test_tables + ha_test_tables_count; t++)
#define FOR_DTYPES(d) for (enum ha_dtype d = HA_F32; d <= HA_BF16; d++)

static void put_row(struct ha_test_kv *kv, size_t j, float k, float v)
{
    for (size_t d = 0; d < DIM; d++) {
        ha_test_kv_put_k(kv, j, d, k);
        ha_test_kv_put_v(kv, j, d, v);
    }
}

static void no_keys(void **state)
{
    (void)state;
    struct ha_test_kv kv;
    ha_test_kv_make(&kv, HA_TEST_DENSE, HA_TEST_NORMAL, DIM, 0, HA_F32, 1);
    FOR_TABLES(t)
    {
        const struct result x = chunk(t, &kv, NULL);
        for (size_t r = 0; r < ROWS; r++) assert_empty(&x, r, 0);
    }
    ha_test_kv_free(&kv);
}

/* Keys from `cut` on are NaN in K and V. Rows that see none of them give what they gave before
 * the NaN, bit for bit; the others give NaN. All limits within a block of rows differ. */
static void what_is_not_seen_does_not_leak(void **state)
{
    (void)state;
    static const uint32_t visible[][ROWS] = {
        { 0, 1, 2, 3, 31, 32, 33, 70, 71 }, { 71, 71, 40, 71, 71, 0, 71, 71, 40 },
        { 5, 6, 7, 8, 9, 10, 11, 12, 13 },  { 71, 71, 71, 71, 71, 71, 71, 71, 71 },
        { 0, 0, 0, 0, 1, 0, 0, 0, 0 },      { 64, 65, 66, 67, 68, 69, 70, 71, 4000 },
    };
    FOR_DTYPES(dtype)
    for (size_t i = 0; i < sizeof visible / sizeof *visible; i++)
        for (size_t cut = 0; cut <= KEYS; cut += (small ? 9 : 1) + cut % 7) {
            struct ha_test_kv clean, dirty;
            ha_test_kv_make(&clean, (enum ha_test_layout)(i % HA_TEST_LAYOUTS), HA_TEST_NORMAL, DIM, KEYS, dtype, i);
            ha_test_kv_make(&dirty, (enum ha_test_layout)(i % HA_TEST_LAYOUTS), HA_TEST_NORMAL, DIM, KEYS, dtype, i);
            for (size_t j = cut; j < KEYS; j++) put_row(&dirty, j, NAN, NAN);
            FOR_TABLES(t)
            {
                const struct result a = chunk(t, &clean, visible[i]), b = chunk(t, &dirty, visible[i]);
                for (size_t r = 0; r < ROWS; r++) {
                    const size_t sees = visible[i][r] < KEYS ? visible[i][r] : KEYS;
                    for (size_t j = sees; j < KEYS; j++) assert_true(b.weights[r][j] == 0);
                    if (sees == 0) assert_empty(&b, r, KEYS);
                    if (sees > cut) {
                        assert_nan(&b, r);
                        continue;
                    }
                    assert_memory_equal(&a.level[r], &b.level[r], sizeof b.level[r]);
                    assert_memory_equal(&a.sum[r], &b.sum[r], sizeof b.sum[r]);
                    assert_memory_equal(a.acc[r], b.acc[r], sizeof b.acc[r]);
                    assert_memory_equal(a.weights[r], b.weights[r], sizeof b.weights[r]);
                }
            }
            ha_test_kv_free(&clean);
            ha_test_kv_free(&dirty);
        }
}

/* one score that is NaN, or +inf, wherever it stands, among ordinary ones or among -inf */
static void one_bad_score(void **state)
{
    (void)state;
    FOR_DTYPES(dtype)
    for (size_t j = 0; j < KEYS; j++)
        for (int among_empty = 0; among_empty < 2; among_empty++)
            for (int inf = 0; inf < 2; inf++) {
                struct ha_test_kv kv;
                ha_test_kv_make(&kv, HA_TEST_DENSE, HA_TEST_NORMAL, DIM, KEYS, dtype, j);
                for (size_t i = 0; among_empty && i < KEYS; i++) put_row(&kv, i, -INFINITY, 1);
                put_row(&kv, j, 1, 1);
                ha_test_kv_put_k(&kv, j, j % DIM, inf ? INFINITY : NAN);
                FOR_TABLES(t)
                {
                    const struct result x = chunk(t, &kv, NULL);
                    for (size_t r = 0; r < ROWS; r++) assert_nan(&x, r);
                }
                ha_test_kv_free(&kv);
            }
}

static void scores_of_minus_infinity(void **state)
{
    (void)state;
    FOR_DTYPES(dtype)
    {
        struct ha_test_kv kv;
        ha_test_kv_make(&kv, HA_TEST_STRIDED, HA_TEST_NORMAL, DIM, KEYS, dtype, 3);
        for (size_t j = 0; j < KEYS; j++) put_row(&kv, j, -INFINITY, j % 2 ? INFINITY : NAN);
        FOR_TABLES(t)
        {
            const struct result x = chunk(t, &kv, NULL);
            for (size_t r = 0; r < ROWS; r++) assert_empty(&x, r, KEYS);
        }
        /* the only key that weighs anything decides all */
        put_row(&kv, 40, 2, 7);
        for (size_t j = 0; j < KEYS; j++)
            for (size_t d = 0; j != 40 && d < DIM; d++) ha_test_kv_put_v(&kv, j, d, 1e4f);
        FOR_TABLES(t)
        {
            const struct result x = chunk(t, &kv, NULL);
            for (size_t r = 0; r < ROWS; r++) {
                assert_true(x.level[r] == 2 * 0.25f * DIM && x.sum[r] == 1);
                for (size_t d = 0; d < DIM; d++) assert_true(x.acc[r][d] == 7);
                for (size_t j = 0; j < KEYS; j++) assert_true(x.weights[r][j] == (j == 40 ? 1 : 0));
            }
        }
        ha_test_kv_free(&kv);
    }
}

static void nan_in_one_component_of_v(void **state)
{
    (void)state;
    FOR_DTYPES(dtype)
    for (size_t j = 0; j < KEYS; j++) {
        struct ha_test_kv kv;
        ha_test_kv_make(&kv, HA_TEST_GATHERED, HA_TEST_NORMAL, DIM, KEYS, dtype, j);
        ha_test_kv_put_v(&kv, j, j % DIM, NAN);
        FOR_TABLES(t)
        {
            const struct result x = chunk(t, &kv, NULL);
            for (size_t r = 0; r < ROWS; r++)
                for (size_t d = 0; d < DIM; d++) assert_true(isnan(x.acc[r][d]) == (d == j % DIM));
        }
        ha_test_kv_free(&kv);
    }
}

/* attend over a context of several chunks, packed keys and runs; results of one query token */
struct output {
    float o[DIM], lse;
    float *weights;
};

struct how {
    size_t packed, unit, runs, block; /* packed keys, in a list of units; runs of the others, in blocks */
    size_t parts;                     /* > 0: by parts of at most so many HA_SPLIT_KEYS */
};

static struct output attend(const struct ha_kernels *t, const struct ha_test_kv *kv, struct how how, bool weights)
{
    struct output out;
    struct ha_test_problem p;
    struct ha_test_ask ask = { .dtype = kv->dtype,
                               .dim = DIM,
                               .keys = kv->keys,
                               .group = 1,
                               .q_len = 1,
                               .packed = how.packed,
                               .unit = how.unit,
                               .runs_count = how.runs,
                               .block = how.block,
                               .weights = weights,
                               .scale = LN2,
                               .seed = how.packed + how.runs + how.parts };
    const size_t left = kv->keys - how.packed, each = left / (how.runs + !how.runs);
    for (size_t i = 0; i < how.runs; i++) ask.run[i] = i + 1 == how.runs ? left - i * each : each;
    ha_test_problem_lay(&p, &ask, kv);
    for (size_t d = 0; d < DIM; d++) p.q[d] = 0.25f;
    ha_test_problem_solve(&p, t, how.parts);
    memcpy(out.o, p.args.o, sizeof out.o);
    out.lse = *p.args.lse;
    out.weights = p.args.weights; /* the caller's now */
    p.args.weights = NULL;
    ha_test_problem_free(&p);
    return out;
}

static void attend_over_nothing(void **state)
{
    (void)state;
    struct ha_test_kv none, masked;
    ha_test_kv_make(&none, HA_TEST_DENSE, HA_TEST_NORMAL, DIM, 0, HA_F16, 1);
    ha_test_kv_make(&masked, HA_TEST_DENSE, HA_TEST_NORMAL, DIM, 5000, HA_F16, 1);
    for (size_t j = 0; j < masked.keys; j++) put_row(&masked, j, -INFINITY, NAN);
    FOR_TABLES(t)
    for (size_t runs = 0; runs <= HA_RUNS_MAX; runs++)
        for (int full = 0; full < 2; full++) {
            const struct output x = attend(t, runs > 0 && full ? &masked : &none,
                                           (struct how){ .runs = runs, .parts = 8 * (size_t)full }, true);
            assert_true(x.lse == -INFINITY);
            for (size_t d = 0; d < DIM; d++) assert_true(x.o[d] == 0);
            for (size_t j = 0; runs > 0 && full && j < masked.keys; j++) assert_true(x.weights[j] == 0);
            ha_guard_free(x.weights);
        }
    ha_test_kv_free(&none);
    ha_test_kv_free(&masked);
}

/* in the first, a middle and the last chunk; before and after chunks with a larger maximum, or with
 * scores of -inf only */
static void attend_keeps_nan(void **state)
{
    (void)state;
    static const size_t at[] = { 0, 100, 2047, 2048, 3000, 4999 };
    static const struct how ways[] = {
        { .runs = 1 },
        { .runs = 3 },
        { .packed = 5000 },
        { .packed = 2900, .runs = 2, .block = 16 },
        { .packed = 2500, .unit = 64, .runs = 1, .parts = 9 },
    };
    static const enum ha_test_family families[] = { HA_TEST_NORMAL, HA_TEST_INCREASING, HA_TEST_DECREASING,
                                                    HA_TEST_TIES };
    for (size_t i = 0; i < sizeof at / sizeof *at; i += small ? 3 : 1)
        for (size_t f = 0; f < sizeof families / sizeof *families; f++)
            for (int inf = 0; inf < 2; inf++) {
                struct ha_test_kv kv;
                ha_test_kv_make(&kv, HA_TEST_DENSE, families[f], DIM, 5000, HA_BF16, i);
                for (size_t j = 0; families[f] == HA_TEST_TIES && j < kv.keys; j++) put_row(&kv, j, -INFINITY, 1);
                put_row(&kv, at[i], 1, 1);
                ha_test_kv_put_k(&kv, at[i], 1, inf ? INFINITY : NAN);
                FOR_TABLES(t)
                for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
                    const struct output x = attend(t, &kv, ways[w], true);
                    assert_true(isnan(x.lse));
                    for (size_t d = 0; d < DIM; d++) assert_true(isnan(x.o[d]));
                    for (size_t j = 0; j < kv.keys; j++) assert_true(isnan(x.weights[j]));
                    ha_guard_free(x.weights);
                }
                ha_test_kv_free(&kv);
            }
}

static const struct how splits[] = {
    { .runs = 1 },
    { .runs = HA_RUNS_MAX },
    { .runs = 3, .block = 16 },
    { .runs = 1, .parts = 1 },
    { .runs = 2, .block = 100, .parts = 7 },
    { .packed = 1 },
    { .packed = 4 },
    { .packed = 4, .unit = 32, .parts = 3 },
    { .packed = 2, .runs = 3, .parts = 5 },
    { .packed = 3, .unit = 16, .runs = HA_RUNS_MAX, .block = 32, .parts = 2 },
    { .packed = 1, .unit = 128, .runs = 1, .parts = 20 },
};
enum { SPLITS = sizeof splits / sizeof *splits };

/* .packed of `splits` is in quarters of the keys */
static struct how split_of(size_t i, size_t keys)
{
    struct how how = splits[i];
    how.packed = how.packed * keys / 4;
    if (how.packed < keys && how.runs == 0) how.runs = 1;
    return how;
}

/* 1. Equal scores, a power of two of keys, small integers in V: no rounding happens anywhere. */
static void exact_means(void **state)
{
    (void)state;
    FOR_DTYPES(dtype)
    for (size_t keys = 1; keys <= (small ? 512 : 8192); keys *= small ? 8 : 2) {
        struct ha_test_kv kv;
        double sum[DIM] = { 0 };
        ha_test_kv_make(&kv, HA_TEST_GATHERED, HA_TEST_NORMAL, DIM, keys, dtype, keys);
        for (size_t j = 0; j < keys; j++)
            for (size_t d = 0; d < DIM; d++) {
                const int v = (int)((j * 7 + d * 3) % 17) - 8;
                ha_test_kv_put_k(&kv, j, d, 1);
                ha_test_kv_put_v(&kv, j, d, (float)v);
                sum[d] += v;
            }
        FOR_TABLES(t)
        for (size_t i = 0; i < SPLITS; i++) {
            const struct output x = attend(t, &kv, split_of(i, keys), true);
            for (size_t d = 0; d < DIM; d++) assert_true((double)x.o[d] == sum[d] / (double)keys);
            for (size_t j = 0; j < keys; j++) assert_true((double)x.weights[j] == 1 / (double)keys);
            assert_true(x.lse == (float)(0.25 * DIM * M_LN2 + log((double)keys)));
            ha_guard_free(x.weights);
        }
        ha_test_kv_free(&kv);
    }
}

static int score_of(size_t j)
{
    const int s = (int)(j / HA_SPLIT_KEYS * 5 % 7);
    return s - 3 - (j % 3 == 0 && s > 0);
}

/* Scores that are integers from -3 to 3 and small integers in V: every sum fits, whatever its level, so that all kinds
 * of keys, lists and parts give the same bits, and joins that round nothing are what they say. The levels of parts
 * differ. */
static void exact_however_split(void **state)
{
    (void)state;
    static const size_t sizes[] = { 129, 1000, 5000 };
    FOR_DTYPES(dtype)
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes - small; n++) {
        const size_t keys = sizes[n];
        struct ha_test_kv kv;
        double sum = 0, acc[DIM] = { 0 };
        ha_test_kv_make(&kv, HA_TEST_DENSE, HA_TEST_NORMAL, DIM, keys, dtype, n);
        for (size_t j = 0; j < keys; j++) {
            const int s = score_of(j);
            sum += ldexp(1, s);
            for (size_t d = 0; d < DIM; d++) {
                const int v = (int)((j * 7 + d * 3) % 17) - 8;
                ha_test_kv_put_k(&kv, j, d, d == 0 ? 4 * (float)s : 0);
                ha_test_kv_put_v(&kv, j, d, (float)v);
                acc[d] += ldexp(v, s);
            }
        }
        FOR_TABLES(t)
        for (size_t i = 0; i < SPLITS; i++) {
            const struct output x = attend(t, &kv, split_of(i, keys), true);
            for (size_t d = 0; d < DIM; d++) assert_true(x.o[d] == (float)acc[d] / (float)sum);
            for (size_t j = 0; j < keys; j++) {
                const int s = score_of(j);
                assert_true(x.weights[j] == (float)ldexp(1, s) / (float)sum);
            }
            assert_true(fabs((double)x.lse - log(sum)) <= 0x1p-23 * fabs(log(sum)));
            ha_guard_free(x.weights);
        }
        ha_test_kv_free(&kv);
    }
}

int main(int argc, char **argv)
{
    small = argc > 1 && strcmp(argv[1], "small") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_keys),
        cmocka_unit_test(what_is_not_seen_does_not_leak),
        cmocka_unit_test(one_bad_score),
        cmocka_unit_test(scores_of_minus_infinity),
        cmocka_unit_test(nan_in_one_component_of_v),
        cmocka_unit_test(attend_over_nothing),
        cmocka_unit_test(attend_keeps_nan),
        cmocka_unit_test(exact_means),
        cmocka_unit_test(exact_however_split),
    };
    return cmocka_run_group_tests(tests, ha_test_tables_setup, NULL);
}
