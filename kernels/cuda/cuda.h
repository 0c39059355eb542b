#ifndef HA_KERNELS_CUDA_H
#define HA_KERNELS_CUDA_H

/* The CUDA device, inside: the part in C, over the runtime API (linked statically) and a few entries of the driver
 * (looked up at run time, so that the plugin loads where there is none). Compiled a second time over emulation/, it
 * is the device `cuda_emulated`, which runs the same kernels on the CPU. */

#include "harness/api/device.h"
#include "kernels/cuda/launch.h"
#include "kernels/regions.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

enum { HA_CUDA_GPU = 0 }; /* the first that CUDA_VISIBLE_DEVICES shows */

/* ---- error.c: how the parts say that something went wrong; everything else stands above this */
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
void ha_cuda_enter(void);

/* ---- driver.c: what has no place in the runtime, or NULL where this driver lacks it */
struct ha_cuda_driver {
    CUresult (*write_value)(CUstream stream, CUdeviceptr address, cuuint32_t value,
                            unsigned flags); /* cuStreamWriteValue32 */
    CUresult (*batch)(CUstream stream, unsigned count, CUstreamBatchMemOpParams *operations,
                      unsigned flags); /* cuStreamBatchMemOp */
};
/* HA_WAIVED where there is no driver: "no NVIDIA driver: libcuda.so.1: ..." */
enum ha_status ha_cuda_driver_load(struct ha_cuda_driver *driver, struct ha_why *why);
static inline enum cudaMemcpyKind ha_cuda_kind(enum ha_direction dir)
{
    return dir == HA_H2D ? cudaMemcpyHostToDevice : dir == HA_D2H ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
}
/* One copy call for many pieces (cudaMemcpyBatchAsync) where runtime and driver have it, else a call each. */
cudaError_t ha_cuda_copy_pieces(cudaStream_t stream, const struct ha_device_pieces *pieces, enum ha_direction dir);

/* ---- memory.c: what was allocated, and whether an operand lies in it */
struct ha_cuda_memory {
    struct ha_regions
        regions; /* mapping_bytes: of memory that was mapped here and registered, for huge pages; 0: from the runtime */
    bool huge_pages; /* HABENCH_HUGE_PAGES=1: pinned and mapped memory asks for them */
};
enum ha_status ha_cuda_mem_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                 struct ha_why *why);
void ha_cuda_mem_free(struct ha_device *dev, enum ha_memory kind,
                      void *ptr);                 /* waits for all of the GPU's work, as the runtime does */
void ha_cuda_memory_close(struct ha_device *dev); /* what nobody freed, too */
/* Where [ptr, ptr+bytes) lies. If that is not one of `allowed`, or the range leaves its allocation, the device fails
 * with operation, stream and role, and the answer is 0. bytes = 0 is always right. */
enum ha_place ha_cuda_operand(struct ha_stream *stream, const char *operation, const char *role, const void *ptr,
                              size_t bytes, unsigned allowed);

/* ---- watch.c: the thread that watches the waits for flags. A stream writes to a word of its own, in mapped
 * memory, 2 n + 1 before its wait number n (from 1) and 2 n after it; that is what the thread looks at. The waits of a
 * graph have a word of their own, because a graph does not run beside itself. Waits are the driver's where it has them,
 * which compare as int32_t(flag - at_least) >= 0: values that are waited for lie within 2^31 of the flag's. */
struct ha_cuda_wait {
    const uint32_t *flag;
    uint32_t at_least;
};
struct ha_cuda_waits {
    struct ha_cuda_waits *next;            /* in the watch's list; all of this is under its lock */
    struct ha_stream *stream;              /* of a graph: that launched it last */
    uint32_t *state;                       /* in mapped memory; NULL: no wait yet */
    struct ha_cuda_wait *ring;             /* wait n is at n % capacity */
    uint32_t capacity, enqueued, launches; /* enqueued: the number of the next wait */
    bool kept;                             /* a graph's: every wait may come again */
    uint32_t seen_state, seen_flag, seen_launches;
    uint64_t since_ns; /* when what was seen was first seen; 0: not waiting */
};
struct ha_cuda_watch;
enum ha_status ha_cuda_watch_start(struct ha_device *dev, struct ha_why *why);
void ha_cuda_watch_stop(struct ha_device *dev);
void ha_cuda_waits_end(struct ha_device *dev, struct ha_cuda_waits *waits); /* none of them is going on */
void ha_cuda_waits_launched(struct ha_device *dev, struct ha_cuda_waits *waits, struct ha_stream *stream);
/* Before flags that nobody waits for are taken away: returns when the watching thread does not look at them. */
void ha_cuda_watch_passed(struct ha_device *dev);
/* One more wait of the stream, or of the graph that it captures: its number n and the word that it writes to before and
 * after. NULL, or what is wrong. */
