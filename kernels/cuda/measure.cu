#include "kernels/cuda/simt.h"
#include "kernels/cuda/launch.h"

/* ---- read */

enum { READ_THREADS = 256, READ_DEPTH = 8, READ_BLOCKS = 8 }; /* blocks of a multiprocessor */

struct read_args {
    const uint32_t *word;         /* [words] */
    uint64_t words, head, pieces; /* words before the first 16-byte boundary; pieces of 16 bytes from there on */
    uint32_t *sum;
};

struct read_shared {
    uint32_t sum[READ_THREADS / 32];
};

static __device__ __forceinline__ uint32_t total(uint4 x) { return x.x + x.y + x.z + x.w; }

/* Each block sums up a stretch at a time, then the one a whole grid further on. */
static __global__ void __launch_bounds__(READ_THREADS) read_words(const struct read_args a)
{
    HA_SHARED(struct read_shared, s);
    const uint4 *body = (const uint4 *)(a.word + a.head);
    const uint64_t stretch = READ_THREADS * READ_DEPTH, stride = stretch * gridDim.x;
    uint32_t sum = 0;
    uint64_t at = blockIdx.x * stretch;
    for (; at + stretch <= a.pieces; at += stride) {
        uint4 x[READ_DEPTH];
        for (int i = 0; i < READ_DEPTH; i++) x[i] = ha_load16(body + at + threadIdx.x + (uint64_t)i * READ_THREADS);
        for (int i = 0; i < READ_DEPTH; i++) sum += total(x[i]);
    }
    /* what is left is less than a stretch, and one block's */
    for (uint64_t i = at + threadIdx.x; i < a.pieces; i += READ_THREADS) sum += total(ha_load16(body + i));
    if (blockIdx.x == 0) {
        if (threadIdx.x < a.head) sum += a.word[threadIdx.x];
        const uint64_t tail = a.head + 4 * a.pieces + threadIdx.x;
        if (tail < a.words) sum += a.word[tail];
    }
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) s.sum[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < READ_THREADS / 32; i++) sum += s.sum[i];
    if (sum) atomicAdd(a.sum, sum);
}

cudaError_t ha_cuda_read(unsigned multiprocessors, cudaStream_t stream, const void *ptr, size_t bytes, uint32_t *sum)
{
    const uint64_t words = bytes / sizeof(uint32_t);
    if (words == 0) return cudaSuccess;
    uint64_t head = (16 - (uintptr_t)ptr % 16) % 16 / sizeof(uint32_t);
    if (head > words) head = words;
    const struct read_args a = { (const uint32_t *)ptr, words, head, (words - head) / 4, sum };
    const uint64_t stretch = READ_THREADS * READ_DEPTH, stretches = (a.pieces + stretch - 1) / stretch;
    const uint64_t most = (uint64_t)multiprocessors * READ_BLOCKS, blocks = stretches < most ? stretches : most;
    return ha_launch(read_words, dim3(blocks ? (unsigned)blocks : 1), dim3(READ_THREADS), stream, a);
}

/* ---- spin */

struct spin_args {
    uint64_t ns;
};

static __global__ void spin(const struct spin_args a)
{
    const uint64_t begin = ha_clock_ns();
    while (ha_clock_ns() - begin < a.ns) {
    }
}

cudaError_t ha_cuda_spin(cudaStream_t stream, uint64_t ns)
{
    const struct spin_args a = { ns };
    return ha_launch(spin, dim3(1), dim3(1), stream, a);
}

/* ---- flags */

struct flag_args {
    uint32_t *to;
    const uint32_t *flag, *give_up;
    uint32_t value;
};

static __global__ void flag_wait(const struct flag_args a)
{
    while (ha_load_system(a.flag) < a.value && ha_load_system(a.give_up) == 0) ha_pause();
}

static __global__ void flag_write(const struct flag_args a)
{
    __threadfence_system();
    ha_store_system(a.to, a.value);
}

cudaError_t ha_cuda_flag_wait(cudaStream_t stream, const uint32_t *flag, uint32_t value, const uint32_t *give_up)
{
    const struct flag_args a = { NULL, flag, give_up, value };
    return ha_launch(flag_wait, dim3(1), dim3(1), stream, a);
}

cudaError_t ha_cuda_flag_write(cudaStream_t stream, uint32_t *flag, uint32_t value)
{
    const struct flag_args a = { flag, NULL, NULL, value };
    return ha_launch(flag_write, dim3(1), dim3(1), stream, a);
}

HA_CUDA_KERNELS(measure, HA_KERNEL(read_words), HA_KERNEL(spin), HA_KERNEL(flag_wait), HA_KERNEL(flag_write));
