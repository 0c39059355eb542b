#include "kernels/cuda/attend_mma.cuh"

struct ha_cuda_path ha_cuda_path_mma_bf16(size_t dim, bool many) { return path_mma<HA_BF16>(dim, many); }
