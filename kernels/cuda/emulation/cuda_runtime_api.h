#ifndef HA_CUDA_EMULATION_RUNTIME_API_H
#define HA_CUDA_EMULATION_RUNTIME_API_H

/* The part of the CUDA runtime API that the CUDA device is written against, for machines without a GPU: the same
 * names, arguments and meanings as in the toolkits 12 and 13, implemented by runtime*.c on threads of this machine.
 * Its knobs for tests are in runtime.h. Where it is stricter than a GPU, or leaves something out:
 *   - there is one device, at most;
 *   - the default stream (NULL) is a stream like others: nothing else is ordered with it implicitly;
 *   - captures are relaxed, and take neither events nor graphs: cudaErrorStreamCaptureUnsupported, and it is over;
 *   - device memory begins as bytes 0xFF, and what leaves an allocation is cudaErrorInvalidValue;
 *   - a kernel is launched once its attributes have been read: the first launch of one that is not loaded yet waits, on
 *     a GPU, for everything that is enqueued;
 *   - cudaFree, cudaFreeHost and cudaHostUnregister wait for everything that is enqueued, as drivers do. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HA_CUDA_EMULATED 1 /* for what has to say so: a device's name, its kind */

/* a test compiles driver.c for older toolkits too */
#ifndef CUDART_VERSION
#define CUDART_VERSION 13000
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Of the runtime's errors those that occur here: name, number, text. */
#define HA_EMULATED_ERRORS(X)                                                                      \
    X(cudaSuccess, 0, "no error")                                                                  \
    X(cudaErrorInvalidValue, 1, "an argument is not valid")                                        \
    X(cudaErrorMemoryAllocation, 2, "out of memory")                                               \
    X(cudaErrorInitializationError, 3, "the runtime could not be initialised")                     \
    X(cudaErrorCudartUnloading, 4, "the runtime is being unloaded")                                \
    X(cudaErrorInvalidConfiguration, 9, "the launch's grid or block is not valid")                 \
    X(cudaErrorInvalidPitchValue, 12, "a pitch is not valid")                                      \
    X(cudaErrorInvalidMemcpyDirection, 21, "there is no such direction of copies")                 \
    X(cudaErrorInsufficientDriver, 35, "no driver, or one that is older than the runtime")         \
    X(cudaErrorCallRequiresNewerDriver, 36, "the call needs a newer driver")                       \
    X(cudaErrorInvalidDeviceFunction, 98, "not a kernel, or one that was not asked about")         \
    X(cudaErrorNoDevice, 100, "no CUDA device")                                                    \
    X(cudaErrorInvalidDevice, 101, "there is no device of that number")                            \
    X(cudaErrorOperatingSystem, 304, "a call of the operating system failed")                      \
    X(cudaErrorInvalidResourceHandle, 400, "not a live handle")                                    \
    X(cudaErrorIllegalState, 401, "not in a state for this call")                                  \
    X(cudaErrorNotReady, 600, "not done yet")                                                      \
    X(cudaErrorIllegalAddress, 700, "the device accessed memory that it may not")                  \
    X(cudaErrorLaunchOutOfResources, 701, "the launch needs more than the device has")             \
    X(cudaErrorLaunchTimeout, 702, "a launch took too long and was ended")                         \
    X(cudaErrorContextIsDestroyed, 709, "the context is destroyed")                                \
    X(cudaErrorHostMemoryAlreadyRegistered, 712, "part of this host memory is registered already") \
    X(cudaErrorHostMemoryNotRegistered, 713, "this host memory is not registered")                 \
    X(cudaErrorIllegalInstruction, 715, "the device met an instruction that is none")              \
    X(cudaErrorLaunchFailure, 719, "the device failed while it ran a kernel")                      \
    X(cudaErrorNotPermitted, 800, "not permitted here")                                            \
    X(cudaErrorNotSupported, 801, "not supported")                                                 \
    X(cudaErrorStreamCaptureUnsupported, 900, "not permitted while a stream is capturing")         \
    X(cudaErrorStreamCaptureInvalidated, 901, "an earlier error ended the capture")                \
    X(cudaErrorGraphExecUpdateFailure, 910, "the graph has other nodes")                           \
    X(cudaErrorUnknown, 999, "unknown error")
