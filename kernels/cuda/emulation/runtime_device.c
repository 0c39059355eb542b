#include "kernels/cuda/emulation/runtime_inside.h"

#include <stdio.h>

/* The device, of number 0: what it says of itself, and its end. */

/* CUDA's order of the questions that have one number for an answer. */
static cudaError_t answer(cudaError_t error, int *to, int value)
{
    if (!error && !to) error = cudaErrorInvalidValue;
    if (!error) *to = value;
    return ha_runtime_leave(error);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaDriverGetVersion);
    return answer(error, version, ha_runtime.settings.devices < 0 ? 0 : ha_runtime.settings.driver_version);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaRuntimeGetVersion);
    return answer(error, version, ha_runtime.settings.runtime_version);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaGetDeviceCount);
    return answer(error, count, ha_runtime.settings.devices);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaDeviceGetAttribute);
    if (!error && device) error = cudaErrorInvalidDevice;
    int number = 0;
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount: number = 4; break;
    case cudaDevAttrL2CacheSize: number = 1 << 20; break;
    case cudaDevAttrComputeCapabilityMajor: number = 9; break;
    case cudaDevAttrComputeCapabilityMinor: number = 0; break;
    case cudaDevAttrSingleToDoublePrecisionPerfRatio: number = ha_runtime.settings.double_ratio; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: number = ha_runtime.settings.shared_bytes; break;
    default:
        if (!error) error = cudaErrorInvalidValue;
    }
    return answer(error, value, number);
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaSetDevice);
    return ha_runtime_leave(!error && device ? cudaErrorInvalidDevice : error);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaGetDeviceProperties);
    if (!error && !properties) error = cudaErrorInvalidValue;
    if (!error && device) error = cudaErrorInvalidDevice;
    if (!error) *properties = (struct cudaDeviceProp){ .name = "CUDA kernels on this CPU (emulated)" };
    return ha_runtime_leave(error);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device)
{
    static const char none[] = "ffff:00:00.0"; /* an address that no bus has */
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaDeviceGetPCIBusId);
    if (!error && device) error = cudaErrorInvalidDevice;
    if (!error && (!id || bytes < (int)sizeof none)) error = cudaErrorInvalidValue;
    if (!error) snprintf(id, (size_t)bytes, "%s", none);
    return ha_runtime_leave(error);
}

void ha_emulated_library_load(void)
{
    ha_runtime_lock();
    ha_runtime_await_stream(NULL);
    ha_runtime_unlock();
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaDeviceSynchronize);
    if (error) return ha_runtime_leave(error);
    ha_runtime_streams_reap();
    for (struct ha_runtime_stream *s = ha_runtime_streams; s; s = s->next) {
        if (!s->capture) continue;
        s->capture->invalid = true;
        error = cudaErrorStreamCaptureUnsupported;
    }
    if (!error) {
        ha_runtime_await_stream(NULL);
        error = ha_runtime_lost();
    }
    return ha_runtime_leave(error);
}

/* Nothing of the device is left, and it is not lost any more. */
static void reset(void)
{
    ha_runtime_lose_now(cudaErrorContextIsDestroyed);
    ha_runtime_streams_finish();
    enum ha_runtime_kind kind;
    size_t at = 0;
    for (void *handle; (handle = ha_runtime_handle_next(&at, &kind));) {
        void *object = ha_runtime_handle_find(kind, handle);
        ha_runtime_handle_drop(handle);
        if (kind == HA_HANDLE_EVENT) ha_runtime_event_free(object);
        else ha_runtime_graph_free(object);
    }
    ha_runtime_memory_reset();
    ha_runtime_functions_free();
    ha_runtime_lose_now(cudaSuccess);
}

cudaError_t cudaDeviceReset(void)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaDeviceReset);
    if (!error) reset();
    error = ha_runtime_leave(error);
    if (!error) (void)cudaGetLastError(); /* the context is gone, and its errors with it */
    return error;
}
