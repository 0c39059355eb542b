/* ha_exp and ha_exp2 over the floats of their range against binary64, and the conversions of pairs of halves.
 * Argument `small`: fewer floats. */

#include "kernels/cuda/emulation/test_simt.h"

#include <math.h>

/* Every stride-th float from -least to -most, relative error at most `bound`. Below the normal range the error may be
 * half a subnormal step more. */
static void sweep(const char *name, float (*function)(float), double (*exact)(double), float least, float most,
                  double bound)
{
    const uint32_t stride = test_small ? 4001 : 23, end = __float_as_uint(most);
    double worst = 0, worst_step = 0;
    for (uint32_t at = __float_as_uint(least); at <= end; at += stride) {
        const float x = -__uint_as_float(at);
        const double want = exact(double(x)), error = fabs(double(function(x)) - want);
        const double relative = want >= 0x1p-126 ? error / want : 0,
                     steps = want < 0x1p-126 ? (error - bound * want) * 0x1p149 : 0;
        worst = relative > worst || isnan(relative) ? relative : worst;
        worst_step = steps > worst_step || isnan(steps) ? steps : worst_step;
    }
    printf("%s on [%g, %g]: relative error %.3f * 2^-24 (2^%.2f), below the normal range %.4f steps more\n", name,
           -double(most), -double(least), worst * 0x1p24, log2(worst), worst_step);
    assert_true(worst <= bound);
    assert_true(worst_step <= 0.5);
}

/* over all floats: 1.273 and 1.123 */
TEST(exp_of_floats) { sweep("exp", ha_exp, exp, 0x1p-27f, 105, 1.275 * 0x1p-24); }
TEST(exp2_of_floats) { sweep("exp2", ha_exp2, exp2, 0x1p-27f, 152, 1.125 * 0x1p-24); }

TEST(exp_of_special)
{
    float (*const functions[])(float) = { ha_exp, ha_exp2 };
    for (float (*f)(float) : functions) {
        assert_true(f(0.f) == 1 && f(-0.f) == 1 && f(-0x1p-149f) == 1 && f(-0x1p-26f) == 1);
        static const float low[] = { -152.5f, -200, -1e6f, -8388608, -1.2e7f, -1e10f, -1e30f, -3.4e38f, -INFINITY };
        for (const float x : low) assert_int_equal(__float_as_uint(f(x)), 0);
        static const uint32_t nans[] = { 0x7fc00000, 0xffc00000, 0x7fffffff, 0xffffffff,
                                         0x7fc00001, 0x7fc0ffff, 0x7fe12345 };
        for (const uint32_t nan : nans) assert_true(isnan(f(__uint_as_float(nan))));
    }
    for (int n = 0; n >= -149; n--) assert_true(ha_exp2(float(n)) == ldexpf(1, n));
    assert_true(ha_exp2(-150) == 0);
    assert_true(ha_exp2(nextafterf(-150, 0)) == 0x1p-149f);
    assert_true(ha_exp(-104) == 0); /* under half the smallest number */
    assert_true(ha_exp(-103.9f) == 0x1p-149f);
}

TEST(logs) { assert_true(ha_log(1) == 0 && ha_log2(8) == 3 && isinf(ha_log(0)) && isnan(ha_log2(-1))); }

/* of single ones, see harness/base/test_numeric.c */
TEST(pairs_of_halves)
{
    for (uint32_t h = 0; h <= 0xffff; h++) {
        const uint32_t pair = h << 16 | (h * 40503u & 0xffffu);
        const float2 f = ha_f16x2_to_f32(pair), b = ha_bf16x2_to_f32(pair);
        const uint16_t low = uint16_t(pair & 0xffff), high = uint16_t(h);
        assert_int_equal(__float_as_uint(f.x), __float_as_uint(ha_f16_to_f32(low)));
        assert_int_equal(__float_as_uint(f.y), __float_as_uint(ha_f16_to_f32(high)));
        assert_int_equal(__float_as_uint(b.x), __float_as_uint(ha_bf16_to_f32(low)));
        assert_int_equal(__float_as_uint(b.y), __float_as_uint(ha_bf16_to_f32(high)));
    }
}
