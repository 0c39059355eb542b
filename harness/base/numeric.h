#ifndef HA_BASE_NUMERIC_H
#define HA_BASE_NUMERIC_H

/* binary16 and bfloat16 as stored bits, round to nearest even, NaN stays NaN (quiet). */

#include "harness/api/base.h"

uint16_t ha_f16_from_f32(float x);
uint16_t ha_bf16_from_f32(float x);

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
float ha_f32_from_f16(uint16_t h);

/* element i of an array stored as dtype, and its inverse (rounds) */
float ha_load(const void *data, size_t i, enum ha_dtype dtype);
void ha_store(void *data, size_t i, enum ha_dtype dtype, float x);
/* n contiguous elements at once */
void ha_load_row(const void *data, size_t n, enum ha_dtype dtype, float *out);
void ha_store_row(void *data, size_t n, enum ha_dtype dtype, const float *in);
/* x rounded to dtype, as float */
float ha_round(float x, enum ha_dtype dtype);

/* unit roundoff and half the smallest subnormal of a storage type; 0 and 0 for binary32 */
double ha_dtype_unit(enum ha_dtype dtype);
double ha_dtype_eta(enum ha_dtype dtype);

#endif
