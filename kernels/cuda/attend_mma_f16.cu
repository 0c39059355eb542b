#include "kernels/cuda/attend_mma.cuh"

HA_CUDA_KERNELS(attend_mma_f16, HA_ATTEND_MMA(HA_ATTEND_MMA_KERNEL, HA_F16));
static const struct ha_cuda_path paths[] = { HA_ATTEND_MMA(HA_ATTEND_MMA_PATH, HA_F16) };

struct ha_cuda_path ha_cuda_path_mma_f16(size_t dim, bool many)
{
    const size_t i = number_mma(dim, many);
    return ha_cuda_path_at(&paths[i], &ha_cuda_kernels_attend_mma_f16.list[i]);
}