#define HA_EMULATED_ERROR_NUMBER(name, number, text) name = number,
enum cudaError { HA_EMULATED_ERRORS(HA_EMULATED_ERROR_NUMBER) };
typedef enum cudaError cudaError_t;

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void); /* of this thread; forgets it, unless the device is lost */

/* ---- devices */

enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrSingleToDoublePrecisionPerfRatio = 87,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

struct cudaDeviceProp {
    char name[256];
};

cudaError_t cudaDriverGetVersion(int *version); /* 0 where there is no driver */
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device); /* 0 */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device);
cudaError_t cudaDeviceSynchronize(void);
/* Drops what is enqueued, ends waits, frees memory, streams, events and graphs. */
cudaError_t cudaDeviceReset(void);

/* ---- memory */

#define cudaHostAllocPortable    1
#define cudaHostAllocMapped      2
#define cudaHostRegisterPortable 1
#define cudaHostRegisterMapped   2

cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
cudaError_t cudaMalloc(void **ptr, size_t bytes);
cudaError_t cudaFree(void *ptr);
cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *ptr);
cudaError_t cudaHostRegister(void *ptr, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *ptr);

/* ---- streams and events */

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

#define cudaStreamNonBlocking  1
#define cudaEventDefault       0
#define cudaEventDisableTiming 2

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream); /* returns at once; what is enqueued still runs */
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end);

typedef void (*cudaHostFn_t)(void *arg);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *arg);

/* ---- copies */

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemset(void *ptr, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t stream);

#if CUDART_VERSION >= 12080
enum cudaMemcpySrcAccessOrder { cudaMemcpySrcAccessOrderStream = 1, cudaMemcpySrcAccessOrderAny = 3 };
struct cudaMemcpyAttributes {
    enum cudaMemcpySrcAccessOrder srcAccessOrder;
    unsigned flags;
};
#endif
#if CUDART_VERSION >= 13000
cudaError_t cudaMemcpyBatchAsync(void *const *dsts, const void *const *srcs, const size_t *sizes, size_t count,
                                 struct cudaMemcpyAttributes *attributes, size_t *attribute_indices,
                                 size_t attribute_count, cudaStream_t stream);
#elif CUDART_VERSION >= 12080
#define cudaMemcpyBatchAsync ha_emulated_memcpy_batch_12
cudaError_t cudaMemcpyBatchAsync(void **dsts, void **srcs, size_t *sizes, size_t count,
                                 struct cudaMemcpyAttributes *attributes, size_t *attribute_indices,
                                 size_t attribute_count, size_t *failed, cudaStream_t stream);
#endif

/* ---- graphs, by capture of one stream */

typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone,
    cudaStreamCaptureStatusActive,
    cudaStreamCaptureStatusInvalidated
};

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status);
typedef struct CUgraphNode_st *cudaGraphNode_t;
enum cudaGraphNodeType {
    cudaGraphNodeTypeKernel = 0,
    cudaGraphNodeTypeMemcpy = 1,
    cudaGraphNodeTypeMemset = 2,
    cudaGraphNodeTypeHost = 3
};
/* nodes: [*count], or NULL for their number */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count);
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
enum cudaGraphExecUpdateResult { cudaGraphExecUpdateSuccess = 0, cudaGraphExecUpdateErrorTopologyChanged = 2 };
typedef struct {
    enum cudaGraphExecUpdateResult result;
    cudaGraphNode_t errorNode, errorFromNode;
} cudaGraphExecUpdateResultInfo;
/* Of launches that are enqueued nothing changes. */
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream); /* after its earlier launches, as on a GPU */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);

/* ---- kernels */

struct cudaFuncAttributes {
    size_t sharedSizeBytes; /* 0: of a kernel's own shared memory nothing is known before it runs */
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function);
cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads,
                                                          size_t shared_bytes);

/* ---- launches; from C++ with arguments */
struct dim3 {
    unsigned x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
#endif
};
typedef struct dim3 dim3;

#ifdef __cplusplus
}
#endif
#endif
