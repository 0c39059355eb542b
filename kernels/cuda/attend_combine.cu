/* The splits of each row become its output. */

#include "kernels/cuda/attend.cuh"

namespace
{

enum { WARPS = 8, LANES = 32, THREADS = WARPS * LANES };

struct joining {
    struct ha_cuda_call call;
    unsigned tile_rows;
};

struct joined {
    float2 state[HA_CUDA_SPLITS_MAX];
    float by[HA_CUDA_SPLITS_MAX];
    float part[WARPS][HA_CUDA_DIM_MAX];
};

__device__ __forceinline__ float lanes_max(float x)
{
    for (int bit = LANES / 2; bit; bit /= 2) x = fmaxf(x, __shfl_xor_sync(HA_ALL_LANES, x, bit));
    return x;
}
__device__ __forceinline__ float lanes_sum(float x)
{
    for (int bit = LANES / 2; bit; bit /= 2) x += __shfl_xor_sync(HA_ALL_LANES, x, bit);
    return x;
}

/* One row of one unit of one sequence. A warp has every WARPS-th split, a lane 4 of every 128 dims; what the warps add
 * up is joined in the end. */
__global__ void __launch_bounds__(THREADS, 2) attend_combine(HA_ARGS(struct joining) a)
{
    HA_SHARED(struct joined, sh);
    const struct ha_cuda_call &call = a.call;
    const unsigned b = blockIdx.y, unit = blockIdx.x % call.units, row = blockIdx.x / call.units;
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const struct ha_cuda_seq &seq = call.table ? call.table[b] : call.seq[b % HA_CUDA_SEQS_INLINE];
    if (seq.splits == 1) return;

    const size_t stride = size_t(call.tiles) * call.units * a.tile_rows; /* rows from a split to the next */
    const size_t first = ((seq.partial + size_t(row / a.tile_rows) * call.units + unit) * a.tile_rows)
                         + row % a.tile_rows;
    for (unsigned s = threadIdx.x; s < seq.splits; s += THREADS) sh.state[s] = call.state[first + s * stride];
    __syncthreads();
    float m = -INFINITY, sum = 0;
    for (unsigned s = lane; s < seq.splits; s += LANES) m = fmaxf(m, sh.state[s].x);
    m = lanes_max(m);
    for (unsigned s = threadIdx.x; s < seq.splits; s += THREADS) sh.by[s] = ha_cuda_shift(sh.state[s].x, m);
    __syncthreads();
    for (unsigned s = lane; s < seq.splits; s += LANES) sum = fmaf(sh.state[s].y, sh.by[s], sum);
    sum = lanes_sum(sum);

    for (unsigned d = 4 * lane; d < call.dim; d += 4 * LANES) {
        float x[4] = {};
        const float *from = call.partial + first * call.dim + d;
        HA_UNROLL_BY(8)
        for (unsigned s = warp; s < seq.splits; s += WARPS) {
            const uint4 y = ha_load16(from + s * stride * call.dim);
            x[0] = fmaf(__uint_as_float(y.x), sh.by[s], x[0]);
            x[1] = fmaf(__uint_as_float(y.y), sh.by[s], x[1]);
            x[2] = fmaf(__uint_as_float(y.z), sh.by[s], x[2]);
            x[3] = fmaf(__uint_as_float(y.w), sh.by[s], x[3]);
        }
        ha_at<float4>(&sh.part[warp][d]) = make_float4(x[0], x[1], x[2], x[3]);
    }
    __syncthreads();
    float *o = seq.o + ha_cuda_q_at(call, unit, row);
    for (unsigned d = threadIdx.x; d < call.dim; d += THREADS) {
        float x[WARPS];
        HA_UNROLL
        for (unsigned w = 0; w < WARPS; w++) x[w] = sh.part[w][d];
        const float all = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
        o[d] = sum == 0 ? 0 : all / sum;
    }
    if (threadIdx.x) return;
    const size_t to = ha_cuda_q_row(call, unit, row);
    seq.lse[to] = ha_cuda_lse(m, sum);
    if (call.whole) call.whole[size_t(b) * call.rows * call.units + to] = make_float2(m, sum);
}

} // namespace

cudaError_t ha_cuda_attend_combine(const struct ha_cuda_call *call, unsigned tile_rows, cudaStream_t stream)
{
    const struct joining a = { *call, tile_rows };
    return ha_launch(attend_combine, dim3(call->rows * call->units, call->batch), dim3(THREADS), stream, a);
}

HA_CUDA_KERNELS(attend_combine, HA_KERNEL(attend_combine));
