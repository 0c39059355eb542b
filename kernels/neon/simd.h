#ifndef HA_KERNELS_NEON_SIMD_H
#define HA_KERNELS_NEON_SIMD_H

/* Vectors (kernels/vectors/simd.h) of 8 floats in two of the 32 registers, so that a register full of 16-bit numbers
 * makes one vector. */

#include "harness/api/base.h"

#include <arm_neon.h>
#include <string.h>

typedef float32x4x2_t vec;

enum { LANES = 8, KEYS = 2, COLS = 2 };

static inline vec v_pair(float32x4_t low, float32x4_t high) { return (vec){ { low, high } }; }

static inline vec v_set(float x) { return v_pair(vdupq_n_f32(x), vdupq_n_f32(x)); }
static inline vec v_load(const float *p) { return v_pair(vld1q_f32(p), vld1q_f32(p + 4)); }
static inline void v_store(float *p, vec x)
{
    vst1q_f32(p, x.val[0]);
    vst1q_f32(p + 4, x.val[1]);
}
static inline vec v_load_part(const float *p, size_t n, float rest)
{
    float whole[LANES];
    v_store(whole, v_set(rest));
    memcpy(whole, p, n * sizeof *p);
    return v_load(whole);
}
static inline void v_store_part(float *p, vec x, size_t n)
{
    float whole[LANES];
    v_store(whole, x);
    memcpy(p, whole, n * sizeof *p);
}

static inline vec v_add(vec a, vec b) { return v_pair(vaddq_f32(a.val[0], b.val[0]), vaddq_f32(a.val[1], b.val[1])); }
static inline vec v_sub(vec a, vec b) { return v_pair(vsubq_f32(a.val[0], b.val[0]), vsubq_f32(a.val[1], b.val[1])); }
static inline vec v_mul(vec a, vec b) { return v_pair(vmulq_f32(a.val[0], b.val[0]), vmulq_f32(a.val[1], b.val[1])); }
static inline vec v_fma(vec a, vec b, vec c)
{
    return v_pair(vfmaq_f32(c.val[0], a.val[0], b.val[0]), vfmaq_f32(c.val[1], a.val[1], b.val[1]));
}
static inline vec v_fnma(vec a, vec b, vec c)
{
    return v_pair(vfmsq_f32(c.val[0], a.val[0], b.val[0]), vfmsq_f32(c.val[1], a.val[1], b.val[1]));
}
static inline float32x4_t v_max4(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static inline vec v_max(vec a, vec b) { return v_pair(v_max4(a.val[0], b.val[0]), v_max4(a.val[1], b.val[1])); }
static inline float32x4_t v_min4(float32x4_t a, float32x4_t b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
static inline vec v_min(vec a, vec b) { return v_pair(v_min4(a.val[0], b.val[0]), v_min4(a.val[1], b.val[1])); }
static inline unsigned v_ge(vec a, vec b)
{
    static const uint32_t bit[LANES] = { 1, 2, 4, 8, 16, 32, 64, 128 };
    const uint32x4_t low = vandq_u32(vcgeq_f32(a.val[0], b.val[0]), vld1q_u32(bit));
    return vaddvq_u32(vorrq_u32(low, vandq_u32(vcgeq_f32(a.val[1], b.val[1]), vld1q_u32(bit + 4))));
}
static inline float32x4_t v_pick4(float32x4_t a, float32x4_t b, float32x4_t s)
{
    return vbslq_f32(vcltzq_s32(vreinterpretq_s32_f32(s)), b, a);
}
static inline vec v_pick(vec a, vec b, vec s)
{
    return v_pair(v_pick4(a.val[0], b.val[0], s.val[0]), v_pick4(a.val[1], b.val[1], s.val[1]));
}
static inline unsigned v_has_nan(vec a)
{
    return vminvq_u32(vandq_u32(vceqq_f32(a.val[0], a.val[0]), vceqq_f32(a.val[1], a.val[1]))) == 0;
}
static inline float32x4_t v_from4(float32x4_t a, float32x4_t b)
{
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a), vcgeq_f32(a, b)));
}
static inline vec v_from(vec a, vec b) { return v_pair(v_from4(a.val[0], b.val[0]), v_from4(a.val[1], b.val[1])); }
static inline vec v_floor(vec x) { return v_pair(vrndmq_f32(x.val[0]), vrndmq_f32(x.val[1])); }
static inline float v_max_lane(vec a) { return vmaxvq_f32(v_max4(a.val[0], a.val[1])); }
static inline float v_sum_lanes(vec a) { return vaddvq_f32(vaddq_f32(a.val[0], a.val[1])); }

