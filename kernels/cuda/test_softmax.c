/* The softmax of scores, beside binary64. */

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/test_launch.h"

#include <math.h>

struct problem {
    struct ha_cuda_scores a;
    float *s, *max, *sum;
    char *p;
    size_t p_bytes;
};

static void make(struct problem *x, size_t keys, size_t rows, size_t gap)
{
    x->a = (struct ha_cuda_scores){ .rows = rows,
                                    .group = 1,
                                    .keys = keys,
                                    .stride = keys + gap,
                                    .p_stride = keys + 2 * gap,
                                    .q_len = 1,
                                    .scale = 0.25f,
                                    .dtype = HA_F32 };
    x->s = test_alloc((rows ? (rows - 1) * x->a.stride + keys : 0) * sizeof *x->s);
    x->max = test_alloc(rows * sizeof *x->max);
    x->sum = test_alloc(rows * sizeof *x->sum);
    x->p = NULL;
    x->a.s = x->s, x->a.max = x->max, x->a.sum = x->sum;
}

static void run(struct problem *x)
{
    free(x->p);
    x->p_bytes = (x->a.rows ? (x->a.rows - 1) * x->a.p_stride + x->a.keys : 0) * ha_dtype_bytes(x->a.dtype);
    x->a.p = x->p = test_alloc(x->p_bytes);
    test_done(ha_cuda_products_softmax(NULL, &x->a));
}

static void drop(struct problem *x) { free(x->s), free(x->max), free(x->sum), free(x->p); }

static size_t visible(const struct ha_cuda_scores *a, size_t row)
{
    return a->causal ? a->keys - (a->q_len - 1 - row / a->group % a->q_len) : a->keys;
}

/* the longest path of the sum, as launch.h promises it */
static double depth(size_t keys) { return ceil((double)keys / 128) + 7; }

static void check_row(const struct problem *x, size_t row)
{
    const struct ha_cuda_scores *a = &x->a;
    const float *s = x->s + row * a->stride;
    const size_t seen = visible(a, row);
    float top = -INFINITY;
    double sum = 0;
    for (size_t i = 0; i < seen; i++) top = fmaxf(top, a->scale * s[i]);
    assert_true(x->max[row] == top);
    for (size_t i = 0; i < a->keys; i++) {
        const float below = i < seen ? a->scale * s[i] - top : -INFINITY,
                    got = ha_load(x->p, row * a->p_stride + i, a->dtype);
        const double want = exp((double)below), unit = ha_dtype_unit(a->dtype) + 0x1p-22;
        sum += want;
        if (i >= seen) assert_true(got == 0);
        assert_true(fabs((double)got - want) <= unit * want + ha_dtype_eta(a->dtype) + 0x1p-149);
    }
    assert_true(fabs((double)x->sum[row] - sum) <= sum * (0x1p-22 + 0x1p-24 * depth(seen)));
    /* what lies behind a row */
    const uint8_t *gap = (const uint8_t *)x->p + (row * a->p_stride + a->keys) * ha_dtype_bytes(a->dtype);
    for (size_t i = 0; row + 1 < a->rows && i < (a->p_stride - a->keys) * ha_dtype_bytes(a->dtype); i++)
        assert_int_equal(gap[i], 0xff);
}

TEST(every_shape)
{
    static const size_t keys[] = { 6, 33, 127, 129, 700, 2048, 2049, 5001 }, rows[] = { 1, 6, 12 },
                        gaps[] = { 0, 1, 8 };
    for (size_t n = 0; n < COUNT(keys) * 3 * 2 * 3; n++) {
        if (test_small && n % 5) continue;
        struct problem x;
        make(&x, keys[n % COUNT(keys)], rows[n / 8 % 3], gaps[n / 48]);
        x.a.causal = n / 24 % 2;
        x.a.q_len = x.a.rows == 12 ? 3 : x.a.rows;
        x.a.group = x.a.rows == 12 ? 2 : 1; /* 12 rows: two problems of three tokens of two heads */
        for (size_t r = 0; r < x.a.rows; r++)
            for (size_t i = 0; i < x.a.keys; i++)
                x.s[r * x.a.stride + i] = (n % 3 ? 4.f : 200.f) * ha_rng_normal(n, r, i) - 30 * (float)(n % 2);
        for (int t = 0; t < HA_DTYPE_COUNT; t++) {
            x.a.dtype = (enum ha_dtype)t;
            test_order(n + (size_t)t);
            run(&x);
            for (size_t r = 0; r < x.a.rows; r++) check_row(&x, r);
        }
        drop(&x);
    }
}

