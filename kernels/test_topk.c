/* topk, through every table: the k largest, of equal ones the first, in increasing order. */

#include "harness/api/reference.h"
#include "harness/base/rng.h"
#include "kernels/test_data.h"

#include <math.h>

enum family {
    NORMAL,
    EQUAL,
    TWO_VALUES,
    FEW_VALUES,
    ZEROS_OF_BOTH_SIGNS,
    DENORMAL,
    INCREASING,
    DECREASING,
    PERIODIC,
    WIDE,
    INFINITE,
    SOME_NAN,
    MOSTLY_NAN,
    ALL_NAN,
    LOWEST_AND_NAN,
    OUTLIERS,
    ANY_BITS,
    FAMILIES
};

static float any_bits(uint64_t r)
{
    union {
        uint32_t u;
        float f;
    } c = { .u = (uint32_t)r };
    return c.f;
}

static void fill(float *x, size_t n, enum family family, uint64_t seed)
{
    ha_rng_normals(seed, 1, 0, n, x);
    for (size_t i = 0; i < n; i++) {
        const uint64_t r = ha_rng_below(seed, 2, i, UINT64_C(1) << 32);
        const float nan = r & 1 ? NAN : -NAN;
        switch (family) {
        case NORMAL: break;
        case EQUAL: x[i] = -1.5f; break;
        case TWO_VALUES: x[i] = r % 3 == 0 ? 1 : any_bits(0x3f800001); break;
        case FEW_VALUES: x[i] = rintf(2 * x[i]); break;
        case ZEROS_OF_BOTH_SIGNS: x[i] = r % 10 == 0 ? 1 : r & 16 ? 0.0f : -0.0f; break;
        case DENORMAL: x[i] = any_bits((r & 0x80000007) | (r >> 4 & 3)); break;
        case INCREASING: x[i] = (float)i; break;
        case DECREASING: x[i] = -(float)i; break;
        case PERIODIC: x[i] = i % 32 == 0 ? -x[i] : 10 + x[i]; break;
        case WIDE: x[i] = expf(20 * x[i]) * (r & 1 ? 1 : -1); break;
        case INFINITE: x[i] = r % 3 == 0 ? INFINITY : r % 3 == 1 ? -INFINITY : x[i]; break;
        case SOME_NAN: x[i] = r % 7 == 0 ? nan : x[i]; break;
        case MOSTLY_NAN: x[i] = r % 50 != 0 ? nan : x[i]; break;
        case ALL_NAN: x[i] = nan; break;
        case LOWEST_AND_NAN: x[i] = r % 3 == 0 ? nan : -INFINITY; break;
        case OUTLIERS: x[i] = i + 9 > n ? 1e30f + 1e25f * x[i] : 1; break;
        case ANY_BITS: x[i] = any_bits(r); break;
        case FAMILIES: break;
        }
    }
}

/* k of the numbers of x; the index before the first must not be written, nor what is behind the last */
static void check(const float *x, size_t n, size_t k)
{
    const size_t now = ha_guard_now(), taken = k < n ? k : n;
    uint32_t *got = (uint32_t *)ha_guard_alloc((1 + taken) * sizeof *got) + 1;
    HA_TEST_EACH(t, topk)
    {
        const struct ha_topk args = { .x = x, .n = n, .k = k, .index = got };
        memset(got - 1, 0xFF, (1 + taken) * sizeof *got);
        t->topk(&args);
        if (got[-1] != UINT32_MAX || !(ha_ref_judge_topk(&args) <= 1)) fail_msg("%s: n = %zu, k = %zu", t->name, n, k);
    }
    ha_guard_release(now);
}

static void check_all(size_t n, enum family family, const size_t *ks, size_t count)
{
    float *x = ha_guard_alloc(n * sizeof *x);
    fill(x, n, family, 100 * n + family);
    for (size_t i = 0; i < count; i++) check(x, n, ks[i]);
    ha_guard_release(0);
}

/* every k of every small n */
TEST(small_sizes)
{
    enum { N = 70 };
    size_t ks[N + 2];
    for (size_t k = 0; k < N + 2; k++) ks[k] = k;
    for (size_t n = 0; n <= N; n += test_small ? 7 : n < 40 ? 1 : 3)
        for (int family = 0; family < FAMILIES; family++) check_all(n, (enum family)family, ks, n + 2);
}

/* around where numbers begin to be sampled, and where what lies between two samples is more than is kept */
TEST(large_sizes)
{
    static const size_t ns[] = { 512, 513, 2049, 8191, 1024, 40000 };
    for (size_t i = 0; i < (test_small ? 3 : COUNT(ns)); i++)
        for (int family = 0; family < FAMILIES; family++) {
            const size_t n = ns[i], ks[] = { 1, 51, n / 20, n / 3, n - n / 20, n - 1 };
            check_all(n, (enum family)family, ks, COUNT(ks));
        }
    static const size_t some[] = { 6553, 65536 };
    for (int family = 0; !test_small && family < FAMILIES; family += 5) check_all(131072, (enum family)family, some, 2);
}

/* Every 16th number, or 18th, or 32nd, is above or below all the others: a sample of only those says nothing about the
 * rest. Every k, so that each count that a step compares with k is once just enough and once not. */
TEST(misleading_samples)
{
    static const struct {
        size_t n, every, step, seed;
    } cases[] = { { 2100, 16, 1, 1 }, { 2338, 18, 1, 7 }, { 65536, 32, 9001, 1 } };
    for (size_t c = 0; c < COUNT(cases); c++)
        for (int shift = -1; shift <= 1; shift++) {
            const size_t n = cases[c].n;
            float *x = ha_guard_alloc(n * sizeof *x);
            fill(x, n, NORMAL, cases[c].seed);
            for (size_t i = 0; i < n; i += cases[c].every) x[i] += 10 * (float)shift;
            for (size_t k = 1; k < n; k += test_small ? 7 * cases[c].step : cases[c].step) check(x, n, k);
            ha_guard_release(0);
        }
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, NULL); }
