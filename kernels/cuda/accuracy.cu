#include "kernels/cuda/simt.h"
#include "kernels/cuda/launch.h"

#include <float.h>

enum { THREADS = 256, BLOCKS = 8 }; /* blocks of a multiprocessor */

struct accuracy_args {
    uint32_t first, last; /* the bits of the range's floats, which count up */
    uint32_t step;
    unsigned long long *worst; /* a double's bits: those that are not negative are ordered as integers are */
};

template <int F> static __device__ __forceinline__ float measured(float x)
{
    return F == HA_CUDA_EXP ? ha_exp(x) : F == HA_CUDA_EXP2 ? ha_exp2(x) : F == HA_CUDA_LOG ? ha_log(x) : ha_log2(x);
}

template <int F> static __device__ __forceinline__ double exact(double x)
{
    return F == HA_CUDA_EXP ? exp(x) : F == HA_CUDA_EXP2 ? exp2(x) : F == HA_CUDA_LOG ? log(x) : log2(x);
}

/* relative; to the smallest normal float where the result is below it. NaN counts as infinite. */
static __device__ __forceinline__ double error_of(double got, double want)
{
    const double off = got < want ? want - got : got - want, size = want < 0 ? -want : want;
    const double error = off / (size < (double)FLT_MIN ? (double)FLT_MIN : size);
    return error >= 0 ? error : (double)INFINITY;
}

union bits {
    double value;
    unsigned long long bits;
};

template <int F> static __global__ void __launch_bounds__(THREADS) accuracy_worst(const struct accuracy_args a)
{
    const uint64_t count = (a.last - a.first) / a.step + 1, threads = (uint64_t)gridDim.x * THREADS;
    union bits worst = { 0 };
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += threads) {
        const float x = __uint_as_float(a.first + (uint32_t)i * a.step);
        const double error = error_of((double)measured<F>(x), exact<F>((double)x));
        worst.value = error > worst.value ? error : worst.value;
    }
    if (worst.value > 0) atomicMax(a.worst, worst.bits);
}

cudaError_t ha_cuda_accuracy(unsigned multiprocessors, cudaStream_t stream, uint32_t step, double *worst)
{
    /* -0 .. -104, -0 .. -150, 1 .. 2^40 */
    static const struct {
        void (*kernel)(const struct accuracy_args);
        uint32_t first, last;
    } function[HA_CUDA_FUNCTIONS] = {
        { accuracy_worst<HA_CUDA_EXP>, 0x80000000u, 0xc2d00000u },
        { accuracy_worst<HA_CUDA_EXP2>, 0x80000000u, 0xc3160000u },
        { accuracy_worst<HA_CUDA_LOG>, 0x3f800000u, 0x53800000u },
        { accuracy_worst<HA_CUDA_LOG2>, 0x3f800000u, 0x53800000u },
    };
    cudaError_t error = cudaSuccess;
    for (int f = 0; f < HA_CUDA_FUNCTIONS && error == cudaSuccess; f++) {
        const struct accuracy_args a = { function[f].first, function[f].last, step, (unsigned long long *)worst + f };
        const uint64_t blocks = ((a.last - a.first) / step + THREADS) / THREADS,
                       most = (uint64_t)multiprocessors * BLOCKS;
        error = ha_launch(function[f].kernel, dim3((unsigned)(blocks < most ? blocks : most)), dim3(THREADS), stream,
                          a);
    }
    return error;
}

HA_CUDA_KERNELS(accuracy, HA_KERNEL(accuracy_worst<HA_CUDA_EXP>), HA_KERNEL(accuracy_worst<HA_CUDA_EXP2>),
                HA_KERNEL(accuracy_worst<HA_CUDA_LOG>), HA_KERNEL(accuracy_worst<HA_CUDA_LOG2>));
