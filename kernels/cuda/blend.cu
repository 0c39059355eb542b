#include "kernels/cuda/simt.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operand.h"
#include "kernels/cuda/walk.cuh"

struct blend_args {
    struct ha_device_blend blend;
    struct ha_cuda_walk walk;
};

/* the products are rounded apart, as on the host */
static __device__ __forceinline__ float blend(float a, float y, float b, float x) { return a * y + b * x; }
static __device__ __forceinline__ float4 blend(float a, float4 y, float b, float4 x)
{
    return make_float4(blend(a, y.x, b, x.x), blend(a, y.y, b, x.y), blend(a, y.z, b, x.z), blend(a, y.w, b, x.w));
}
static __device__ __forceinline__ float scaled(float b, float x) { return b * x; }
static __device__ __forceinline__ float4 scaled(float b, float4 x)
{
    return make_float4(b * x.x, b * x.y, b * x.z, b * x.w);
}

template <class T> static __global__ void __launch_bounds__(HA_WALK_THREADS) blend_rows(const struct blend_args a)
{
    const struct ha_device_blend &m = a.blend;
    const size_t in_piece = sizeof(T) / sizeof(float);
    uint64_t at;
    const struct ha_cuda_step step = ha_cuda_walk_begin(&a.walk, 1, &at);
    if (at >= a.walk.pieces) return;
    T &y = ha_at<T>(m.y + step.row * m.y_stride + step.piece * in_piece);
    const T x = ha_at<const T>(m.x + step.row * m.x_stride + step.piece * in_piece);
    y = m.a != 0.0f ? blend(m.a, y, m.b, x) : scaled(m.b, x);
}

size_t ha_cuda_blend_check(struct ha_cuda_check *c, const struct ha_device_blend *b)
{
    const size_t f = sizeof(float), bytes = b->rows * b->cols * f;
    ha_cuda_takes(c, "y", b->y, bytes ? times(extent(b->rows, b->y_stride, b->cols), f) : 0, b->a != 0.0f ? bytes : 0);
    ha_cuda_takes(c, "x", b->x, bytes ? times(extent(b->rows, b->x_stride, b->cols), f) : 0, bytes);
    return bytes;
}

cudaError_t ha_cuda_blend(cudaStream_t stream, const struct ha_device_blend *args)
{
    if (args->rows == 0 || args->cols == 0) return cudaSuccess;
    size_t all = args->cols * sizeof(float) | (uintptr_t)args->y | (uintptr_t)args->x;
    if (args->rows > 1) all |= (args->y_stride | args->x_stride) * sizeof(float);
    const bool wide = all % sizeof(float4) == 0;
    const struct blend_args a = { *args, ha_cuda_walk_over(args->rows, wide ? args->cols / 4 : args->cols) };
    const uint64_t blocks = ha_cuda_walk_blocks(&a.walk, 1);
    if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
    const dim3 grid((unsigned)blocks), block(HA_WALK_THREADS);
    return wide ? ha_launch(blend_rows<float4>, grid, block, stream, a)
                : ha_launch(blend_rows<float>, grid, block, stream, a);
}

HA_CUDA_KERNELS(blend, HA_KERNEL(blend_rows<float>), HA_KERNEL(blend_rows<float4>));
