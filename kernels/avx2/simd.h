#ifndef HA_KERNELS_AVX2_SIMD_H
#define HA_KERNELS_AVX2_SIMD_H

/* Vectors (kernels/vectors/simd.h) of 8 floats. */

#include "harness/api/base.h"

#include <immintrin.h>
#include <string.h>

typedef __m256 vec;

enum { LANES = 8, KEYS = 2, COLS = 2 };

static inline __m256i v_first(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vec v_set(float x) { return _mm256_set1_ps(x); }
static inline vec v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void v_store(float *p, vec x) { _mm256_storeu_ps(p, x); }
static inline vec v_load_part(const float *p, size_t n, float rest)
{
    const __m256i m = v_first(n);
    return _mm256_blendv_ps(v_set(rest), _mm256_maskload_ps(p, m), _mm256_castsi256_ps(m));
}
static inline void v_store_part(float *p, vec x, size_t n) { _mm256_maskstore_ps(p, v_first(n), x); }

static inline vec v_add(vec a, vec b) { return _mm256_add_ps(a, b); }
static inline vec v_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
static inline vec v_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
static inline vec v_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
static inline vec v_fnma(vec a, vec b, vec c) { return _mm256_fnmadd_ps(a, b, c); }
static inline vec v_max(vec a, vec b) { return _mm256_max_ps(a, b); }
static inline vec v_min(vec a, vec b) { return _mm256_min_ps(a, b); }
static inline unsigned v_ge(vec a, vec b) { return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)); }
static inline unsigned v_has_nan(vec a) { return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)); }
static inline vec v_from(vec a, vec b) { return _mm256_and_ps(a, _mm256_cmp_ps(a, b, _CMP_GE_OQ)); }
static inline vec v_floor(vec x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
static inline float v_max_lane(vec a)
{
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
static inline float v_sum_lanes(vec a)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

typedef struct {
    __m256d low, high;
} totals;
static inline totals v_no_totals(void) { return (totals){ _mm256_setzero_pd(), _mm256_setzero_pd() }; }
static inline totals v_more(totals s, vec x)
{
    s.low = _mm256_add_pd(s.low, _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
    s.high = _mm256_add_pd(s.high, _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
    return s;
}
static inline double v_total(totals s)
{
    const __m256d four = _mm256_add_pd(s.low, s.high);
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

static inline vec v_repeat(const float *p) { return _mm256_broadcast_ps((const __m128 *)(const void *)p); }
static inline vec v_spread(const float *p)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_broadcast_ss(p)), _mm_broadcast_ss(p + 1), 1);
}

/* the bits set in 8, a byte each */
#define V_BEFORE(m, i) __builtin_popcount((m) & ((1u << (i)) - 1))
#define V_AT(m, i)     ((m)&1u << (i) ? (uint64_t)(i) << 8 * V_BEFORE(m, i) : 0)
#define V_FOUR(m, i)   (V_AT(m, i) | V_AT(m, i + 1) | V_AT(m, i + 2) | V_AT(m, i + 3))
#define V_SET(m)       (V_FOUR(m, 0) | V_FOUR(m, 4))
#define V_4_SETS(m)    V_SET(m), V_SET(m + 1u), V_SET(m + 2u), V_SET(m + 3u)
#define V_16_SETS(m)   V_4_SETS(m), V_4_SETS(m + 4u), V_4_SETS(m + 8u), V_4_SETS(m + 12u)
#define V_64_SETS(m)   V_16_SETS(m), V_16_SETS(m + 16u), V_16_SETS(m + 32u), V_16_SETS(m + 48u)
static const uint64_t v_set_of_eight[256] = { V_64_SETS(0u), V_64_SETS(64u), V_64_SETS(128u), V_64_SETS(192u) };

static inline __m256i v_set_of(unsigned bits)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i_u *)(const void *)&v_set_of_eight[bits]));
}
static inline void v_put_indices(uint32_t *p, uint32_t first, unsigned bits)
{
    _mm256_storeu_si256((__m256i_u *)(void *)p, _mm256_add_epi32(v_set_of(bits), _mm256_set1_epi32((int)first)));
}
static inline void v_put_of(void *p, const void *from, unsigned bits)
{
    const __m256i x = _mm256_loadu_si256((const __m256i_u *)from);
    _mm256_storeu_si256((__m256i_u *)p, _mm256_permutevar8x32_epi32(x, v_set_of(bits)));
}

