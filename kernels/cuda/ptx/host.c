/* The host's side of the kernels, for the interpreter of their PTX: grids and arguments are made by the functions of
 * the .cu files as ever, and a launch goes to whoever has set ha_ptx_launch. */

#include "kernels/cuda/emulation/simt.h"

/* kernel: its address here. block, too, is x, y, z; shared_bytes: of dynamic shared memory. Gives an error of CUDA's,
 * or 0. */
typedef int ha_ptx_launch_fn(const void *kernel, const void *args, size_t bytes, const unsigned grid[3],
                             const unsigned block[3], size_t shared_bytes);
__attribute__((visibility("default"))) extern ha_ptx_launch_fn *ha_ptx_launch;
ha_ptx_launch_fn *ha_ptx_launch;

/* What is launched begins with the kernel, and its arguments follow (emulation/simt_names.h). */
cudaError_t ha_emulated_launch(const struct ha_emulated_kernel *kernel, const void *args, size_t bytes, dim3 grid,
                               dim3 block, cudaStream_t stream)
{
    return (cudaError_t)ha_ptx_launch(kernel->function, args, bytes, (unsigned[]){ grid.x, grid.y, grid.z },
                                      (unsigned[]){ block.x, block.y, block.z }, kernel->shared_bytes);
}
