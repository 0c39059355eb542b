/* Sums of V by lists: a thread block has 32 columns of a query head and up to TOKENS of its tokens, which share the
 * rows of V; its warps take the rows of the list by turns, and a lane has a column. How long a list is, is known here
 * alone: a block goes through all of it. */

#include "kernels/cuda/simt.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/operand.h"

/* PART rows of a warp are added up before that is added to the others: no path has more additions than PART, those of
 * the parts, and a warp's each. */
enum { THREADS = 512, WARPS = THREADS / HA_WARP, PART = 256, DEPTH = 8 };

struct sum_args {
    size_t q_len, q_heads, group, dim, tiles; /* tiles: of HA_WARP columns */
    struct ha_device_weighted_sum_seq seq[HA_CUDA_BATCH];
};
template <unsigned TOKENS> struct sum_shared {
    float sum[WARPS][TOKENS][HA_WARP];
};

/* Of several tokens one block of a multiprocessor is enough: for two there would be too few registers. */
template <enum ha_dtype T, enum ha_dtype W, unsigned TOKENS>
static __global__ void __launch_bounds__(THREADS, TOKENS > 1 ? 1 : 0) weighted_sum_of_list(HA_ARGS(struct sum_args) a)
{
    HA_SHARED(struct sum_shared<TOKENS>, s);
    const struct ha_device_weighted_sum_seq &seq = a.seq[blockIdx.z];
    const unsigned lane = threadIdx.x % HA_WARP, warp = threadIdx.x / HA_WARP;
    const size_t head = blockIdx.y, column = blockIdx.x % a.tiles * HA_WARP + lane,
                 token = blockIdx.x / a.tiles * TOKENS, n = seq.keys[head];
    const uint32_t *index = seq.index + head * seq.index_stride;
    const char *v = (const char *)seq.v + head / a.group * seq.v_head_bytes,
               *w = (const char *)seq.w + head * a.q_len * seq.w_stride * (W == HA_F32 ? 4 : 2);
    const bool in = column < a.dim;
    float sum[TOKENS] = {};
    for (size_t first = warp; first < n; first += size_t(PART) * WARPS) {
        float part[TOKENS] = {};
        for (unsigned j = 0; j < PART && first + size_t(j) * WARPS < n; j += DEPTH) {
            struct ha_cuda_piece<T, false> x[DEPTH]; /* of rows that are all asked for before the first is needed */
            for (unsigned k = 0; k < DEPTH; k++) {
                const size_t i = first + size_t(j + k) * WARPS;
                if (in && i < n) x[k].load(v + index[i] * seq.v_stride_bytes + column * (T == HA_F32 ? 4 : 2));
            }
            for (unsigned k = 0; k < DEPTH; k++) {
                const size_t i = first + size_t(j + k) * WARPS;
                for (unsigned t = 0; t < TOKENS && i < n; t++)
                    if (token + t < a.q_len)
                        part[t] = fmaf(ha_cuda_number_at<W>(w, (token + t) * seq.w_stride + i), x[k].get(0), part[t]);
            }
        }
        for (unsigned t = 0; t < TOKENS; t++) sum[t] += part[t];
    }
    for (unsigned t = 0; t < TOKENS; t++) s.sum[warp][t][lane] = sum[t];
    __syncthreads();
    for (unsigned t = warp; t < TOKENS && token + t < a.q_len; t += WARPS) {
        float all = 0;
        for (unsigned from = 0; from < WARPS; from++) all += s.sum[from][t][lane];
        if (in) seq.o[((token + t) * a.q_heads + head) * a.dim + column] = all;
    }
}

template <enum ha_dtype T, enum ha_dtype W, unsigned TOKENS>
static cudaError_t sum_launch(cudaStream_t stream, const struct ha_device_weighted_sum *args)
{
    struct sum_args a = {};
    a.q_len = args->q_len;
    a.q_heads = args->q_heads;
    a.group = args->q_heads / args->kv_heads;
    a.dim = args->head_dim;
    a.tiles = (args->head_dim + HA_WARP - 1) / HA_WARP;
    return ha_cuda_launch_batch(
        a.seq, args->seqs, args->batch, args->q_heads,
        [&](const struct ha_device_weighted_sum_seq &) { return (args->q_len + TOKENS - 1) / TOKENS * a.tiles; },
        [&](dim3 grid) { return ha_launch(weighted_sum_of_list<T, W, TOKENS>, grid, dim3(THREADS), stream, a); });
}

template <enum ha_dtype T> static cudaError_t sum_of(cudaStream_t stream, const struct ha_device_weighted_sum *args)
{
    const bool one = args->q_len == 1;
    if (args->w_type == HA_F32)
        return one ? sum_launch<T, HA_F32, 1>(stream, args) : sum_launch<T, HA_F32, 4>(stream, args);
    return one ? sum_launch<T, HA_F16, 1>(stream, args) : sum_launch<T, HA_F16, 4>(stream, args);
}

/* How many rows are read is known when the kernel runs: of lists, the places of their beginnings are looked at. */
size_t ha_cuda_weighted_sum_check(struct ha_cuda_check *c, const struct ha_device_weighted_sum *d)
{
    if (!ha_cuda_type_fits(c, "V", d->dtype) || !ha_cuda_heads_fit(c, "query heads", d->q_heads, d->kv_heads)
        || !ha_cuda_half_fits(c, d->w_type))
        return 0;
    if (d->q_heads == 0) return ha_cuda_refuse(c, "no query heads");
    const size_t row = d->head_dim * ha_dtype_bytes(d->dtype), heads = d->q_heads, rows = times(d->q_len, heads),
                 keys = heads * sizeof(uint32_t), o = times(rows, d->head_dim * sizeof(float));
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_weighted_sum_seq *seq = &d->seqs[b];
        ha_cuda_takes_rows(c, "V", seq->v, true, extent(d->kv_heads, seq->v_head_bytes, row), 0);
        ha_cuda_takes(c, "keys", seq->keys, keys, keys);
        ha_cuda_takes_rows(c, "index", seq->index, true, times(extent(heads, seq->index_stride, 1), sizeof *seq->index),
                           0);
        ha_cuda_takes_rows(c, "weights", seq->w, true, times(extent(rows, seq->w_stride, 1), ha_dtype_bytes(d->w_type)),
                           0);
        ha_cuda_takes(c, "o", seq->o, o, 0);
    }
    return d->batch * rows * d->head_dim;
}

cudaError_t ha_cuda_weighted_sum(cudaStream_t stream, const struct ha_device_weighted_sum *args)
{
    return args->dtype == HA_F32   ? sum_of<HA_F32>(stream, args)
           : args->dtype == HA_F16 ? sum_of<HA_F16>(stream, args)
                                   : sum_of<HA_BF16>(stream, args);
}

#define OF(T, W) HA_KERNEL(weighted_sum_of_list<T, W, 1>), HA_KERNEL(weighted_sum_of_list<T, W, 4>)
HA_CUDA_KERNELS(weighted_sum, OF(HA_F32, HA_F32), OF(HA_F32, HA_F16), OF(HA_F16, HA_F32), OF(HA_F16, HA_F16),
                OF(HA_BF16, HA_F32), OF(HA_BF16, HA_F16));
