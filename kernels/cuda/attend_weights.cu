/* The softmax weights of all keys, averaged over the query tokens: scores once more, against the references and sums
 * that attention left behind. */

#include "kernels/cuda/attend_fma.cuh"

namespace
{

enum { WARPS = 8 };

struct block_shared {
    struct ha_cuda_seq seq;
};

/* a warp takes one step of keys; C: head_dim / 128, rounded up */
template <enum ha_dtype T, unsigned C>
__global__ void __launch_bounds__(WARPS * 32) ha_attend_weights(HA_ARGS(struct ha_cuda_call) a)
{
    constexpr unsigned KEYS = 8 / C, COPIES = 32 / KEYS;
    HA_SHARED(struct block_shared, sh);
    const unsigned unit = blockIdx.y, b = blockIdx.z, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        sh.seq = a.table ? a.table[b] : a.seq[b % HA_CUDA_SEQS_INLINE];
        if (a.head_lists) ha_cuda_own(a, sh.seq, unit, KEYS, WARPS);
    }
    __syncthreads();
    const struct ha_cuda_seq &seq = sh.seq;
    const unsigned step = blockIdx.x * WARPS + threadIdx.x / 32;
    unsigned steps = 0;
    for (unsigned r = 0; r < seq.runs; r++) steps += (seq.run[r].keys + KEYS - 1) / KEYS;
    if (!seq.weights || step >= steps) return;

    const struct ha_cuda_stretch at = ha_cuda_stretch_at(seq, step, KEYS);
    typename stored<T>::type k[KEYS][C];
    HA_UNROLL
    for (unsigned key = 0; key < KEYS; key++) {
        const bool real = at.first + key < at.run->keys;
        const unsigned long long row = real ? ha_cuda_row(*at.run, at.first + key, a.block) : 0;
        load_row<T, C>(k[key], at.run->k + unit * seq.k_head_bytes + row * at.run->k_stride, real, a.dim, a.vectors);
    }

    const unsigned own = at.first + lane / COPIES, position = at.run->first + own;
    for (unsigned g = 0; g < a.group; g++) {
        float mean = 0;
        for (unsigned t = 0; t < a.q_len; t++) {
            const unsigned row = t * a.group + g;
            const size_t to = ha_cuda_q_row(a, unit, row);
            float4 q[C];
            load_query<C>(q, seq.q + ha_cuda_q_at(a, unit, row), true, a.dim);
            float x[KEYS];
            HA_UNROLL
            for (unsigned key = 0; key < KEYS; key++) {
                x[key] = 0;
                HA_UNROLL
                for (unsigned c = 0; c < C; c++) x[key] = dot4(q[c], widen<T>(k[key][c]), x[key]);
            }
            const float2 whole = a.whole[size_t(b) * a.rows * a.units + to];
            /* rounded otherwise than the first time, a score may come out above its reference */
            const float above = lane_sums<KEYS>(x) * a.scale - whole.x, weight = ha_exp2(above > 0 ? 0 : above);
            /* no sum: every score is -inf, and nothing weighs anything */
            if (position < ha_cuda_visible(a, seq.keys, row) && whole.y != 0)
                mean += weight / (whole.y * float(a.q_len));
        }
        if (lane % COPIES == 0 && own < at.run->keys)
            seq.weights[(size_t(unit) * a.group + g) * seq.weights_stride + position] = mean;
    }
}

template <enum ha_dtype T> cudaError_t launch(const struct ha_cuda_call *call, unsigned longest, cudaStream_t stream)
{
    const unsigned keys = call->dim > 128 ? 4 : 8, steps = (longest + keys - 1) / keys + HA_RUNS_MAX;
    const dim3 grid((steps + WARPS - 1) / WARPS, call->units, call->batch);
    return call->dim > 128 ? ha_launch(ha_attend_weights<T, 2>, grid, dim3(WARPS * 32), stream, *call)
                           : ha_launch(ha_attend_weights<T, 1>, grid, dim3(WARPS * 32), stream, *call);
}

} // namespace

cudaError_t ha_cuda_attend_weights(const struct ha_cuda_call *call, enum ha_dtype dtype, unsigned longest,
                                   cudaStream_t stream)
{
    return dtype == HA_F32   ? launch<HA_F32>(call, longest, stream)
           : dtype == HA_F16 ? launch<HA_F16>(call, longest, stream)
                             : launch<HA_BF16>(call, longest, stream);
}

#define OF(T) HA_KERNEL(ha_attend_weights<T, 1>), HA_KERNEL(ha_attend_weights<T, 2>)
HA_CUDA_KERNELS(attend_weights, OF(HA_F32), OF(HA_F16), OF(HA_BF16));
