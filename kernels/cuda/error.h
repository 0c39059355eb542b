#ifndef HA_KERNELS_CUDA_ERROR_H
#define HA_KERNELS_CUDA_ERROR_H

/* How the parts of the CUDA device say that something went wrong. Everything else of it stands above this. */

#include "harness/api/base.h"

#include <cuda_runtime_api.h>

struct ha_device;
struct ha_stream;

/* Keeps the first failure; HA_ERROR. */
enum ha_status ha_cuda_fail(struct ha_device *dev, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, of an operation: "operation on stream NAME: ..." */
enum ha_status ha_cuda_fail_on(struct ha_stream *stream, const char *operation, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* HA_OK, or the device fails with what was being done, the call, the error's code, name and text. */
enum ha_status ha_cuda_check(struct ha_device *dev, cudaError_t error, const char *call, const char *what);
/* The same: `operation` on the stream. */
enum ha_status ha_cuda_check_on(struct ha_stream *stream, cudaError_t error, const char *call, const char *operation);
/* The same text as the reason, and the device goes on. */
enum ha_status ha_cuda_why(struct ha_why *why, cudaError_t error, const char *call, const char *what);
/* Every entry that calls the runtime does this first: the current device is the thread's own. */
void ha_cuda_enter(const struct ha_device *dev);

/* HA_TRY's kin: returns HA_ERROR from the caller, the device having failed */
#define HA_CUDA(dev, what, call)                                                   \
    do {                                                                           \
        if (ha_cuda_check((dev), (call), #call, (what)) != HA_OK) return HA_ERROR; \
    } while (0)

#endif
