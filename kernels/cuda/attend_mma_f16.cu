#include "kernels/cuda/attend_mma.cuh"

struct ha_cuda_path ha_cuda_path_mma_f16(size_t dim, bool many) { return path_mma<HA_F16>(dim, many); }
