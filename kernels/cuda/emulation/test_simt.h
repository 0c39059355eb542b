#ifndef HA_KERNELS_CUDA_EMULATION_TEST_SIMT_H
#define HA_KERNELS_CUDA_EMULATION_TEST_SIMT_H

/* For the tests of the emulation: launches run at once, on the calling thread. One .cu file is one program. */

#include "kernels/cuda/simt.h"

extern "C" {
#include "harness/base/test.h"
}

/* in place of runtime.c's: the arguments are in memory of their exact size, as there */
extern "C" cudaError_t ha_emulated_launch(const char *name, void (*run)(const void *args), const void *args,
                                          size_t bytes, dim3 grid, dim3 block, cudaStream_t stream)
{
    (void)stream;
    void *copy = malloc(bytes);
    if (!copy) return cudaErrorMemoryAllocation;
    memcpy(copy, args, bytes);
    const unsigned g[3] = { grid.x, grid.y, grid.z }, b[3] = { block.x, block.y, block.z };
    ha_emulated_run(name, run, copy, g, b);
    free(copy);
    return cudaSuccess;
}

static const char *const test_orders[] = { "forward", "backward", "1", "2", "3" };
enum { TEST_ORDERS = 5 };
#define FOR_EACH_ORDER \
    for (unsigned order_ = 0; order_ < TEST_ORDERS && ha_emulated_order(test_orders[order_]); order_++)

#endif