const char *ha_cuda_watch_add(struct ha_stream *stream, const uint32_t *flag, uint32_t at_least, uint32_t **state,
                              uint32_t *n);
/* The word that is not 0 once the device has failed: kernels that wait look at it, to give up. */
const uint32_t *ha_cuda_watch_gave_up(const struct ha_device *dev);

/* ---- flag.c */
enum ha_status ha_cuda_flag_write_enqueue(struct ha_stream *stream, uint32_t *flag, uint32_t value);
enum ha_status ha_cuda_flag_wait_enqueue(struct ha_stream *stream, const uint32_t *flag, uint32_t at_least);

/* ---- workspace.c */
/* Of a stream or a graph, in a list, the largest first: it grows without waiting, because what was outgrown may be in
 * use, and stays until its owner ends. */
struct ha_cuda_room {
    struct ha_cuda_room *next;
    void *ptr;
    size_t bytes;
};
/* At least `bytes` for what the stream enqueues next, one operation after the other (of the graph, while capturing); or
 * NULL and the device has failed. */
void *ha_cuda_workspace(struct ha_stream *stream, size_t bytes);
/* Work that used it is done. It is kept for the next stream or graph: freeing waits for the whole GPU. */
void ha_cuda_workspace_give(struct ha_device *dev, struct ha_cuda_room **rooms);
/* Frees what nobody uses; true if there was something. */
bool ha_cuda_workspaces_free(struct ha_device *dev);

/* ---- call.c: host functions */
struct ha_cuda_call;
/* In a list, from which it is freed even if it never runs; NULL: no memory. */
struct ha_cuda_call *ha_cuda_call_take(struct ha_stream *stream, void (*fn)(void *arg), void *arg);
void ha_cuda_call_run(void *call);
void ha_cuda_calls_free(struct ha_cuda_call *calls);

/* ---- stream.c */
struct ha_cuda_span;

/* A destroyed stream stays in the device's list, because lanes name it, until the next one of its name uses it. */
struct ha_stream {
    struct ha_device *device;
    struct ha_stream *next;
    cudaStream_t cuda;
    char lane[96]; /* "stream NAME", or "stream NAME 2" while another is live */
    char name[64];
    bool live;                  /* under the device's lock */
    struct ha_graph *graph;     /* while capturing; of the thread that feeds the stream */
    struct ha_cuda_room *rooms; /* its workspace */
    struct ha_cuda_waits waits;
    const char *behind; /* atomic: lane of the stream that the last stream_wait was for, or NULL */
    uint64_t queue;     /* trace.c: of its records; 0: not asked for yet */
};
enum ha_status ha_cuda_stream_create(struct ha_device *dev, const char *name, struct ha_stream **stream,
                                     struct ha_why *why);
void ha_cuda_stream_destroy(struct ha_stream *stream);
enum ha_status ha_cuda_stream_sync(struct ha_stream *stream);
void ha_cuda_streams_free(struct ha_device *dev);
/* Around what is enqueued, when its operands are right: the span, and the error. What a graph holds is not traced when
 * it is kept, but when it is launched. */
void *ha_cuda_begin(struct ha_stream *stream, const struct ha_cuda_span *span);
enum ha_status ha_cuda_end(struct ha_stream *stream, void *ticket, cudaError_t error, const char *call,
                           const struct ha_cuda_span *span);
