#include "kernels/cuda/emulation/runtime_inside.h"

#include "harness/base/clock.h"

#include <stdlib.h>

/* An event is the latest mark that it was recorded as; who waits, waits for the mark of that time. */
struct event {
    int device;
    unsigned flags;
    struct ha_runtime_mark *latest;
    uint64_t capture; /* in which it was last recorded; 0: in none */
};

void ha_runtime_mark_drop(struct ha_runtime_mark *mark)
{
    if (mark && --mark->references == 0) free(mark);
}

static struct ha_runtime_mark *mark_share(struct ha_runtime_mark *mark)
{
    if (mark) mark->references++;
    return mark;
}

static struct event *event_find(cudaEvent_t handle) { return ha_runtime_handle_find(HA_HANDLE_EVENT, handle); }

void ha_runtime_event_free(void *event)
{
    struct event *e = event;
    ha_runtime_mark_drop(e->latest);
    free(e);
}

/* ---- the two operations; those of a graph take the event's mark when they are queued */

struct ha_runtime_mark *ha_runtime_mark_new(void)
{
    struct ha_runtime_mark *mark = calloc(1, sizeof *mark);
    if (mark) mark->references = 1;
    return mark;
}

static bool record_prepare(struct ha_runtime_op *op)
{
    if (!op->mark) op->mark = ha_runtime_mark_new();
    struct event *e = op->mark && op->event ? event_find(op->event) : NULL;
    if (!e) return op->mark;
    ha_runtime_mark_drop(e->latest);
    e->latest = mark_share(op->mark);
    e->capture = 0;
    return true;
}

static void record_run(struct ha_runtime_stream *s, struct ha_runtime_op *op)
{
    (void)s;
    uint64_t now = ha_now_ns();
    ha_runtime_lock();
    op->mark->ns = now;
    op->mark->done = true;
    ha_runtime_publish(op->mark);
    ha_runtime_unlock();
}

static bool wait_prepare(struct ha_runtime_op *op)
{
    const struct event *e = op->event ? event_find(op->event) : NULL;
    if (e && !op->mark) op->mark = mark_share(e->latest);
    return true;
}

/* on a lost device too: records are never dropped */
static bool reached(const void *arg)
{
    const struct ha_runtime_mark *mark = arg;
    if (mark->done) ha_runtime_see(mark);
    return mark->done;
}

static void wait_run(struct ha_runtime_stream *s, struct ha_runtime_op *op)
{
    (void)s;
    ha_runtime_lock();
    if (op->mark) ha_runtime_await(reached, op->mark);
    ha_runtime_unlock();
}

static const struct ha_runtime_verb record_verb = { record_prepare, record_run, .always = true };
static const struct ha_runtime_verb wait_verb = { wait_prepare, wait_run, .always = false };

struct ha_runtime_op *ha_runtime_mark_op(struct ha_runtime_mark *mark, bool waits)
{
    struct ha_runtime_op *op = ha_runtime_op_new(waits ? &wait_verb : &record_verb, 0);
    if (op) op->mark = mark_share(mark);
    return op;
}

static struct ha_runtime_op *event_op(cudaEvent_t handle, const struct ha_runtime_verb *verb)
{
    struct ha_runtime_op *op = ha_runtime_op_new(verb, 0);
    if (op) op->event = handle;
    return op;
}

/* ---- the API */

static cudaError_t create(cudaError_t error, cudaEvent_t *event, unsigned flags)
{
    if (!error && (!event || flags & ~3u)) error = cudaErrorInvalidValue;
    if (error) return error;
    struct event *e = calloc(1, sizeof *e);
    void *handle = e ? ha_runtime_handle_make(HA_HANDLE_EVENT, ha_runtime_current(), e) : NULL;
    if (!handle) {
        free(e);
        return cudaErrorMemoryAllocation;
    }
    e->device = ha_runtime_current();
    e->flags = flags;
    *event = handle;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaEventCreate);
    return ha_runtime_leave(create(error, event, cudaEventDefault));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaEventCreateWithFlags);
    return ha_runtime_leave(create(error, event, flags));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaEventDestroy);
    if (ha_runtime_may_release(error)) {
        struct event *e = event_find(event);
        ha_runtime_handle_drop(event);
        if (e) ha_runtime_event_free(e);
        else if (!error) error = cudaErrorInvalidResourceHandle;
    }
    return ha_runtime_leave(error);
}

