#ifndef HA_CUDA_EMULATION_RUNTIME_INSIDE_H
#define HA_CUDA_EMULATION_RUNTIME_INSIDE_H

/* The emulated runtime, inside. One lock guards everything but the operations while they run; every call of the API is
 *     error = ha_runtime_enter(CALL), work under the lock, return ha_runtime_leave(error).
 * Each stream is a thread with a queue. */

#include "kernels/cuda/emulation/runtime.h"

#include <cuda.h>
#include <pthread.h>
#include <sys/types.h>

enum { HA_EMULATED_FAULTS_MAX = 16 };

/* ---- runtime.c: calls */

enum ha_runtime_needs {
    HA_NEEDS_NOTHING,
    HA_NEEDS_DEVICE, /* a driver with a device */
    HA_NEEDS_CONTEXT /* and one that is not lost */
};

/* function, what it needs */
#define HA_EMULATED_CALLS(X)                                           \
    X(cudaDriverGetVersion, HA_NEEDS_NOTHING)                          \
    X(cudaRuntimeGetVersion, HA_NEEDS_NOTHING)                         \
    X(cudaGetDeviceCount, HA_NEEDS_DEVICE)                             \
    X(cudaSetDevice, HA_NEEDS_DEVICE)                                  \
    X(cudaGetDeviceProperties, HA_NEEDS_DEVICE)                        \
    X(cudaDeviceGetAttribute, HA_NEEDS_DEVICE)                         \
    X(cudaDeviceGetPCIBusId, HA_NEEDS_DEVICE)                          \
    X(cudaDeviceReset, HA_NEEDS_DEVICE)                                \
    X(cudaDeviceSynchronize, HA_NEEDS_CONTEXT)                         \
    X(cudaMemGetInfo, HA_NEEDS_CONTEXT)                                \
    X(cudaMalloc, HA_NEEDS_CONTEXT)                                    \
    X(cudaFree, HA_NEEDS_CONTEXT)                                      \
    X(cudaHostAlloc, HA_NEEDS_CONTEXT)                                 \
    X(cudaFreeHost, HA_NEEDS_CONTEXT)                                  \
    X(cudaHostRegister, HA_NEEDS_CONTEXT)                              \
    X(cudaHostUnregister, HA_NEEDS_CONTEXT)                            \
    X(cudaStreamCreateWithFlags, HA_NEEDS_CONTEXT)                     \
    X(cudaStreamDestroy, HA_NEEDS_CONTEXT)                             \
    X(cudaStreamSynchronize, HA_NEEDS_CONTEXT)                         \
    X(cudaStreamQuery, HA_NEEDS_CONTEXT)                               \
    X(cudaStreamWaitEvent, HA_NEEDS_CONTEXT)                           \
    X(cudaEventCreateWithFlags, HA_NEEDS_CONTEXT)                      \
    X(cudaEventDestroy, HA_NEEDS_CONTEXT)                              \
    X(cudaEventRecord, HA_NEEDS_CONTEXT)                               \
    X(cudaEventSynchronize, HA_NEEDS_CONTEXT)                          \
    X(cudaEventElapsedTime, HA_NEEDS_CONTEXT)                          \
    X(cudaLaunchHostFunc, HA_NEEDS_CONTEXT)                            \
    X(cudaFuncGetAttributes, HA_NEEDS_CONTEXT)                         \
    X(cudaFuncSetAttribute, HA_NEEDS_CONTEXT)                          \
    X(cudaOccupancyMaxActiveBlocksPerMultiprocessor, HA_NEEDS_CONTEXT) \
    X(cudaLaunchKernel, HA_NEEDS_CONTEXT)                              \
    X(cudaMemcpy, HA_NEEDS_CONTEXT)                                    \
    X(cudaMemcpyAsync, HA_NEEDS_CONTEXT)                               \
    X(cudaMemcpy2DAsync, HA_NEEDS_CONTEXT)                             \
    X(cudaMemcpyBatchAsync, HA_NEEDS_CONTEXT)                          \
    X(cudaMemset, HA_NEEDS_CONTEXT)                                    \
    X(cudaMemsetAsync, HA_NEEDS_CONTEXT)                               \
    X(cudaStreamBeginCapture, HA_NEEDS_CONTEXT)                        \
    X(cudaStreamEndCapture, HA_NEEDS_CONTEXT)                          \
    X(cudaStreamIsCapturing, HA_NEEDS_CONTEXT)                         \
    X(cudaGraphGetNodes, HA_NEEDS_CONTEXT)                             \
    X(cudaGraphNodeGetType, HA_NEEDS_CONTEXT)                          \
    X(cudaGraphInstantiateWithFlags, HA_NEEDS_CONTEXT)                 \
    X(cudaGraphExecUpdate, HA_NEEDS_CONTEXT)                           \
    X(cudaGraphLaunch, HA_NEEDS_CONTEXT)                               \
    X(cudaGraphExecDestroy, HA_NEEDS_CONTEXT)                          \
    X(cudaGraphDestroy, HA_NEEDS_CONTEXT)                              \
    X(cuStreamWaitValue32_v2, HA_NEEDS_CONTEXT)                        \
    X(cuStreamWriteValue32_v2, HA_NEEDS_CONTEXT)                       \
    X(cuStreamBatchMemOp_v2, HA_NEEDS_CONTEXT)
