/* What is asked about every kernel when the device is opened. */

#include "kernels/cuda/cuda.h"

#include "harness/base/why.h"

static const struct ha_cuda_kernels *const files[] = {
#define HA_CUDA_FILE(file) &ha_cuda_kernels_##file,
#define HA_CUDA_OPERATION(name, arguments)
#include "kernels/cuda/operations.def"
};

static enum ha_status ask(struct ha_cuda_kernel *k, const char *file, size_t number, int shared_most,
                          struct ha_why *why)
{
    struct cudaFuncAttributes attributes;
    int resident = 0;
    const char *call = "cudaFuncGetAttributes";
    cudaError_t error = cudaFuncGetAttributes(&attributes, k->function);
    const size_t shared = k->shared_bytes + (error == cudaSuccess ? attributes.sharedSizeBytes : 0);
    if (error == cudaSuccess && shared > (size_t)shared_most)
        return ha_why(
            why, HA_WAIVED,
            "cuda device: kernel %zu of %s.cu takes %zu bytes of shared memory, and this GPU gives a block %d", number,
            file, shared, shared_most);
    if (error == cudaSuccess && k->shared_bytes) {
        call = "cudaFuncSetAttribute";
        error = cudaFuncSetAttribute(k->function, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)k->shared_bytes);
    }
    if (error == cudaSuccess && k->threads) {
        call = "cudaOccupancyMaxActiveBlocksPerMultiprocessor";
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, k->function, (int)k->threads, k->shared_bytes);
    }
    if (error != cudaSuccess) return ha_cuda_why(why, error, call, file);
    __atomic_store_n(&k->resident, (unsigned)resident, __ATOMIC_RELAXED);
    return HA_OK;
}

enum ha_status ha_cuda_kernels_ask(struct ha_why *why)
{
    int shared_most = 0;
    cudaError_t error = cudaDeviceGetAttribute(&shared_most, cudaDevAttrMaxSharedMemoryPerBlockOptin, HA_CUDA_GPU);
    if (error != cudaSuccess) return ha_cuda_why(why, error, "cudaDeviceGetAttribute", "open");
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        for (size_t i = 0; i < files[f]->count; i++)
            HA_TRY(ask(&files[f]->list[i], files[f]->file, i, shared_most, why));
    return HA_OK;
}
