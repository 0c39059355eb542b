/* exp2 and exp as the tables declare them, and rounding to 16 bits, for each instruction set by itself. */

#include "kernels/test_simd.h"

#include "harness/base/numeric.h"
#include "kernels/test_data.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 4096 + 5 }; /* not a multiple of the lanes */

static bool small;

static void exp2_of_c(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = exp2f(x[i]);
}

static void exp_of_c(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = expf(x[i]);
}

static const struct ha_test_simd simd_c = { "c", exp2_of_c, NULL, exp_of_c };

/* a table that computes with another's vectors has none of its own */
static const struct ha_test_simd simd_none;

static const struct ha_test_simd *simd_of(const struct ha_kernels *t)
{
    const struct ha_test_simd *const all[] = {
        &simd_c,
        &ha_test_simd_avx2,
        &ha_test_simd_avx512,
        &ha_test_simd_neon,
        &ha_test_simd_sve256,
        &ha_test_simd_sve512,
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i]->name, t->name)) return all[i];
    return &simd_none;
}

enum { EXP2, EXP };

static void (*of(const struct ha_kernels *t, int which))(float *, size_t)
{
    return which == EXP2 ? simd_of(t)->exp2 : simd_of(t)->exp;
}

/* Every stride-th float from least to most, times `sign`. Where the result is below the normal range,
 * it may be off by one subnormal step: underflow is gradual. */
static void sweep(int which, float least, float most, float sign, uint32_t stride)
{
    static float x[BATCH], y[BATCH];
    static double want[BATCH];
    double worst[HA_TEST_TABLES_MAX] = { 0 };
    const uint32_t end = ha_f32_bits(most);
    for (uint32_t at = ha_f32_bits(least); at <= end;) {
        for (size_t i = 0; i < BATCH; i++) {
            x[i] = sign * ha_f32_of_bits(at <= end ? at : end);
            want[i] = which == EXP2 ? exp2((double)x[i]) : exp((double)x[i]);
            if (at <= end) at += stride;
        }
        for (size_t t = 0; t < ha_test_tables_count; t++) {
            if (!of(&ha_test_tables[t], which)) continue;
            memcpy(y, x, sizeof y);
            of(&ha_test_tables[t], which)(y, BATCH);
            for (size_t i = 0; i < BATCH; i++) {
                const double step = want[i] < 0x1p-126 ? 0x1p-149 : 0,
                             e = (fabs((double)y[i] - want[i]) - step) / want[i];
                worst[t] = e > worst[t] || isnan(e) ? e : worst[t];
            }
        }
    }
    for (size_t t = 0; t < ha_test_tables_count; t++) {
        if (!of(&ha_test_tables[t], which)) continue;
        printf("%s: %s of %g to %g: error %.3f * 2^-24, declared %.3f\n", ha_test_tables[t].name,
               which == EXP2 ? "exp2" : "exp", (double)(sign * least), (double)(sign * most), worst[t] * 0x1p24,
               ha_test_tables[t].traits.exp_eps * 0x1p24);
        assert_true(worst[t] <= ha_test_tables[t].traits.exp_eps);
        assert_true(which == EXP || worst[t] <= ha_test_tables[t].profile.exp_eps);
    }
}

/* of attention: a score may be 8 above the level */
static void exp2_of_every_float(void **state)
{
    (void)state;
    sweep(EXP2, 0x1p-25f, 150, -1, small ? 65537 : 1);
    sweep(EXP2, 0, 0x1p-25f, -1, small ? 1000003 : 101);
    sweep(EXP2, 0x1p-25f, 8.5f, 1, small ? 65537 : 7);
}

static void exp_of_every_float(void **state)
{
    (void)state;
    sweep(EXP, 0x1p-25f, 104, -1, small ? 65537 : 1);
    sweep(EXP, 0, 0x1p-25f, -1, small ? 1000003 : 101);
}

static void exp2_at_the_ends(void **state)
{
    (void)state;
    for (size_t t = 0; t < ha_test_tables_count; t++) {
        float x[] = { 0, -0.0f, -1, -126, -149, -150, -150.5f, -151, -152, -1e4f, -3.4e38f, -INFINITY, NAN };
        const float want[] = { 1, 1, 0.5f, 0x1p-126f, 0x1p-149f, 0, 0, 0, 0, 0, 0, 0 };
        const struct ha_test_simd *s = simd_of(&ha_test_tables[t]);
        if (!s->exp2) continue;
        s->exp2(x, sizeof x / sizeof *x);
        for (size_t i = 0; i < sizeof want / sizeof *want; i++) assert_true(x[i] == want[i]);
        assert_true(isnan(x[12]));
    }
}

/* floats of every sign and exponent, NaN and infinities among them, as harness/base/numeric.h rounds them */
static void narrowing_rounds_once(void **state)
{
    (void)state;
    static float x[BATCH];
    static uint16_t got[BATCH + 1], want[BATCH];
    const uint32_t stride = small ? 65521 * 3 : 1021;
    for (uint64_t at = 0; at < UINT64_C(1) << 32;) {
        for (size_t i = 0; i < BATCH; i++, at += stride) x[i] = ha_f32_of_bits((uint32_t)at);
        for (int type = HA_F16; type <= HA_BF16; type++)
            for (size_t t = 0; t < ha_test_tables_count; t++) {
                const struct ha_test_simd *s = simd_of(&ha_test_tables[t]);
                if (!s->narrow) continue;
                got[BATCH] = 0x1234;
                s->narrow(got, x, BATCH, (enum ha_dtype)type);
                ha_store_row(want, BATCH, (enum ha_dtype)type, x);
                assert_memory_equal(got, want, sizeof want);
                assert_int_equal(got[BATCH], 0x1234);
            }
    }
}

/* those halfway between two numbers, and beside them */
static void narrowing_of_ties(void **state)
{
    (void)state;
    for (int type = HA_F16; type <= HA_BF16; type++)
        for (uint32_t h = 0; h < 1u << 16; h++) {
            float x[3];
            uint16_t got[3], want[3];
            const uint16_t both[2] = { (uint16_t)h, (uint16_t)(h + 1) };
            float of[2];
            ha_load_row(both, 2, (enum ha_dtype)type, of);
            x[1] = 0.5f * of[0] + 0.5f * of[1];
            x[0] = ha_f32_of_bits(ha_f32_bits(x[1]) - 1);
            x[2] = ha_f32_of_bits(ha_f32_bits(x[1]) + 1);
            ha_store_row(want, 3, (enum ha_dtype)type, x);
            for (size_t t = 0; t < ha_test_tables_count; t++) {
                const struct ha_test_simd *s = simd_of(&ha_test_tables[t]);
                if (!s->narrow) continue;
                s->narrow(got, x, 3, (enum ha_dtype)type);
                assert_memory_equal(got, want, sizeof want);
            }
        }
}

int main(int argc, char **argv)
{
    small = argc > 1 && strcmp(argv[1], "small") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp2_of_every_float), cmocka_unit_test(exp_of_every_float),
        cmocka_unit_test(exp2_at_the_ends),    cmocka_unit_test(narrowing_rounds_once),
        cmocka_unit_test(narrowing_of_ties),
    };
    return cmocka_run_group_tests(tests, ha_test_tables_setup, NULL);
}
