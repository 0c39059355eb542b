#ifndef HA_KERNELS_HOST_H
#define HA_KERNELS_HOST_H

/* The embedded device, inside. A stream is a thread with a queue; the link is one lock for each
 * direction, held by whichever stream copies; device memory is an arena of its own. Integers that
 * two threads touch outside of a lock go through __atomic builtins. */

#include "harness/api/device.h"
#include "harness/base/arena.h"
#include "kernels/regions.h"

#include <pthread.h>

/* Every wait starts with this much polling: most waits are shorter than a sleep and a wake-up. With none of it where
 * OMP_WAIT_POLICY=passive asks idle threads to leave their cores to others. */
enum { HA_HOST_SPIN_NS = 20000 };
enum { HA_HOST_STATES_MAX = 4096, HA_HOST_SCRATCH_MAX = 64 };

/* ---- error.c */

/* Keeps the first failure. */
enum ha_status ha_host_fail(struct ha_device *dev, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, with what every stream is waiting for. */
void ha_host_fail_deadlock(struct ha_device *dev);

/* ---- memory.c: what was allocated, and whether an operand lies in it */

struct ha_host_memory {
    struct ha_arena *arena;
    struct ha_regions regions;
};

enum ha_status ha_host_mem_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                 struct ha_why *why);
void ha_host_mem_free(struct ha_device *dev, enum ha_memory kind, void *ptr);
/* Where [ptr, ptr+bytes) lies. If that is not one of `allowed`, or the range leaves its allocation,
 * the device fails with operation, stream and role, and the answer is 0. bytes = 0 is always right. */
enum ha_place ha_host_operand(struct ha_stream *stream, const char *operation, const char *role, const void *ptr,
                              size_t bytes, unsigned allowed);

/* ---- operations */

struct ha_host_op;

/* What a kind of operation is. */
struct ha_host_verb {
    const char *name;
    enum ha_span_kind kind;
    bool on_link; /* then kind is H2D or D2H and says which */
    void (*run)(struct ha_stream *stream, const struct ha_host_op *op);
    /* of those that wait: for what, and how far that is */
    void (*describe)(const struct ha_host_op *op, char *text, size_t bytes);
};

struct ha_host_copy {
    char *dst;
    const char *src;
    size_t dst_stride, src_stride, row_bytes, rows;
};

struct ha_host_op {
    const struct ha_host_verb *verb;
    uint64_t bytes, zero_copy_bytes;
    const void *array; /* of the arguments; run gets a copy */
    size_t array_bytes;
    size_t scratch_bytes; /* what run needs; the stream that queues it puts as much at scratch */
    void *scratch;
    union {
        struct ha_host_copy copy;
        struct {
            uint32_t *flag;
            uint32_t value;
        } write;
        struct {
            const uint32_t *flag;
            uint32_t at_least;
        } wait;
        struct {
            struct ha_stream *stream;
            uint64_t ticket;
        } event;
        struct {
            void (*fn)(void *arg);
            void *arg;
        } host;
#define HA_ARGUMENTS(name, type) struct type name;
        HA_DEVICE_OPERATIONS(HA_ARGUMENTS)
#undef HA_ARGUMENTS
        struct {
            struct ha_device_move args;
            size_t dst_room, src_room;
        } moved;
        struct {
            size_t count;
        } pieces;
        struct {
            const uint32_t *word;
            size_t words;
            uint32_t *sum;
        } read;
        uint64_t spin_ns;
    } u;
};

/* ---- stream.c */

struct ha_host_link;
struct ha_host_node;

/* A destroyed stream stays in the device's list, because events and lanes may still name it, and is
 * used again by the next stream of that name; its counters go on. */
struct ha_stream {
    struct ha_device *device;
    struct ha_stream *next;
    bool live;
    char lane[96]; /* "stream NAME", or "stream NAME 2" while another is live */
    char name[64];
    pthread_t thread;
    struct ha_graph *capture; /* what is enqueued goes there, or NULL; of the thread that feeds the stream */

