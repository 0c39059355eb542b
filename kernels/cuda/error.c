#include "kernels/cuda/cuda.h"

#include "harness/base/why.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static enum ha_status keep_failure(struct ha_device *dev, const char *text)
{
    pthread_mutex_lock(&dev->lock);
    if (!dev->failed) {
        snprintf(dev->failure, sizeof dev->failure, "%s", text);
        __atomic_store_n(&dev->failed, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&dev->lock);
    return HA_ERROR;
}

enum ha_status ha_cuda_fail_on(struct ha_stream *s, const char *operation, const char *format, ...)
{
    char text[sizeof s->device->failure];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ha_cuda_fail(s->device, "%s on %s: %s", operation, s->lane, text);
}

enum ha_status ha_cuda_fail(struct ha_device *dev, const char *format, ...)
{
    char text[sizeof dev->failure];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return keep_failure(dev, text);
}

/* "what: cudaMalloc: error 2 (cudaErrorMemoryAllocation): out of memory"; the thread's last error is forgotten, or a
 * later launch would find it. */
static void describe(char text[512], cudaError_t error, const char *call, const char *what)
{
    (void)cudaGetLastError();
    snprintf(text, 512, "%s: %.*s: error %d (%s): %s", what, (int)strcspn(call, "("), call, (int)error,
             cudaGetErrorName(error), cudaGetErrorString(error));
}

enum ha_status ha_cuda_check(struct ha_device *dev, cudaError_t error, const char *call, const char *what)
{
    char text[512];
    if (error == cudaSuccess) return HA_OK;
    describe(text, error, call, what);
    return keep_failure(dev, text);
}

enum ha_status ha_cuda_check_on(struct ha_stream *s, cudaError_t error, const char *call, const char *operation)
{
    char what[192];
    if (error == cudaSuccess) return HA_OK;
    snprintf(what, sizeof what, "%s on %s", operation, s->lane);
    return ha_cuda_check(s->device, error, call, what);
}

enum ha_status ha_cuda_why(struct ha_why *why, cudaError_t error, const char *call, const char *what)
{
    char text[512];
    describe(text, error, call, what);
    return ha_why(why, HA_ERROR, "cuda device: %.480s", text);
}

void ha_cuda_enter(void) { cudaSetDevice(HA_CUDA_GPU); }
