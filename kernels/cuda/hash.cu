/* Codes of rows: a lane has a bit of each word, and a vote of the warp is the word. A block goes through the dimensions
 * TERMS at a time, which a warp reads side by side: rows begin at any multiple of the element size. */

#include "kernels/cuda/simt.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/operand.h"

enum { THREADS = 256, WARPS = THREADS / HA_WARP, TERMS = HA_WARP };

struct hash_args {
    size_t heads, group, dim, tiles; /* tiles: of WORDS words */
    unsigned words;                  /* of a code */
    const float *a;
    struct ha_device_hash_seq seq[HA_CUDA_BATCH];
};
template <unsigned OWN, unsigned WORDS> struct hash_shared {
    alignas(16) float x[WARPS * OWN][TERMS];
    float a[WORDS * HA_WARP][TERMS + 1];
};

/* WORDS words of WARPS * OWN rows of a head, of which each warp has OWN; row r is of token r / group. The norm is made
 * beside the first word. What is behind the last dimension, row or word counts as 0. With several rows of a warp a
 * multiprocessor has 3 blocks, since for more there would be too few registers. */
template <enum ha_dtype T, unsigned OWN, unsigned WORDS>
static __global__ void __launch_bounds__(THREADS, OWN > 1 ? 3 : 0) hash_rows(HA_ARGS(struct hash_args) a)
{
    typedef struct hash_shared<OWN, WORDS> shared;
    HA_SHARED(shared, s);
    const unsigned lane = threadIdx.x % HA_WARP, warp = threadIdx.x / HA_WARP,
                   word = unsigned(blockIdx.x % a.tiles) * WORDS, block_words = (a.words + 1) * HA_CODE_KEYS;
    const struct ha_device_hash_seq &seq = a.seq[blockIdx.z];
    const size_t rows = seq.tokens * a.group, first = blockIdx.x / a.tiles * WARPS * OWN, head = blockIdx.y;
    if (first >= rows) return;
    float sum[OWN][WORDS] = {}, squares[OWN] = {};
    for (size_t d = 0; d < a.dim; d += TERMS) {
        const bool in = d + lane < a.dim;
        __syncthreads();
        for (unsigned j = 0; j < OWN; j++) {
            const size_t r = first + warp * OWN + j;
            const float x = in && r < rows
                                ? ha_cuda_number_at<T>(seq.x, r / a.group * seq.token_stride
                                                                  + (head * a.group + r % a.group) * a.dim + d + lane)
                                : 0;
            s.x[warp * OWN + j][lane] = x;
            squares[j] = fmaf(x, x, squares[j]);
        }
        for (unsigned j = warp; j < WORDS * HA_WARP; j += WARPS) {
            const size_t bit = word * HA_WARP + j;
            s.a[j][lane] = in && bit < a.words * HA_WARP ? a.a[(head * a.words * HA_WARP + bit) * a.dim + d + lane] : 0;
        }
        __syncthreads();
        for (unsigned t = 0; t < TERMS; t++)
            for (unsigned w = 0; w < WORDS; w++) {
                const float by = s.a[w * HA_WARP + lane][t];
                for (unsigned j = 0; j < OWN; j++) sum[j][w] = fmaf(s.x[warp * OWN + j][t], by, sum[j][w]);
            }
    }
    for (unsigned j = 0; j < OWN; j++) {
        const size_t r = first + warp * OWN + j, row = seq.first + r;
        uint32_t *to = (uint32_t *)((char *)seq.codes + head * seq.code_head_bytes) + row / HA_CODE_KEYS * block_words
                       + row % HA_CODE_KEYS;
        const float norm = sqrtf(ha_cuda_warp_sum(squares[j]));
        for (unsigned w = 0; w < WORDS; w++) {
            const unsigned bits = __ballot_sync(HA_ALL_LANES, sum[j][w] > 0);
            if (lane == w && r < rows && word + w < a.words) to[(word + w) * HA_CODE_KEYS] = bits;
        }
        if (lane == WORDS && r < rows && word == 0) to[a.words * HA_CODE_KEYS] = __float_as_uint(norm);
    }
}

template <enum ha_dtype T, unsigned OWN, unsigned WORDS>
static cudaError_t hash_launch(cudaStream_t stream, const struct ha_device_hash *args)
{
    struct hash_args a = {};
    a.heads = args->kv_heads;
    a.group = args->group;
    a.dim = args->head_dim;
    a.words = unsigned(args->bits / HA_WARP);
    a.tiles = (a.words + WORDS - 1) / WORDS;
    a.a = args->a;
    return ha_cuda_launch_batch(
        a.seq, args->seqs, args->batch, args->kv_heads,
        [&](const struct ha_device_hash_seq &seq) {
            return (seq.tokens * a.group + WARPS * OWN - 1) / (WARPS * OWN) * a.tiles;
        },
        [&](dim3 grid) { return ha_launch(hash_rows<T, OWN, WORDS>, grid, dim3(THREADS), stream, a); });
}

/* A step's rows are few: more blocks then, that have less of them. */
template <enum ha_dtype T> static cudaError_t hash_of(cudaStream_t stream, const struct ha_device_hash *args)
{
    size_t most = 0;
    for (size_t b = 0; b < args->batch; b++) most = max(most, args->seqs[b].tokens * args->group);
    return most <= 4 * WARPS ? hash_launch<T, 1, 1>(stream, args) : hash_launch<T, 8, 2>(stream, args);
}

size_t ha_cuda_hash_check(struct ha_cuda_check *c, const struct ha_device_hash *h)
{
    if (!ha_cuda_type_fits(c, "rows", h->dtype) || !ha_cuda_bits_fit(c, h->bits)) return 0;
    const size_t a = times(h->kv_heads, h->bits * h->head_dim * sizeof *h->a), e = ha_dtype_bytes(h->dtype),
                 token = h->kv_heads * h->group * h->head_dim * e;
    ha_cuda_takes(c, "a", h->a, a, a);
    for (size_t b = 0; b < h->batch; b++) {
        const struct ha_device_hash_seq *seq = &h->seqs[b];
        const size_t codes = ha_code_bytes(seq->first + seq->tokens * h->group, h->bits);
        const bool any = token && seq->tokens;
        ha_cuda_takes(c, "x", seq->x, any ? extent(seq->tokens, times(seq->token_stride, e), token) : 0,
                      seq->tokens * token);
        ha_cuda_takes(c, "codes", seq->codes, any ? extent(h->kv_heads, seq->code_head_bytes, codes) : 0, 0);
    }
    return h->batch * token;
}

cudaError_t ha_cuda_hash(cudaStream_t stream, const struct ha_device_hash *args)
{
    return args->dtype == HA_F32   ? hash_of<HA_F32>(stream, args)
           : args->dtype == HA_F16 ? hash_of<HA_F16>(stream, args)
                                   : hash_of<HA_BF16>(stream, args);
}

#define OF(T) HA_KERNEL(hash_rows<T, 1, 1>), HA_KERNEL(hash_rows<T, 8, 2>)
HA_CUDA_KERNELS(hash, OF(HA_F32), OF(HA_F16), OF(HA_BF16));