/* of a sum of many equal weights; scores at the end alone, or at the beginning */
TEST(ties_and_peaks)
{
    struct problem x;
    make(&x, 3000, 3, 0);
    for (size_t i = 0; i < 3000; i++) {
        x.s[i] = 7;
        x.s[3000 + i] = i == 2999 ? 1e4f : -1e4f;
        x.s[6000 + i] = -(float)i;
    }
    run(&x);
    for (size_t r = 0; r < 3; r++) check_row(&x, r);
    assert_true(x.sum[0] == 3000 && x.sum[1] == 1);
    drop(&x);
}

/* the sum is of the weights before they are rounded: in every type the same */
TEST(sums_do_not_depend_on_the_type)
{
    struct problem x;
    float first[2] = { 0 };
    make(&x, 2500, 2, 0);
    for (size_t i = 0; i < 5000; i++) x.s[i] = 3 * ha_rng_normal(3, 0, i);
    for (int t = 0; t < HA_DTYPE_COUNT; t++) {
        x.a.dtype = (enum ha_dtype)t;
        run(&x);
        if (t == 0) memcpy(first, x.sum, sizeof first);
        assert_memory_equal(first, x.sum, sizeof first);
    }
    drop(&x);
}

/* bit for bit, whatever way the threads take turns */
TEST(orders_do_not_matter)
{
    static const size_t keys[] = { 900, 3000 };
    for (size_t k = 0; k < COUNT(keys); k++) {
        struct problem x;
        make(&x, keys[k], 1, 0);
        for (size_t i = 0; i < keys[k]; i++) x.s[i] = 3 * ha_rng_normal(k, 0, i);
        float *p = NULL, sum = 0;
        for (size_t order = 0; order < TEST_ORDERS; order++) {
            test_order(order);
            run(&x);
            if (order == 0) sum = x.sum[0], p = memcpy(test_alloc(x.p_bytes), x.p, x.p_bytes);
            assert_memory_equal(x.p, p, x.p_bytes);
            assert_true(x.sum[0] == sum);
        }
        free(p);
        drop(&x);
    }
}

TEST(nothing_seen)
{
    for (int t = 0; t < HA_DTYPE_COUNT; t++) {
        struct problem x;
        make(&x, 4, 4, 1);
        x.a.dtype = (enum ha_dtype)t;
        x.a.q_len = 4;
        x.a.causal = true;
        for (size_t i = 0; i < 3 * x.a.stride + 4; i++) x.s[i] = -INFINITY; /* and where scores are -inf */
        run(&x);
        for (size_t r = 0; r < 4; r++) {
            assert_true(x.max[r] == -INFINITY && x.sum[r] == 0);
            for (size_t i = 0; i < 4; i++) assert_true(ha_load(x.p, r * x.a.p_stride + i, x.a.dtype) == 0);
        }
        x.a.keys = 0;
        x.max[0] = x.sum[0] = 1;
        test_done(ha_cuda_products_softmax(NULL, &x.a));
        assert_true(x.max[0] == -INFINITY && x.sum[0] == 0);
        x.a.rows = 0;
        test_done(ha_cuda_products_softmax(NULL, &x.a));
        drop(&x);
    }
}

/* what is hidden is not looked at; what is seen and NaN is not lost */
TEST(not_a_number)
{
    struct problem x;
    make(&x, 300, 2, 0);
    x.a.q_len = 2;
    x.a.causal = true;
    for (size_t i = 0; i < 600; i++) x.s[i] = (float)(i % 7);
    x.s[299] = NAN; /* row 0 sees 299 keys */
    run(&x);
    for (size_t r = 0; r < 2; r++) check_row(&x, r);
    for (size_t at = 0; at < 299; at += 37) {
        x.s[at] = NAN;
        run(&x);
        assert_true(isnan(x.max[0]) && isnan(x.sum[0]));
        for (size_t i = 0; i < 299; i++) assert_true(isnan(ha_load(x.p, i, HA_F32)));
        check_row(&x, 1);
        x.s[at] = 1;
    }
    drop(&x);
}

TEST_MAIN { return test_all("tests", test_begin, NULL); }
