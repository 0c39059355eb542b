#include "kernels/cuda/operand.h"
#include "kernels/cuda/test_launch.h"

bool test_launch_counts;
unsigned test_launch_blocks;

/* No operand is checked below the device. */
void ha_cuda_takes(struct ha_cuda_check *c, const char *role, const void *ptr, size_t bytes, size_t read_bytes) {}
bool ha_cuda_refuse(struct ha_cuda_check *c, const char *format, ...) { return false; }

/* the arguments are in memory of their exact size, as in the runtime */
cudaError_t ha_emulated_launch(const struct ha_emulated_kernel *kernel, const void *args, size_t bytes, dim3 grid,
                               dim3 block, cudaStream_t stream)
{
    if (test_launch_counts) {
        if (strstr(kernel->name, "mma") || strstr(kernel->name, "fma")) test_launch_blocks = grid.x;
        return cudaSuccess;
    }
    void *copy = test_alloc(bytes);
    memcpy(copy, args, bytes);
    ha_emulated_run(kernel, copy, (unsigned[]){ grid.x, grid.y, grid.z }, (unsigned[]){ block.x, block.y, block.z });
    free(copy);
    return cudaSuccess;
}
