#include "harness/base/numeric.h"

#include "harness/api/kernels.h"
#include "harness/base/cpu.h"

#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* memcpy, because a row of a mapped file may lie at any address */
static inline uint16_t half_at(const void *data, size_t i)
{
    uint16_t h;
    memcpy(&h, (const char *)data + 2 * i, sizeof h);
    return h;
}

static inline void half_put(void *data, size_t i, uint16_t h) { memcpy((char *)data + 2 * i, &h, sizeof h); }

float ha_load(const void *data, size_t i, enum ha_dtype dtype)
{
    float x;
    if (dtype != HA_F32)
        return dtype == HA_F16 ? ha_f32_from_f16(half_at(data, i)) : ha_f32_from_bf16(half_at(data, i));
    memcpy(&x, (const char *)data + i * sizeof x, sizeof x);
    return x;
}

void ha_store(void *data, size_t i, enum ha_dtype dtype, float x)
{
    ha_store_row((char *)data + i * ha_dtype_bytes(dtype), 1, dtype, &x);
}

/* The first of the elements of a row, eight at once: how many. The rest of it, or all, is done one by one. */
#if defined(__x86_64__)
enum { AT_ONCE = 8 };

__attribute__((target("avx2,f16c"))) static size_t load_eights(const char *data, size_t n, enum ha_dtype dtype,
                                                               float *restrict out)
{
    size_t i = 0;
    for (; n - i >= AT_ONCE; i += AT_ONCE) {
        const __m128i h = _mm_loadu_si128((const __m128i_u *)(const void *)(data + 2 * i));
        const __m256i b = _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);
        _mm256_storeu_ps(out + i, dtype == HA_F16 ? _mm256_cvtph_ps(h) : _mm256_castsi256_ps(b));
    }
    return i;
}

/* ha_bf16_from_f32 of each */
__attribute__((target("avx2,f16c"))) static inline __m128i bf16_of_eight(__m256 x)
{
    const __m256i u = _mm256_castps_si256(x), top = _mm256_srli_epi32(u, 16);
    const __m256i half = _mm256_add_epi32(_mm256_set1_epi32(0x7fff), _mm256_and_si256(top, _mm256_set1_epi32(1)));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, half), 16);
    const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x0040));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i h = _mm256_blendv_epi8(rounded, quiet, is_nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}

__attribute__((target("avx2,f16c"))) static size_t store_eights(char *restrict data, size_t n, enum ha_dtype dtype,
                                                                const float *restrict in)
{
    size_t i = 0;
    for (; n - i >= AT_ONCE; i += AT_ONCE) {
        const __m256 x = _mm256_loadu_ps(in + i);
        const __m128i h = dtype == HA_F16 ? _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT) : bf16_of_eight(x);
        _mm_storeu_si128((__m128i_u *)(void *)(data + 2 * i), h);
    }
    return i;
}

static bool has_eights(void) { return ha_cpu_bits() & HA_CPU_AVX2; }
#else
static size_t load_eights(const char *data, size_t n, enum ha_dtype dtype, float *restrict out) { return 0; }
static size_t store_eights(char *restrict data, size_t n, enum ha_dtype dtype, const float *restrict in) { return 0; }
static bool has_eights(void) { return false; }
#endif

void ha_load_row(const void *data, size_t n, enum ha_dtype dtype, float *restrict out)
{
    size_t i = dtype != HA_F32 && has_eights() ? load_eights(data, n, dtype, out) : 0;
    switch (dtype) {
    case HA_F32: memcpy(out, data, n * sizeof *out); break;
    case HA_F16:
        for (; i < n; i++) out[i] = ha_f32_from_f16(half_at(data, i));
        break;
    case HA_BF16:
        for (; i < n; i++) out[i] = ha_f32_from_bf16(half_at(data, i));
        break;
    }
}

void ha_store_row(void *restrict data, size_t n, enum ha_dtype dtype, const float *restrict in)
{
    size_t i = dtype != HA_F32 && has_eights() ? store_eights(data, n, dtype, in) : 0;
    switch (dtype) {
    case HA_F32: memcpy(data, in, n * sizeof *in); break;
    case HA_F16:
        for (; i < n; i++) half_put(data, i, ha_f16_from_f32(in[i]));
        break;
    case HA_BF16:
        for (; i < n; i++) half_put(data, i, ha_bf16_from_f32(in[i]));
        break;
    }
}

