/* merge: what kernels/test_merge.c and test_merge_exact.c, which run on these kernels too, do not ask. */

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/test_launch.h"
#include "kernels/test_merge_data.h"

#include <float.h>
#include <math.h>

enum { KINDS = HA_TEST_MERGE_KINDS };

/* equal weights and integers: exact in every order, and near the largest number without overflow */
TEST(equal_weights_are_exact)
{
    static const size_t of[] = { 2, 4, 8, 16, 64, 128, 512 };
    for (size_t n = 0; n < KINDS * (COUNT(of) - test_small); n++) {
        struct ha_test_merge p = ha_test_merge_kind(n % KINDS, of[n / KINDS], 64);
        if (p.form == HA_FORM_DIRECT) continue; /* exp(-ln M) is not exactly 1/M */
        ha_test_merge_make(&p, n);
        const float top = p.dtype == HA_F32 ? FLT_MAX : p.dtype == HA_F16 ? 65504 : 0x1.fep127f;
        for (size_t i = 0; i < p.count; i++) {
            *ha_test_merge_level(&p, i, 0) = 3;
            for (size_t d = 0; d < p.dim; d++)
                ha_test_merge_o(&p, i, 0)[d] = (float[]){ top, -top, -0.0f, (float)(i % 2 * 2) }[d % 4];
        }
        ha_test_merge_run(&p, ha_test_tables);
        for (size_t d = 0; d < p.dim; d++) ha_test_same(&p.got_o[d], &(const float[]){ top, -top, -0.0f, 1 }[d % 4], 1);
        ha_test_merge_free(&p);
    }
}

/* the form that does not divide: where L is coarse the weights do not add up to 1, and stay so */
TEST(direct_weights_are_taken_as_they_are)
{
    static const size_t of[] = { 2, 6, 20 };
    for (size_t n = 0; n < COUNT(of); n++) {
        struct ha_test_merge p = ha_test_merge_kind(HA_FORM_DIRECT, of[n], 8);
        ha_test_merge_make(&p, n);
        for (size_t i = 0; i < p.count; i++) {
            *ha_test_merge_level(&p, i, 0) = 3e5f;
            for (size_t d = 0; d < p.dim; d++) ha_test_merge_o(&p, i, 0)[d] = 1;
        }
        ha_test_merge_run(&p, ha_test_tables);
        const double all = (double)p.count * exp(3e5 - (double)p.got_level[0]);
        assert_true(fabs(all - 1) > 1e-3);
        for (size_t d = 0; d < p.dim; d++) assert_true(fabs((double)p.got_o[d] - all) < 1e-5);
        ha_test_merge_free(&p);
    }
}

/* rows at multiples of 16 bytes but for one thing: the sanitizers see what is accessed in too large pieces */
TEST(one_thing_unaligned)
{
    static const size_t of[] = { 2, 7, 9 }, dim[] = { 16, 19 };
    for (size_t n = 0; n < HA_DTYPE_COUNT * COUNT(of) * COUNT(dim); n++) {
        struct ha_test_merge p = ha_test_merge_kind(n % 3 * 4, of[n / 3 % 3], dim[n / 9]);
        p.tokens = p.heads = 2;
        p.rows = HA_TEST_PADDED_EXACTLY;
        ha_test_merge_spread(&p, HA_TEST_NEAR, n);
        struct ha_test_merge q = ha_test_merge_like(&p);
        ha_test_merge_run(&p, ha_test_tables);
        for (q.rows = HA_TEST_PADDED; q.rows < HA_TEST_PADDED_EXACTLY; q.rows++) {
            ha_test_merge_run(&q, ha_test_tables);
            ha_test_merge_same(&p, &q);
        }
        ha_test_merge_free(&p);
        ha_test_merge_free(&q);
    }
}

/* the result over a state in the middle */
TEST(any_state_may_be_the_output)
{
    static const size_t of[] = { 3, 12 };
    for (size_t n = 0; n < COUNT(of); n++) {
        struct ha_test_merge p = ha_test_merge_kind(HA_FORM_NATURAL, of[n], 64);
        ha_test_merge_spread(&p, HA_TEST_NEAR, n);
        struct ha_test_merge q = ha_test_merge_like(&p);
        q.alias = HA_ALIAS_FIRST;
        ha_test_merge_run(&p, ha_test_tables);
        for (q.first = 0; q.first < of[n]; q.first++) {
            ha_test_merge_run(&q, ha_test_tables);
            ha_test_merge_same(&p, &q);
        }
        ha_test_merge_free(&p);
        ha_test_merge_free(&q);
    }
}

/* rows of o and LSE that lie further apart than 32 bits count */
TEST(far_rows)
{
    enum { DIM = 8, ROWS = 2, COUNT_MAX = 9 };
    static const size_t of[] = { 2, COUNT_MAX };
    const size_t stride = ((size_t)1 << 32) + DIM, lse_stride = ((size_t)1 << 32) + 1, bytes = stride * 2 + 4096,
                 lse_bytes = lse_stride * 4 + 4096;
    uint16_t *o = test_sparse(bytes);
    float *lse = test_sparse(lse_bytes);
    for (size_t n = 0; n < 2 * COUNT(of); n++) {
        const bool heads = n % 2;
        const size_t count = of[n / 2];
        struct ha_merge_state s[COUNT_MAX + 1]; /* the last is the output */
        for (size_t i = 0; i <= COUNT_MAX; i++) {
            s[i] = (struct ha_merge_state){ .o = o + 2 * DIM * i, .lse = lse + 2 * i };
            *(heads ? &s[i].o_head_stride : &s[i].o_token_stride) = stride;
            *(heads ? &s[i].lse_head_stride : &s[i].lse_token_stride) = lse_stride;
            for (size_t r = 0; r < ROWS; r++) {
                s[i].lse[r * lse_stride] = (float)r;
                for (size_t d = 0; d < DIM; d++) ha_store(s[i].o, r * stride + d, HA_F16, (float)(20 * r + d + i));
            }
        }
        ha_test_tables->merge(&(struct ha_merge){ .form = HA_FORM_BASE2,
                                                  .dtype = HA_F16,
                                                  .states = s,
                                                  .states_count = count,
                                                  .tokens = heads ? 1 : ROWS,
                                                  .heads = heads ? ROWS : 1,
                                                  .dim = DIM,
                                                  .out = s[COUNT_MAX] });
        for (size_t r = 0; r < ROWS; r++) {
            assert_true(s[COUNT_MAX].lse[r * lse_stride] == (float)r + log2f((float)count));
            for (size_t d = 0; d < DIM; d++)
                assert_true(ha_load(s[COUNT_MAX].o, r * stride + d, HA_F16)
                            == (float)(20 * r + d) + (float)(count - 1) / 2);
        }
    }
    munmap(o, bytes);
    munmap(lse, lse_bytes);
}

TEST(calls_without_rows)
{
    float lse = 7;
    ha_test_tables->merge(&(struct ha_merge){ .heads = 4, .dim = 8 });
    ha_test_tables->merge(&(struct ha_merge){ .tokens = 4, .dim = 8 });
    ha_test_tables->merge(
        &(struct ha_merge){ .tokens = 1, .heads = 1, .out.lse = &lse }); /* rows without elements have an LSE */
    assert_true(lse == -INFINITY);
    assert_int_equal(ha_cuda_merge(NULL, &(struct ha_merge){ .states_count = HA_CUDA_STATES_MAX + 1 }),
                     cudaErrorInvalidValue);
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, NULL); }
