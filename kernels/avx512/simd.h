#ifndef HA_KERNELS_AVX512_SIMD_H
#define HA_KERNELS_AVX512_SIMD_H

/* Vectors (kernels/vectors/simd.h) of 16 floats, and 32 registers of them. */

#include "harness/api/base.h"

#include <immintrin.h>
#include <string.h>

typedef __m512 vec;

/* One cache line of V at a time is faster than several. */
enum { LANES = 16, KEYS = 4, COLS = 1 };

static inline __mmask16 v_first(size_t n) { return (__mmask16)((1u << n) - 1u); }

static inline vec v_set(float x) { return _mm512_set1_ps(x); }
static inline vec v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v_store(float *p, vec x) { _mm512_storeu_ps(p, x); }
static inline vec v_load_part(const float *p, size_t n, float rest)
{
    return _mm512_mask_loadu_ps(v_set(rest), v_first(n), p);
}
static inline void v_store_part(float *p, vec x, size_t n) { _mm512_mask_storeu_ps(p, v_first(n), x); }

static inline vec v_add(vec a, vec b) { return _mm512_add_ps(a, b); }
static inline vec v_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
static inline vec v_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
static inline vec v_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
static inline vec v_fnma(vec a, vec b, vec c) { return _mm512_fnmadd_ps(a, b, c); }
static inline vec v_max(vec a, vec b) { return _mm512_max_ps(a, b); }
static inline vec v_min(vec a, vec b) { return _mm512_min_ps(a, b); }
static inline unsigned v_ge(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
static inline unsigned v_has_nan(vec a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
static inline vec v_from(vec a, vec b) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ), a); }
static inline vec v_floor(vec x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
static inline float v_max_lane(vec a) { return _mm512_reduce_max_ps(a); }
static inline float v_sum_lanes(vec a) { return _mm512_reduce_add_ps(a); }

typedef struct {
    __m512d low, high;
} totals;
static inline totals v_no_totals(void) { return (totals){ _mm512_setzero_pd(), _mm512_setzero_pd() }; }
static inline totals v_more(totals s, vec x)
{
    s.low = _mm512_add_pd(s.low, _mm512_cvtps_pd(_mm512_castps512_ps256(x)));
    s.high = _mm512_add_pd(s.high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)));
    return s;
}
static inline double v_total(totals s) { return _mm512_reduce_add_pd(_mm512_add_pd(s.low, s.high)); }

/* Not compressed in memory: that is slow on many CPUs. */
static inline void v_put_indices(uint32_t *p, uint32_t first, unsigned bits)
{
    const __m512i i = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i all = _mm512_add_epi32(i, _mm512_set1_epi32((int)first));
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi32((__mmask16)bits, all));
}

static inline vec v_repeat(const float *p) { return _mm512_broadcast_f32x4(_mm_loadu_ps(p)); }
static inline vec v_spread(const float *p)
{
    const __m512i one_of_four = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return _mm512_permutevar_ps(v_repeat(p), one_of_four);
}

static inline void v_put_of(void *p, const void *from, unsigned bits)
{
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi32((__mmask16)bits, _mm512_loadu_si512(from)));
}

static inline vec v_hold(vec x)
{
    __asm__("" : "+v"(x));
    return x;
}

static inline vec v_widen(const char *p, enum ha_dtype t)
{
    if (t == HA_F32) return _mm512_loadu_ps(p);
    const __m256i h = _mm256_loadu_si256((const __m256i_u *)(const void *)p);
    if (t == HA_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
static inline vec v_widen_part(const char *p, size_t n, enum ha_dtype t)
{
    if (t == HA_F32) return _mm512_maskz_loadu_ps(v_first(n), p);
    const __m256i h = _mm256_maskz_loadu_epi16(v_first(n), p);
    if (t == HA_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

static inline __m256i v_half(vec x, enum ha_dtype t)
{
    if (t == HA_F16) return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512i u = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))),
                                              16);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet));
}
static inline void v_narrow(char *p, vec x, enum ha_dtype t)
{
    if (t == HA_F32) _mm512_storeu_ps(p, x);
    else _mm256_storeu_si256((__m256i_u *)(void *)p, v_half(x, t));
}
static inline void v_narrow_part(char *p, vec x, size_t n, enum ha_dtype t)
{
    if (t == HA_F32) _mm512_mask_storeu_ps(p, v_first(n), x);
    else _mm256_mask_storeu_epi16(p, v_first(n), v_half(x, t));
}

