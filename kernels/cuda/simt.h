#ifndef HA_KERNELS_CUDA_SIMT_H
#define HA_KERNELS_CUDA_SIMT_H

/* What every .cu file includes first: CUDA's names, and a few of ours, for nvcc and (emulation/simt.h) for the C++
 * compiler of this machine. A kernel reads as ordinary CUDA within these rules:
 *
 *   __global__ void k(HA_ARGS(struct X) a)   one plain struct of at most 32000 bytes; or (const struct X a), which
 *                                            the emulation copies for every thread: for small ones
 *   HA_SHARED(struct Y, y);                  once in a kernel: y is the block's own struct Y of at most 48 KB
 *   HA_SHARED_DYNAMIC(struct Y, y);          instead, of any size: as large as the launch says, which says sizeof(Y)
 *   ha_launch(k<T, N>, grid, block, stream, x)   cudaError_t; a block has whole warps if it uses warp operations
 *   ha_launch_dynamic(bytes, k<T, N>, grid, block, stream, x)   the same, with so many bytes of dynamic shared memory
 *
 * No __syncthreads, and no warp operation, that a thread named by it has not yet reached and never will: a thread that
 * others wait for does not return. No spinning on another block.
 *
 * The names, apart from CUDA's:
 *   T &ha_at<T>(p)                           what lies at p, which is a multiple of T's size
 *   uint4 ha_load16(const void *p)           what no kernel writes meanwhile; p a multiple of 16
 *   __ldg(p)                                 the same of a number
 *   ha_copy16<bool L1>(uint4 *to, const void *from, bool real)   asks for a copy to shared memory, both multiples of 16
 *       (L1: from the first-level cache, if it is there); not real: zeros, and nothing is read
 *   ha_copy_commit()                         the copies that the thread asked for since the last one are a group
 *   ha_copy_wait<N>()                        all its groups but the latest N have landed, for this thread to read; a
 *       place that it has read may be asked for anew
 *   ha_f16_to_f32 ha_bf16_to_f32 (uint16_t), ha_f32_to_f16 ha_f32_to_bf16 (float)   to nearest even, NaN stays NaN
 *   float2 ha_f16x2_to_f32 ha_bf16x2_to_f32 (uint32_t)   x of the low half
 *   float ha_tf32_hi(float)                  the low 13 bits cut, exact in tf32
 *   ha_mma_tf32(float c[4], const float a[4], const float b[2])   mma.m16n8k8, all lanes of the warp; lane 4 g + t has
 *       a: (g, t) (g+8, t) (g, t+4) (g+8, t+4) of [16][8], b: (t, g) (t+4, g) of [8][8], c: (g, 2t) (g, 2t+1) (g+8, 2t)
 *       (g+8, 2t+1) of [16][8]; of a and b the low 13 bits are not read
 *   uint64_t ha_clock_ns(void), ha_pause(void)
 *   ha_load_system(const uint32_t *), ha_store_system(uint32_t *, uint32_t)   acquire, release; flags in mapped memory
 *   ha_exp ha_exp2 ha_log ha_log2            math.cuh */

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#include <math.h>

#define HA_SHARED(type, name) __shared__ type name
#define HA_ARGS(type)         const __grid_constant__ type
#define HA_SHARED_DYNAMIC(type, name)     \
    extern __shared__ uint4 ha_dynamic[]; \
    type &name = *reinterpret_cast<type *>(ha_dynamic)

extern "C" __thread unsigned ha_cuda_launched; /* launch.h */

template <class A>
static inline cudaError_t ha_launch_dynamic(size_t shared_bytes, void (*kernel)(A), dim3 grid, dim3 block,
                                            cudaStream_t stream, const A &args)
{
    static_assert(sizeof(A) <= 32000 && alignof(A) <= 16 && __is_trivially_copyable(A),
                  "arguments are one plain struct");
    void *list[] = { const_cast<A *>(&args) };
    ha_cuda_launched++;
    return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), grid, block, list, shared_bytes, stream);
}
template <class A>
static inline cudaError_t ha_launch(void (*kernel)(A), dim3 grid, dim3 block, cudaStream_t stream, const A &args)
{
    return ha_launch_dynamic(0, kernel, grid, block, stream, args);
}

template <class T> static __device__ __forceinline__ T &ha_at(void *p) { return *static_cast<T *>(p); }
template <class T> static __device__ __forceinline__ T &ha_at(const void *p) { return *static_cast<T *>(p); }

static __device__ __forceinline__ uint4 ha_load16(const void *p)
{
    uint4 x;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
        : "l"(__cvta_generic_to_global(p)));
    return x;
}

/* cp.async, for compute capability 8.0 and later */
template <bool L1> static __device__ __forceinline__ void ha_copy16(uint4 *to, const void *from, bool real)
{
    const unsigned at = unsigned(__cvta_generic_to_shared(to)), bytes = real ? 16 : 0;
    const size_t p = __cvta_generic_to_global(from);
    if (L1) asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" : : "r"(at), "l"(p), "r"(bytes) : "memory");
    else asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(at), "l"(p), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void ha_copy_commit(void) { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int GROUPS> static __device__ __forceinline__ void ha_copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" : : "n"(GROUPS) : "memory");
}

static __device__ __forceinline__ float ha_f16_to_f32(uint16_t h)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}
static __device__ __forceinline__ uint16_t ha_f32_to_f16(float x)
{
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
static __device__ __forceinline__ float ha_bf16_to_f32(uint16_t h) { return __uint_as_float(uint32_t(h) << 16); }
static __device__ __forceinline__ uint16_t ha_f32_to_bf16(float x)
{
    uint16_t h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
static __device__ __forceinline__ float2 ha_f16x2_to_f32(uint32_t h)
{
    float2 x;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
        : "=f"(x.x), "=f"(x.y)
        : "r"(h));
    return x;
}

static __device__ __forceinline__ void ha_mma_tf32(float c[4], const float a[4], const float b[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
                   "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

static __device__ __forceinline__ uint64_t ha_clock_ns(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}
static __device__ __forceinline__ void ha_pause(void) { __nanosleep(100); }
static __device__ __forceinline__ uint32_t ha_load_system(const uint32_t *p)
{
    uint32_t x;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}
static __device__ __forceinline__ void ha_store_system(uint32_t *p, uint32_t value)
{
    asm volatile("st.release.sys.u32 [%0], %1;" : : "l"(p), "r"(value) : "memory");
}
#else
#include "kernels/cuda/emulation/simt.h"
#endif

static __device__ __forceinline__ float2 ha_bf16x2_to_f32(uint32_t h)
{
    return make_float2(__uint_as_float(h << 16), __uint_as_float(h & 0xffff0000u));
}
static __device__ __forceinline__ float ha_tf32_hi(float x)
{
    return __uint_as_float(__float_as_uint(x) & 0xffffe000u);
}

#include "kernels/cuda/math.cuh"

#endif
