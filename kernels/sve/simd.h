#ifndef HA_KERNELS_SVE_SIMD_H
#define HA_KERNELS_SVE_SIMD_H

/* Vectors (kernels/vectors/simd.h): a register of HA_SVE_BITS, of which there are 32. */

#include "harness/api/base.h"

#include <arm_neon.h>
#include <arm_sve.h>
#include <string.h>

typedef svfloat32_t vec __attribute__((arm_sve_vector_bits(HA_SVE_BITS)));
typedef svuint32_t v_bits __attribute__((arm_sve_vector_bits(HA_SVE_BITS)));

enum { LANES = HA_SVE_BITS / 32, KEYS = 4, COLS = 32 / LANES };

#define V_ALL svptrue_b32()

static inline svbool_t v_first(size_t n) { return svwhilelt_b32_u64(0, n); }

static inline vec v_set(float x) { return svdup_n_f32(x); }
static inline vec v_load(const float *p) { return svld1_f32(V_ALL, p); }
static inline void v_store(float *p, vec x) { svst1_f32(V_ALL, p, x); }
static inline vec v_load_part(const float *p, size_t n, float rest)
{
    return svsel_f32(v_first(n), svld1_f32(v_first(n), p), v_set(rest));
}
static inline void v_store_part(float *p, vec x, size_t n) { svst1_f32(v_first(n), p, x); }

static inline vec v_add(vec a, vec b) { return svadd_f32_x(V_ALL, a, b); }
static inline vec v_sub(vec a, vec b) { return svsub_f32_x(V_ALL, a, b); }
static inline vec v_mul(vec a, vec b) { return svmul_f32_x(V_ALL, a, b); }
static inline vec v_fma(vec a, vec b, vec c) { return svmla_f32_x(V_ALL, c, a, b); }
static inline vec v_fnma(vec a, vec b, vec c) { return svmls_f32_x(V_ALL, c, a, b); }
static inline vec v_max(vec a, vec b) { return svsel_f32(svcmpgt_f32(V_ALL, a, b), a, b); }
static inline vec v_min(vec a, vec b) { return svsel_f32(svcmplt_f32(V_ALL, a, b), a, b); }
static inline unsigned v_ge(vec a, vec b)
{
    return (unsigned)svaddv_u32(svcmpge_f32(V_ALL, a, b), svlsl_u32_x(V_ALL, svdup_n_u32(1), svindex_u32(0, 1)));
}
static inline vec v_pick(vec a, vec b, vec s)
{
    return svsel_f32(svcmplt_n_s32(V_ALL, svreinterpret_s32_f32(s), 0), b, a);
}
static inline unsigned v_has_nan(vec a) { return svptest_any(V_ALL, svcmpuo_f32(V_ALL, a, a)); }
static inline vec v_from(vec a, vec b) { return svsel_f32(svcmpge_f32(V_ALL, a, b), a, v_set(0)); }
static inline vec v_floor(vec x) { return svrintm_f32_x(V_ALL, x); }
static inline float v_max_lane(vec a) { return svmaxv_f32(V_ALL, a); }
static inline float v_sum_lanes(vec a) { return svaddv_f32(V_ALL, a); }

typedef svfloat64_t v_wide __attribute__((arm_sve_vector_bits(HA_SVE_BITS)));
typedef struct {
    v_wide even, odd;
} totals;
static inline totals v_no_totals(void) { return (totals){ svdup_n_f64(0), svdup_n_f64(0) }; }
static inline totals v_more(totals s, vec x)
{
    s.even = svadd_f64_x(svptrue_b64(), s.even, svcvt_f64_f32_x(svptrue_b64(), x));
    s.odd = svadd_f64_x(svptrue_b64(), s.odd, svcvt_f64_f32_x(svptrue_b64(), svtrn2_f32(x, x)));
    return s;
}
static inline double v_total(totals s) { return svaddv_f64(svptrue_b64(), svadd_f64_x(svptrue_b64(), s.even, s.odd)); }

static inline void v_put_indices(uint32_t *p, uint32_t first, unsigned bits)
{
    const v_bits bit = svlsl_u32_x(V_ALL, svdup_n_u32(1), svindex_u32(0, 1));
    svst1_u32(V_ALL, p, svcompact_u32(svcmpne_n_u32(V_ALL, svand_n_u32_x(V_ALL, bit, bits), 0), svindex_u32(first, 1)));
}

static inline vec v_repeat(const float *p) { return svld1rq_f32(V_ALL, p); }
static inline vec v_spread(const float *p)
{
    return svtbl_f32(svld1_f32(v_first(LANES / 4), p), svlsr_n_u32_x(V_ALL, svindex_u32(0, 1), 2));
}