    pthread_mutex_t lock; /* of all below but `waiting` */
    pthread_cond_t work, moved;
    struct ha_host_node *head, **tail, *spare[2]; /* spare: without and with room for an array */
    uint64_t enqueued, done;                      /* operations; atomic, written under the lock */
    unsigned sleepers;                            /* threads that wait for `moved` */
    bool idle, stopping;
    void *scratch[HA_HOST_SCRATCH_MAX]; /* of attend; the last is in use, queued work may use the others */
    size_t scratch_count, scratch_bytes;

    const struct ha_host_op *waiting; /* under the device's lock: what it is held up by */
};

enum ha_status ha_host_stream_create(struct ha_device *dev, const char *name, struct ha_stream **stream,
                                     struct ha_why *why);
void ha_host_stream_destroy(struct ha_stream *stream);
void ha_host_stream_free(struct ha_stream *stream);
enum ha_status ha_host_stream_sync(struct ha_stream *stream);
/* Queues the operation, or keeps it in the graph that the stream captures. Copies op and its array; both may die on
 * return. */
enum ha_status ha_host_enqueue(struct ha_stream *stream, const struct ha_host_op *op);
/* Returns when the first `ticket` operations of the stream are done. */
void ha_host_stream_await(struct ha_stream *stream, uint64_t ticket);
uint64_t ha_host_stream_enqueued(struct ha_stream *stream);
void ha_host_link_take(struct ha_host_link *link);
void ha_host_link_give(struct ha_host_link *link);

static inline void ha_host_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* ---- event.c */

enum ha_status ha_host_event_create(struct ha_device *dev, struct ha_event **event, struct ha_why *why);
void ha_host_event_destroy(struct ha_event *event);
enum ha_status ha_host_event_record(struct ha_event *event, struct ha_stream *stream);
enum ha_status ha_host_stream_wait(struct ha_stream *stream, struct ha_event *event);
/* for the first `ticket` operations of another */
enum ha_status ha_host_stream_follow(struct ha_stream *stream, struct ha_stream *other, uint64_t ticket);
enum ha_status ha_host_event_sync(struct ha_event *event);
enum ha_status ha_host_flag_write(struct ha_stream *stream, uint32_t *flag, uint32_t value);
enum ha_status ha_host_flag_wait(struct ha_stream *stream, const uint32_t *flag, uint32_t at_least);

/* ---- graph.c: operations kept, each with its array. A destroyed graph stays in the device's list, empty, so
 * that launching it is an error and not an accident. An event is a point in a queue, which a graph has none of:
 * event_record and stream_wait are refused while a stream captures. Flags and host functions are kept. */

struct ha_host_kept {
    struct ha_host_kept *next;
    struct ha_host_op op;
    void *array; /* the op's */
};

struct ha_graph {
    struct ha_device *device;
    struct ha_graph *next;
    struct ha_host_kept *head, **tail;
    bool live;              /* atomic; false once destroyed */
    struct ha_stream *last; /* of the launch before, or NULL, and how much of it was enqueued then */
    uint64_t ticket;
};

enum ha_status ha_host_graph_begin(struct ha_stream *stream);
enum ha_status ha_host_graph_end(struct ha_stream *stream, struct ha_graph **graph, struct ha_why *why);
void ha_host_graph_destroy(struct ha_graph *graph);
enum ha_status ha_host_graph_keep(struct ha_stream *stream, const struct ha_host_op *op);
/* Forgets what the stream has captured so far. */
void ha_host_graph_drop(struct ha_stream *stream);
void ha_host_graphs_free(struct ha_device *dev);

/* ---- launch.c */

/* The verbs of a kind of copy, by direction. */
#define HA_HOST_COPIES(of, fn)                                                             \
    {                                                                                      \
        [HA_H2D] = { .name = of " H2D", .kind = HA_SPAN_H2D, .on_link = true, .run = fn }, \
        [HA_D2H] = { .name = of " D2H", .kind = HA_SPAN_D2H, .on_link = true, .run = fn }, \
        [HA_D2D] = { .name = of " D2D", .kind = HA_SPAN_D2D, .run = fn },                  \
    }
