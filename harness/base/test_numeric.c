#include "harness/api/kernels.h"
#include "harness/base/cpu.h"
#include "harness/base/numeric.h"
#include "harness/base/test.h"

#include <float.h>
#include <math.h>

enum { HALVES = 1 << 16 };

/* What 16 bits stand for, from the formats' definition: sign, exponent field of `bits`, fraction. */
static double value_of(uint16_t h, int exponent_bits)
{
    int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = h >> fraction_bits & ((1 << exponent_bits) - 1), fraction = h & ((1 << fraction_bits) - 1);
    double sign = h & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return fraction ? nan("") : sign * HUGE_VAL;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

static const struct format {
    enum ha_dtype dtype;
    int exponent_bits;
    uint16_t infinity;
    uint16_t (*from)(float x);
    float (*to)(uint16_t h);
} formats[] = {
    { HA_F16, 5, 0x7c00, ha_f16_from_f32, ha_f32_from_f16 },
    { HA_BF16, 8, 0x7f80, ha_bf16_from_f32, ha_f32_from_bf16 },
};

/* ---- 8 bits: from the format's definition, and by a search of all codes ----------------------------------- */

static double value_of_fp8(int code, enum ha_fp8 t)
{
    const int bits = t == HA_FP8_E4M3 ? 3 : 2, bias = t == HA_FP8_E4M3 ? 7 : 15, fraction = code & ((1 << bits) - 1),
              exponent = (code & 0x7f) >> bits;
    const double sign = code & 0x80 ? -1 : 1;
    if (t == HA_FP8_E4M3 ? (code & 0x7f) == 0x7f : (code & 0x7f) > 0x7c) return nan("");
    if (t == HA_FP8_E5M2 && (code & 0x7f) == 0x7c) return sign * HUGE_VAL;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - bits);
    return sign * ldexp(fraction + (1 << bits), exponent - bias - bits);
}

/* the finite code nearest to x, of two the even one */
static int nearest_of_all(double x, enum ha_fp8 t)
{
    const int sign = signbit(x) ? 0x80 : 0;
    int best = sign;
    for (int code = sign; isfinite(value_of_fp8(code, t)); code++) {
        const double old = fabs(value_of_fp8(best, t) - x), now = fabs(value_of_fp8(code, t) - x);
        if (now < old || (now == old && code % 2 == 0)) best = code;
    }
    return fabs(x) < 1e6 ? best : sign + (t == HA_FP8_E4M3 ? 0x7e : 0x7b);
}

static void check_fp8(float x, enum ha_fp8 t)
{
    const int code = ha_fp8_from_f32(x, t), want = isnan(x) ? code : nearest_of_all((double)x, t);
    if (code != want) fail_msg("%a as %s is %02x, not %02x", (double)x, ha_fp8_name(t), code, want);
    /* it is one of the numbers that become this code; what is beyond both ends is not */
    const float back = ha_f32_from_fp8((uint8_t)code, t);
    if (isfinite(x)) assert_true(ha_fp8_nearest((double)x, back, t) == (double)x);
    if (fabsf(x) < 400) {
        const double far = (double)x + (x < 0 ? -1 : 1) * fmax(fabs((double)x), 1) / 2;
        const double end = ha_fp8_nearest(far, back, t);
        assert_true(fabs(end) < fabs(far) && fabs(end) >= fabs((double)back));
    }
}

TEST(eight_bits)
{
    for (enum ha_fp8 t = HA_FP8_E4M3; t <= HA_FP8_E5M2; t++) {
        for (int code = 0; code < 256; code++) {
            const double want = value_of_fp8(code, t);
            const float got = ha_f32_from_fp8((uint8_t)code, t);
            assert_true(isnan(want) ? isnan(got) : (double)got == want && !signbit(got) == !(code >> 7));
            if (isfinite(want)) assert_int_equal(ha_fp8_from_f32(got, t), code);
            else assert_int_equal(ha_fp8_from_f32(got, t), isnan(want) ? (code & 0x80) | 0x7f : (code & 0x80) | 0x7b);
            const double next = value_of_fp8(code + 1, t);
            if (!isfinite(want) || code % 128 == 127 || !isfinite(next)) continue;
            const float middle = (float)((want + next) / 2);
            check_fp8(middle, t);
            check_fp8(nextafterf(middle, INFINITY), t);
            check_fp8(nextafterf(middle, -INFINITY), t);
        }
        const float ends[] = { 0,    -0.0f, FLT_TRUE_MIN, -FLT_MIN, 448,    449,      464, 465,      480,
                               -500, 1e6f,  57344,        61440,    -65536, -FLT_MAX, NAN, INFINITY, -INFINITY };
        for (size_t i = 0; i < COUNT(ends); i++) check_fp8(ends[i], t);
        for (uint32_t bits = 0; bits < 0xffff0000u; bits += 0xfff1) check_fp8(ha_f32_of_bits(bits), t);
    }
}

