#include "kernels/cuda/test_launch.h"

/* the arguments are in memory of their exact size, as in the runtime */
cudaError_t ha_emulated_launch(const struct ha_emulated_kernel *kernel, const void *args, size_t bytes, dim3 grid,
                               dim3 block, cudaStream_t stream)
{
    void *copy = test_alloc(bytes);
    memcpy(copy, args, bytes);
    ha_emulated_run(kernel, copy, (unsigned[]){ grid.x, grid.y, grid.z }, (unsigned[]){ block.x, block.y, block.z });
    free(copy);
    return cudaSuccess;
}
