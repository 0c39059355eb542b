/* softmax, through every table, against binary64: within what its sums and its exp are declared to round. */

#include "harness/api/reference.h"
#include "harness/base/rng.h"
#include "kernels/test_data.h"

#include <math.h>

enum family { NORMAL, PEAKED, EQUAL, INCREASING, DECREASING, FAR, MASKED, MASKED_SPANS, ALTERNATING, FAMILIES };

static void fill(float *x, size_t n, enum family family, uint64_t seed)
{
    ha_rng_normals(seed, 1, 0, n, x);
    for (size_t i = 0; i < n; i++) {
        const float rise = (float)i / (float)n;
        switch (family) {
        case NORMAL: break;
        case PEAKED: x[i] *= 30; break;
        case EQUAL: x[i] = 0.3f; break;
        case INCREASING: x[i] = 200 * rise + x[i]; break;
        case DECREASING: x[i] = -200 * rise + x[i]; break;
        case FAR: x[i] = 1e5f + x[i]; break;
        case MASKED: x[i] = i % 3 == 1 || (n > 4 && i == 0) ? -INFINITY : x[i]; break;
        case MASKED_SPANS: x[i] = i / 4096 % 2 == 0 && i + 1 < n ? -INFINITY : x[i]; break;
        case ALTERNATING: x[i] = i % 2 ? 3e38f : -3e38f; break;
        case FAMILIES: break;
        }
    }
}

static void check(size_t rows, size_t n, size_t stride, enum family family)
{
    const size_t count = (rows - 1) * stride + n;
    float *x = ha_guard_alloc(count * sizeof *x), *y = ha_guard_alloc(count * sizeof *y),
          *lse = ha_guard_alloc(rows * sizeof *lse);
    memset(x, 0xFF, count * sizeof *x);
    for (size_t r = 0; r < rows; r++) fill(x + r * stride, n, family, n + r);
    HA_TEST_EACH(t, softmax)
    {
        memcpy(y, x, count * sizeof *y);
        const struct ha_softmax args = { .x = y, .rows = rows, .n = n, .stride = stride, .lse = lse };
        t->softmax(&args);
        const double ratio = ha_ref_judge_softmax(&args, x, t->traits.exp_eps);
        if (!(ratio <= 1)) fail_msg("%s: n = %zu: error over bound %g", t->name, n, ratio);
        ha_test_worst(t, "a row", ratio);
        for (size_t r = 0; r < rows; r++)
            for (size_t i = 0; i < n; i++) assert_true(y[r * stride + i] >= 0 && y[r * stride + i] <= 1);
        for (size_t r = 0; r + 1 < rows; r++)
            assert_memory_equal(y + r * stride + n, x + r * stride + n, (stride - n) * sizeof *x);
        float *again = ha_guard_alloc(count * sizeof *again);
        memcpy(again, x, count * sizeof *again);
        t->softmax(&(struct ha_softmax){ .x = again, .rows = rows, .n = n, .stride = stride });
        assert_memory_equal(again, y, count * sizeof *again);
    }
    ha_guard_release(0);
}

TEST(within_bound)
{
    for (int family = 0; family < FAMILIES; family++) {
        for (size_t n = 1; n <= 140; n += test_small ? 9 : 1) check(2, n, n + n % 3, (enum family)family);
        check(3, 1000, 1024, (enum family)family);
        check(1, 4096, 4096, (enum family)family);
        check(1, 4097, 4097, (enum family)family);
        check(1, 20000, 20000, (enum family)family);
        check(40, 7, 7, (enum family)family);
    }
}

TEST(long_rows)
{
    static const enum family families[] = { NORMAL, EQUAL, INCREASING, MASKED_SPANS };
    for (size_t i = 0; i < (test_small ? 1 : COUNT(families)); i++) {
        check(1, 131072, 131072, families[i]);
        check(1, 262145 + 5000, 262145 + 5000, families[i]);
    }
}

TEST(nothing_to_weigh)
{
    HA_TEST_EACH(t, softmax)
    {
        float none[1], lse[2] = { 1, 1 };
        t->softmax(&(struct ha_softmax){ .x = none, .rows = 2, .n = 0, .stride = 0, .lse = lse });
        assert_true(lse[0] == -INFINITY && lse[1] == -INFINITY);
        t->softmax(&(struct ha_softmax){ .x = none, .rows = 0, .n = 5, .stride = 5, .lse = NULL });
        for (size_t n = 1; n < 9000; n = 2 * n + 1) {
            float *x = ha_guard_alloc(n * sizeof *x);
            for (size_t i = 0; i < n; i++) x[i] = -INFINITY;
            t->softmax(&(struct ha_softmax){ .x = x, .rows = 1, .n = n, .stride = n, .lse = lse });
            assert_true(lse[0] == -INFINITY);
            for (size_t i = 0; i < n; i++) assert_true(x[i] == 0 && !signbit(x[i]));
            ha_guard_free(x);
        }
    }
}

/* NaN or +inf at any place makes that row NaN, and no other; beside -inf too */
TEST(spoiled_rows)
{
    enum { ROWS = 3, N = 9000 };
    static float x[ROWS][N];
    static const float bad[] = { NAN, INFINITY }, rest[] = { 0.5f, -INFINITY, 3e38f };
    static const size_t ns[] = { 1, 2, 15, 16, 17, 64, 65, 4096, 4097, N };
    HA_TEST_EACH(t, softmax)
    for (size_t i = 0; i < COUNT(ns); i++)
        for (size_t at = 0; at < ns[i]; at += ns[i] < 70 ? 1 : ns[i] / 7 + 1)
            for (size_t c = 0; c < 6; c++) {
                float lse[ROWS];
                for (size_t r = 0; r < ROWS; r++)
                    for (size_t j = 0; j < ns[i]; j++) x[r][j] = rest[c / 2];
                x[1][at] = bad[c % 2];
                t->softmax(&(struct ha_softmax){ .x = x[0], .rows = ROWS, .n = ns[i], .stride = N, .lse = lse });
                assert_true(!isnan(lse[0]) && isnan(lse[1]) && !isnan(lse[2]));
                for (size_t j = 0; j < ns[i]; j++) assert_true(!isnan(x[0][j]) && isnan(x[1][j]) && !isnan(x[2][j]));
            }
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, ha_test_report); }