#define HA_CUDA_ENQUEUE(stream, span, call)                           \
    do {                                                              \
        void *ticket_ = ha_cuda_begin((stream), (span));              \
        cudaError_t error_ = (call);                                  \
        return ha_cuda_end((stream), ticket_, error_, #call, (span)); \
    } while (0)

/* ---- event.c */
enum ha_status ha_cuda_event_create(struct ha_device *dev, struct ha_event **event, struct ha_why *why);
void ha_cuda_event_destroy(struct ha_event *event);
enum ha_status ha_cuda_event_record(struct ha_event *event, struct ha_stream *stream);
enum ha_status ha_cuda_stream_wait(struct ha_stream *stream, struct ha_event *event);
enum ha_status ha_cuda_event_sync(struct ha_event *event);

/* ---- graph.c: what the runtime captured. A graph has a workspace, host calls and a word for its waits of its own: its
 * launches run one after the other, whichever the stream. It holds neither events nor other graphs. A destroyed one
 * stays in the device's list, empty, so that launching it is an error and not an accident. */
struct ha_graph {
    struct ha_device *device;
    struct ha_graph *next;
    bool live; /* atomic; false until captured, and once destroyed */
    cudaGraphExec_t exec;
    struct ha_cuda_room *rooms; /* its workspace */
    struct ha_cuda_waits waits;
    struct ha_cuda_call *calls;
    uint64_t zero_copy_bytes; /* of a launch */
    uint32_t nodes;           /* kernels, copies and memsets: each leaves CUPTI a record */
};
/* Of a graph that was destroyed, what the next one of as many nodes becomes by an update of their parameters. */
enum { HA_CUDA_SPARES = 8 };
struct ha_cuda_spare {
    cudaGraphExec_t exec; /* or NULL; under the device's lock */
    uint32_t nodes;
};
enum ha_status ha_cuda_graph_begin(struct ha_stream *stream);
enum ha_status ha_cuda_graph_end(struct ha_stream *stream, struct ha_graph **graph, struct ha_why *why);
void ha_cuda_graph_destroy(struct ha_graph *graph);
void ha_cuda_graph_drop(struct ha_stream *stream); /* what the stream has captured so far */
void ha_cuda_graphs_free(struct ha_device *dev);

/* ---- launch.c */
enum ha_status ha_cuda_copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes, enum ha_direction dir);
enum ha_status ha_cuda_copy_2d(struct ha_stream *stream, void *dst, size_t dst_stride, const void *src,
                               size_t src_stride, size_t row_bytes, size_t rows, enum ha_direction dir);
enum ha_status ha_cuda_copy_pieces_enqueue(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                           enum ha_direction dir);
enum ha_status ha_cuda_host_fn(struct ha_stream *stream, void (*fn)(void *arg), void *arg);
enum ha_status ha_cuda_attend_enqueue(struct ha_stream *stream, const struct ha_device_attend *args);
enum ha_status ha_cuda_attend_products_enqueue(struct ha_stream *stream, const struct ha_device_attend *args);
enum ha_status ha_cuda_move_enqueue(struct ha_stream *stream, const struct ha_device_move *args);
#define HA_CUDA_FILE(file)
#define HA_CUDA_OPERATION(name, arguments) \
    enum ha_status ha_cuda_##name##_enqueue(struct ha_stream *stream, const struct arguments *args);
#include "kernels/cuda/operations.def"
enum ha_status ha_cuda_product_enqueue(struct ha_stream *stream, const struct ha_device_product *args);
enum ha_status ha_cuda_read_enqueue(struct ha_stream *stream, const void *ptr, size_t bytes, uint32_t *sum);
enum ha_status ha_cuda_spin_enqueue(struct ha_stream *stream, uint64_t ns);
enum ha_status ha_cuda_graph_launch(struct ha_graph *graph, struct ha_stream *stream);

/* ---- trace.c: spans, stamped by CUPTI (cupti.c) or else by CUDA events around each operation */
struct ha_cuda_span {
    enum ha_span_kind kind;
    const char *name; /* static */
    uint64_t bytes, zero_copy_bytes;
    bool library;                 /* cuBLAS launches kernels for it, too, who knows how many */
    const struct ha_graph *graph; /* that it launches, or NULL */
};
/* An operation whose arguments are being checked, before it is enqueued (operand.h). */
struct ha_cuda_check {
    struct ha_stream *stream;
    struct ha_cuda_span span;
    bool wrong; /* the device has failed */
};
struct ha_cuda_trace;
/* From here to ready the trace watches, so that what CUPTI needs when it first does is done before anything is timed,
 * and the kernels that run between are seen: where CUPTI does not see them, it is not used. */
