#include "kernels/cuda/simt.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"

/* Short rows get small blocks. */
enum { SHORT_KEYS = 2048, SHORT_THREADS = 128, LONG_THREADS = 512, DEPTH = 4 };

template <int THREADS> struct softmax_shared {
    int rank[THREADS / HA_WARP];
    float sum[THREADS / HA_WARP];
};

/* Two passes over the scores: the largest, then the weights. Each thread takes every THREADS-th key. */
template <int THREADS, enum ha_dtype T>
static __global__ void __launch_bounds__(THREADS) attend_products_softmax(const struct ha_cuda_scores a)
{
    typedef struct ha_cuda_piece<T, false> element;
    HA_SHARED(struct softmax_shared<THREADS>, s);
    const unsigned lane = threadIdx.x % HA_WARP, warp = threadIdx.x / HA_WARP;
    const size_t row = blockIdx.x,
                 after = a.causal ? a.q_len - 1 - row / a.group % a.q_len : 0; /* keys behind the row's own */
    const size_t visible = a.keys > after ? a.keys - after : 0;
    const float *score = a.s + row * a.stride;
    char *p = (char *)a.p + row * a.p_stride * (T == HA_F32 ? 4 : 2);

    int rank = ha_cuda_rank(-INFINITY);
    for (size_t i = threadIdx.x; i < visible; i += THREADS * DEPTH) {
        float x[DEPTH];
        for (unsigned j = 0; j < DEPTH; j++)
            x[j] = i + j * THREADS < visible ? a.scale * score[i + j * THREADS] : -INFINITY;
        for (unsigned j = 0; j < DEPTH; j++) rank = max(rank, ha_cuda_rank(x[j]));
    }
    rank = ha_cuda_warp_max(rank);
    if (lane == 0) s.rank[warp] = rank;
    __syncthreads();
    for (int i = 0; i < THREADS / HA_WARP; i++) rank = max(rank, s.rank[i]);
    const float top = ha_cuda_ranked(rank);

    float sum = 0;
    for (size_t i = threadIdx.x; i < a.keys; i += THREADS * DEPTH) {
        float x[DEPTH];
        for (unsigned j = 0; j < DEPTH; j++)
            x[j] = i + j * THREADS < visible ? a.scale * score[i + j * THREADS] : -INFINITY;
        for (unsigned j = 0; j < DEPTH; j++) {
            /* where all scores are -inf nothing is subtracted from them */
            const float w = top != -INFINITY ? ha_exp(x[j] - top) : 0;
            sum += w;
            element e;
            e.set(&w);
            if (i + j * THREADS < a.keys) e.store(p + (i + j * THREADS) * (T == HA_F32 ? 4 : 2));
        }
    }
    sum = ha_cuda_warp_sum(sum);
    if (lane == 0) s.sum[warp] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < THREADS / HA_WARP; i++) sum += s.sum[i];
    a.max[row] = top;
    a.sum[row] = sum;
}

template <enum ha_dtype T> static cudaError_t launch(cudaStream_t stream, const struct ha_cuda_scores *a)
{
    const dim3 grid((unsigned)a->rows);
    return a->keys <= SHORT_KEYS
               ? ha_launch(attend_products_softmax<SHORT_THREADS, T>, grid, dim3(SHORT_THREADS), stream, *a)
               : ha_launch(attend_products_softmax<LONG_THREADS, T>, grid, dim3(LONG_THREADS), stream, *a);
}

cudaError_t ha_cuda_products_softmax(cudaStream_t stream, const struct ha_cuda_scores *args)
{
    if (args->rows == 0) return cudaSuccess;
    if (args->rows > INT32_MAX) return cudaErrorInvalidConfiguration;
    return args->dtype == HA_F32   ? launch<HA_F32>(stream, args)
           : args->dtype == HA_F16 ? launch<HA_F16>(stream, args)
                                   : launch<HA_BF16>(stream, args);
}

#define OF(T) HA_KERNEL(attend_products_softmax<SHORT_THREADS, T>), HA_KERNEL(attend_products_softmax<LONG_THREADS, T>)
HA_CUDA_KERNELS(scores, OF(HA_F32), OF(HA_F16), OF(HA_BF16));