static cudaError_t record(cudaError_t error, cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    struct ha_runtime_stream *s = ha_runtime_stream_find(stream, &error);
    if (!s) return error;
    struct event *e = event_find(event);
    if (!e || e->device != s->device) return cudaErrorInvalidResourceHandle;
    if (flags & ~(unsigned)cudaEventRecordExternal || (flags && !s->capture)) return cudaErrorInvalidValue;
    if (s->capture && !flags) {
        if (s->capture->invalid) return cudaErrorStreamCaptureInvalidated;
        e->capture = s->capture->id;
        return cudaSuccess;
    }
    return ha_runtime_submit(s, event_op(event, &record_verb));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaEventRecord);
    return ha_runtime_leave(record(error, event, stream, cudaEventRecordDefault));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaEventRecordWithFlags);
    return ha_runtime_leave(record(error, event, stream, flags));
}

static bool capture_going_on(uint64_t id)
{
    for (const struct ha_runtime_stream *s = ha_runtime_streams; s; s = s->next)
        if (s->capture && s->capture->id == id) return true;
    return false;
}

static cudaError_t wait_captured(struct ha_runtime_stream *s, const struct event *e)
{
    struct ha_runtime_capture *c = s->capture;
    if (c->invalid) return cudaErrorStreamCaptureInvalidated;
    if (e->capture == c->id || (!e->capture && !e->latest)) return cudaSuccess; /* in order already; never recorded */
    c->invalid = true;
    return e->capture && capture_going_on(e->capture) ? cudaErrorStreamCaptureMerge : cudaErrorStreamCaptureIsolation;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaStreamWaitEvent);
    struct ha_runtime_stream *s = ha_runtime_stream_find(stream, &error);
    const struct event *e = event_find(event);
    if (!s) return ha_runtime_leave(error);
    if (!e) error = cudaErrorInvalidResourceHandle;
    else if (flags & ~(unsigned)cudaEventWaitExternal || (flags && !s->capture)) error = cudaErrorInvalidValue;
    else if (s->capture && !flags) error = wait_captured(s, e);
    else if (!s->capture && e->capture)
        error = capture_going_on(e->capture) ? cudaErrorNotSupported : cudaErrorCapturedEvent;
    else if (s->capture || e->latest) error = ha_runtime_submit(s, event_op(event, &wait_verb));
    return ha_runtime_leave(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaEventSynchronize);
    const struct event *e = event_find(event);
    if (!error && !e) error = cudaErrorInvalidResourceHandle;
    if (!error && e->capture) error = cudaErrorCapturedEvent;
    if (!error && e->latest) {
        int device = e->device;
        struct ha_runtime_mark *mark = mark_share(e->latest);
        ha_runtime_await(reached, mark);
        ha_runtime_mark_drop(mark);
        error = ha_runtime_lost(device);
    }
    return ha_runtime_leave(error);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaEventQuery);
    const struct event *e = event_find(event);
    if (!error && !e) error = cudaErrorInvalidResourceHandle;
    if (!error && e->capture) error = cudaErrorCapturedEvent;
    if (!error && e->latest && !reached(e->latest)) error = cudaErrorNotReady;
    return ha_runtime_leave(error);
}

static cudaError_t time_of(const struct event *e, uint64_t *ns)
{
    if (!e || e->flags & cudaEventDisableTiming) return cudaErrorInvalidResourceHandle;
    if (e->capture) return cudaErrorCapturedEvent;
    if (!e->latest) return cudaErrorInvalidResourceHandle;
    if (!e->latest->done) return cudaErrorNotReady;
    *ns = e->latest->ns;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaEventElapsedTime);
    uint64_t begin_ns = 0, end_ns = 0;
    if (!error && !ms) error = cudaErrorInvalidValue;
    if (!error) error = time_of(event_find(start), &begin_ns);
    if (!error) error = time_of(event_find(end), &end_ns);
    if (!error) *ms = (float)((double)(int64_t)(end_ns - begin_ns) * 1e-6);
    return ha_runtime_leave(error);
}
