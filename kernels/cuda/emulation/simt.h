#ifndef HA_KERNELS_CUDA_EMULATION_SIMT_H
#define HA_KERNELS_CUDA_EMULATION_SIMT_H

/* CUDA's names for kernels that run on this machine: kernels/cuda/simt.h without nvcc.
 *
 * A block runs on the thread that calls ha_emulated_run, the blocks of a launch one after another; the threads of a
 * block are fibers, each running until it has to wait for others. Wrong use ends the process with a line that names
 * kernel, block, thread and what the others wait at:
 *   __syncthreads while a thread of the block has returned, or waits at another __syncthreads;
 *   a warp operation whose mask lacks the caller, or names a lane that has returned or does not exist;
 *   a shuffle that reads a lane outside the mask;
 *   a vector at an address that is not a multiple of it, a copy to elsewhere than the block's shared memory;
 *   a return with copies on their way;
 *   threads that wait for each other.
 * A copy to shared memory lands when the thread that asked for it waits for its group, and is 0xFF until then: a wait
 * that is a group short reads NaN or what was there before, and so does what reads from a place after a copy to it was
 * asked for.
 * With AddressSanitizer, shared memory and arguments end where they end. With ThreadSanitizer, two threads of a block
 * that touch the same memory without a __syncthreads or __syncwarp between are reported: shuffles and votes do not
 * order memory, here as on a GPU. */

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* CUDA's vector types, as far as the kernels use them. may_alias: a GPU loads four floats at once from an array of
 * floats, and so may the kernels' source. */

#define HA_EMULATED_VECTOR(type, name, bytes, ...)                   \
    typedef struct __attribute__((may_alias, aligned(bytes))) name { \
        type __VA_ARGS__;                                            \
    } name;

HA_EMULATED_VECTOR(unsigned, uint2, 8, x, y)
HA_EMULATED_VECTOR(unsigned, uint3, 4, x, y, z)
HA_EMULATED_VECTOR(unsigned, uint4, 16, x, y, z, w)
HA_EMULATED_VECTOR(float, float2, 8, x, y)
HA_EMULATED_VECTOR(float, float4, 16, x, y, z, w)
#undef HA_EMULATED_VECTOR

#ifdef __cplusplus
extern "C" {
#endif

/* A kernel, and how it is launched. The name is static and ends at its first comma outside of brackets. */
struct ha_emulated_kernel {
    const char *name;
    void (*run)(const void *args);
    const void *function; /* what the runtime is asked about it with */
    size_t shared_bytes;  /* of dynamic shared memory */
};
static inline int ha_emulated_name_length(const char *name)
{
    int depth = 0, i = 0;
    for (; name[i]; i++) {
        if (strchr("<([{", name[i])) depth++;
        if (strchr(">)]}", name[i])) depth--;
        if (name[i] == ',' && depth == 0) break;
    }
    return i;
}
/* Queues a copy of the arguments (at most 32764 bytes) on the stream, whose thread will call ha_emulated_run.
 * (runtime_launch.c) */
cudaError_t ha_emulated_launch(const struct ha_emulated_kernel *kernel, const void *args, size_t bytes, dim3 grid,
                               dim3 block, cudaStream_t stream);
/* Runs all of a launch, whose grid and block are such as a GPU takes. Any thread may call it, several at once. */
void ha_emulated_run(const struct ha_emulated_kernel *kernel, const void *args, const unsigned grid[3],
                     const unsigned block[3]);

/* launch.h: ha_launch counts */
extern __thread unsigned ha_cuda_launched;

/* In which order threads and blocks take their turns, in launches that begin from now on: "forward", "backward", or a
 * number that seeds a shuffle. At first, as the environment's HA_EMULATION_ORDER says, else forward. A barrier
 * that is missing changes the results of one order or another. false: not understood, nothing changed. */
bool ha_emulated_order(const char *order);
#define HA_EMULATED_ORDERS "neither forward, backward nor a number below 2^64"
/* What HA_EMULATION_ORDER says, where that is not understood, or NULL. A launch would end the process. */
const char *ha_emulated_order_wrong(void);

/* ---- below here: what kernels reach through CUDA's names */

enum { HA_EMULATED_WARP = 32, HA_EMULATED_BLOCK_MAX = 1024 };

struct ha_emulated_place {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
    void *crew; /* what runs the block here: struct ha_crew */
};
/* initial-exec: the kernels read it all the time; it is small enough for a library that is loaded late */
extern __thread struct ha_emulated_place ha_emulated __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Where a thread waits: the operation and the source line. */
struct ha_emulated_site {
    const char *operation, *file;
    int line;
};
/* of the whole block; how many votes are true */
unsigned ha_emulated_barrier(const struct ha_emulated_site *site, bool vote);
void ha_emulated_sync_warp(const struct ha_emulated_site *site, unsigned mask);
uint64_t ha_emulated_shuffle(const struct ha_emulated_site *site, unsigned mask, uint64_t value, unsigned source_lane);
unsigned ha_emulated_ballot(const struct ha_emulated_site *site, unsigned mask, bool vote);
void ha_emulated_mma(const struct ha_emulated_site *site, float *c, const float *a, const float *b);
/* the block's own, the same for all its threads; 0xFF at first. dynamic: of as many bytes as the launch says, and of 48
 * KB at most otherwise */
void *ha_emulated_shared(const struct ha_emulated_site *site, size_t bytes, size_t alignment, bool dynamic);
/* Copies to shared memory, in simt_copy.c: one more of this thread, the end of a group, and, after the end of all but
 * the latest `groups` of them, the next one to be carried out: false, there is none. from: NULL: zeros */
struct ha_emulated_copy {
    void *to;
    const void *from;
};
void ha_emulated_copy_ask(const struct ha_emulated_site *site, void *to, const void *from, bool real);
void ha_emulated_copy_commit(void);
bool ha_emulated_copy_land(unsigned groups, struct ha_emulated_copy *copy);
/* lets the other threads run, of the block and of this machine */
void ha_emulated_pause(void);
/* ends the process: kernel, block, thread, and this */
void ha_emulated_stop(const struct ha_emulated_site *site, const char *why) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif

#ifdef __cplusplus
#include "kernels/cuda/emulation/simt_names.h"
#endif

#endif
