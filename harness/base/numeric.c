#include "harness/base/numeric.h"

#include <string.h>

/* Written as selects over integers, so that the row loops vectorise; float arithmetic is used
 * only where it is exact or is the wanted rounding, and never on subnormal binary32. */

static inline float f32_from_f16(uint16_t h)
{
    uint32_t rest = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t normal = rest + ((127u - 15u) << 23);
    /* m * 2^-24 = (1 + m/1024) * 2^-14 - 2^-14 */
    uint32_t small = ha_f32_bits(ha_f32_of_bits(rest + ((127u - 14u) << 23)) - 0x1p-14f);
    uint32_t huge = rest | 0x7f800000u | (rest & 0x007fffffu ? 0x00400000u : 0u);
    uint32_t magnitude = rest < 0x00800000u ? small : rest < 0x0f800000u ? normal : huge;
    return ha_f32_of_bits(magnitude | (uint32_t)(h & 0x8000u) << 16);
}

static inline uint16_t f16_from_f32(float x)
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

static inline uint16_t bf16_from_f32(float x)
{
    uint32_t u = ha_f32_bits(x);
    uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x0040u : rounded);
}

uint16_t ha_f16_from_f32(float x) { return f16_from_f32(x); }
uint16_t ha_bf16_from_f32(float x) { return bf16_from_f32(x); }
float ha_f32_from_f16(uint16_t h) { return f32_from_f16(h); }

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
    ha_load_row((const char *)data + i * ha_dtype_bytes(dtype), 1, dtype, &x);
    return x;
}

void ha_store(void *data, size_t i, enum ha_dtype dtype, float x)
{
    ha_store_row((char *)data + i * ha_dtype_bytes(dtype), 1, dtype, &x);
}

void ha_load_row(const void *data, size_t n, enum ha_dtype dtype, float *restrict out)
{
    switch (dtype) {
    case HA_F32: memcpy(out, data, n * sizeof *out); break;
    case HA_F16:
        for (size_t i = 0; i < n; i++) out[i] = f32_from_f16(half_at(data, i));
        break;
    case HA_BF16:
        for (size_t i = 0; i < n; i++) out[i] = ha_f32_from_bf16(half_at(data, i));
        break;
    }
}

void ha_store_row(void *restrict data, size_t n, enum ha_dtype dtype, const float *restrict in)
{
    switch (dtype) {
    case HA_F32: memcpy(data, in, n * sizeof *in); break;
    case HA_F16:
        for (size_t i = 0; i < n; i++) half_put(data, i, f16_from_f32(in[i]));
        break;
    case HA_BF16:
        for (size_t i = 0; i < n; i++) half_put(data, i, bf16_from_f32(in[i]));
        break;
    }
}

float ha_round(float x, enum ha_dtype dtype)
{
    return dtype == HA_F32 ? x : dtype == HA_F16 ? f32_from_f16(f16_from_f32(x)) : ha_f32_from_bf16(bf16_from_f32(x));
}

double ha_dtype_unit(enum ha_dtype dtype) { return dtype == HA_F32 ? 0 : dtype == HA_F16 ? 0x1p-11 : 0x1p-8; }

double ha_dtype_eta(enum ha_dtype dtype) { return dtype == HA_F32 ? 0 : dtype == HA_F16 ? 0x1p-25 : 0x1p-134; }
