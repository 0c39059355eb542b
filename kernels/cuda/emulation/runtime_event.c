#include "kernels/cuda/emulation/runtime_inside.h"

#include "harness/base/clock.h"

#include <stdlib.h>

/* An event is the mark of its latest record. A wait keeps the mark that was the latest when it was asked for. */
struct event {
    unsigned flags;
    struct ha_runtime_mark *latest; /* NULL: never recorded */
};

void ha_runtime_mark_drop(struct ha_runtime_mark *mark)
{
    if (mark && --mark->references == 0) free(mark);
}

static struct ha_runtime_mark *mark_share(struct ha_runtime_mark *mark)
{
    mark->references++;
    return mark;
}

static struct event *event_find(cudaEvent_t handle) { return ha_runtime_handle_find(HA_HANDLE_EVENT, handle); }

void ha_runtime_event_free(void *event)
{
    struct event *e = event;
    ha_runtime_mark_drop(e->latest);
    free(e);
}

/* ---- the two operations */

struct ha_runtime_mark *ha_runtime_mark_new(void)
{
    struct ha_runtime_mark *mark = calloc(1, sizeof *mark);
    if (mark) mark->references = 1;
    return mark;
}

static void record_run(struct ha_runtime_op *op)
{
    uint64_t now = ha_now_ns();
    ha_runtime_lock();
    op->mark->ns = now;
    op->mark->done = true;
    ha_runtime_publish(op->mark);
    ha_runtime_unlock();
}

/* on a lost device too: records are never dropped */
static bool reached(const void *arg)
{
    const struct ha_runtime_mark *mark = arg;
    if (mark->done) ha_runtime_see(mark);
    return mark->done;
}

static void wait_run(struct ha_runtime_op *op)
{
    ha_runtime_lock();
    ha_runtime_await(reached, op->mark);
    ha_runtime_unlock();
}

struct ha_runtime_op *ha_runtime_mark_op(struct ha_runtime_mark *mark, bool waits)
{
    const struct ha_runtime_op like = { .run = waits ? wait_run : record_run, .always = !waits, .mark = mark };
    struct ha_runtime_op *op = ha_runtime_op_new(&like, NULL);
    if (op) mark_share(mark);
    return op;
}

/* ---- the API */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaEventCreateWithFlags);
    if (!error && (!event || flags & ~(unsigned)cudaEventDisableTiming)) error = cudaErrorInvalidValue;
    if (error) return ha_runtime_leave(error);
    struct event *e = calloc(1, sizeof *e);
    void *handle = e ? ha_runtime_handle_make(HA_HANDLE_EVENT, e) : NULL;
    if (!handle) {
        free(e);
        return ha_runtime_leave(cudaErrorMemoryAllocation);
    }
    e->flags = flags;
    *event = handle;
    return ha_runtime_leave(cudaSuccess);
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

static cudaError_t record(struct ha_runtime_stream *s, struct event *e)
{
    struct ha_runtime_mark *mark = ha_runtime_mark_new();
    cudaError_t error = mark ? ha_runtime_submit(s, ha_runtime_mark_op(mark, false)) : cudaErrorMemoryAllocation;
    if (error) ha_runtime_mark_drop(mark);
    else {
        ha_runtime_mark_drop(e->latest);
        e->latest = mark;
    }
    return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaEventRecord);
    struct ha_runtime_stream *s = ha_runtime_stream_uncaptured(stream, &error);
    struct event *e = event_find(event);
    if (s) error = e ? record(s, e) : cudaErrorInvalidResourceHandle;
    return ha_runtime_leave(error);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaStreamWaitEvent);
    struct ha_runtime_stream *s = ha_runtime_stream_uncaptured(stream, &error);
    const struct event *e = event_find(event);
    if (s && !e) error = cudaErrorInvalidResourceHandle;
    else if (s && flags) error = cudaErrorInvalidValue;
    else if (s && e->latest) error = ha_runtime_submit(s, ha_runtime_mark_op(e->latest, true));
    return ha_runtime_leave(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaEventSynchronize);
    const struct event *e = event_find(event);
    if (!error && !e) error = cudaErrorInvalidResourceHandle;
    if (!error && e->latest) {
        struct ha_runtime_mark *mark = mark_share(e->latest);
        ha_runtime_await(reached, mark);
        ha_runtime_mark_drop(mark);
        error = ha_runtime_lost();
    }
    return ha_runtime_leave(error);
}

static cudaError_t time_of(const struct event *e, uint64_t *ns)
{
    if (!e || !e->latest || e->flags & cudaEventDisableTiming) return cudaErrorInvalidResourceHandle;
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