static inline vec v_pick(vec a, vec b, vec s) { return _mm256_blendv_ps(a, b, s); }

static inline vec v_hold(vec x)
{
    __asm__("" : "+v"(x));
    return x;
}

static inline vec v_widen(const char *p, enum ha_dtype t)
{
    if (t == HA_F32) return _mm256_loadu_ps((const float *)(const void *)p);
    const __m128i h = _mm_loadu_si128((const __m128i_u *)(const void *)p);
    if (t == HA_F16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
static inline __m128i v_half(vec x, enum ha_dtype t)
{
    if (t == HA_F16) return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i u = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))),
                                              16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
    const __m256i h = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
    return _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}
static inline void v_narrow(char *p, vec x, enum ha_dtype t)
{
    if (t == HA_F32) _mm256_storeu_ps((float *)(void *)p, x);
    else _mm_storeu_si128((__m128i_u *)(void *)p, v_half(x, t));
}

#if defined(__AVX512VL__)
enum { VECTORS = 32 };
#else
enum { VECTORS = 16 };
#endif
static inline unsigned v_above(vec a, vec b) { return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_NLE_UQ)); }
static inline vec v_first_bf16(const char *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const __m256i_u *)(const void *)p), 16));
}
static inline vec v_second_bf16(const char *p)
{
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_loadu_si256((const __m256i_u *)(const void *)p), _mm256_set1_epi32((int)0xffff0000)));
}

/* 2^n for integral n in [-126, 127] */
static inline vec v_pow2(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

static inline vec v_round(vec x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

/* p 2^n, without AVX-512 in two products of which only the last rounds; n may have all of v_exp_parts */
static inline vec v_scale(vec p, vec n)
{
#if defined(__AVX512VL__)
    return _mm256_scalef_ps(p, n);
#else
    const __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1);
    return v_mul(v_mul(p, v_pow2(half)), v_pow2(_mm256_sub_epi32(i, half)));
#endif
}

static inline void v_sum4(float *out, vec a, vec b, vec c, vec d, float scale)
{
    const vec x = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    const __m128 sum = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    _mm_storeu_ps(out, _mm_mul_ps(_mm_set1_ps(scale), sum));
}

/* of words of codes the two halves of their bytes, whose bits are looked up */
typedef struct {
    __m256i low, high;
} code;
typedef __m256i counts; /* for each byte */
static inline code v_halves(__m256i x)
{
    const __m256i low = _mm256_set1_epi8(15);
    return (code){ _mm256_and_si256(x, low), _mm256_and_si256(_mm256_srli_epi32(x, 4), low) };
}
static inline code v_code(const uint32_t *p)
{
    return v_halves(_mm256_loadu_si256((const __m256i_u *)(const void *)p));
}
static inline code v_code_of(uint32_t word) { return v_halves(_mm256_set1_epi32((int)word)); }
static inline counts v_no_counts(void) { return _mm256_setzero_si256(); }
static inline counts v_differ(counts sum, code a, code b)
{
    const __m256i bits = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    sum = _mm256_add_epi8(sum, _mm256_shuffle_epi8(bits, _mm256_xor_si256(a.low, b.low)));
    return _mm256_add_epi8(sum, _mm256_shuffle_epi8(bits, _mm256_xor_si256(a.high, b.high)));
}
static inline vec v_counted(counts c)
{
    const __m256i pairs = _mm256_maddubs_epi16(c, _mm256_set1_epi8(1));
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#include "kernels/exp.inc"
#include "kernels/eight.inc"

#endif
