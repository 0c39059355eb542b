#ifndef HA_KERNELS_CUDA_EMULATION_SIMT_NAMES_H
#define HA_KERNELS_CUDA_EMULATION_SIMT_NAMES_H

/* CUDA's names, for emulation/simt.h: what each of them means stands in CUDA's own manual. */

#include "kernels/specialised.h"

extern "C" {
#include "harness/base/clock.h"
#include "harness/base/numeric.h"
}

#include <math.h>
#include <string.h>

#define __global__
#define __device__
#define __grid_constant__
#define __forceinline__ HA_SPECIALISED
#define __launch_bounds__(...)

#define threadIdx (const_cast<const uint3 &>(ha_emulated.thread))
#define blockIdx  (const_cast<const uint3 &>(ha_emulated.block))
#define blockDim  (const_cast<const dim3 &>(ha_emulated.block_dim))
#define gridDim   (const_cast<const dim3 &>(ha_emulated.grid_dim))

#define HA_EMULATED_SHARED(macro, type, name, dynamic)                                           \
    const ha_emulated_site name##_site = { macro "(" #type ", " #name ")", __FILE__, __LINE__ }; \
    type &name = *static_cast<type *>(ha_emulated_shared(&name##_site, sizeof(type), alignof(type), dynamic))
#define HA_SHARED(type, name)         HA_EMULATED_SHARED("HA_SHARED", type, name, false)
#define HA_SHARED_DYNAMIC(type, name) HA_EMULATED_SHARED("HA_SHARED_DYNAMIC", type, name, true)

#define HA_ARGS(type) const type &

static inline uint2 make_uint2(unsigned x, unsigned y) { return uint2{ x, y }; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{ x, y, z, w }; }
static inline float2 make_float2(float x, float y) { return float2{ x, y }; }
static inline float4 make_float4(float x, float y, float z, float w) { return float4{ x, y, z, w }; }

/* ---- launch */

/* P: A, or a reference to it, as the kernel has it */
template <class P, class A> struct ha_emulated_call {
    void (*kernel)(P);
    A args;
    static void run(const void *call)
    {
        const ha_emulated_call *c = static_cast<const ha_emulated_call *>(call);
        c->kernel(c->args);
    }
};
template <class P, class A>
static inline cudaError_t ha_emulated_launch_as(const char *name, size_t shared_bytes, void (*kernel)(P), dim3 grid,
                                                dim3 block, cudaStream_t stream, const A &args)
{
    static_assert(sizeof(A) <= 32000 && alignof(A) <= 16 && __is_trivially_copyable(A),
                  "arguments are one plain struct");
    const ha_emulated_call<P, A> call = { kernel, args };
    ha_cuda_launched++;
    const ha_emulated_kernel k = { name, call.run, reinterpret_cast<const void *>(kernel), shared_bytes };
    return ha_emulated_launch(&k, &call, sizeof call, grid, block, stream);
}
#define ha_launch(...)                       ha_emulated_launch_as(#__VA_ARGS__, 0, __VA_ARGS__)
#define ha_launch_dynamic(shared_bytes, ...) ha_emulated_launch_as(#__VA_ARGS__, shared_bytes, __VA_ARGS__)

/* ---- barriers, votes and shuffles; the last two parameters are where the call stands */

static inline const ha_emulated_site *ha_emulated_at(const ha_emulated_site &site) { return &site; }
#define HA_EMULATED_WHERE      const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define HA_EMULATED_SITE(name) ha_emulated_at({ name, file, line })

static inline void __syncthreads(HA_EMULATED_WHERE) { ha_emulated_barrier(HA_EMULATED_SITE("__syncthreads"), false); }
static inline int __syncthreads_count(int vote, HA_EMULATED_WHERE)
{
    return int(ha_emulated_barrier(HA_EMULATED_SITE("__syncthreads_count"), vote != 0));
}
static inline void __syncwarp(unsigned mask = 0xffffffffu, HA_EMULATED_WHERE)
{
    ha_emulated_sync_warp(HA_EMULATED_SITE("__syncwarp"), mask);
}
static inline unsigned __ballot_sync(unsigned mask, int vote, HA_EMULATED_WHERE)
{
    return ha_emulated_ballot(HA_EMULATED_SITE("__ballot_sync"), mask, vote != 0);
}
static inline int __any_sync(unsigned mask, int vote, HA_EMULATED_WHERE)
{
    return ha_emulated_ballot(HA_EMULATED_SITE("__any_sync"), mask, vote != 0) != 0;
}

static inline unsigned ha_emulated_lane(void)
{
    const uint3 &t = ha_emulated.thread;
    const dim3 &d = ha_emulated.block_dim;
    return (t.x + d.x * (t.y + d.y * t.z)) % HA_EMULATED_WARP;
}
template <class T>
static inline T ha_emulated_exchange(const ha_emulated_site *site, unsigned mask, T value, unsigned source)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "");
    uint64_t got = 0;
    memcpy(&got, &value, sizeof value);
    got = ha_emulated_shuffle(site, mask, got, source);
    memcpy(&value, &got, sizeof value);
    return value;
}

