/* The softmax weights of all keys, averaged over the query tokens: scores once more, against the references and sums
 * that attention left behind. */

#include "kernels/cuda/attend_fma.cuh"

namespace
{

enum { WARPS = 8 };

struct block_shared {
    struct ha_cuda_seq seq;
};

/* C: head_dim / 128, rounded up. A warp takes one step of keys, SLOTS of them in each half, or the whole, of its lanes.
 */
template <enum ha_dtype T, unsigned C> struct shape : spread<T> {
    static constexpr unsigned SLOTS = 8 / C, KEYS = SLOTS * spread<T>::AT_ONCE, COPIES = spread<T>::LANES / SLOTS;
};

template <enum ha_dtype T, unsigned C, bool VECTORS>
__global__ void __launch_bounds__(WARPS * 32) attend_weights(HA_ARGS(struct ha_cuda_call) a)
{
    using S = shape<T, C>;
    HA_SHARED(struct block_shared, sh);
    const unsigned unit = blockIdx.y, b = blockIdx.z, lane = threadIdx.x % 32, half = lane / S::LANES;
    if (threadIdx.x == 0) {
        sh.seq = a.table ? a.table[b] : a.seq[b % HA_CUDA_SEQS_INLINE];
        if (a.head_lists) ha_cuda_own(a, sh.seq, unit, S::KEYS, WARPS);
    }
    __syncthreads();
    const struct ha_cuda_seq &seq = sh.seq;
    const unsigned step = blockIdx.x * WARPS + threadIdx.x / 32;
    unsigned steps = 0;
    for (unsigned r = 0; r < seq.runs; r++) steps += (seq.run[r].keys + S::KEYS - 1) / S::KEYS;
    if (!seq.weights || step >= steps) return;

    const struct ha_cuda_stretch at = ha_cuda_stretch_at(seq, step, S::KEYS);
    uint4 k[S::SLOTS][C];
    HA_UNROLL
    for (unsigned slot = 0; slot < S::SLOTS; slot++) {
        const unsigned key = at.first + slot * S::AT_ONCE + half;
        const bool real = key < at.run->keys;
        const unsigned long long row = real ? ha_cuda_row(*at.run, key, a.block) : 0;
        const char *p = at.run->k + unit * seq.k_head_bytes + row * at.run->k_stride;
        HA_UNROLL
        for (unsigned c = 0; c < C; c++) {
            const unsigned d = first_dim<T>(c);
            if (!real || d >= a.dim) k[slot][c] = make_uint4(0, 0, 0, 0);
            else k[slot][c] = VECTORS ? ha_load16(p + d * S::BYTES) : gather<T>(p + d * S::BYTES);
        }
    }

    const unsigned own = at.first + lane % S::LANES / S::COPIES * S::AT_ONCE + half, position = at.run->first + own;
    for (unsigned g = 0; g < a.group; g++) {
        float mean = 0;
        for (unsigned t = 0; t < a.q_len; t++) {
            const unsigned row = t * a.group + g;
            const size_t to = ha_cuda_q_row(a, unit, row);
            float q[C][S::IN_PIECE], x[S::SLOTS];
            load_query<T, C>(q, seq.q + ha_cuda_q_at(a, unit, row), true, a.dim);
            HA_UNROLL
            for (unsigned slot = 0; slot < S::SLOTS; slot++) {
                x[slot] = 0;
                HA_UNROLL
                for (unsigned c = 0; c < C; c++) {
                    float y[S::IN_PIECE];
                    widen<T>(y, k[slot][c]);
                    x[slot] = dot(q[c], y, x[slot]);
                }
            }
            const float2 whole = a.whole[size_t(b) * a.rows * a.units + to];
            /* rounded otherwise than the first time, a score may come out above its reference */
            const float above = lane_sums<S::SLOTS, S::LANES / 2>(x) * a.scale - whole.x,
                        weight = ha_exp2(above > 0 ? 0 : above);
            /* no sum: every score is -inf, and nothing weighs anything */
            if (position < ha_cuda_visible(a, seq.keys, row) && whole.y != 0)
                mean += weight / (whole.y * float(a.q_len));
        }
        if (lane % S::COPIES == 0 && own < at.run->keys)
            seq.weights[(size_t(unit) * a.group + g) * seq.weights_stride + position] = mean;
    }
}

template <enum ha_dtype T, unsigned C, bool VECTORS>
cudaError_t launch(const struct ha_cuda_call *call, unsigned longest, cudaStream_t stream)
{
    constexpr unsigned KEYS = shape<T, C>::KEYS;
    const unsigned steps = (longest + KEYS - 1) / KEYS + HA_RUNS_MAX;
    const dim3 grid((steps + WARPS - 1) / WARPS, call->units, call->batch);
    return ha_launch(attend_weights<T, C, VECTORS>, grid, dim3(WARPS * 32), stream, *call);
}

/* [type][C - 1][VECTORS] */
#define OF_C(X, T, C)                 \
    {                                 \
        X(T, C, false), X(T, C, true) \
    }
#define OF_TYPE(X, T)                \
    {                                \
        OF_C(X, T, 1), OF_C(X, T, 2) \
    }
#define LAUNCH(T, C, V) launch<T, C, V>
cudaError_t (*const launches[HA_DTYPE_COUNT][2][2])(const struct ha_cuda_call *call, unsigned longest,
                                                    cudaStream_t stream) = { OF_TYPE(LAUNCH, HA_F32),
                                                                             OF_TYPE(LAUNCH, HA_F16),
                                                                             OF_TYPE(LAUNCH, HA_BF16) };

} // namespace

cudaError_t ha_cuda_attend_weights(const struct ha_cuda_call *call, enum ha_dtype dtype, unsigned longest,
                                   cudaStream_t stream)
{
    return launches[dtype][call->dim > 128][call->vectors](call, longest, stream);
}

#define OF(T)                                                                      \
    HA_KERNEL(attend_weights<T, 1, false>), HA_KERNEL(attend_weights<T, 1, true>), \
        HA_KERNEL(attend_weights<T, 2, false>), HA_KERNEL(attend_weights<T, 2, true>)
HA_CUDA_KERNELS(attend_weights, OF(HA_F32), OF(HA_F16), OF(HA_BF16));
