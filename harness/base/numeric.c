#include "harness/base/numeric.h"

#include <string.h>

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
        for (size_t i = 0; i < n; i++) out[i] = ha_f32_from_f16(half_at(data, i));
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
        for (size_t i = 0; i < n; i++) half_put(data, i, ha_f16_from_f32(in[i]));
        break;
    case HA_BF16:
        for (size_t i = 0; i < n; i++) half_put(data, i, ha_bf16_from_f32(in[i]));
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
