#ifndef HA_KERNELS_CUDA_LAUNCH_H
#define HA_KERNELS_CUDA_LAUNCH_H

/* The kernels of the CUDA device, from the side of C: each function enqueues its kernels on the stream, copies its
 * arguments, and gives the first error. The arguments have been checked (launch.c): sizes that fit, pointers that a
 * kernel may follow, types in range. Grids are fitted to the GPU's multiprocessors. Written in the .cu files beside it,
 * which are compiled by nvcc for GPUs and by the C++ compiler, over emulation/, for this machine. */

#include "harness/api/device.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kernels that the calling thread has launched, ever: ha_launch counts them, and trace.c knows by it how many an
 * operation has enqueued. (trace.c, and emulation/simt.c) */
extern __thread unsigned ha_cuda_launched;

/* ---- kernels, as the host knows them: a list in each file. kernels.c asks about each of them when the device is
 * opened, which loads it; else its first launch would, which waits for all that runs, and for ever where that waits for
 * the thread that launches. */
struct ha_cuda_kernel {
    const void *function;
    unsigned threads;    /* of a block, where it is asked how many of them a multiprocessor holds; else 0 */
    size_t shared_bytes; /* dynamic shared memory of a block */
    unsigned resident;   /* what was asked: blocks that a multiprocessor holds at once; atomic */
};
struct ha_cuda_kernels {
    const char *file;
    struct ha_cuda_kernel *list;
    size_t count;
};
#ifdef __cplusplus
#define HA_KERNEL(...)                                       \
    {                                                        \
        reinterpret_cast<const void *>(__VA_ARGS__), 0, 0, 0 \
    }
#define HA_CUDA_KERNELS(file, ...)                                              \
    static struct ha_cuda_kernel all_kernels[] = { __VA_ARGS__ };               \
    const struct ha_cuda_kernels ha_cuda_kernels_##file = { #file, all_kernels, \
                                                            sizeof all_kernels / sizeof *all_kernels }
#endif

/* ---- attention (attend*.cu): split-KV, partial results in the workspace, joined by a second kernel */

/* more sequences are several launches */
enum { HA_CUDA_SEQS_MAX = 64 };
enum { HA_CUDA_DIM_MAX = 256 }; /* elements of a head, of any attention */

/* bytes of workspace that such a call needs, at most; grows with batch, heads, q_len and multiprocessors, not with the
 * keys */
size_t ha_cuda_attend_workspace(unsigned multiprocessors, const struct ha_device_attend *args);
/* splits: 0: as the GPU and the lengths want it; else so many for each sequence, as far as the workspace holds them,
 * for tests: results differ within the bound */
cudaError_t ha_cuda_attend(unsigned multiprocessors, cudaStream_t stream, const struct ha_device_attend *args,
                           void *workspace, unsigned splits);
/* of these kernels for K and V of that type; exp_eps and log_eps are measured (accuracy.cu) and left 0 */
struct ha_profile ha_cuda_attend_profile(enum ha_dtype dtype);

/* ---- the softmax of attention by products (scores.cu): rows [rows][stride] of scores s (binary32) become
 * exp(scale s - max) in dtype, in place of nothing: to p [rows][p_stride]; row r is of query token t = r / group %
 * q_len, the keys that it does not see become 0. sum [rows], max [rows]: of the row; no key: 0 and -inf. The sum is of
 * the weights before they are rounded, so that the LSE does not carry that rounding; its longest path has at most
 * ceil(keys / 128) + 7 additions. */
struct ha_cuda_scores {
    const float *s;
    void *p;
    float *max, *sum;
    size_t rows, group, keys, stride, p_stride;
    size_t q_len; /* causal: token t sees keys - (q_len - 1 - t) */
    bool causal;
    float scale;
    enum ha_dtype dtype;
};
cudaError_t ha_cuda_products_softmax(cudaStream_t stream, const struct ha_cuda_scores *args);

