/* weighted_sum, through every table, against binary64: within what its sums are declared to round. */

#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "kernels/test_data.h"

#include <math.h>

struct sum {
    struct ha_weighted_sum args;
    size_t o_bytes;
};

static struct sum make(const struct ha_test_kv *kv, size_t q_rows, enum ha_dtype w_type, uint64_t seed)
{
    const size_t n = kv->rows.keys, w_stride = n + seed % 4, o_stride = kv->dim + seed % 3;
    struct sum s = { .o_bytes = ((q_rows - 1) * o_stride + kv->dim) * sizeof(float) };
    void *w = ha_guard_alloc(((q_rows - 1) * w_stride + n) * ha_dtype_bytes(w_type));
    for (size_t r = 0; r < q_rows; r++)
        for (size_t i = 0; i < n; i++)
            ha_store(w, r * w_stride + i, w_type,
                     (float)ha_rng_below(seed, 3, r * n + i, 1 << 20) * 0x1p-20f * (i % 7 == 3 ? 0 : 1));
    s.args = (struct ha_weighted_sum){ .rows = kv->rows,
                                       .head_dim = kv->dim,
                                       .dtype = kv->dtype,
                                       .w = w,
                                       .w_type = w_type,
                                       .q_rows = q_rows,
                                       .w_stride = w_stride,
                                       .o = ha_guard_alloc(s.o_bytes),
                                       .o_stride = o_stride };
    s.args.rows.k = NULL;
    return s;
}

static void judge(const struct ha_kernels *t, const struct sum *s)
{
    const struct ha_weighted_sum *a = &s->args;
    memset(a->o, 0xFF, s->o_bytes);
    t->weighted_sum(a);
    const double ratio = ha_ref_judge_weighted_sum(a, NULL);
    if (!(ratio <= 1))
        fail_msg("%s: %zu keys, %zu rows, dim %zu, %s, weights %s: error over bound %g", t->name, a->rows.keys,
                 a->q_rows, a->head_dim, ha_dtype_name(a->dtype), ha_dtype_name(a->w_type), ratio);
    ha_test_worst(t, "a sum", ratio);
    for (size_t r = 0; r + 1 < a->q_rows; r++)
        for (size_t d = a->head_dim; d < a->o_stride; d++)
            assert_int_equal(ha_f32_bits(a->o[r * a->o_stride + d]), UINT32_MAX);
}

TEST(within_bound)
{
    static const size_t dims[] = { 128, 80, 8, 1, 9, 17, 31, 33, 64, 127, 256, 257, 300, 576 },
                        keys[] = { 0, 1, 2, 15, 16, 17, 31, 100, 255, 256, 257, 511, 513, 1500 };
    uint64_t seed = 0;
    HA_TEST_DTYPES(dtype)
    for (size_t d = 0; d < (test_small ? 3 : COUNT(dims)); d++)
        for (size_t k = 0; k < COUNT(keys); k++, seed++) {
            struct ha_test_kv kv;
            ha_test_kv_make(&kv, (enum ha_test_layout)(seed % HA_TEST_LAYOUTS),
                            (enum ha_test_family)(seed % HA_TEST_ALL_FAMILIES), dims[d], keys[k], dtype, seed);
            const struct sum s = make(&kv, 1 + seed % 6, seed / 2 % 2 ? HA_F16 : HA_F32, seed);
            HA_TEST_EACH(t, weighted_sum) judge(t, &s);
            ha_guard_release(0);
        }
}

/* One value and one weight for all: every rounding of a sum has one sign, and the declared number of additions shows.
 */
TEST(roundings_of_one_sign)
{
    static const size_t keys[] = { 1000, 20000, 60001 };
    HA_TEST_DTYPES(dtype)
    for (size_t k = 0; k < (test_small ? 1 : COUNT(keys)); k++) {
        struct ha_test_kv kv;
        ha_test_kv_make(&kv, HA_TEST_DENSE, HA_TEST_TIES, 20, keys[k], dtype, k);
        const struct sum s = make(&kv, 2, HA_F32, k);
        float *w = ha_test_own(s.args.w);
        for (size_t i = 0; i < s.args.w_stride + keys[k]; i++) w[i] = 0x1.555556p-9f;
        HA_TEST_EACH(t, weighted_sum) judge(t, &s);
        ha_guard_release(0);
    }
}

/* What is no number is what binary64 makes of it, in its column alone; a weight of 0 does not hide it. */
TEST(of_no_number)
{
    enum { DIM = 45, KEYS = 37 };
    static const float odd[] = { NAN, INFINITY, -INFINITY };
    HA_TEST_DTYPES(dtype)
    for (size_t i = 0; i < KEYS; i++) {
        struct ha_test_kv kv;
        ha_test_kv_make(&kv, (enum ha_test_layout)(i % HA_TEST_LAYOUTS), HA_TEST_NORMAL, DIM, KEYS, dtype, i);
        ha_test_kv_put_v(&kv, i, i % DIM, odd[i % 3]);
        ha_test_kv_put_v(&kv, KEYS - 1 - i, (i + 9) % DIM, odd[i / 3 % 3]);
        const struct sum s = make(&kv, 5, i % 2 ? HA_F16 : HA_F32, i);
        HA_TEST_EACH(t, weighted_sum)
        {
            judge(t, &s);
            for (size_t r = 0; r < 5; r++)
                for (size_t d = 0; d < DIM; d++)
                    assert_true(!isfinite(s.args.o[r * s.args.o_stride + d]) == (d == i % DIM || d == (i + 9) % DIM));
        }
        ha_guard_release(0);
    }
}

/* Rows that are not named are not read, nor K. */
TEST(no_rows)
{
    HA_TEST_EACH(t, weighted_sum)
    {
        float o[2] = { 5, 5 }, w[2] = { 1, 1 };
        t->weighted_sum(&(struct ha_weighted_sum){ { .keys = 0 }, 2, HA_F16, w, HA_F32, 1, 0, o, 2 });
        assert_true(o[0] == 0 && o[1] == 0);
        o[0] = 5;
        t->weighted_sum(&(struct ha_weighted_sum){ { .keys = 0 }, 2, HA_F16, w, HA_F32, 0, 0, o, 2 });
        assert_true(o[0] == 5);
    }
}

TEST(a_wrong_sum_is_seen)
{
    struct ha_test_kv kv;
    ha_test_kv_make(&kv, HA_TEST_GATHERED, HA_TEST_NORMAL, 40, 300, HA_F16, 1);
    const struct sum s = make(&kv, 2, HA_F32, 1);
    judge(ha_test_tables, &s);
    for (size_t d = 0; d < 40; d++) {
        float *x = &s.args.o[s.args.o_stride + d];
        const float was = *x;
        *x = was + 0.02f; /* of sizes of about 120, 257 roundings at most */
        assert_true(ha_ref_judge_weighted_sum(&s.args, NULL) > 1);
        *x = d % 2 ? (float)NAN : (float)INFINITY;
        assert_true(ha_ref_judge_weighted_sum(&s.args, NULL) > 1);
        *x = was;
    }
    ha_guard_release(0);
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, ha_test_report); }
