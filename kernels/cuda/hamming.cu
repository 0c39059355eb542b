/* Scores of keys by their codes: a thread has a key, whose words a warp reads side by side, and goes through the codes
 * of the queries, which are in shared memory. */

#include "kernels/cuda/simt.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/operand.h"

enum { THREADS = 128, ROWS = 32, WORDS = HA_CODE_BITS_MAX / 32 };

struct hamming_args {
    size_t rows;
    unsigned words; /* of a code */
    struct ha_device_hamming_seq seq[HA_CUDA_BATCH];
};
struct hamming_shared {
    uint32_t q[ROWS][WORDS];
};

static __device__ __forceinline__ const uint32_t *code_of(const void *codes, size_t row, unsigned words)
{
    return (const uint32_t *)codes + row / HA_CODE_KEYS * (words + 1) * HA_CODE_KEYS + row % HA_CODE_KEYS;
}

static __global__ void __launch_bounds__(THREADS) hamming_of_keys(HA_ARGS(struct hamming_args) a)
{
    HA_SHARED(struct hamming_shared, s);
    const struct ha_device_hamming_seq &seq = a.seq[blockIdx.z];
    const size_t head = blockIdx.y, begin = size_t(blockIdx.x) * THREADS, key = begin + threadIdx.x;
    if (begin >= seq.keys || (seq.only && !seq.only[head])) return;
    const uint32_t *code = code_of((const char *)seq.codes + head * seq.code_head_bytes, min(key, seq.keys - 1),
                                   a.words);
    uint32_t own[WORDS];
    for (unsigned w = 0; w < WORDS; w++) own[w] = w < a.words ? code[w * HA_CODE_KEYS] : 0;
    const float norm = __uint_as_float(code[a.words * HA_CODE_KEYS]);
    for (size_t first = 0; first < a.rows; first += ROWS) {
        const unsigned here = unsigned(min(size_t(ROWS), a.rows - first));
        __syncthreads();
        for (unsigned i = threadIdx.x; i < here * WORDS; i += THREADS) {
            const unsigned w = i / here, r = i % here;
            s.q[r][w] = w < a.words ? code_of((const char *)seq.q + head * seq.q_head_bytes, first + r,
                                              a.words)[w * HA_CODE_KEYS]
                                    : 0;
        }
        __syncthreads();
        for (unsigned r = 0; r < here && key < seq.keys; r++) {
            int differ = 0;
            for (unsigned w = 0; w < WORDS; w++) differ += __popc(own[w] ^ s.q[r][w]);
            seq.s[(head * a.rows + first + r) * seq.s_stride + key] = norm * float(int(a.words * 32) - 2 * differ);
        }
    }
}

size_t ha_cuda_hamming_check(struct ha_cuda_check *c, const struct ha_device_hamming *h)
{
    if (!ha_cuda_bits_fit(c, h->bits)) return 0;
    const size_t heads = h->kv_heads, q = ha_code_bytes(h->rows, h->bits), rows = times(heads, h->rows);
    for (size_t b = 0; b < h->batch; b++) {
        const struct ha_device_hamming_seq *seq = &h->seqs[b];
        const bool any = rows && seq->keys;
        const size_t codes = ha_code_bytes(seq->keys, h->bits), only = heads * sizeof *seq->only,
                     scores = times(extent(rows, seq->s_stride, seq->keys), sizeof *seq->s);
        ha_cuda_takes(c, "q", seq->q, any ? extent(heads, seq->q_head_bytes, q) : 0, heads * q);
        ha_cuda_takes(c, "codes", seq->codes, any ? extent(heads, seq->code_head_bytes, codes) : 0, heads * codes);
        ha_cuda_takes(c, "scores", seq->s, any ? scores : 0, 0);
        if (seq->only) ha_cuda_takes(c, "only", seq->only, only, only);
    }
    return h->batch * rows;
}

cudaError_t ha_cuda_hamming(cudaStream_t stream, const struct ha_device_hamming *args)
{
    struct hamming_args a = {};
    a.rows = args->rows;
    a.words = unsigned(args->bits / 32);
    return ha_cuda_launch_batch(
        a.seq, args->seqs, args->batch, args->kv_heads,
        [&](const struct ha_device_hamming_seq &seq) { return (seq.keys + THREADS - 1) / THREADS; },
        [&](dim3 grid) { return ha_launch(hamming_of_keys, grid, dim3(THREADS), stream, a); });
}

HA_CUDA_KERNELS(hamming, HA_KERNEL(hamming_of_keys));
