/* The splits of each row become its output. */

#include "kernels/cuda/attend.cuh"

namespace
{

enum { THREADS = 128, SUMS = 4 };

struct joining {
    struct ha_cuda_call call;
    unsigned tile_rows;
};

struct joined {
    float2 state[HA_CUDA_SPLITS_MAX];
    float by[HA_CUDA_SPLITS_MAX];
};

/* one row of one unit of one sequence. Several sums take turns: a weight goes through a SUMS-th of the joins. */
__global__ void __launch_bounds__(THREADS) ha_attend_combine(HA_ARGS(struct joining) a)
{
    HA_SHARED(struct joined, sh);
    const struct ha_cuda_call &call = a.call;
    const unsigned b = blockIdx.y, unit = blockIdx.x % call.units, row = blockIdx.x / call.units;
    const struct ha_cuda_seq &seq = call.table ? call.table[b] : call.seq[b % HA_CUDA_SEQS_INLINE];
    if (seq.splits == 1) return;

    const size_t stride = size_t(call.tiles) * call.units * a.tile_rows; /* rows from a split to the next */
    const size_t first = ((seq.partial + size_t(row / a.tile_rows) * call.units + unit) * a.tile_rows)
                         + row % a.tile_rows;
    for (unsigned s = threadIdx.x; s < seq.splits; s += THREADS) sh.state[s] = call.state[first + s * stride];
    __syncthreads();
    float m = -INFINITY;
    for (unsigned s = 0; s < seq.splits; s++) m = fmaxf(m, sh.state[s].x);
    for (unsigned s = threadIdx.x; s < seq.splits; s += THREADS) sh.by[s] = ha_cuda_shift(sh.state[s].x, m);
    __syncthreads();
    float sum[SUMS] = {};
    for (unsigned s = 0; s < seq.splits; s += SUMS) HA_UNROLL
    for (unsigned i = 0; i < SUMS; i++)
        if (s + i < seq.splits) sum[i] = fmaf(sh.state[s + i].y, sh.by[s + i], sum[i]);
    const float all = (sum[0] + sum[1]) + (sum[2] + sum[3]);

    const size_t to = ha_cuda_q_row(call, unit, row);
    float *o = seq.o + ha_cuda_q_at(call, unit, row);
    for (unsigned d = threadIdx.x; d < call.dim; d += THREADS) {
        float x[SUMS] = {};
        for (unsigned s = 0; s < seq.splits; s += SUMS) HA_UNROLL
        for (unsigned i = 0; i < SUMS; i++)
            if (s + i < seq.splits)
                x[i] = fmaf(call.partial[(first + (s + i) * stride) * call.dim + d], sh.by[s + i], x[i]);
        o[d] = all == 0 ? 0 : ((x[0] + x[1]) + (x[2] + x[3])) / all;
    }
    if (threadIdx.x) return;
    seq.lse[to] = ha_cuda_lse(m, all);
    if (call.whole) call.whole[size_t(b) * call.rows * call.units + to] = make_float2(m, all);
}

} // namespace

cudaError_t ha_cuda_attend_combine(const struct ha_cuda_call *call, unsigned tile_rows, cudaStream_t stream)
{
    const struct joining a = { *call, tile_rows };
    return ha_launch(ha_attend_combine, dim3(call->rows * call->units, call->batch), dim3(THREADS), stream, a);
}

HA_CUDA_KERNELS(attend_combine, HA_KERNEL(ha_attend_combine));