TEST(every_half_has_its_value)
{
    for (const struct format *f = formats; f < formats + COUNT(formats); f++)
        for (uint32_t h = 0; h < HALVES; h++) {
            double want = value_of((uint16_t)h, f->exponent_bits);
            float got = f->to((uint16_t)h);
            assert_true(isnan(want) ? isnan(got) : (double)got == want);
            assert_int_equal(ha_f32_bits(got) >> 31, h >> 15);
            if (f->dtype == HA_F16 && isnan(got)) assert_true(ha_f32_bits(got) & 0x00400000);
        }
}

TEST(every_half_comes_back)
{
    for (const struct format *f = formats; f < formats + COUNT(formats); f++)
        for (uint32_t h = 0; h < HALVES; h++) {
            uint16_t back = f->from(f->to((uint16_t)h));
            if (isnan(f->to((uint16_t)h))) /* the same, made quiet */
                assert_int_equal(back, h | 1u << (14 - f->exponent_bits));
            else assert_int_equal(back, h);
        }
}

/* Between each neighbouring pair: the midpoint goes to the even one, a hair off it to the nearer one. */
TEST(rounds_to_nearest_ties_to_even)
{
    for (const struct format *f = formats; f < formats + COUNT(formats); f++)
        for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000)
            for (uint32_t low = 0; low < f->infinity; low++) {
                uint32_t high = low + 1, even = low & 1 ? high : low;
                /* above the largest finite value lies infinity, where the next exponent would begin */
                double top = high == f->infinity ? ldexp(1, f->exponent_bits == 5 ? 16 : 128)
                                                 : value_of((uint16_t)high, f->exponent_bits);
                double exact = (value_of((uint16_t)low, f->exponent_bits) + top) / 2;
                float middle = (float)exact;
                if ((double)middle != exact) /* the last few of bf16's subnormals have no midpoint in binary32 */
                    continue;
                uint32_t m = ha_f32_bits(middle);
                assert_int_equal(f->from(ha_f32_of_bits(m | sign << 16)), even | sign);
                assert_int_equal(f->from(ha_f32_of_bits((m + 1) | sign << 16)), high | sign);
                assert_int_equal(f->from(ha_f32_of_bits((m - 1) | sign << 16)), low | sign);
            }
}

TEST(the_ends_of_the_range)
{
    static const struct {
        float x;
        uint16_t f16, bf16;
    } cases[] = {
        { 0.0f, 0, 0 },
        { -0.0f, 0x8000, 0x8000 },
        { 1.0f, 0x3c00, 0x3f80 },
        { -2.0f, 0xc000, 0xc000 },
        { 65504.0f, 0x7bff, 0x4780 },
        { 65519.996f, 0x7bff, 0x4780 },
        { 65520.0f, 0x7c00, 0x4780 },
        { 1e5f, 0x7c00, 0x47c3 },
        { -1e5f, 0xfc00, 0xc7c3 },
        { HUGE_VALF, 0x7c00, 0x7f80 },
        { -HUGE_VALF, 0xfc00, 0xff80 },
        { 0x1.fffffep127f, 0x7c00, 0x7f80 },
        { 0x1.fep127f, 0x7c00, 0x7f7f },
        { 0x1.fefffep127f, 0x7c00, 0x7f7f },
        { 0x1.ffp127f, 0x7c00, 0x7f80 },
        { 0x1p-14f, 0x0400, 0x3880 },
        { 0x1p-24f, 0x0001, 0x3380 },
        { 0x1p-25f, 0x0000, 0x3300 },
        { 0x1.000002p-25f, 0x0001, 0x3300 },
        { 0x1.8p-24f, 0x0002, 0x33c0 },
        { -0x1p-149f, 0x8000, 0x8000 },
        { 0x1p-133f, 0x0000, 0x0001 },
        { 0x1p-134f, 0x0000, 0x0000 },
        { 0x1.8p-134f, 0x0000, 0x0001 },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(ha_f16_from_f32(cases[i].x), cases[i].f16);
        assert_int_equal(ha_bf16_from_f32(cases[i].x), cases[i].bf16);
    }
}

TEST(nan_stays_nan)
{
    for (uint32_t payload = 1; payload < 0x00800000; payload += 0x1001)
        for (uint32_t sign = 0; sign <= 1; sign++) {
            float x = ha_f32_of_bits(sign << 31 | 0x7f800000 | payload);
            uint16_t f16 = ha_f16_from_f32(x), bf16 = ha_bf16_from_f32(x);
            assert_int_equal(f16 & 0x7e00, 0x7e00);
            assert_int_equal(bf16 & 0x7fc0, 0x7fc0);
            assert_int_equal(f16 >> 15, sign);
            assert_int_equal(bf16 >> 15, sign);
        }
}

