#ifndef HA_KERNELS_CUDA_EMULATION_SIMT_TYPES_H
#define HA_KERNELS_CUDA_EMULATION_SIMT_TYPES_H

/* CUDA's vector types, as far as the kernels use them. may_alias: a GPU loads four floats at once from an array of
 * floats, and so may the kernels' source. */

#define HA_EMULATED_VECTOR(type, name, bytes, ...)                   \
    typedef struct __attribute__((may_alias, aligned(bytes))) name { \
        type __VA_ARGS__;                                            \
    } name;

HA_EMULATED_VECTOR(unsigned, uint2, 8, x, y)
HA_EMULATED_VECTOR(unsigned, uint3, 4, x, y, z)
HA_EMULATED_VECTOR(unsigned, uint4, 16, x, y, z, w)
HA_EMULATED_VECTOR(float, float2, 8, x, y)
HA_EMULATED_VECTOR(float, float4, 16, x, y, z, w)
#undef HA_EMULATED_VECTOR

#ifdef __cplusplus
static inline uint2 make_uint2(unsigned x, unsigned y) { return uint2{ x, y }; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{ x, y, z, w }; }
static inline float2 make_float2(float x, float y) { return float2{ x, y }; }
static inline float4 make_float4(float x, float y, float z, float w) { return float4{ x, y, z, w }; }
#endif

#endif
