/* topp, through every table: exactly the elements that sorting by integers chooses, and their weights. */

#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "kernels/test_data.h"

#include <math.h>

enum family {
    SOFTMAX, /* of normal scores */
    FLAT,
    PEAKED,
    EQUAL,
    FEW_VALUES,
    ONE,  /* has nearly all */
    ONES, /* each is 1: far more than p */
    ANY,  /* 0 to 1, no softmax */
    FINE, /* around 2^-29, below which weights are cut */
    TINY, /* 0 to 7 times 2^-53 */
    SUBNORMAL,
    ZEROS, /* of both signs, some weights between */
    NOTHING,
    PERIODIC, /* a sample of every 32nd says nothing about the rest */
    FAMILIES
};

static void softmax(float *x, size_t n, float scale)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += exp((double)(scale * x[i]));
    for (size_t i = 0; i < n; i++) x[i] = (float)(exp((double)(scale * x[i])) / sum);
}

static void fill(float *x, size_t n, enum family family, uint64_t seed)
{
    ha_rng_normals(seed, 1, 0, n, x);
    for (size_t i = 0; i < n; i++) {
        const uint64_t r = ha_rng_below(seed, 2, i, UINT64_C(1) << 32);
        const float any = (float)r * 0x1p-32f;
        switch (family) {
        case EQUAL: x[i] = 1 / (float)n; break;
        case FEW_VALUES: x[i] = (float)(r % 4 + 1) / (float)(2 * n); break;
        case ONE: x[i] = i == n / 3 ? 0.95f : 0.05f * any / (float)n; break;
        case ONES: x[i] = 1; break;
        case ANY: x[i] = any; break;
        case FINE: x[i] = (0.5f + any) * 0x1p-29f; break;
        case TINY: x[i] = (float)(r % 8) * 0x1p-53f; break;
        case SUBNORMAL: x[i] = r % 5 ? ha_f32_of_bits((uint32_t)r & 0xFFFFF) : any / (float)n; break;
        case ZEROS: x[i] = r % 3 ? (r & 16 ? 0.0f : -0.0f) : 2 * any / (float)n; break;
        case NOTHING: x[i] = 0; break;
        case PERIODIC: x[i] = (i % 32 == 0 ? 20 : 1) * any / (float)n; break;
        case SOFTMAX:
        case FLAT:
        case PEAKED:
        case FAMILIES: break;
        }
        if (family > PEAKED) x[i] = fminf(x[i], 1);
    }
    if (family <= PEAKED) softmax(x, n, family == SOFTMAX ? 2.3f : family == FLAT ? 0.3f : 9);
}

/* The index before the first and what follows the weights must not be written. */
static void check(const float *x, size_t rows, size_t n, size_t stride, double p, enum ha_dtype type)
{
    const size_t now = ha_guard_now(), w_stride = n + rows % 3, size = ha_dtype_bytes(type),
                 bytes = ((rows - 1) * w_stride + n) * size;
    uint32_t *index = (uint32_t *)ha_guard_alloc((1 + n) * sizeof *index) + 1;
    unsigned char *w = ha_guard_alloc(bytes);
    HA_TEST_EACH(t, topp)
    {
        uint32_t keys = UINT32_MAX;
        const struct ha_topp args = { .x = x,
                                      .rows = rows,
                                      .n = n,
                                      .stride = stride,
                                      .p = p,
                                      .index = index,
                                      .w = w,
                                      .w_type = type,
                                      .w_stride = w_stride,
                                      .keys = &keys };
        memset(index - 1, 0xFF, (1 + n) * sizeof *index);
        memset(w, 0xFF, bytes);
        t->topp(&args);
        if (index[-1] != UINT32_MAX || !(ha_ref_judge_topp(&args) <= 1))
            fail_msg("%s: %zu rows of %zu, p = %.17g, %s: %u", t->name, rows, n, p, ha_dtype_name(type), keys);
        for (size_t r = 0; r < rows; r++)
            for (size_t i = (r * w_stride + keys) * size; i < (r + 1) * w_stride * size && i < bytes; i++)
                assert_int_equal(w[i], 0xFF);
    }
    ha_guard_release(now);
}

static const double ps[] = { 0.9, 1, 0.5, 0.99, 0x1p-53, 0.1, 1 - 0x1p-40, 0.999, 1 - 0x1p-53, 0x1p-20, 0.3, 0x1p-29 };

static void check_family(size_t n, enum family family, size_t rows, size_t count)
{
    const size_t stride = n + rows / 2;
    float *x = ha_guard_alloc(((rows - 1) * stride + n) * sizeof *x);
    for (size_t r = 0; r < rows; r++) fill(x + r * stride, n, family, 1000 * n + 10 * r + family);
    for (size_t i = 0; i < count; i++) check(x, rows, n, stride, ps[i], i % 3 == 1 ? HA_F16 : HA_F32);
    ha_guard_release(0);
}

TEST(small_sizes)
{
    for (size_t n = 1; n <= 70; n += test_small ? 7 : n < 40 ? 1 : 3)
        for (int family = 0; family < FAMILIES; family++)
            for (size_t rows = 1; rows <= 5; rows += 1 + n % 2) check_family(n, (enum family)family, rows, COUNT(ps));
}

/* around where weights begin to be sampled, and where what lies between two samples is more than is kept */
TEST(large_sizes)
{
    static const size_t ns[] = { 512, 513, 2049, 8191, 32768, 40000, 131072 };
    for (size_t i = 0; i < COUNT(ns) - (test_small ? 3 : 0); i++)
        for (int family = 0; family < FAMILIES; family++)
            check_family(ns[i], (enum family)family, 1, i < 4 ? COUNT(ps) : 5);
    for (int family = 0; family < FAMILIES; family++) check_family(3000, (enum family)family, 3, test_small ? 2 : 6);
}

