/* Around the library's products: the queries that it is given, in the type of the keys, where the matrices of each
 * problem lie, and what becomes of its sums. */

#include "kernels/cuda/launch.h"
#include "kernels/cuda/simt.h"

namespace
{

enum { THREADS = 128 };

struct job {
    struct ha_cuda_products p;
    struct ha_device_seq seq[HA_CUDA_SEQS_MAX];
};

struct place {
    const struct ha_device_seq *seq;
    size_t row, at; /* of lse; of q and o, in floats */
};

/* of row r of the rows at hand */
__device__ place place_of(const job &j, size_t r)
{
    const ha_cuda_products &p = j.p;
    const size_t group = p.q_heads / p.kv_heads, g = r % group, t = p.token + r / group % p.tokens,
                 i = p.first + r / group / p.tokens, head = i % p.kv_heads * group + g;
    return { &j.seq[i / p.kv_heads], t * p.q_heads + head, t * p.q_token_stride + head * p.q_head_stride };
}

__global__ void attend_products_gather(HA_ARGS(struct job) j)
{
    const ha_cuda_products &p = j.p;
    const size_t r = blockIdx.x;
    const place from = place_of(j, r);
    const float *q = from.seq->q + from.at;
    for (size_t d = threadIdx.x; d < p.head_dim; d += blockDim.x) {
        const size_t at = r * p.head_dim + d;
        if (p.dtype == HA_F32) static_cast<float *>(p.q)[at] = q[d];
        else static_cast<uint16_t *>(p.q)[at] = p.dtype == HA_F16 ? ha_f32_to_f16(q[d]) : ha_f32_to_bf16(q[d]);
    }
    for (size_t run = 0; run + 1 < from.seq->runs_count; run++) {
        const size_t end = p.run_at[run] + from.seq->runs[run].keys;
        for (size_t i = end + threadIdx.x; i < p.run_at[run + 1]; i += blockDim.x) p.s[r * p.stride + i] = -INFINITY;
    }
}

/* the library's arrays are of pointers that may be written through */
__device__ void *moved(const void *base, size_t bytes)
{
    return const_cast<char *>(static_cast<const char *>(base)) + bytes;
}

__global__ void attend_products_list(HA_ARGS(struct job) j)
{
    const ha_cuda_products &p = j.p;
    const size_t n = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (n >= p.count) return;
    const size_t i = p.first + n, head = i % p.kv_heads, element = p.dtype == HA_F32 ? 4 : 2,
                 rows = p.tokens * (p.q_heads / p.kv_heads);
    const ha_device_seq &seq = j.seq[i / p.kv_heads];
    const size_t dims = n * rows * p.head_dim;
    void **operand = p.operands + n;
    for (size_t run = 0; run < seq.runs_count; run++, operand += 6 * p.count) {
        const size_t score = n * rows * p.stride + p.run_at[run];
        operand[0] = moved(seq.runs[run].k, head * seq.k_head_bytes);
        operand[p.count] = moved(p.q, dims * element);
        operand[2 * p.count] = p.s + score;
        operand[3 * p.count] = moved(seq.runs[run].v, head * seq.v_head_bytes);
        operand[4 * p.count] = moved(p.p, score * element);
        operand[5 * p.count] = p.o + dims;
    }
}

__global__ void attend_products_end(HA_ARGS(struct job) j)
{
    const ha_cuda_products &p = j.p;
    const size_t r = blockIdx.x;
    const place to = place_of(j, r);
    const float max = p.max[r], sum = p.sum[r];
    const bool empty = max == -INFINITY;
    float *o = to.seq->o + to.at;
    for (size_t d = threadIdx.x; d < p.head_dim; d += blockDim.x) o[d] = empty ? 0.0f : p.o[r * p.head_dim + d] / sum;
    if (threadIdx.x == 0) to.seq->lse[to.row] = empty ? -INFINITY : max + ha_log(sum);
}

size_t rows_of(const ha_cuda_products *p) { return p->count * p->tokens * (p->q_heads / p->kv_heads); }

job job_of(const ha_cuda_products *p)
{
    job j = {};
    j.p = *p;
    j.p.seqs = nullptr;
    for (size_t i = 0; i < p->seqs_count; i++) j.seq[i] = p->seqs[i];
    return j;
}

} // namespace

cudaError_t ha_cuda_products_begin(cudaStream_t stream, const struct ha_cuda_products *p)
{
    const job j = job_of(p);
    const cudaError_t error = ha_launch(attend_products_gather, dim3(static_cast<unsigned>(rows_of(p))), dim3(THREADS),
                                        stream, j);
    if (error != cudaSuccess) return error;
    return ha_launch(attend_products_list, dim3(static_cast<unsigned>((p->count + THREADS - 1) / THREADS)),
                     dim3(THREADS), stream, j);
}

cudaError_t ha_cuda_products_end(cudaStream_t stream, const struct ha_cuda_products *p)
{
    return ha_launch(attend_products_end, dim3(static_cast<unsigned>(rows_of(p))), dim3(THREADS), stream, job_of(p));
}

HA_CUDA_KERNELS(products, HA_KERNEL(attend_products_gather), HA_KERNEL(attend_products_list),
                HA_KERNEL(attend_products_end));