static inline void v_put_of(void *p, const void *from, unsigned bits)
{
    const v_bits bit = svlsl_u32_x(V_ALL, svdup_n_u32(1), svindex_u32(0, 1));
    const v_bits x = svreinterpret_u32_u8(svld1_u8(svptrue_b8(), from));
    const svbool_t in = svcmpne_n_u32(V_ALL, svand_n_u32_x(V_ALL, bit, bits), 0);
    svst1_u8(svptrue_b8(), p, svreinterpret_u8_u32(svcompact_u32(in, x)));
}

static inline vec v_hold(vec x)
{
    __asm__("" : "+w"(x));
    return x;
}

static inline vec v_widen_of(svbool_t lanes, const char *p, enum ha_dtype t)
{
    if (t == HA_F32) return svld1_f32(lanes, (const float *)(const void *)p);
    const v_bits h = svld1uh_u32(lanes, (const uint16_t *)(const void *)p);
    if (t == HA_F16) return svcvt_f32_f16_x(V_ALL, svreinterpret_f16_u32(h));
    return svreinterpret_f32_u32(svlsl_n_u32_x(V_ALL, h, 16));
}
static inline vec v_widen(const char *p, enum ha_dtype t) { return v_widen_of(V_ALL, p, t); }
static inline vec v_widen_part(const char *p, size_t n, enum ha_dtype t) { return v_widen_of(v_first(n), p, t); }

/* in the low halves */
static inline v_bits v_half(vec x, enum ha_dtype t)
{
    if (t == HA_F16) return svreinterpret_u32_f16(svcvt_f16_f32_x(V_ALL, x));
    const v_bits u = svreinterpret_u32_f32(x), odd = svand_n_u32_x(V_ALL, svlsr_n_u32_x(V_ALL, u, 16), 1);
    const v_bits rounded = svadd_u32_x(V_ALL, u, svadd_n_u32_x(V_ALL, odd, 0x7fff)),
                 quiet = svorr_n_u32_x(V_ALL, u, 0x400000);
    return svlsr_n_u32_x(V_ALL, svsel_u32(svcmpuo_f32(V_ALL, x, x), quiet, rounded), 16);
}
static inline void v_narrow_of(svbool_t lanes, char *p, vec x, enum ha_dtype t)
{
    if (t == HA_F32) svst1_f32(lanes, (float *)(void *)p, x);
    else svst1h_u32(lanes, (uint16_t *)(void *)p, v_half(x, t));
}
static inline void v_narrow(char *p, vec x, enum ha_dtype t) { v_narrow_of(V_ALL, p, x, t); }
static inline void v_narrow_part(char *p, vec x, size_t n, enum ha_dtype t) { v_narrow_of(v_first(n), p, x, t); }

enum { VECTORS = 32 };
static inline unsigned v_above(vec a, vec b) { return svptest_any(V_ALL, svnot_b_z(V_ALL, svcmple_f32(V_ALL, a, b))); }
static inline v_bits v_words(const char *p) { return svld1_u32(V_ALL, (const uint32_t *)(const void *)p); }
static inline vec v_first_bf16(const char *p) { return svreinterpret_f32_u32(svlsl_n_u32_x(V_ALL, v_words(p), 16)); }
static inline vec v_second_bf16(const char *p)
{
    return svreinterpret_f32_u32(svand_n_u32_x(V_ALL, v_words(p), 0xffff0000));
}

static inline vec v_round(vec x) { return svrintn_f32_x(V_ALL, x); }

static inline vec v_scale(vec p, vec n) { return svscale_f32_x(V_ALL, p, svcvt_s32_f32_x(V_ALL, n)); }

typedef v_bits code, counts; /* of words */
static inline code v_code(const uint32_t *p) { return svld1_u32(V_ALL, p); }
static inline code v_code_of(uint32_t word) { return svdup_n_u32(word); }
static inline counts v_no_counts(void) { return svdup_n_u32(0); }
static inline counts v_differ(counts sum, code a, code b)
{
    return svadd_u32_x(V_ALL, sum, svcnt_u32_x(V_ALL, sveor_u32_x(V_ALL, a, b)));
}
static inline vec v_counted(counts c) { return svcvt_f32_u32_x(V_ALL, c); }

#include "kernels/exp.inc"

static inline void tile_store(const vec *a, int rows, size_t keys, float scale, float *s, size_t stride)
{
    for (size_t r = 0; r < (size_t)rows; r++)
        for (size_t k = 0; k < keys; k++) s[r * stride + k] = scale * v_sum_lanes(a[r * KEYS + k]);
}

#endif