enum ha_status ha_cuda_trace_create(struct ha_cuda_trace **trace, struct ha_device *dev, struct ha_why *why);
/* kernels: how many ran on the device since, by whatever stream */
enum ha_status ha_cuda_trace_ready(struct ha_cuda_trace *trace, size_t kernels, struct ha_why *why);
void ha_cuda_trace_destroy(struct ha_cuda_trace *trace);
void ha_cuda_trace_set(struct ha_device *dev, const struct ha_span_sink *sink); /* ha_device_api.trace */
const char *ha_cuda_trace_source(const struct ha_device *dev);                  /* ha_device_info.spans */
uint64_t ha_cuda_trace_lost(const struct ha_device *dev);                       /* ha_device_info.spans_lost */
/* Around every enqueue; cheap where nothing is traced. begin returns a ticket for end (NULL: nothing traced). end also
 * delivers the launch span: what the enqueue itself took of the calling thread, lane "launch". */
void *ha_cuda_span_begin(struct ha_stream *stream, const struct ha_cuda_span *span);
void ha_cuda_span_end(struct ha_stream *stream, void *ticket);

/* ---- meters.c: NVML, loaded at run time */
struct ha_cuda_meters;
struct ha_cuda_meters *ha_cuda_meters_open(const char *bus_id);                        /* NULL: none here */
void ha_cuda_meters_read(struct ha_cuda_meters *meters, struct ha_device_meters *out); /* NULL: nothing readable */
void ha_cuda_meters_close(struct ha_cuda_meters *meters);
/* ha_device_api.facts, as far as NVML says; of a list that is full the rest is left out. */
struct ha_cuda_facts {
    struct ha_device_fact *fact;
    size_t room, count;
};
void ha_cuda_fact(struct ha_cuda_facts *list, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void ha_cuda_meters_facts(struct ha_cuda_meters *meters, struct ha_cuda_facts *list); /* NULL: none */

/* ---- blas.c: cuBLAS, loaded at run time */
struct ha_cuda_blas;
/* When the device is opened: makes the handle and multiplies once. The library may refuse to be first used while a
 * stream captures (pytorch/pytorch#99397), and what it does then is not to be timed. */
void ha_cuda_blas_ready(struct ha_device *dev);
/* NULL, or why there are no products here: then attend_products and product are WAIVED (the enqueue fails with the
 * reason) */
const char *ha_cuda_blas_absent(struct ha_device *dev);
enum ha_status ha_cuda_product(struct ha_stream *stream, const struct ha_device_product *args);
enum ha_status ha_cuda_attend_products(struct ha_stream *stream, const struct ha_device_attend *args);
struct ha_profile ha_cuda_products_profile(const struct ha_device *dev, enum ha_dtype dtype);
void ha_cuda_blas_close(struct ha_cuda_blas *blas);

/* ---- gdr.c: CPU stores into device memory through GDRCopy, loaded at run time */
enum ha_status ha_cuda_map_device(struct ha_device *dev, void *ptr, size_t bytes, void **host, struct ha_why *why);
void ha_cuda_unmap_device(struct ha_device *dev, void *host);
void ha_cuda_gdr_close(struct ha_device *dev);

/* ---- kernels.c */
/* Loads every kernel, lets it have its shared memory, and asks how many of its blocks a multiprocessor holds. */
enum ha_status ha_cuda_kernels_ask(struct ha_why *why);

/* ---- device.c */
struct ha_device {
    char name[96], bus_id[32], driver_text[64];
    unsigned multiprocessors;
    struct ha_cuda_driver driver;
    double eps[HA_CUDA_FUNCTIONS]; /* measured at open */
    uint64_t wait_limit_ns;
    struct ha_cuda_memory memory;
    struct ha_cuda_trace *trace;
    struct ha_cuda_meters *meters;
    struct ha_cuda_blas *blas; /* or NULL, until it is looked for */
    void *gdr;
    struct ha_cuda_watch *watch;

    pthread_mutex_t lock; /* of the lists and of the failure */
    struct ha_stream *streams;
    struct ha_graph *graphs;
    struct ha_cuda_spare spare[HA_CUDA_SPARES]; /* graph.c */
    struct ha_cuda_room *spare_rooms;           /* workspace.c: of streams and graphs that are gone */
    struct ha_cuda_call *calls, *spare_calls;   /* call.c: all that no graph holds, and those of them not in use */
    bool failed;                                /* atomic; set after the text */
    char failure[1024];
};

static inline bool ha_cuda_failed(const struct ha_device *dev)
{
    return __atomic_load_n(&dev->failed, __ATOMIC_ACQUIRE);
}

#endif
