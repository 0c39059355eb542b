/* What is known of kernels: that they were asked about, and how much dynamic shared memory each may have. */

#include "kernels/cuda/emulation/runtime_inside.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    SHARED_AT_FIRST = 48 << 10,
    SHARED_OF_A_BLOCK = 1 << 10, /* that the system takes */
    SHARED_OF_ALL = 228 << 10,   /* blocks of a multiprocessor */
    THREADS_OF_ALL = 2048,
    REGISTERS_OF_ALL = 65536,
    REGISTERS = 128 /* that a thread is taken to have */
};

static struct known {
    const void *function;
    size_t shared_most;
} * known;
static size_t known_count, known_room;

static struct known *find(const void *function)
{
    for (size_t i = 0; i < known_count; i++)
        if (known[i].function == function) return &known[i];
    return NULL;
}

static cudaError_t learn(const void *function)
{
    if (find(function)) return cudaSuccess;
    if (known_count == known_room) {
        struct known *more = realloc(known, (known_room + 256) * sizeof *more);
        if (!more) return cudaErrorMemoryAllocation;
        known = more;
        known_room += 256;
    }
    known[known_count++] = (struct known){ function, SHARED_AT_FIRST };
    return cudaSuccess;
}

/* For libraries that are unloaded, too: a checker of leaks counts from then on. */
__attribute__((destructor)) void ha_runtime_functions_free(void)
{
    free(known);
    known = NULL;
    known_count = known_room = 0;
}

cudaError_t ha_runtime_function_check(const struct ha_emulated_kernel *kernel)
{
    if (!kernel->function) return cudaSuccess; /* a test's, of which nothing is asked */
    const struct known *k = find(kernel->function);
    if (!k) {
        fprintf(stderr, "emulated CUDA: kernel %.*s was not asked about (cudaFuncGetAttributes) before this launch\n",
                ha_emulated_name_length(kernel->name), kernel->name);
        return cudaErrorInvalidDeviceFunction;
    }
    return kernel->shared_bytes > k->shared_most ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaFuncGetAttributes);
    if (!error && !attributes) error = cudaErrorInvalidValue;
    if (!error && !function) error = cudaErrorInvalidDeviceFunction;
    if (!error) error = learn(function);
    if (!error) *attributes = (struct cudaFuncAttributes){ .sharedSizeBytes = 0 };
    return ha_runtime_leave(error);
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaFuncSetAttribute);
    if (!error && !function) error = cudaErrorInvalidDeviceFunction;
    if (!error
        && (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0
            || value > ha_runtime.settings.shared_bytes))
        error = cudaErrorInvalidValue;
    if (!error) error = learn(function);
    if (!error) find(function)->shared_most = (size_t)value;
    return ha_runtime_leave(error);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads,
                                                          size_t shared_bytes)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaOccupancyMaxActiveBlocksPerMultiprocessor);
    if (!error && (!blocks || threads <= 0 || threads > THREADS_OF_ALL / 2)) error = cudaErrorInvalidValue;
    if (!error && !function) error = cudaErrorInvalidDeviceFunction;
    if (!error) error = learn(function);
    if (!error && shared_bytes > find(function)->shared_most) *blocks = 0;
    else if (!error) {
        const int by_threads = THREADS_OF_ALL / threads, by_registers = REGISTERS_OF_ALL / REGISTERS / threads,
                  by_shared = (int)(SHARED_OF_ALL / (shared_bytes + SHARED_OF_A_BLOCK));
        *blocks = by_threads < by_registers ? by_threads : by_registers;
        if (by_shared < *blocks) *blocks = by_shared;
    }
    return ha_runtime_leave(error);
}
