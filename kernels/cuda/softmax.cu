/* Scores to weights in place: a thread block for each row, three passes over it. */

#include "kernels/cuda/simt.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/operand.h"

/* Short rows get small blocks. */
enum { SHORT = 2048, SHORT_THREADS = 128, LONG_THREADS = 1024 };

struct softmax_args {
    size_t q_len;
    struct ha_device_softmax_seq seq[HA_CUDA_BATCH];
};
template <int THREADS> struct softmax_shared {
    int rank[THREADS / HA_WARP];
    float sum[THREADS / HA_WARP];
};

/* The longest path of the sum: a thread's every THREADS-th number, five steps of a warp, and the warps. */
template <int THREADS>
static __global__ void __launch_bounds__(THREADS) softmax_in_place(HA_ARGS(struct softmax_args) a)
{
    HA_SHARED(struct softmax_shared<THREADS>, s);
    const struct ha_device_softmax_seq &seq = a.seq[blockIdx.z];
    const unsigned lane = threadIdx.x % HA_WARP, warp = threadIdx.x / HA_WARP;
    const size_t row = blockIdx.x;
    float *x = seq.x + row * seq.stride;
    int rank = ha_cuda_rank(-INFINITY);
    for (size_t i = threadIdx.x; i < seq.n; i += THREADS) rank = max(rank, ha_cuda_rank(x[i]));
    rank = ha_cuda_warp_max(rank);
    if (lane == 0) s.rank[warp] = rank;
    __syncthreads();
    for (int i = 0; i < THREADS / HA_WARP; i++) rank = max(rank, s.rank[i]);
    const float top = ha_cuda_ranked(rank);
    const bool none = top == -INFINITY;
    float own = 0, sum = 0;
    for (size_t i = threadIdx.x; i < seq.n; i += THREADS) {
        const float w = none ? 0 : ha_exp(x[i] - top);
        own += w;
        x[i] = w;
    }
    own = ha_cuda_warp_sum(own);
    if (lane == 0) s.sum[warp] = own;
    __syncthreads();
    for (int i = 0; i < THREADS / HA_WARP; i++) sum += s.sum[i];
    for (size_t i = threadIdx.x; i < seq.n && !none; i += THREADS) x[i] = x[i] / sum;
    if (seq.lse && threadIdx.x == 0)
        seq.lse[row % a.q_len * seq.lse_stride + row / a.q_len] = none ? -INFINITY : top + ha_log(sum);
}

size_t ha_cuda_softmax_check(struct ha_cuda_check *c, const struct ha_device_softmax *d)
{
    const size_t rows = times(d->heads, d->q_len), f = sizeof(float);
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_softmax_seq *seq = &d->seqs[b];
        ha_cuda_takes(c, "scores", seq->x, seq->n ? times(extent(rows, seq->stride, seq->n), f) : 0, rows * seq->n * f);
        if (seq->lse) ha_cuda_takes(c, "LSE", seq->lse, times(extent(d->q_len, seq->lse_stride, d->heads), f), 0);
    }
    return d->batch * rows;
}

cudaError_t ha_cuda_softmax(cudaStream_t stream, const struct ha_device_softmax *args)
{
    struct softmax_args a = {};
    a.q_len = args->q_len;
    size_t longest = 0;
    for (size_t b = 0; b < args->batch; b++) longest = max(longest, args->seqs[b].n);
    return ha_cuda_launch_batch(
        a.seq, args->seqs, args->batch, 1,
        [&](const struct ha_device_softmax_seq &seq) { return seq.n || seq.lse ? args->heads * args->q_len : 0; },
        [&](dim3 grid) {
            return longest <= SHORT ? ha_launch(softmax_in_place<SHORT_THREADS>, grid, dim3(SHORT_THREADS), stream, a)
                                    : ha_launch(softmax_in_place<LONG_THREADS>, grid, dim3(LONG_THREADS), stream, a);
        });
}

HA_CUDA_KERNELS(softmax, HA_KERNEL(softmax_in_place<SHORT_THREADS>), HA_KERNEL(softmax_in_place<LONG_THREADS>));
