#include "kernels/cuda/emulation/runtime_inside.h"

#include "harness/base/clock.h"
#include "harness/base/thread.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { POLL_NS = 50000 };

struct ha_runtime_stream *ha_runtime_streams;
static uint64_t serial;

struct ha_runtime_op *ha_runtime_op_new(const struct ha_runtime_op *like, const void *data)
{
    const size_t bytes = like->data_bytes;
    struct ha_runtime_op *op = bytes <= PTRDIFF_MAX - sizeof *op ? malloc(sizeof *op + bytes) : NULL;
    if (!op) return NULL;
    *op = *like;
    op->next = NULL;
    if (data && bytes) memcpy(op->data, data, bytes);
    return op;
}

void ha_runtime_op_free(struct ha_runtime_op *op)
{
    if (op) ha_runtime_mark_drop(op->mark);
    free(op);
}

/* Gives the lock to others for a moment, POLL_NS long; false when that is over. */
static bool poll_on(uint64_t *end)
{
    uint64_t now = ha_now_ns();
    if (!*end) *end = now + POLL_NS;
    if (now >= *end) return false;
    ha_runtime_unlock();
    sched_yield();
    ha_runtime_lock();
    return true;
}

void ha_runtime_await(bool (*over)(const void *arg), const void *arg)
{
    uint64_t end = 0;
    while (!over(arg)) {
        if (poll_on(&end)) continue;
        ha_runtime.sleepers++;
        pthread_cond_wait(&ha_runtime.moved, &ha_runtime.lock);
        ha_runtime.sleepers--;
    }
}

static void await_work(struct ha_runtime_stream *s)
{
    uint64_t end = 0;
    while (!s->head && !s->ending) {
        if (poll_on(&end)) continue;
        s->idle = true;
        pthread_cond_wait(&s->work, &ha_runtime.lock);
        s->idle = false;
    }
}

static void (*told)(const struct ha_emulated_ran *ran); /* atomic */

void ha_emulated_tell(void (*ran)(const struct ha_emulated_ran *ran))
{
    __atomic_store_n(&told, ran, __ATOMIC_RELEASE);
}

static void tell(const struct ha_runtime_op *op, cudaStream_t stream, uint64_t begin_ns)
{
    void (*const ran)(const struct ha_emulated_ran *) = __atomic_load_n(&told, __ATOMIC_ACQUIRE);
    struct ha_emulated_ran r = {
        .what = op->what, .stream = stream, .graph = op->graph, .begin_ns = begin_ns, .end_ns = ha_now_ns()
    };
    if (!ran || op->what == HA_EMULATED_HOST) return;
    if (op->what == HA_EMULATED_KERNEL) r.kernel = ha_runtime_kernel_name(op);
    if (op->what == HA_EMULATED_SET) r.bytes = op->u.set.bytes;
    if (op->what == HA_EMULATED_COPY) ha_runtime_copy_ran(op, &r);
    ran(&r);
}

static void *worker(void *arg)
{
    struct ha_runtime_stream *s = arg;
    prctl(PR_SET_TIMERSLACK, 1000ul); /* naps between polls of a flag would all be 50 us longer */
    ha_runtime_lock();
    ha_runtime_see(s);
    for (;;) {
        await_work(s);
        struct ha_runtime_op *op = s->head;
        if (!op) break;
        ha_runtime_see(op);
        const cudaStream_t stream = s->handle;
        ha_runtime_unlock();
        const uint64_t begin_ns = ha_now_ns();
        if (op->always || !ha_runtime_lost()) op->run(op);
        tell(op, stream, begin_ns);
        ha_runtime_lock();
        ha_runtime_publish(s);
        s->head = op->next;
        if (!s->head) s->tail = &s->head;
        ha_runtime_op_free(op);
        if (ha_runtime.sleepers) pthread_cond_broadcast(&ha_runtime.moved);
    }
    s->ended = true;
    ha_runtime_publish(&ha_runtime);
    pthread_cond_broadcast(&ha_runtime.moved);
    ha_runtime_unlock();
    return NULL;
}

cudaError_t ha_runtime_submit(struct ha_runtime_stream *s, struct ha_runtime_op *op)
{
    if (!op) return cudaErrorMemoryAllocation;
    if (s->capture) {
        if (s->capture->invalid) {
            ha_runtime_op_free(op);
            return cudaErrorStreamCaptureInvalidated;
        }
        *s->capture->graph->tail = op;
        s->capture->graph->tail = &op->next;
        return cudaSuccess;
    }
    op->serial = ++serial;
    ha_runtime_publish(op);
    *s->tail = op;
    s->tail = &op->next;
    if (s->idle) pthread_cond_signal(&s->work);
    return cudaSuccess;
}

/* ---- waiting for streams: for the operations up to a serial number. A stream that has ended has none. */