#define HA_EMULATED_CALL_ID(name, needs) HA_CALL_##name,
enum ha_runtime_call { HA_EMULATED_CALLS(HA_EMULATED_CALL_ID) HA_CALLS };

/* Takes the lock. Gives the error that the call has before it begins: an injected one, no device, a lost device. */
cudaError_t ha_runtime_enter(enum ha_runtime_call call);
/* Releases the lock; the error becomes the thread's last. */
cudaError_t ha_runtime_leave(cudaError_t error);
bool ha_runtime_environment(void);   /* runtime_environment.c: read once, before the lock; false: it cannot be read */
void ha_runtime_in_host_fn(bool in); /* from now on this thread may not, or may again, call the API */

/* What needs no lock: cudaSuccess, or what the device is lost with. */
cudaError_t ha_runtime_lost(void);
/* Under the lock. */
void ha_runtime_lose_now(cudaError_t error);
bool ha_runtime_kernel_loses(void); /* counts a kernel; true: the device is lost in this one */
/* The call was refused for nothing else than the device being lost: things are still taken back. */
bool ha_runtime_may_release(cudaError_t error);

struct ha_runtime {
    pthread_mutex_t lock;
    pthread_cond_t moved; /* an operation ended, the device was lost */
    unsigned sleepers;    /* on moved */
    struct ha_emulated_settings settings;
    cudaError_t lost; /* atomic */
    size_t memory_used;
    cudaStream_t null_stream;
};
extern struct ha_runtime ha_runtime;

/* ---- runtime_lock.c. Told to ThreadSanitizer, under the lock: what was done before publish(what) happened before
 * whatever follows a later see(what). */
void ha_runtime_lock(void);
void ha_runtime_unlock(void);
void ha_runtime_publish(const void *what);
void ha_runtime_see(const void *what);
void ha_runtime_show_lock(bool show); /* to ThreadSanitizer; while no stream is there */

/* ---- runtime_handle.c: handles are numbers that are never used again, so that what was destroyed is known as such */

enum ha_runtime_kind { HA_HANDLE_STREAM = 1, HA_HANDLE_EVENT, HA_HANDLE_GRAPH, HA_HANDLE_EXEC };
void *ha_runtime_handle_make(enum ha_runtime_kind kind, void *object);       /* NULL: no memory */
void *ha_runtime_handle_find(enum ha_runtime_kind kind, const void *handle); /* the object, or NULL */
void ha_runtime_handle_drop(const void *handle);
/* the first handle at or after *at, or NULL; moves *at behind it */
void *ha_runtime_handle_next(size_t *at, enum ha_runtime_kind *kind);
void ha_runtime_handles_free(void);

/* ---- runtime_memory.c */

enum ha_runtime_place { HA_PLACE_PAGEABLE, HA_PLACE_HOST, HA_PLACE_DEVICE, HA_PLACE_WRONG /* leaves its allocation */ };
enum ha_runtime_place ha_runtime_place(const void *ptr, size_t bytes);
void ha_runtime_memory_reset(void);
void ha_runtime_regions_free(void); /* the table, not what it names */
/* cudaMemcpyBatchAsync as the toolkits 12.8 and 12.9 have it */
struct cudaMemcpyAttributes;
cudaError_t ha_emulated_memcpy_batch_12(void **dsts, void **srcs, size_t *sizes, size_t count,
                                        struct cudaMemcpyAttributes *attributes, size_t *attribute_indices,
                                        size_t attribute_count, size_t *failed, cudaStream_t stream);

/* ---- runtime_stream.c */