enum { VECTORS = 32 };
static inline unsigned v_above(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ); }
static inline vec v_first_bf16(const char *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
static inline vec v_second_bf16(const char *p)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int)0xffff0000)));
}

static inline vec v_round(vec x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

static inline vec v_scale(vec p, vec n) { return _mm512_scalef_ps(p, n); }

#if defined(__AVX512VPOPCNTDQ__)
typedef __m512i code, counts; /* of words */
static inline code v_code(const uint32_t *p) { return _mm512_loadu_si512(p); }
static inline code v_code_of(uint32_t word) { return _mm512_set1_epi32((int)word); }
static inline counts v_no_counts(void) { return _mm512_setzero_si512(); }
static inline counts v_differ(counts sum, code a, code b)
{
    return _mm512_add_epi32(sum, _mm512_popcnt_epi32(_mm512_xor_si512(a, b)));
}
static inline vec v_counted(counts c) { return _mm512_cvtepi32_ps(c); }
#else
/* of words of codes the two halves of their bytes, whose bits are looked up */
typedef struct {
    __m512i low, high;
} code;
typedef __m512i counts; /* for each byte */
static inline code v_halves(__m512i x)
{
    const __m512i low = _mm512_set1_epi8(15);
    return (code){ _mm512_and_si512(x, low), _mm512_and_si512(_mm512_srli_epi32(x, 4), low) };
}
static inline code v_code(const uint32_t *p) { return v_halves(_mm512_loadu_si512(p)); }
static inline code v_code_of(uint32_t word) { return v_halves(_mm512_set1_epi32((int)word)); }
static inline counts v_no_counts(void) { return _mm512_setzero_si512(); }
static inline counts v_differ(counts sum, code a, code b)
{
    const __m512i bits = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    sum = _mm512_add_epi8(sum, _mm512_shuffle_epi8(bits, _mm512_xor_si512(a.low, b.low)));
    return _mm512_add_epi8(sum, _mm512_shuffle_epi8(bits, _mm512_xor_si512(a.high, b.high)));
}
static inline vec v_counted(counts c)
{
    const __m512i pairs = _mm512_maddubs_epi16(c, _mm512_set1_epi8(1));
    return _mm512_cvtepi32_ps(_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
#endif

#include "kernels/exp.inc"

static inline void tile_store(const vec *a, int rows, size_t keys, float scale, float *s, size_t stride)
{
    for (int r = 0; r < rows; r++) {
        const vec *x = a + r * KEYS;
        const vec u = v_add(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
        const vec v = v_add(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
        const __m512d ud = _mm512_castps_pd(u), vd = _mm512_castps_pd(v);
        const vec four = v_add(_mm512_castpd_ps(_mm512_unpacklo_pd(ud, vd)),
                               _mm512_castpd_ps(_mm512_unpackhi_pd(ud, vd)));
        const __m256 two = _mm256_add_ps(_mm512_castps512_ps256(four), _mm512_extractf32x8_ps(four, 1));
        const __m128 one = _mm_add_ps(_mm256_castps256_ps128(two), _mm256_extractf128_ps(two, 1));
        _mm_mask_storeu_ps(s + (size_t)r * stride, (__mmask8)((1u << keys) - 1u), _mm_mul_ps(one, _mm_set1_ps(scale)));
    }
}

#endif