typedef float64x2x4_t totals;
static inline totals v_no_totals(void)
{
    const float64x2_t zero = vdupq_n_f64(0);
    return (totals){ { zero, zero, zero, zero } };
}
static inline totals v_more(totals s, vec x)
{
    for (int i = 0; i < 2; i++) {
        s.val[2 * i] = vaddq_f64(s.val[2 * i], vcvt_f64_f32(vget_low_f32(x.val[i])));
        s.val[2 * i + 1] = vaddq_f64(s.val[2 * i + 1], vcvt_high_f64_f32(x.val[i]));
    }
    return s;
}
static inline double v_total(totals s)
{
    return vaddvq_f64(vaddq_f64(vaddq_f64(s.val[0], s.val[1]), vaddq_f64(s.val[2], s.val[3])));
}

static inline vec v_repeat(const float *p) { return v_pair(vld1q_f32(p), vld1q_f32(p)); }
static inline vec v_spread(const float *p) { return v_pair(vld1q_dup_f32(p), vld1q_dup_f32(p + 1)); }

/* the bytes of `set`, each plus `first`, as 4 numbers; of 4 numbers of 32 bits those that these bytes name */
static inline void v_put_four(uint32_t *p, uint32_t set, uint32_t first)
{
    const uint32x4_t at = vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(set))));
    vst1q_u32(p, vaddq_u32(at, vdupq_n_u32(first)));
}

static inline void v_put_four_of(char *p, const char *from, uint32_t set)
{
    const uint32x4_t at = vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(set))));
    const uint32x4_t bytes = vmlaq_n_u32(vdupq_n_u32(0x3020100), at, 0x4040404);
    vst1q_u8((uint8_t *)p, vqtbl1q_u8(vld1q_u8((const uint8_t *)from), vreinterpretq_u8_u32(bytes)));
}

/* the bits set in 4, a byte each */
static const uint32_t v_set_of_four[16] = { 0, 0,     1,     0x100,   2,     0x200,   0x201,   0x20100,
                                            3, 0x300, 0x301, 0x30100, 0x302, 0x30200, 0x30201, 0x3020100 };

static inline void v_put_indices(uint32_t *p, uint32_t first, unsigned bits)
{
    for (uint32_t i = 0; i < LANES; i += 4) {
        const unsigned four = bits >> i & 15;
        v_put_four(p, v_set_of_four[four], first + i);
        p += __builtin_popcount(four);
    }
}

static inline void v_put_of(void *p, const void *from, unsigned bits)
{
    char *to = p;
    for (size_t i = 0; i < LANES; i += 4) {
        const unsigned four = bits >> i & 15;
        v_put_four_of(to, (const char *)from + 4 * i, v_set_of_four[four]);
        to += 4 * __builtin_popcount(four);
    }
}

static inline vec v_hold(vec x)
{
    __asm__("" : "+w"(x.val[0]), "+w"(x.val[1]));
    return x;
}

static inline vec v_f16(uint16x8_t h)
{
    const float16x8_t x = vreinterpretq_f16_u16(h);
    return v_pair(vcvt_f32_f16(vget_low_f16(x)), vcvt_high_f32_f16(x));
}
static inline vec v_widen(const char *p, enum ha_dtype t)
{
    if (t == HA_F32) return v_load((const float *)(const void *)p);
    const uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)p));
    if (t == HA_F16) return v_f16(h);
    const uint16x8_t zero = vdupq_n_u16(0);
    return v_pair(vreinterpretq_f32_u16(vzip1q_u16(zero, h)), vreinterpretq_f32_u16(vzip2q_u16(zero, h)));
}