/* That an event was recorded: queued, reached, and when. */
struct ha_runtime_mark {
    unsigned references;
    bool done;
    uint64_t ns;
};
struct ha_runtime_mark *ha_runtime_mark_new(void);       /* with one reference; or NULL */
void ha_runtime_mark_drop(struct ha_runtime_mark *mark); /* NULL: nothing */

struct ha_runtime_copy {
    char *dst;
    const char *src;
    size_t dst_pitch, src_pitch, width, height;
    enum ha_runtime_place dst_place, src_place;
};
struct ha_runtime_op {
    struct ha_runtime_op *next;
    void (*run)(struct ha_runtime_op *op); /* without the lock */
    enum ha_emulated_what what;
    cudaGraphExec_t graph;        /* that it was launched by, or NULL */
    bool always;                  /* on a lost device, too */
    uint64_t serial;              /* of all streams' operations, in the order of queueing */
    struct ha_runtime_mark *mark; /* reached or waited for; not in a graph */
    union {
        struct ha_runtime_copy copy;
        size_t pieces; /* copies, in data */
        struct {
            char *ptr;
            int value;
            size_t bytes;
        } set;
        struct {
            cudaHostFn_t fn;
            void *arg;
        } host;
        struct {
            uint32_t *address, value;
        } flag;
        struct {
            struct ha_emulated_kernel kernel;
            unsigned grid[3], block[3];
        } launch;
    } u;
    size_t data_bytes;
    _Alignas(16) unsigned char data[];
};
/* What `like` says, and its data_bytes of `data`, or NULL: to be filled in. NULL: no memory. */
struct ha_runtime_op *ha_runtime_op_new(const struct ha_runtime_op *like, const void *data);
void ha_runtime_op_free(struct ha_runtime_op *op);

void ha_runtime_copy_ran(const struct ha_runtime_op *op, struct ha_emulated_ran *ran); /* runtime_copy.c: of a copy */
const char *ha_runtime_kernel_name(const struct ha_runtime_op *op); /* runtime_launch.c: NULL: a library's */

struct ha_runtime_graph {
    struct ha_runtime_op *head, **tail;
    struct ha_runtime_mark *last; /* of the latest launch */
};
struct ha_runtime_capture {
    struct ha_runtime_graph *graph;
    bool invalid;
};
struct ha_runtime_stream {
    struct ha_runtime_stream *next;
    cudaStream_t handle;
    pid_t process;
    pthread_t thread;
    pthread_cond_t work;
    struct ha_runtime_op *head, **tail; /* the head is what runs */
    bool idle, ending, ended;
    struct ha_runtime_capture *capture;
};
extern struct ha_runtime_stream *ha_runtime_streams; /* with those that were destroyed and have work left */

/* NULL with the error; the handle NULL is the default stream */
struct ha_runtime_stream *ha_runtime_stream_find(cudaStream_t handle, cudaError_t *error);
/* The same for what no capture takes: one that goes on is over, and the error is cudaErrorStreamCaptureUnsupported. */
struct ha_runtime_stream *ha_runtime_stream_uncaptured(cudaStream_t handle, cudaError_t *error);
/* Queues the operation, or keeps it in the capture; takes it in any case. NULL: cudaErrorMemoryAllocation. */
cudaError_t ha_runtime_submit(struct ha_runtime_stream *stream, struct ha_runtime_op *op);
/* Waits until over(arg): polls for a while, then sleeps. The lock is free meanwhile. */
void ha_runtime_await(bool (*over)(const void *arg), const void *arg);
/* until all that is queued on the stream, or (NULL) on all streams, has ended */
void ha_runtime_await_stream(cudaStream_t handle);
void ha_runtime_streams_reap(void);   /* those whose threads have ended */
void ha_runtime_streams_finish(void); /* all of them; waits */

/* ---- runtime_function.c: the kernels that were asked about; under the lock */
/* cudaSuccess, or why a launch of the kernel is refused */
cudaError_t ha_runtime_function_check(const struct ha_emulated_kernel *kernel);
void ha_runtime_functions_free(void);

/* ---- runtime_event.c, runtime_graph.c */
void ha_runtime_event_free(void *event);
void ha_runtime_graph_free(struct ha_runtime_graph *graph);
/* a wait for the mark, or what completes it, with a reference of its own; NULL: no memory */
struct ha_runtime_op *ha_runtime_mark_op(struct ha_runtime_mark *mark, bool waits);
void ha_runtime_capture_drop(struct ha_runtime_stream *stream);

#endif