float ha_round(float x, enum ha_dtype dtype)
{
    return dtype == HA_F32   ? x
           : dtype == HA_F16 ? ha_f32_from_f16(ha_f16_from_f32(x))
                             : ha_f32_from_bf16(ha_bf16_from_f32(x));
}

double ha_dtype_unit(enum ha_dtype dtype) { return dtype == HA_F32 ? 0 : dtype == HA_F16 ? 0x1p-11 : 0x1p-8; }

double ha_dtype_eta(enum ha_dtype dtype) { return dtype == HA_F32 ? 0 : dtype == HA_F16 ? 0x1p-25 : 0x1p-134; }

/* ---- 8 bits ------------------------------------------------------------------------------ */

static const struct {
    int mantissa, least; /* bits of the mantissa; the exponent of the smallest normal number */
    float most;
} fp8[HA_FP8_COUNT] = { [HA_FP8_E4M3] = { 3, -6, 448 }, [HA_FP8_E5M2] = { 2, -14, 57344 } };
enum { FP8_SIGN = 0x80, FP8_NAN = 0x7f };

uint8_t ha_fp8_from_f32(float x, enum ha_fp8 t)
{
    const uint8_t sign = signbit(x) ? FP8_SIGN : 0;
    const float a = fminf(fabsf(x), fp8[t].most);
    if (isnan(x)) return sign | FP8_NAN;
    const int own = a > 0 ? ilogbf(a) : fp8[t].least, exponent = own > fp8[t].least ? own : fp8[t].least;
    /* a number that is rounded up to a power of two carries into the exponent */
    const int steps = (int)rintf(ldexpf(a, fp8[t].mantissa - exponent));
    return (uint8_t)(sign | (((exponent - fp8[t].least) << fp8[t].mantissa) + steps));
}

float ha_f32_from_fp8(uint8_t code, enum ha_fp8 t)
{
    const int magnitude = code & ~FP8_SIGN, above = magnitude >> fp8[t].mantissa;
    const int steps = magnitude - (above ? (above - 1) << fp8[t].mantissa : 0);
    float a = ldexpf((float)steps, (above ? above - 1 : 0) + fp8[t].least - fp8[t].mantissa);
    if (a > fp8[t].most) a = t == HA_FP8_E5M2 && magnitude == 0x7c ? INFINITY : NAN;
    return code & FP8_SIGN ? -a : a;
}

void ha_fp8_store_row(void *data, size_t n, enum ha_fp8 t, float scale, const float *in)
{
    for (size_t i = 0; i < n; i++) ((uint8_t *)data)[i] = ha_fp8_from_f32(in[i] / scale, t);
}

void ha_fp8_load_row(const void *data, size_t n, enum ha_fp8 t, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = ha_f32_from_fp8(((const uint8_t *)data)[i], t);
}

double ha_fp8_nearest(double x, float code, enum ha_fp8 t)
{
    const float a = fabsf(code);
    if (!isfinite(code)) return (double)code;
    const uint8_t at = ha_fp8_from_f32(a, t);
    const double below = at ? ((double)ha_f32_from_fp8(at - 1, t) + (double)a) / 2 : -(double)ha_f32_from_fp8(1, t) / 2;
    const double above = a == fp8[t].most ? HUGE_VAL : ((double)a + (double)ha_f32_from_fp8(at + 1, t)) / 2;
    const double towards = signbit(code) ? -x : x, nearest = towards < below   ? below
                                                             : towards > above ? above
                                                                               : towards;
    return signbit(code) ? -nearest : nearest;
}

double ha_dtype_beyond(enum ha_dtype dtype)
{
    return dtype == HA_F32 ? 0x1.fffffep127 : dtype == HA_F16 ? 65520 : 0x1.ffp127;
}

void ha_over_root_mean_square(float *x, size_t n, double eps)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    const double mean = sum / (double)n + eps, factor = mean > 0 ? 1 / sqrt(mean) : 0;
    for (size_t i = 0; i < n; i++) x[i] = (float)((double)x[i] * factor);
}
