#ifndef HA_KERNELS_CUDA_NUMBER_H
#define HA_KERNELS_CUDA_NUMBER_H

/* What kernels do with the numbers of a row: elements of a type, and maxima that keep NaN. */

#include "kernels/cuda/simt.h"

#include "harness/api/base.h"

enum { HA_WARP = 32 };
constexpr unsigned HA_ALL_LANES = 0xffffffffu;

/* Integers in the order of the floats: -0 below 0, NaN above all. So a maximum does not depend on the order it is
 * taken in, bit for bit. */
__device__ __forceinline__ int ha_cuda_rank(float x)
{
    if (!(x == x)) return 0x7fffffff;
    const int bits = __float_as_int(x);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}

__device__ __forceinline__ float ha_cuda_ranked(int rank)
{
    return __int_as_float(rank < 0 ? rank ^ 0x7fffffff : rank);
}

/* of a whole warp; the same bits in every lane */
__device__ __forceinline__ int ha_cuda_warp_max(int x)
{
    for (int step = HA_WARP / 2; step; step /= 2) x = max(x, __shfl_xor_sync(HA_ALL_LANES, x, step));
    return x;
}

__device__ __forceinline__ float ha_cuda_warp_sum(float x)
{
    for (int step = HA_WARP / 2; step; step /= 2) x += __shfl_xor_sync(HA_ALL_LANES, x, step);
    return x;
}

/* An element in the low bits of a word: read as a float, and rounded to it. */
template <enum ha_dtype T> __device__ __forceinline__ float ha_cuda_widen(uint32_t bits)
{
    return T == HA_F32   ? __uint_as_float(bits)
           : T == HA_F16 ? ha_f16_to_f32((uint16_t)bits)
                         : ha_bf16_to_f32((uint16_t)bits);
}

template <enum ha_dtype T> __device__ __forceinline__ uint32_t ha_cuda_narrow(float x)
{
    return T == HA_F32 ? __float_as_uint(x) : T == HA_F16 ? (uint32_t)ha_f32_to_f16(x) : (uint32_t)ha_f32_to_bf16(x);
}

/* Neighbouring elements, as stored: 16 bytes of them (WIDE; p is aligned so), or one. */
template <enum ha_dtype T, bool WIDE> struct ha_cuda_piece {
    enum { WORDS = WIDE ? 4 : 1, IN_WORD = WIDE && T != HA_F32 ? 2 : 1, ELEMENTS = WORDS * IN_WORD };
    uint32_t word[WORDS] = {};

    __device__ __forceinline__ void load(const void *p)
    {
        if constexpr (WIDE) {
            const uint4 x = ha_at<const uint4>(p);
            word[0] = x.x, word[1] = x.y, word[2] = x.z, word[3] = x.w;
        } else if constexpr (T == HA_F32) word[0] = *(const uint32_t *)p;
        else word[0] = *(const uint16_t *)p;
    }
    __device__ __forceinline__ void store(void *p) const
    {
        if constexpr (WIDE) ha_at<uint4>(p) = make_uint4(word[0], word[1], word[2], word[3]);
        else if constexpr (T == HA_F32) *(uint32_t *)p = word[0];
        else *(uint16_t *)p = (uint16_t)word[0];
    }
    __device__ __forceinline__ float get(int i) const
    {
        return ha_cuda_widen<T>(word[i / IN_WORD] >> 16 * (i % IN_WORD));
    }
    __device__ __forceinline__ void set(const float x[ELEMENTS])
    {
        for (int w = 0; w < WORDS; w++) {
            word[w] = ha_cuda_narrow<T>(x[w * IN_WORD]);
            if (IN_WORD == 2) word[w] |= ha_cuda_narrow<T>(x[w * IN_WORD + IN_WORD - 1]) << 16;
        }
    }
};

/* one of a row of any alignment */
template <enum ha_dtype T> static __device__ __forceinline__ float ha_cuda_number_at(const void *row, size_t d)
{
    struct ha_cuda_piece<T, false> e;
    e.load((const char *)row + d * (T == HA_F32 ? 4 : 2));
    return e.get(0);
}

#endif