#if defined __FLT16_MANT_DIG__ && !defined __clang__
/* The compiler's own binary16, over numbers spread evenly over all of binary32's patterns. */
TEST(agrees_with_the_compiler)
{
    __extension__ typedef _Float16 half;
    for (uint32_t h = 0; h < HALVES; h++) {
        uint16_t bits = (uint16_t)h;
        half x;
        memcpy(&x, &bits, sizeof x);
        float want = (float)x, got = ha_f32_from_f16(bits);
        assert_true(isnan(want) ? isnan(got) : ha_f32_bits(got) == ha_f32_bits(want));
    }
    for (uint64_t u = 0; u < UINT64_C(1) << 32; u += 1021) {
        float x = ha_f32_of_bits((uint32_t)u);
        half y = (half)x;
        uint16_t want, got = ha_f16_from_f32(x);
        memcpy(&want, &y, sizeof want);
        assert_true(isnan(x) ? (got & 0x7fff) > 0x7c00 : got == want);
    }
}
#else
TEST(agrees_with_the_compiler) { skip(); }
#endif

/* Each element of a row, at every length, alignment and type, and nothing beside it. */
TEST(rows_are_their_elements)
{
    static const enum ha_dtype types[] = { HA_F32, HA_F16, HA_BF16 };
    float in[41];
    for (size_t i = 0; i < 41; i++) in[i] = (float)i * 0.37f - 5 + (i % 7 == 0 ? 1e-6f : 0) + (i == 13 ? 1e6f : 0);
    for (size_t t = 0; t < 3; t++)
        for (size_t n = 0; n <= 40; n++)
            for (size_t offset = 0; offset < 2; offset++) {
                size_t size = ha_dtype_bytes(types[t]);
                char data[4 * 41 + 2];
                memset(data, 0x5a, sizeof data);
                ha_store_row(data + offset, n, types[t], in);
                assert_int_equal(data[offset + n * size], 0x5a);
                float out[42];
                for (size_t i = 0; i < 42; i++) out[i] = 77;
                ha_load_row(data + offset, n, types[t], out);
                for (size_t i = 0; i < n; i++) {
                    assert_true(out[i] == ha_round(in[i], types[t]));
                    assert_true(out[i] == ha_load(data + offset, i, types[t]));
                }
                assert_true(out[n] == 77);
            }
    uint16_t one[3] = { 1, 2, 3 };
    ha_store(one, 1, HA_BF16, -1.0f);
    assert_int_equal(one[1], 0xbf80);
    assert_int_equal(one[0] + one[2], 4);
    assert_true(ha_round(0.1f, HA_F32) == 0.1f);
}

/* Of rows, too, every half and what rounds to each or between two of them, NaN with its bits: as on this CPU, and as on
 * one that has nothing to convert eight at once. */
static void same_as_elements(const struct format *f)
{
    enum { ROW = 256 };
    for (uint32_t from = 0; from < HALVES; from += ROW) {
        uint16_t h[ROW], back[ROW];
        float x[ROW];
        for (uint32_t i = 0; i < ROW; i++) h[i] = (uint16_t)(from + i);
        ha_load_row(h, ROW, f->dtype, x);
        for (uint32_t i = 0; i < ROW; i++) assert_int_equal(ha_f32_bits(x[i]), ha_f32_bits(f->to(h[i])));
        static const uint32_t beside[] = { 0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff };
        for (size_t k = 0; k < COUNT(beside); k++) {
            float y[ROW];
            for (uint32_t i = 0; i < ROW; i++) y[i] = ha_f32_of_bits(ha_f32_bits(x[i]) + beside[k]);
            ha_store_row(back, ROW, f->dtype, y);
            for (uint32_t i = 0; i < ROW; i++) assert_int_equal(back[i], f->from(y[i]));
        }
    }
}
TEST(rows_of_every_half)
{
    for (const struct format *f = formats; f < formats + COUNT(formats); f++) {
        same_as_elements(f);
        ha_cpu_mask(HA_CPU_AVX2);
        same_as_elements(f);
        ha_cpu_mask(0);
    }
}

/* The error bounds rest on these two numbers. */
TEST(units_bound_the_rounding)
{
    assert_true(ha_dtype_unit(HA_F32) == 0 && ha_dtype_eta(HA_F32) == 0);
    for (const struct format *f = formats; f < formats + COUNT(formats); f++) {
        double unit = ha_dtype_unit(f->dtype), eta = ha_dtype_eta(f->dtype), worst = 0;
        for (uint32_t u = 0x3f800000; u < 0x40000000; u += 0x101) {
            double x = (double)ha_f32_of_bits(u);
            worst = fmax(worst, fabs((double)ha_round((float)x, f->dtype) - x) / x);
        }
        assert_true(worst <= unit && worst > 0.98 * unit);
        assert_true(value_of(1, f->exponent_bits) == 2 * eta);
    }
}