template <class T> static inline T __shfl_sync(unsigned mask, T value, int from, HA_EMULATED_WHERE)
{
    return ha_emulated_exchange(HA_EMULATED_SITE("__shfl_sync"), mask, value, unsigned(from));
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int bits, HA_EMULATED_WHERE)
{
    return ha_emulated_exchange(HA_EMULATED_SITE("__shfl_xor_sync"), mask, value, ha_emulated_lane() ^ unsigned(bits));
}

/* ---- atomics: of the whole machine, since mapped memory is shared with the host; relaxed, as CUDA's */

static inline unsigned atomicAdd(unsigned *p, unsigned value) { return __atomic_fetch_add(p, value, __ATOMIC_RELAXED); }
static inline unsigned long long atomicAdd(unsigned long long *p, unsigned long long value)
{
    return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);
}
static inline unsigned long long atomicMax(unsigned long long *p, unsigned long long value)
{
    unsigned long long old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (old < value && !__atomic_compare_exchange_n(p, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
    return old;
}

static inline void __threadfence_system(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

/* ---- numbers */

static inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
static inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
static inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
static inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }

static inline int __popc(unsigned x) { return __builtin_popcount(x); }

template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }

/* ---- the names of kernels/cuda/simt.h that are instructions of a GPU */

template <class T> static inline void ha_emulated_aligned(const ha_emulated_site *site, const void *p)
{
    if (reinterpret_cast<uintptr_t>(p) % sizeof(T))
        ha_emulated_stop(site, "the address is not a multiple of what is read or written there");
}
template <class T> static inline T &ha_at(void *p, HA_EMULATED_WHERE)
{
    ha_emulated_aligned<T>(HA_EMULATED_SITE("ha_at"), p);
    return *static_cast<T *>(p);
}
template <class T> static inline T &ha_at(const void *p, HA_EMULATED_WHERE)
{
    ha_emulated_aligned<T>(HA_EMULATED_SITE("ha_at"), p);
    return *static_cast<T *>(p);
}
static inline uint4 ha_load16(const void *p, HA_EMULATED_WHERE)
{
    ha_emulated_aligned<uint4>(HA_EMULATED_SITE("ha_load16"), p);
    uint4 x;
    memcpy(&x, p, sizeof x);
    return x;
}
template <class T> static inline T __ldg(const T *p) { return *p; }

template <bool L1> static inline void ha_copy16(uint4 *to, const void *from, bool real, HA_EMULATED_WHERE)
{
    ha_emulated_copy_ask(HA_EMULATED_SITE("ha_copy16"), to, from, real);
    memset(to, 0xff, sizeof *to);
}
static inline void ha_copy_commit(void) { ha_emulated_copy_commit(); }
template <int GROUPS> static inline void ha_copy_wait(void)
{
    for (ha_emulated_copy copy; ha_emulated_copy_land(GROUPS, &copy);)
        if (copy.from) memcpy(copy.to, copy.from, sizeof(uint4));
        else memset(copy.to, 0, sizeof(uint4));
}

static inline float ha_f16_to_f32(uint16_t h) { return ha_f32_from_f16(h); }
static inline uint16_t ha_f32_to_f16(float x) { return ha_f16_from_f32(x); }
static inline float ha_bf16_to_f32(uint16_t h) { return ha_f32_from_bf16(h); }
static inline uint16_t ha_f32_to_bf16(float x) { return ha_bf16_from_f32(x); }
static inline float2 ha_f16x2_to_f32(uint32_t h)
{
    return make_float2(ha_f16_to_f32(uint16_t(h & 0xffffu)), ha_f16_to_f32(uint16_t(h >> 16)));
}

static inline void ha_mma_tf32(float c[4], const float a[4], const float b[2], HA_EMULATED_WHERE)
{
    ha_emulated_mma(HA_EMULATED_SITE("ha_mma_tf32"), c, a, b);
}

static inline uint64_t ha_clock_ns(void) { return ha_now_ns(); }
static inline void ha_pause(void) { ha_emulated_pause(); }
static inline uint32_t ha_load_system(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void ha_store_system(uint32_t *p, uint32_t value) { __atomic_store_n(p, value, __ATOMIC_RELEASE); }

#undef HA_EMULATED_SITE
#undef HA_EMULATED_WHERE

#endif
