#ifndef HA_KERNELS_FOUR_H
#define HA_KERNELS_FOUR_H

/* Four floats of a register, whatever the length of a vec (kernels/vectors/simd.h), and codes of 8 keys; for files that
 * include an instruction set's vectors before. */

#include "harness/base/pq.h"

#include <string.h>

typedef float four __attribute__((vector_size(16)));

#if defined(__x86_64__)
static inline four four_of_f16(const char *p)
{
    return (four)_mm_cvtph_ps(_mm_loadl_epi64((const __m128i_u *)(const void *)p));
}
#else
static inline four four_of_f16(const char *p)
{
    return (four)vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8((const uint8_t *)p)));
}
#endif
static inline four four_load(const float *p)
{
    four x;
    memcpy(&x, p, sizeof x);
    return x;
}
static inline void four_store(float *p, four x) { memcpy(p, &x, sizeof x); }
static inline four four_widen(const char *p, enum ha_dtype t)
{
    return t == HA_F16 ? four_of_f16(p) : four_load((const float *)(const void *)p);
}

/* x[k] becomes lane k of all */
static inline void four_turn(four x[4])
{
    const four a = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5), b = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7),
               c = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5), d = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
    x[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    x[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    x[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    x[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

/* How eight codes come out of 16 bytes that begin with the first of them: of each the four bytes that it begins in,
 * which are shifted. 25 bits of those are its own, so that a code of HA_PQ_BITS_MAX is among them. */
struct spread {
    uint8_t byte[32];
    uint32_t shift[8];
    uint32_t mask;
};
static inline struct spread spread_of(size_t bits)
{
    struct spread s = { .mask = (1u << bits) - 1 };
    for (size_t i = 0; i < 8; i++) {
        s.shift[i] = (uint32_t)(i * bits % 8);
        for (size_t b = 0; b < 4; b++) s.byte[i * 4 + b] = (uint8_t)(i * bits / 8 + b);
    }
    return s;
}

/* to[i] = code i << up; of 16 bytes at p, where code 0 begins */
#if defined(__x86_64__)
static inline void spread_codes(const struct spread *s, const unsigned char *p, int up, uint32_t *to)
{
    const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i_u *)(const void *)p)),
                  words = _mm256_shuffle_epi8(bytes, _mm256_loadu_si256((const __m256i_u *)(const void *)s->byte)),
                  codes = _mm256_and_si256(
                      _mm256_srlv_epi32(words, _mm256_loadu_si256((const __m256i_u *)(const void *)s->shift)),
                      _mm256_set1_epi32((int)s->mask));
    _mm256_storeu_si256((__m256i_u *)(void *)to, _mm256_slli_epi32(codes, up));
}
#else
static inline void spread_codes(const struct spread *s, const unsigned char *p, int up, uint32_t *to)
{
    const uint8x16_t bytes = vld1q_u8(p);
    for (int i = 0; i < 8; i += 4) {
        const uint32x4_t words = vreinterpretq_u32_u8(vqtbl1q_u8(bytes, vld1q_u8(s->byte + 4 * i))),
                         down = vshlq_u32(words, vnegq_s32(vreinterpretq_s32_u32(vld1q_u32(s->shift + i))));
        vst1q_u32(to + i, vshlq_u32(vandq_u32(down, vdupq_n_u32(s->mask)), vdupq_n_s32(up)));
    }
}
#endif

#endif
