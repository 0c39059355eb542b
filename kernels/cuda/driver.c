#include "kernels/cuda/cuda.h"

#include "harness/base/why.h"

#include <dlfcn.h>
#include <string.h>

#ifdef HA_CUDA_EMULATED
#include "kernels/cuda/emulation/runtime.h"
#define dlopen  ha_emulated_dlopen
#define dlsym   ha_emulated_dlsym
#define dlerror ha_emulated_dlerror
#endif

/* The library stays loaded: the runtime holds it too. */
enum ha_status ha_cuda_driver_load(struct ha_cuda_driver *driver, struct ha_why *why)
{
    memset(driver, 0, sizeof *driver);
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        return ha_why(why, HA_WAIVED, "no NVIDIA driver: %s", reason ? reason : "libcuda.so.1 cannot be loaded");
    }
    /* the second version of both: on every GPU since drivers 11.7, and no option of the kernel module in the way */
    void *write = dlsym(library, "cuStreamWriteValue32_v2"), *batch = dlsym(library, "cuStreamBatchMemOp_v2");
    memcpy(&driver->write_value, &write, sizeof write); /* ISO C has no cast from void * to a function */
    memcpy(&driver->batch, &batch, sizeof batch);
    return HA_OK;
}

#if CUDART_VERSION >= 12080
/* A batch takes neither pieces of no bytes nor the default stream, and cannot be captured. */
static bool batch_takes(cudaStream_t stream, const struct ha_device_pieces *pieces)
{
    int version = 0;
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusActive;
    if (!stream || pieces->count < 2) return false;
    if (cudaDriverGetVersion(&version) != cudaSuccess || version < 12080) return false;
    if (cudaStreamIsCapturing(stream, &capture) != cudaSuccess || capture != cudaStreamCaptureStatusNone) return false;
    for (size_t i = 0; i < pieces->count; i++)
        if (!pieces->bytes[i]) return false;
    return true;
}

static cudaError_t batch(cudaStream_t stream, const struct ha_device_pieces *pieces)
{
    struct cudaMemcpyAttributes attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    size_t first = 0;
#if CUDART_VERSION >= 13000
    return cudaMemcpyBatchAsync(pieces->dst, pieces->src, pieces->bytes, pieces->count, &attributes, &first, 1, stream);
#else
    size_t failed;
    /* declared without const, and with it in some versions of 12: void * becomes either */
    void *dst = (void *)(uintptr_t)pieces->dst, *src = (void *)(uintptr_t)pieces->src,
         *bytes = (void *)(uintptr_t)pieces->bytes;
    return cudaMemcpyBatchAsync(dst, src, bytes, pieces->count, &attributes, &first, 1, &failed, stream);
#endif
}
#endif

cudaError_t ha_cuda_copy_pieces(cudaStream_t stream, const struct ha_device_pieces *pieces, enum ha_direction dir)
{
#if CUDART_VERSION >= 12080
    if (batch_takes(stream, pieces)) {
        cudaError_t error = batch(stream, pieces);
        if (error != cudaErrorNotSupported && error != cudaErrorCallRequiresNewerDriver) return error;
        (void)cudaGetLastError(); /* not a failure: the pieces go one by one */
    }
#endif
    for (size_t i = 0; i < pieces->count; i++) {
        cudaError_t error = cudaMemcpyAsync(pieces->dst[i], pieces->src[i], pieces->bytes[i], ha_cuda_kind(dir),
                                            stream);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}
