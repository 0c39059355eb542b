/* exp and log as the tables declare them. Kernels take 2^x, x = s log2 e; a scale of ln 2, rounded, makes x the product
 * q.k itself. It is reached through the kernels: a first key of score 0 is the maximum, and head dimension 8 with unit
 * queries makes each element of a key a score of its own, so that its weight is 2^ that element. (The rounding of x
 * where the scale is any is kappa_s of reference/bound.c, the rounding of x - level there counts with exp: here both
 * are exact.) test_simd.c has every float. */

#include "harness/base/numeric.h"
#include "kernels/rows.h"
#include "kernels/test_data.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { DIM = 8, KEYS = HA_CHUNK_KEYS, BATCH = (KEYS - 1) * DIM };

static const float ln2 = 0x1.62e43p-1f;

static bool small;

static float k[KEYS][DIM], weights[DIM][KEYS], q[DIM][DIM], level[DIM], sum[DIM], acc[DIM][DIM];

static const struct ha_rows rows = {
    .k = k, .v = k, .k_stride_bytes = sizeof k[0], .v_stride_bytes = sizeof k[0], .keys = KEYS
};

static void exp_of_chunk(const struct ha_kernels *t)
{
    const struct ha_chunk c = {
        .q = q[0],
        .q_rows = DIM,
        .q_stride = DIM,
        .head_dim = DIM,
        .dtype = HA_F32,
        .scale = ln2,
        .rows = rows,
        .weights = weights[0],
        .weights_stride = KEYS,
        .level = level,
        .sum = sum,
        .acc = acc[0],
    };
    t->attend_chunk(&c);
}

static void exp_of_packed(const struct ha_kernels *t)
{
    static _Alignas(64) char blocks[2 * sizeof k], scratch[HA_PACKED_SCRATCH];
    const struct ha_pack p = { .blocks = blocks, .rows = rows, .head_dim = DIM, .dtype = HA_F32 };
    const struct ha_packed_chunk c = {
        .q = q[0],
        .q_rows = DIM,
        .q_stride = DIM,
        .head_dim = DIM,
        .packed = { .blocks = blocks, .keys = KEYS },
        .keys = KEYS,
        .scale = ln2,
        .weights = weights[0],
        .weights_stride = KEYS,
        .level = level,
        .sum = sum,
        .acc = acc[0],
        .scratch = scratch,
    };
    t->pack(&p);
    t->attend_packed[HA_F32](&c);
}

static const struct {
    const char *name;
    void (*exp)(const struct ha_kernels *t);
} ways[] = { { "chunk", exp_of_chunk }, { "packed", exp_of_packed } };
enum { WAYS = sizeof ways / sizeof *ways };

static double declared(const struct ha_kernels *t, size_t way)
{
    return (way ? &t->packed_profile[HA_F32] : &t->profile)->exp_eps;
}

static void batch(const struct ha_kernels *t, size_t way)
{
    for (size_t r = 0; r < DIM; r++) q[r][r] = 1;
    memset(weights, 0xFF, sizeof weights);
    ways[way].exp(t);
}

/* Every stride-th float from -least down to -most. Where the result is below the normal range,
 * it may be off by one subnormal step: underflow is gradual. */
static void sweep(float least, float most, uint32_t stride)
{
    static double want[BATCH];
    double worst[HA_TEST_TABLES_MAX][WAYS] = { { 0 } };
    const uint32_t end = ha_f32_bits(most);
    for (uint32_t at = ha_f32_bits(least); at <= end;) {
        for (size_t i = 0; i < BATCH; i++) {
            const float x = -ha_f32_of_bits(at <= end ? at : end);
            k[1 + i / DIM][i % DIM] = x;
            want[i] = exp2((double)x);
            if (at <= end) at += stride;
        }
        for (size_t t = 0; t < ha_test_tables_count; t++)
            for (size_t way = 0; way < WAYS; way++) {
                batch(&ha_test_tables[t], way);
                for (size_t r = 0; r < DIM; r++) assert_true(level[r] == 0);
                for (size_t r = 0; r < DIM; r++)
                    for (size_t j = 1; j < KEYS; j++) {
                        const double y = want[(j - 1) * DIM + r], step = y < 0x1p-126 ? 0x1p-149 : 0;
                        const double e = (fabs((double)weights[r][j] - y) - step) / y;
                        worst[t][way] = e > worst[t][way] || isnan(e) ? e : worst[t][way];
                    }
            }
    }
    for (size_t t = 0; t < ha_test_tables_count; t++)
        for (size_t way = 0; way < WAYS; way++) {
            const double eps = declared(&ha_test_tables[t], way);
            printf("%s, %s: 2^x on [%g, %g]: error %.3f * 2^-24, declared %.3f\n", ha_test_tables[t].name,
                   ways[way].name, -(double)most, -(double)least, worst[t][way] * 0x1p24, eps * 0x1p24);
            assert_true(worst[t][way] <= eps);
        }
}

static void exp_of_floats(void **state)
{
    (void)state;
    assert_true(ha_scale_log2(ln2) == 1);
    sweep(0x1p-25f, 150, small ? 65537 * 7 : 1009);
    sweep(0, 0x1p-25f, small ? 10000019 : 100003);
}

static void exp_underflows_to_zero(void **state)
{
    (void)state;
    const float far[] = { -150.5f, -151, -152, -300, -1e4f, -1e30f, -3.4e38f, -INFINITY };
    for (size_t t = 0; t < ha_test_tables_count; t++)
        for (size_t way = 0; way < WAYS; way++) {
            memset(k, 0, sizeof k);
            for (size_t i = 0; i < sizeof far / sizeof *far; i++) k[i + 1][3] = far[i];
            batch(&ha_test_tables[t], way);
            for (size_t i = 0; i < sizeof far / sizeof *far; i++) assert_true(weights[3][i + 1] == 0);
            assert_true(weights[3][0] == 1 && level[3] == 0);
        }
}

/* of the sums that merges take the logarithm of; relative, also just above 1. Attention takes log in binary64. */
static void log_of_sums(void **state)
{
    (void)state;
    double worst = 0, worst2 = 0;
    for (uint32_t at = ha_f32_bits(1) + 1, end = ha_f32_bits(0x1p24f); at < end; at += small ? 100003 : 29) {
        const volatile float x = ha_f32_of_bits(at);
        const double y = log((double)x), e = fabs((double)logf(x) - y) / y;
        worst = e > worst || isnan(e) ? e : worst;
        const double y2 = log2((double)x), e2 = fabs((double)log2f(x) - y2) / y2;
        worst2 = e2 > worst2 || isnan(e2) ? e2 : worst2;
    }
    printf("logf, log2f on (1, 2^24): error %.3f, %.3f * 2^-24\n", worst * 0x1p24, worst2 * 0x1p24);
    for (size_t t = 0; t < ha_test_tables_count; t++) {
        assert_true(worst <= ha_test_tables[t].traits.log_eps);
        assert_true(worst2 <= ha_test_tables[t].traits.log_eps);
    }
}

int main(int argc, char **argv)
{
    small = argc > 1 && strcmp(argv[1], "small") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_of_floats),
        cmocka_unit_test(exp_underflows_to_zero),
        cmocka_unit_test(log_of_sums),
    };
    return cmocka_run_group_tests(tests, ha_test_tables_setup, NULL);
}