struct until {
    cudaStream_t handle; /* NULL: all */
    uint64_t serial;
};

static bool until_over(const void *arg)
{
    const struct until *u = arg;
    for (const struct ha_runtime_stream *s = ha_runtime_streams; s; s = s->next) {
        if (u->handle && s->handle != u->handle) continue;
        if (s->head && s->head->serial <= u->serial) return false;
        ha_runtime_see(s);
    }
    if (!u->handle) ha_runtime_see(&ha_runtime);
    return true;
}

void ha_runtime_await_stream(cudaStream_t handle)
{
    ha_runtime_await(until_over, &(struct until){ .handle = handle, .serial = serial });
}

/* ---- making and ending them */

static cudaError_t stream_make(cudaStream_t *handle)
{
    struct ha_runtime_stream *s = calloc(1, sizeof *s);
    if (!s) return cudaErrorMemoryAllocation;
    s->handle = ha_runtime_handle_make(HA_HANDLE_STREAM, s);
    if (!s->handle) {
        free(s);
        return cudaErrorMemoryAllocation;
    }
    s->process = getpid();
    s->tail = &s->head;
    pthread_cond_init(&s->work, NULL);
    ha_runtime_publish(s);
    int error = ha_thread_start(&s->thread, worker, s);
    if (error) {
        ha_runtime_handle_drop(s->handle);
        pthread_cond_destroy(&s->work);
        free(s);
        return cudaErrorOperatingSystem;
    }
    s->next = ha_runtime_streams;
    ha_runtime_streams = s;
    *handle = s->handle;
    return cudaSuccess;
}

/* Its thread ends when the queue is empty. */
static void stream_end(struct ha_runtime_stream *s)
{
    ha_runtime_handle_drop(s->handle);
    ha_runtime_capture_drop(s);
    s->ending = true;
    pthread_cond_signal(&s->work);
}

void ha_runtime_streams_reap(void)
{
    for (struct ha_runtime_stream **at = &ha_runtime_streams, *s; (s = *at);) {
        if (!s->ended) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        pthread_join(s->thread, NULL); /* it has released the lock for the last time */
        pthread_cond_destroy(&s->work);
        free(s);
    }
}

static bool all_ended(const void *arg)
{
    for (const struct ha_runtime_stream *s = ha_runtime_streams; s; s = s->next)
        if (!s->ended) return false;
    return true;
}

void ha_runtime_streams_finish(void)
{
    for (struct ha_runtime_stream *s = ha_runtime_streams; s; s = s->next)
        if (!s->ending) stream_end(s);
    ha_runtime.null_stream = NULL;
    ha_runtime_await(all_ended, NULL);
    ha_runtime_streams_reap();
}

struct ha_runtime_stream *ha_runtime_stream_find(cudaStream_t handle, cudaError_t *error)
{
    cudaStream_t *null = &ha_runtime.null_stream;
    if (*error) return NULL;
    if (!handle && !*null && (*error = stream_make(null))) return NULL;
    struct ha_runtime_stream *s = ha_runtime_handle_find(HA_HANDLE_STREAM, handle ? handle : *null);
    if (!s) *error = cudaErrorInvalidResourceHandle;
    else if ((*error = ha_runtime_lost())) s = NULL;
    return s;
}

struct ha_runtime_stream *ha_runtime_stream_uncaptured(cudaStream_t handle, cudaError_t *error)
{
    struct ha_runtime_stream *s = ha_runtime_stream_find(handle, error);
    if (!s || !s->capture) return s;
    s->capture->invalid = true;
    *error = cudaErrorStreamCaptureUnsupported;
    return NULL;
}

/* ---- the API */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaStreamCreateWithFlags);
    if (!error && (!stream || flags & ~(unsigned)cudaStreamNonBlocking)) error = cudaErrorInvalidValue;
    if (!error) {
        ha_runtime_streams_reap();
        error = stream_make(stream);
    }
    return ha_runtime_leave(error);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaStreamDestroy);
    if (ha_runtime_may_release(error)) {
        struct ha_runtime_stream *s = ha_runtime_handle_find(HA_HANDLE_STREAM, stream);
        if (s) stream_end(s);
        else if (!error) error = cudaErrorInvalidResourceHandle;
        ha_runtime_streams_reap();
    }
    return ha_runtime_leave(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaStreamSynchronize);
    const struct ha_runtime_stream *s = ha_runtime_stream_uncaptured(stream, &error);
    if (s) {
        ha_runtime_await_stream(s->handle);
        error = ha_runtime_lost();
    }
    return ha_runtime_leave(error);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaStreamQuery);
    const struct ha_runtime_stream *s = ha_runtime_stream_uncaptured(stream, &error);
    if (s && s->head) error = cudaErrorNotReady;
    else if (s) ha_runtime_see(s);
    return ha_runtime_leave(error);
}
