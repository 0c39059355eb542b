#include "kernels/cuda/emulation/runtime_inside.h"

#include <stdio.h>

/* The devices. What the CPU has no counterpart of (caches, clocks, a bus) is 0, or an address that no bus has. */

enum { MULTIPROCESSORS = 4, MAJOR = 9, MINOR = 0, SHARED_BYTES = 48 << 10, NO_DOMAIN = 0xFFFF };

static bool exists(int device) { return device >= 0 && device < ha_runtime.settings.devices; }

cudaError_t cudaDriverGetVersion(int *version)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaDriverGetVersion);
    if (!error && !version) error = cudaErrorInvalidValue;
    if (!error) *version = ha_runtime.settings.devices < 0 ? 0 : ha_runtime.settings.driver_version;
    return ha_runtime_leave(error);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaRuntimeGetVersion);
    if (!error && !version) error = cudaErrorInvalidValue;
    if (!error) *version = ha_runtime.settings.runtime_version;
    return ha_runtime_leave(error);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaGetDeviceCount);
    if (!error && !count) error = cudaErrorInvalidValue;
    if (!error) *count = ha_runtime.settings.devices;
    return ha_runtime_leave(error);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaGetDeviceProperties);
    if (!error && !properties) error = cudaErrorInvalidValue;
    if (!error && !exists(device)) error = cudaErrorInvalidDevice;
    if (!error)
        *properties = (struct cudaDeviceProp){ .name = "CUDA kernels on this CPU (emulated)",
                                               .totalGlobalMem = ha_runtime.settings.memory_bytes,
                                               .sharedMemPerBlock = SHARED_BYTES,
                                               .warpSize = 32,
                                               .maxThreadsPerBlock = 1024,
                                               .maxThreadsPerMultiProcessor = 2048,
                                               .major = MAJOR,
                                               .minor = MINOR,
                                               .multiProcessorCount = MULTIPROCESSORS,
                                               .canMapHostMemory = 1,
                                               .unifiedAddressing = 1,
                                               .concurrentKernels = 1,
                                               .asyncEngineCount = 2,
                                               .pciDomainID = NO_DOMAIN,
                                               .pciBusID = device };
    return ha_runtime_leave(error);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    static const struct {
        enum cudaDeviceAttr attribute;
        int value;
    } table[] = {
        { cudaDevAttrMaxThreadsPerBlock, 1024 },
        { cudaDevAttrMaxBlockDimX, 1024 },
        { cudaDevAttrMaxBlockDimY, 1024 },
        { cudaDevAttrMaxBlockDimZ, 64 },
        { cudaDevAttrMaxGridDimX, INT32_MAX },
        { cudaDevAttrMaxGridDimY, 65535 },
        { cudaDevAttrMaxGridDimZ, 65535 },
        { cudaDevAttrMaxSharedMemoryPerBlock, SHARED_BYTES },
        { cudaDevAttrWarpSize, 32 },
        { cudaDevAttrMultiProcessorCount, MULTIPROCESSORS },
        { cudaDevAttrIntegrated, 0 },
        { cudaDevAttrCanMapHostMemory, 1 },
        { cudaDevAttrConcurrentKernels, 1 },
        { cudaDevAttrL2CacheSize, 0 },
        { cudaDevAttrMaxThreadsPerMultiProcessor, 2048 },
        { cudaDevAttrAsyncEngineCount, 2 },
        { cudaDevAttrUnifiedAddressing, 1 },
        { cudaDevAttrComputeCapabilityMajor, MAJOR },
        { cudaDevAttrComputeCapabilityMinor, MINOR },
        { cudaDevAttrPageableMemoryAccess, 0 },
        { cudaDevAttrCanUseHostPointerForRegisteredMem, 1 },
        { cudaDevAttrHostRegisterSupported, 1 },
    };
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaDeviceGetAttribute);
    if (!error && !exists(device)) error = cudaErrorInvalidDevice;
    size_t i = 0, count = sizeof table / sizeof *table;
    while (i < count && table[i].attribute != attribute) i++;
    if (!error && (!value || i == count)) error = cudaErrorInvalidValue;
    if (!error) *value = table[i].value;
    return ha_runtime_leave(error);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaDeviceGetPCIBusId);
    char text[32];
    int length = snprintf(text, sizeof text, "%04x:%02x:00.0", NO_DOMAIN, (unsigned)device & 0xFF);
    if (!error && !exists(device)) error = cudaErrorInvalidDevice;
    if (!error && (!id || bytes <= length)) error = cudaErrorInvalidValue;
    if (!error) snprintf(id, (size_t)bytes, "%s", text);
    return ha_runtime_leave(error);
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaDeviceSynchronize);
    int device = ha_runtime_current();
    if (error) return ha_runtime_leave(error);
    ha_runtime_streams_reap();
    for (struct ha_runtime_stream *s = ha_runtime_streams; s; s = s->next) {
        if (s->device != device || !s->capture) continue;
        s->capture->invalid = true;
        error = cudaErrorStreamCaptureUnsupported;
    }
    if (!error) {
        ha_runtime_await_device(device);
        error = ha_runtime_lost(device);
    }
    return ha_runtime_leave(error);
}

/* Nothing of the device is left, and it is not lost any more. */
static void reset(int device)
{
    ha_runtime_lose_now(device, cudaErrorContextIsDestroyed);
    ha_runtime_streams_finish(device);
    enum ha_runtime_kind kind;
    size_t at = 0;
    for (void *handle; (handle = ha_runtime_handle_next(&at, device, &kind));) {
        void *object = ha_runtime_handle_find(kind, handle);
        ha_runtime_handle_drop(handle);
        if (kind == HA_HANDLE_EVENT) ha_runtime_event_free(object);
        else ha_runtime_graph_free(object);
    }
    ha_runtime_memory_reset(device);
    ha_runtime_lose_now(device, cudaSuccess);
}

cudaError_t cudaDeviceReset(void)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaDeviceReset);
    if (!error) reset(ha_runtime_current());
    error = ha_runtime_leave(error);
    if (!error) (void)cudaGetLastError(); /* the context is gone, and its errors with it */
    return error;
}