/* ---- what else goes around the library's calls (products.cu). A problem is one KV head of one sequence: problem i is
 * head i % kv_heads of sequence i / kv_heads. At hand are problems [first, first + count) of query tokens [token, token
 * + tokens), rows [count][tokens][group]; the sequences have runs of the same lengths. */
struct ha_cuda_products {
    const struct ha_device_seq *seqs; /* [seqs_count], at most HA_CUDA_SEQS_MAX; copied */
    size_t seqs_count, q_heads, kv_heads, head_dim;
    size_t q_token_stride, q_head_stride; /* of q and o, in floats */
    enum ha_dtype dtype;
    size_t first, count, token, tokens;
    size_t stride;              /* of a row of s and p, in elements */
    size_t run_at[HA_RUNS_MAX]; /* where a run's keys begin in a row */
    void *q;                    /* [rows][head_dim] of dtype */
    float *s;                   /* [rows][stride] */
    void *p;                    /* [rows][stride] of dtype */
    float *o, *max, *sum;       /* [rows][head_dim], of weights not normalised; [rows], [rows] */
    void **operands;            /* [runs][scores, values][3][count]: K, q, s; V, p, o */
};
/* gathers q, writes down the operands, and -inf between the runs of s */
cudaError_t ha_cuda_products_begin(cudaStream_t stream, const struct ha_cuda_products *args);
/* o / sum and max + ln sum, to where the sequences want them */
cudaError_t ha_cuda_products_end(cudaStream_t stream, const struct ha_cuda_products *args);

/* ---- merge.cu: every form, type and stride; states in device or mapped memory, at most so many */
enum { HA_CUDA_STATES_MAX = 512 };
struct ha_merge_traits ha_cuda_merge_traits(void); /* exp_eps and log_eps are measured and left 0 */

/* ---- move.cu */
cudaError_t ha_cuda_move(unsigned multiprocessors, cudaStream_t stream, const struct ha_device_move *args);

/* ---- operations.def. NAME_check: 0: there is nothing to do, or c says what is wrong (operand.h). Any number of
 * sequences; kv_heads up to 65535; lists below 2^31; codes of whole words, and of groups of dimensions at multiples of
 * 16 bytes, as their tables. */
struct ha_cuda_check;
#define HA_CUDA_FILE(file) extern const struct ha_cuda_kernels ha_cuda_kernels_##file;
#define HA_CUDA_OPERATION(name, arguments)                                                \
    size_t ha_cuda_##name##_check(struct ha_cuda_check *c, const struct arguments *args); \
    cudaError_t ha_cuda_##name(cudaStream_t stream, const struct arguments *args);
#include "kernels/cuda/operations.def"

/* ---- measure.cu */
cudaError_t ha_cuda_read(unsigned multiprocessors, cudaStream_t stream, const void *ptr, size_t bytes, uint32_t *sum);
cudaError_t ha_cuda_spin(cudaStream_t stream, uint64_t ns);
/* waits until *flag >= value, or until *give_up is not 0: where the driver has no memory operations */
cudaError_t ha_cuda_flag_wait(cudaStream_t stream, const uint32_t *flag, uint32_t value, const uint32_t *give_up);
cudaError_t ha_cuda_flag_write(cudaStream_t stream, uint32_t *flag, uint32_t value);

/* ---- accuracy.cu: largest relative error of the kernels' exp over every step-th float of [-104, 0], of their exp2
 * over
 * [-150, 0], of their log and log2 over [1, 2^40], against binary64. step 1: all of them. worst: [4] in device memory,
 * zeroed by the caller. */
enum { HA_CUDA_EXP, HA_CUDA_EXP2, HA_CUDA_LOG, HA_CUDA_LOG2, HA_CUDA_FUNCTIONS };
cudaError_t ha_cuda_accuracy(unsigned multiprocessors, cudaStream_t stream, uint32_t step, double *worst);

#ifdef __cplusplus
}
#endif
#endif
