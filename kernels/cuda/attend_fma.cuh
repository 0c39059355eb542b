#ifndef HA_KERNELS_CUDA_ATTEND_FMA_CUH
#define HA_KERNELS_CUDA_ATTEND_FMA_CUH

/* What attention without tensor cores is made of. A lane has 16 bytes of every 128 dims: of binary32 a warp has a row
 * at once, of 16 bits two, each in one half of its lanes. */

#include "kernels/cuda/attend.cuh"

namespace
{

/* IN_PIECE: elements of 16 bytes; LANES: that have a row's 128 dims; AT_ONCE: rows that a warp has side by side */
template <enum ha_dtype T> struct spread {
    static constexpr unsigned BYTES = T == HA_F32 ? 4 : 2, IN_PIECE = 16 / BYTES;
    static constexpr unsigned LANES = 128 / IN_PIECE, AT_ONCE = 32 / LANES;
};

/* of dims d + 128 c, what this lane has */
template <enum ha_dtype T> __device__ __forceinline__ unsigned first_dim(unsigned c)
{
    return spread<T>::IN_PIECE * (threadIdx.x % spread<T>::LANES) + 128 * c;
}

/* 16 bytes of a row whose elements are aligned, and nothing else */
template <enum ha_dtype T> __device__ __forceinline__ uint4 gather(const char *p)
{
    uint32_t word[4];
    HA_UNROLL
    for (unsigned i = 0; i < 4; i++)
        if (T == HA_F32) word[i] = __ldg(reinterpret_cast<const uint32_t *>(p) + i);
        else {
            const uint16_t *x = reinterpret_cast<const uint16_t *>(p) + 2 * i;
            word[i] = __ldg(x) | uint32_t(__ldg(x + 1)) << 16;
        }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

template <enum ha_dtype T> __device__ __forceinline__ void widen(float (&to)[spread<T>::IN_PIECE], const uint4 &piece)
{
    const uint32_t word[4] = { piece.x, piece.y, piece.z, piece.w };
    HA_UNROLL
    for (unsigned i = 0; i < 4; i++)
        if constexpr (T == HA_F32) to[i] = __uint_as_float(word[i]);
        else {
            const float2 two = T == HA_F16 ? ha_f16x2_to_f32(word[i]) : ha_bf16x2_to_f32(word[i]);
            to[2 * i] = two.x;
            to[2 * i + 1] = two.y;
        }
}

template <unsigned N> __device__ __forceinline__ float dot(const float (&a)[N], const float (&b)[N], float sum)
{
    HA_UNROLL
    for (unsigned i = 0; i < N; i++) sum = fmaf(a[i], b[i], sum);
    return sum;
}

template <enum ha_dtype T, unsigned C>
__device__ __forceinline__ void load_query(float (&to)[C][spread<T>::IN_PIECE], const float *q, bool real, unsigned dim)
{
    HA_UNROLL
    for (unsigned c = 0; c < C; c++) {
        const unsigned d = first_dim<T>(c);
        HA_UNROLL
        for (unsigned i = 0; i < spread<T>::IN_PIECE; i++) to[c][i] = real && d < dim ? __ldg(q + d + i) : 0;
    }
}

/* N sums over 2 BIT lanes, N at most as many and a power of two: lane l of them ends with the one of number
 * l N / (2 BIT). As long as there are several, a lane gives half of them away and is given the other lane's part of the
 * rest. */
template <unsigned N, unsigned BIT> __device__ __forceinline__ float lane_sums(float *x)
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