/* a p that is just reached by so many, and just not: by 2^-52 */
TEST(sums_are_exact)
{
    static const size_t ns[] = { 5, 100, 600, 5000 };
    static const enum family families[] = { SOFTMAX, FLAT, FEW_VALUES, FINE, TINY, SUBNORMAL };
    for (size_t i = 0; i < COUNT(ns); i++)
        for (size_t f = 0; f < COUNT(families); f++) {
            const size_t n = ns[i];
            float *x = ha_guard_alloc(n * sizeof *x);
            uint32_t *index = ha_guard_alloc(n * sizeof *index), keys;
            float *w = ha_guard_alloc(n * sizeof *w);
            fill(x, n, families[f], 7 * n + f);
            double total = 0;
            for (size_t k = 0; k < n; k++) total += (double)x[k];
            for (size_t j = 0; j < 7; j++) {
                const struct ha_topp args = { x, 1, n, n, fmin(1, ps[j] * total), index, w, HA_F32, n, &keys };
                ha_test_tables->topp(&args);
                double sum = 0;
                for (size_t k = 0; k < keys; k++) sum += floor((double)w[k] * 0x1p52);
                if (!(sum > 1 && sum < 0x1p52)) continue;
                check(x, 1, n, n, sum * 0x1p-52, HA_F32);
                check(x, 1, n, n, (sum + 1) * 0x1p-52, HA_F32);
                check(x, 1, n, n, (sum - 1) * 0x1p-52, HA_F32);
                check(x, 1, n, n, (sum - 0.5) * 0x1p-52, HA_F32);
            }
            ha_guard_release(0);
        }
}

/* numbers that are worked out by hand */
TEST(by_hand)
{
    static const float x[] = { 0.125f, 0.25f, 0.125f, 0.25f, 0.125f, 0.125f };
    static const struct {
        double p;
        uint32_t keys, index[6];
    } each[] = {
        { 0.25, 1, { 1 } },
        { 0.26, 2, { 1, 3 } },
        { 0.5, 2, { 1, 3 } },
        { 0.5 + 0x1p-52, 3, { 0, 1, 3 } },
        { 0.75, 4, { 0, 1, 2, 3 } },
        { 0.8, 5, { 0, 1, 2, 3, 4 } },
        { 1, 6, { 0, 1, 2, 3, 4, 5 } },
    };
    HA_TEST_EACH(t, topp)
    for (size_t i = 0; i < COUNT(each); i++) {
        uint32_t index[6], keys = 9;
        float w[6];
        t->topp(&(struct ha_topp){ x, 1, 6, 6, each[i].p, index, w, HA_F32, 6, &keys });
        assert_int_equal(keys, each[i].keys);
        assert_memory_equal(index, each[i].index, keys * sizeof *index);
        for (size_t k = 0; k < keys; k++) assert_true(w[k] == x[index[k]]);
    }
}

TEST(nothing_to_choose)
{
    HA_TEST_EACH(t, topp)
    for (size_t rows = 1; rows <= 3; rows++) {
        uint32_t index[1] = { 7 }, keys = 9;
        float x[1] = { 1 }, w[1] = { 5 };
        t->topp(&(struct ha_topp){ x, rows, 0, 0, 0.5, index, w, HA_F32, 0, &keys });
        assert_true(keys == 0 && index[0] == 7 && w[0] == 5);
    }
}

/* A NaN at any place of any row. */
TEST(a_nan_chooses_nothing)
{
    enum { ROWS = 3, N = 3000 };
    static float x[ROWS][N];
    static uint32_t index[N];
    static float w[ROWS][N];
    static const size_t ns[] = { 1, 7, 16, 17, 40, 600, N };
    HA_TEST_EACH(t, topp)
    for (size_t i = 0; i < COUNT(ns); i++)
        for (size_t rows = 1; rows <= ROWS; rows += 2)
            for (size_t at = 0; at < ns[i]; at += ns[i] < 70 ? 1 : ns[i] / 7 + 1) {
                uint32_t keys = 9;
                for (size_t r = 0; r < ROWS; r++) fill(x[r], ns[i], SOFTMAX, r);
                x[rows - 1][at] = at % 2 ? NAN : -NAN;
                t->topp(&(struct ha_topp){ x[0], rows, ns[i], N, 0.1, index, w, HA_F32, N, &keys });
                assert_int_equal(keys, 0);
            }
}

TEST(a_wrong_choice_is_seen)
{
    enum { N = 6 };
    static const float x[N] = { 0.125f, 0.25f, 0.125f, 0.25f, 0.125f, 0.125f };
    uint32_t index[N], keys;
    float w[N];
    const struct ha_topp args = { x, 1, N, N, 0.6, index, w, HA_F32, N, &keys };
    ha_test_tables->topp(&args);
    assert_true(keys == 3 && ha_ref_judge_topp(&args) <= 1);
    for (size_t i = 0; i < keys; i++) {
        w[i] = nextafterf(w[i], 1);
        assert_true(ha_ref_judge_topp(&args) > 1);
        w[i] = nextafterf(w[i], 0);
        index[i]++;
        assert_true(ha_ref_judge_topp(&args) > 1);
        index[i]--;
    }
    keys = 2;
    assert_true(ha_ref_judge_topp(&args) > 1);
    keys = 4;
    index[3] = 4;
    w[3] = x[4];
    assert_true(ha_ref_judge_topp(&args) > 1);
    keys = 3;
    assert_true(ha_ref_judge_topp(&args) <= 1);
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, NULL); }
