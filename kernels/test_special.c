/* Values that are not numbers, sums that are exact, of attend: every table must say the same. What the kernels below it
 * say is in test_packed_special.c. */

#include "kernels/test_problem.h"

#include <math.h>

enum { DIM = 24, KEYS_MAX = 8192 };

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
    float o[DIM], lse, weights[KEYS_MAX];
};

struct how {
    size_t packed, unit, runs, block; /* packed keys, in a list of units; runs of the others, in blocks */
    size_t parts;                     /* > 0: by parts of at most so many HA_SPLIT_KEYS */
};

static struct output attend(const struct ha_kernels *t, const struct ha_test_kv *kv, struct how how)
{
    const size_t now = ha_guard_now();
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
                               .weights = true,
                               .scale = LN2,
                               .seed = how.packed + how.runs + how.parts };
    const size_t left = kv->keys - how.packed, each = left / (how.runs + !how.runs);
    for (size_t i = 0; i < how.runs; i++) ask.run[i] = i + 1 == how.runs ? left - i * each : each;
    ha_test_problem_lay(&p, &ask, kv);
    for (size_t d = 0; d < DIM; d++) p.q[d] = 0.25f;
    ha_test_problem_solve(&p, t, how.parts);
    memcpy(out.o, p.args.o, sizeof out.o);
    out.lse = *p.args.lse;
    memcpy(out.weights, p.args.weights, kv->keys * sizeof *out.weights);
    ha_guard_release(now);
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
                                           (struct how){ .runs = runs, .parts = 8 * (size_t)full });
            assert_true(x.lse == -INFINITY);
            for (size_t d = 0; d < DIM; d++) assert_true(x.o[d] == 0);
            for (size_t j = 0; runs > 0 && full && j < masked.keys; j++) assert_true(x.weights[j] == 0);
        }
    ha_guard_release(0);
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
                    const struct output x = attend(t, &kv, ways[w]);
                    assert_true(isnan(x.lse));
                    for (size_t d = 0; d < DIM; d++) assert_true(isnan(x.o[d]));
                    for (size_t j = 0; j < kv.keys; j++) assert_true(isnan(x.weights[j]));
                }
                ha_guard_release(0);
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

/* equal ones, or integers from -3 to 3 of which the levels of parts differ */
static int score_of(size_t j, bool even)
{
    const int s = (int)(j / HA_SPLIT_KEYS * 5 % 7);
    return even ? 6 : s - 3 - (j % 3 == 0 && s > 0);
}

/* Small integers in V, and scores whose powers of two, however many are added and at whatever level, fit: all kinds of
 * keys, lists and parts give the same bits, and joins that round nothing are what they say. */
TEST(exact_however_split)
{
    static const size_t mixed[] = { 129, 1000, 5000 };
    HA_TEST_DTYPES(dtype)
    for (size_t n = 0; n < COUNT(mixed) + 14; n++) {
        const bool even = n >= COUNT(mixed);
        const size_t keys = even ? (size_t)1 << (n - COUNT(mixed)) : mixed[n];
        if (test_small && (keys > 1000 || (even && n % 3))) continue;
        struct ha_test_kv kv;
        double sum = 0, acc[DIM] = { 0 };
        ha_test_kv_make(&kv, even ? HA_TEST_GATHERED : HA_TEST_DENSE, HA_TEST_NORMAL, DIM, keys, dtype, n);
        for (size_t j = 0; j < keys; j++) {
            const int s = score_of(j, even);
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
            const struct output x = attend(t, &kv, split_of(i, keys));
            for (size_t d = 0; d < DIM; d++) assert_true(x.o[d] == (float)acc[d] / (float)sum);
            for (size_t j = 0; j < keys; j++)
                assert_true(x.weights[j] == (float)ldexp(1, score_of(j, even)) / (float)sum);
            if (even) assert_true(x.lse == (float)(6 * M_LN2 + log((double)keys)));
            else assert_true(fabs((double)x.lse - log(sum)) <= 0x1p-23 * fabs(log(sum)));
        }
        ha_guard_release(0);
    }
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, NULL); }
