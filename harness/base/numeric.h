#ifndef HA_BASE_NUMERIC_H
#define HA_BASE_NUMERIC_H

/* binary16 and bfloat16 as stored bits, round to nearest even, NaN stays NaN (quiet). */

#include "harness/api/base.h"

/* the number of these bits, and the other way round */
static inline float ha_f32_of_bits(uint32_t bits)
{
    union {
        uint32_t u;
        float f;
    } x = { .u = bits };
    return x.f;
}
static inline uint32_t ha_f32_bits(float number)
{
    union {
        float f;
        uint32_t u;
    } x = { .f = number };
    return x.u;
}

static inline float ha_f32_from_bf16(uint16_t h) { return ha_f32_of_bits((uint32_t)h << 16); }
/* Written as selects over integers, so that the row loops vectorise; float arithmetic is used
 * only where it is exact or is the wanted rounding, and never on subnormal binary32. */

static inline float ha_f32_from_f16(uint16_t h)
{
    uint32_t rest = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t normal = rest + ((127u - 15u) << 23);
    /* m * 2^-24 = (1 + m/1024) * 2^-14 - 2^-14 */
    uint32_t small = ha_f32_bits(ha_f32_of_bits(rest + ((127u - 14u) << 23)) - 0x1p-14f);
    uint32_t huge = rest | 0x7f800000u | (rest & 0x007fffffu ? 0x00400000u : 0u);
    uint32_t magnitude = rest < 0x00800000u ? small : rest < 0x0f800000u ? normal : huge;
    return ha_f32_of_bits(magnitude | (uint32_t)(h & 0x8000u) << 16);
}

static inline uint16_t ha_f16_from_f32(float x)
{
    uint32_t u = ha_f32_bits(x), rest = u & 0x7fffffffu;
    uint32_t normal = (rest - ((127u - 15u) << 23) + 0x0fffu + (rest >> 13 & 1u)) >> 13;
    /* the ulp of [0.5, 1) is 2^-24, the smallest subnormal: the addition rounds to it */
    uint32_t small = ha_f32_bits(ha_f32_of_bits(rest < 0x38800000u ? rest : 0u) + 0.5f) - ha_f32_bits(0.5f);
    uint32_t huge = rest > 0x7f800000u ? 0x7e00u | (rest >> 13 & 0x03ffu) : 0x7c00u;
    /* from 65520 on, normal carries into infinity by itself */
    uint32_t magnitude = rest < 0x38800000u ? small : rest < 0x47800000u ? normal : huge;
    return (uint16_t)(magnitude | (u >> 16 & 0x8000u));
}

static inline uint16_t ha_bf16_from_f32(float x)
{
    uint32_t u = ha_f32_bits(x);
    uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x0040u : rounded);
}

/* element i of an array stored as dtype, and its inverse (rounds) */
float ha_load(const void *data, size_t i, enum ha_dtype dtype);
void ha_store(void *data, size_t i, enum ha_dtype dtype, float x);
/* n contiguous elements at once */
void ha_load_row(const void *data, size_t n, enum ha_dtype dtype, float *out);
void ha_store_row(void *data, size_t n, enum ha_dtype dtype, const float *in);
/* x rounded to dtype, as float */
float ha_round(float x, enum ha_dtype dtype);

/* [n] over their root mean square, eps added to the square; zeros stay, where eps is 0 */
void ha_over_root_mean_square(float *x, size_t n, double eps);

/* 8-bit numbers: to the nearest, ties to even, saturated; NaN stays NaN */
uint8_t ha_fp8_from_f32(float x, enum ha_fp8 type);
float ha_f32_from_fp8(uint8_t code, enum ha_fp8 type);
/* [n] of in / scale, as the codes of a row and back: out is not multiplied by a scale */
void ha_fp8_store_row(void *data, size_t n, enum ha_fp8 type, float scale, const float *in);
void ha_fp8_load_row(const void *data, size_t n, enum ha_fp8 type, float *out);
/* Of the numbers that become `code`, a value that the type has, the one nearest to x: x itself where it does. A bound
 * between two codes belongs to both. */
double ha_fp8_nearest(double x, float code, enum ha_fp8 type);

/* unit roundoff and half the smallest subnormal of a storage type; 0 and 0 for binary32 */
double ha_dtype_unit(enum ha_dtype dtype);
double ha_dtype_eta(enum ha_dtype dtype);
/* of the numbers that rounding to nearest makes an infinity of it, the least; of binary32 the largest that is none */
double ha_dtype_beyond(enum ha_dtype dtype);

#endif
