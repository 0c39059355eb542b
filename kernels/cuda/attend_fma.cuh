#ifndef HA_KERNELS_CUDA_ATTEND_FMA_CUH
#define HA_KERNELS_CUDA_ATTEND_FMA_CUH

/* What attention without tensor cores is made of: lanes across dims, each with 4 of every 128. */

#include "kernels/cuda/attend.cuh"

namespace
{

/* four elements as stored */
template <enum ha_dtype T> struct stored {
    using type = uint2;
};
template <> struct stored<HA_F32> {
    using type = uint4;
};

__device__ __forceinline__ uint4 load4(const char *p, bool vectors, uint4)
{
    if (vectors) return ha_load16(p);
    const float *x = reinterpret_cast<const float *>(p);
    return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3]));
}
__device__ __forceinline__ uint2 load4(const char *p, bool vectors, uint2)
{
    if (vectors) return *reinterpret_cast<const uint2 *>(p);
    const uint16_t *x = reinterpret_cast<const uint16_t *>(p);
    return make_uint2(x[0] | uint32_t(x[1]) << 16, x[2] | uint32_t(x[3]) << 16);
}
__device__ __forceinline__ void zero4(uint4 &x) { x = make_uint4(0, 0, 0, 0); }
__device__ __forceinline__ void zero4(uint2 &x) { x = make_uint2(0, 0); }

template <enum ha_dtype T> __device__ __forceinline__ float4 widen(const uint4 &x)
{
    return make_float4(__uint_as_float(x.x), __uint_as_float(x.y), __uint_as_float(x.z), __uint_as_float(x.w));
}
template <enum ha_dtype T> __device__ __forceinline__ float4 widen(const uint2 &x)
{
    const float2 a = T == HA_F16 ? ha_f16x2_to_f32(x.x) : ha_bf16x2_to_f32(x.x);
    const float2 b = T == HA_F16 ? ha_f16x2_to_f32(x.y) : ha_bf16x2_to_f32(x.y);
    return make_float4(a.x, a.y, b.x, b.y);
}

__device__ __forceinline__ float dot4(const float4 &a, const float4 &b, float sum)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

/* dims 4 lane + 128 c .. + 3 of one row */
template <enum ha_dtype T, unsigned C>
__device__ __forceinline__ void load_row(typename stored<T>::type (&to)[C], const char *row, bool real, unsigned dim,
                                         bool vectors)
{
    HA_UNROLL
    for (unsigned c = 0; c < C; c++) {
        const unsigned d = 4 * (threadIdx.x % 32) + 128 * c;
        if (real && d < dim) to[c] = load4(row + size_t(d) * (T == HA_F32 ? 4 : 2), vectors, to[c]);
        else zero4(to[c]);
    }
}

template <unsigned C>
__device__ __forceinline__ void load_query(float4 (&to)[C], const float *q, bool real, unsigned dim)
{
    HA_UNROLL
    for (unsigned c = 0; c < C; c++) {
        const unsigned d = 4 * (threadIdx.x % 32) + 128 * c;
        to[c] = real && d < dim ? make_float4(q[d], q[d + 1], q[d + 2], q[d + 3]) : make_float4(0, 0, 0, 0);
    }
}

/* N sums over the 32 lanes, N <= 32 a power of two: lane l ends with the one of number l N / 32. As long as there are
 * several, a lane gives half of them away and is given the other lane's part of the rest. */
template <unsigned N, unsigned BIT = 16> __device__ __forceinline__ float lane_sums(float *x)
{
    if constexpr (N > 1) {
        const bool upper = threadIdx.x & BIT;
        HA_UNROLL
        for (unsigned i = 0; i < N / 2; i++) {
            const float give = upper ? x[i] : x[i + N / 2];
            x[i] = (upper ? x[i + N / 2] : x[i]) + __shfl_xor_sync(HA_ALL_LANES, give, int(BIT));
        }
        return lane_sums<N / 2, BIT / 2>(x);
    } else if constexpr (BIT > 0) {
        x[0] += __shfl_xor_sync(HA_ALL_LANES, x[0], int(BIT));
        return lane_sums<1, BIT / 2>(x);
    } else return x[0];
}

} // namespace

#endif