static inline uint16x4_t v_bf16(float32x4_t x)
{
    const uint32x4_t u = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff))),
                     quiet = vorrq_u32(u, vdupq_n_u32(0x400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet), 16);
}
static inline uint16x8_t v_half(vec x, enum ha_dtype t)
{
    if (t == HA_F16) return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.val[0]), x.val[1]));
    return vcombine_u16(v_bf16(x.val[0]), v_bf16(x.val[1]));
}
static inline void v_narrow(char *p, vec x, enum ha_dtype t)
{
    if (t == HA_F32) v_store((float *)(void *)p, x);
    else vst1q_u8((uint8_t *)p, vreinterpretq_u8_u16(v_half(x, t)));
}

enum { VECTORS = 16 };
static inline unsigned v_above(vec a, vec b)
{
    return vminvq_u32(vandq_u32(vcleq_f32(a.val[0], b.val[0]), vcleq_f32(a.val[1], b.val[1]))) == 0;
}
static inline uint32x4_t v_words(const char *p) { return vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)p)); }
static inline vec v_first_bf16(const char *p)
{
    return v_pair(vreinterpretq_f32_u32(vshlq_n_u32(v_words(p), 16)),
                  vreinterpretq_f32_u32(vshlq_n_u32(v_words(p + 16), 16)));
}
static inline vec v_second_bf16(const char *p)
{
    const uint32x4_t high = vdupq_n_u32(0xffff0000);
    return v_pair(vreinterpretq_f32_u32(vandq_u32(v_words(p), high)),
                  vreinterpretq_f32_u32(vandq_u32(v_words(p + 16), high)));
}

static inline vec v_round(vec x) { return v_pair(vrndnq_f32(x.val[0]), vrndnq_f32(x.val[1])); }

/* 2^n for integral n in [-126, 127] */
static inline float32x4_t v_pow2(int32x4_t n)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}
/* p 2^n in two products of which only the last rounds; n may have all of v_exp_parts */
static inline float32x4_t v_scale4(float32x4_t p, float32x4_t n)
{
    const int32x4_t i = vcvtnq_s32_f32(n), half = vshrq_n_s32(i, 1);
    return vmulq_f32(vmulq_f32(p, v_pow2(half)), v_pow2(vsubq_s32(i, half)));
}

static inline vec v_scale(vec p, vec n) { return v_pair(v_scale4(p.val[0], n.val[0]), v_scale4(p.val[1], n.val[1])); }

static inline void v_sum4(float *out, vec a, vec b, vec c, vec d, float scale)
{
    const float32x4_t ab = vpaddq_f32(vaddq_f32(a.val[0], a.val[1]), vaddq_f32(b.val[0], b.val[1]));
    const float32x4_t cd = vpaddq_f32(vaddq_f32(c.val[0], c.val[1]), vaddq_f32(d.val[0], d.val[1]));
    vst1q_f32(out, vmulq_n_f32(vpaddq_f32(ab, cd), scale));
}

typedef uint8x16x2_t code, counts; /* words of codes; counts for each byte */
static inline code v_code(const uint32_t *p)
{
    return (code){ { vld1q_u8((const uint8_t *)p), vld1q_u8((const uint8_t *)(p + 4)) } };
}
static inline code v_code_of(uint32_t word)
{
    const uint8x16_t x = vreinterpretq_u8_u32(vdupq_n_u32(word));
    return (code){ { x, x } };
}
static inline counts v_no_counts(void) { return (counts){ { vdupq_n_u8(0), vdupq_n_u8(0) } }; }
static inline uint8x16_t v_differ16(uint8x16_t sum, uint8x16_t a, uint8x16_t b)
{
    return vaddq_u8(sum, vcntq_u8(veorq_u8(a, b)));
}
static inline counts v_differ(counts sum, code a, code b)
{
    return (counts){ { v_differ16(sum.val[0], a.val[0], b.val[0]), v_differ16(sum.val[1], a.val[1], b.val[1]) } };
}
static inline float32x4_t v_counted4(uint8x16_t c) { return vcvtq_f32_u32(vpaddlq_u16(vpaddlq_u8(c))); }
static inline vec v_counted(counts c) { return v_pair(v_counted4(c.val[0]), v_counted4(c.val[1])); }

#include "kernels/exp.inc"
#include "kernels/eight.inc"

#endif
