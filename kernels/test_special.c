/* Values that are not numbers, sums that are exact, of attend: every table must say the same. What the kernels below it
 * say is in test_packed_special.c. */

#include "kernels/test_problem.h"

#include <math.h>

enum { DIM = 24 };

/* With it the exponents of two are the products of queries and keys, exactly. */
static const float LN2 = 0x1.62e43p-1f;

static void put_row(struct ha_test_kv *kv, size_t j, float k, float v)
{
    for (size_t d = 0; d < DIM; d++) {
        ha_test_kv_put_k(kv, j, d, k);
        ha_test_kv_put_v(kv, j, d, v);
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

TEST(attend_over_nothing)
{
    struct ha_test_kv none, masked;
    ha_test_kv_make(&none, HA_TEST_DENSE, HA_TEST_NORMAL, DIM, 0, HA_F16, 1);
    ha_test_kv_make(&masked, HA_TEST_DENSE, HA_TEST_NORMAL, DIM, 5000, HA_F16, 1);
    for (size_t j = 0; j < masked.keys; j++) put_row(&masked, j, -INFINITY, NAN);
    HA_TEST_ALL(t)
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
TEST(attend_keeps_nan)
{
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
    for (size_t i = 0; i < COUNT(at); i += test_small ? 3 : 1)
        for (size_t f = 0; f < COUNT(families); f++)
            for (int inf = 0; inf < 2; inf++) {
                struct ha_test_kv kv;
                ha_test_kv_make(&kv, HA_TEST_DENSE, families[f], DIM, 5000, HA_BF16, i);
                for (size_t j = 0; families[f] == HA_TEST_TIES && j < kv.keys; j++) put_row(&kv, j, -INFINITY, 1);
                put_row(&kv, at[i], 1, 1);
                ha_test_kv_put_k(&kv, at[i], 1, inf ? INFINITY : NAN);
                HA_TEST_ALL(t)
                for (size_t w = 0; w < COUNT(ways); w++) {
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
enum { SPLITS = COUNT(splits) };

/* .packed of `splits` is in quarters of the keys */
static struct how split_of(size_t i, size_t keys)
{
    struct how how = splits[i];
    how.packed = how.packed * keys / 4;
    if (how.packed < keys && how.runs == 0) how.runs = 1;
    return how;
}

/* 1. Equal scores, a power of two of keys, small integers in V: no rounding happens anywhere. */
TEST(exact_means)
{
    HA_TEST_DTYPES(dtype)
    for (size_t keys = 1; keys <= (test_small ? 512 : 8192); keys *= test_small ? 8 : 2) {
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
        HA_TEST_ALL(t)
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
TEST(exact_however_split)
{
    static const size_t sizes[] = { 129, 1000, 5000 };
    HA_TEST_DTYPES(dtype)
    for (size_t n = 0; n < COUNT(sizes) - test_small; n++) {
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
        HA_TEST_ALL(t)
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

int main(int argc, char **argv) { return test_main(argc, argv, ha_test_tables_setup, NULL); }