/* Whether both sides of a copy lie where its direction says, and one piece not in its own way; else the device fails.
 */
enum ha_status ha_host_copy_fits(struct ha_stream *stream, const char *operation, const struct ha_host_copy *copy,
                                 enum ha_direction dir);
static inline bool ha_host_overlap(const void *a, const void *b, size_t bytes)
{
    return (uintptr_t)a < (uintptr_t)b + bytes && (uintptr_t)b < (uintptr_t)a + bytes;
}
/* bytes from the first element of the first row to the last of the last */
static inline size_t ha_host_extent(size_t rows, size_t stride, size_t row_bytes)
{
    return rows ? (rows - 1) * stride + row_bytes : 0;
}
/* Where a kernel's operand lies, in device or mapped memory, or 0 and the device has failed. The op counts what it
 * reads over the link: read_bytes, where that is mapped memory. */
enum ha_place ha_host_kernel_operand(struct ha_stream *stream, struct ha_host_op *op, const char *role, const void *ptr,
                                     size_t bytes, size_t read_bytes);
enum ha_status ha_host_copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes, enum ha_direction dir);
enum ha_status ha_host_copy_2d(struct ha_stream *stream, void *dst, size_t dst_stride, const void *src,
                               size_t src_stride, size_t row_bytes, size_t rows, enum ha_direction dir);
enum ha_status ha_host_fn(struct ha_stream *stream, void (*fn)(void *arg), void *arg);
/* Whether the operands of an attention are as they must be; counts what it reads over the link into op. */
enum ha_status ha_host_attend_fits(struct ha_stream *stream, struct ha_host_op *op,
                                   const struct ha_device_attend *args);
enum ha_status ha_host_graph_launch(struct ha_graph *graph, struct ha_stream *stream);

/* ---- move.c */

enum ha_status ha_host_copy_pieces(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                   enum ha_direction dir);
enum ha_status ha_host_read(struct ha_stream *stream, const void *ptr, size_t bytes, uint32_t *sum);
enum ha_status ha_host_spin(struct ha_stream *stream, uint64_t ns);
/* A stand-in for GDRCopy: device memory is the host's already. */
enum ha_status ha_host_map_device(struct ha_device *dev, void *ptr, size_t bytes, void **host, struct ha_why *why);
void ha_host_unmap_device(struct ha_device *dev, void *host);

/* ---- the operations: ha_host_NAME, enqueued on the stream, in launch.c (attend, merge, blend), move.c, select.c,
 * predict.c, codes.c, pq.c and products.c */

#define HA_DECLARED(name, type) enum ha_status ha_host_##name(struct ha_stream *stream, const struct type *args);
HA_DEVICE_OPERATIONS(HA_DECLARED)
#undef HA_DECLARED

/* ---- products.c: a BLAS of the system, loaded with the first product. HABENCH_BLAS names another library. */

/* NULL, or why there are no products here. Where the loader would find a library, it is not loaded for this. */
const char *ha_host_products_absent(void);
struct ha_profile ha_host_products_profile(void);

/* ---- device.c */

extern const struct ha_device_api ha_device_host;

/* One direction of the link: copies take it in the order in which they arrive. */
struct ha_host_link {
    pthread_mutex_t lock;
    pthread_cond_t turn;
    uint64_t next, serving;
    const char *lane;
};

struct ha_device {
    struct ha_kernels kernels;
    uint64_t wait_limit_ns, spin_ns;
    struct ha_host_memory memory;
    struct ha_host_link link[2]; /* HA_H2D, HA_D2H */

    pthread_mutex_t lock; /* of the lists, of `waiting`, of the failure and of tracing */
    struct ha_stream *streams;
    struct ha_graph *graphs;
    bool failed; /* atomic; set after the text */
    char failure[1024];

    const struct ha_span_sink *sink; /* atomic, written under the lock */
    uint64_t spans_due;              /* operations enqueued with a sink and not done */
    pthread_cond_t spans_done;
};

static inline bool ha_host_failed(const struct ha_device *dev)
{
    return __atomic_load_n(&dev->failed, __ATOMIC_ACQUIRE);
}

#endif
