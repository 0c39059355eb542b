#include "kernels/cuda/trace.h"

#include "harness/base/array.h"
#include "harness/base/clock.h"
#include "harness/base/span_source.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* An operation between two calls of trace. Tickets stay where they are and are used again, with their events. */
struct ticket {
    const struct ha_span_sink *sink;
    struct ha_cuda_span span;
    const char *lane;
    uint64_t launch_ns, enqueue_ns; /* the call's begin and end */
    cudaEvent_t begin, end;         /* of the events' source */
    uint64_t queue;                 /* of CUPTI's */
    uint32_t kernels;               /* that it launched; before its end, those of the thread before it */
    bool recorded;
};
enum { BLOCK = 256 };

/* A moment on both clocks: the event was stamped at host_ns, give or take off_ns. */
struct tie {
    cudaEvent_t event, spare;
    double host_ns, off_ns;
};

struct ha_cuda_trace {
    struct ha_device *device;
    struct ha_cupti *cupti; /* NULL: events */
    bool forced;            /* CUPTI was asked for: without it there is no trace */
    bool warming;           /* from create to ready */
    char source[32];
    pthread_mutex_t switching; /* held through a call of trace */
    bool tracing;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t closed;
    const struct ha_span_sink *sink; /* atomic, written under the lock */
    struct ticket **blocks;
    size_t blocks_count, blocks_room, used, open; /* open: between begin and end */
    uint64_t lost;                                /* atomic, written under the lock */
    uint64_t ended_ns;                            /* of the last trace */

    cudaStream_t tie_stream;
    struct tie tie[2]; /* at the beginning and at the end */
};

#ifndef HA_CUDA_EMULATED
__thread unsigned ha_cuda_launched;
#endif

static struct ticket *nth(const struct ha_cuda_trace *t, size_t i) { return &t->blocks[i / BLOCK][i % BLOCK]; }

static void lose(struct ha_cuda_trace *t, uint64_t spans) { __atomic_fetch_add(&t->lost, spans, __ATOMIC_RELAXED); }

uint64_t ha_cuda_trace_lost(const struct ha_device *dev)
{
    return __atomic_load_n(&dev->trace->lost, __ATOMIC_RELAXED);
}

const char *ha_cuda_trace_source(const struct ha_device *dev) { return dev->trace->source; }

static const char *lane_of(enum ha_span_kind kind, const char *stream)
{
    return kind == HA_SPAN_H2D ? "link H2D" : kind == HA_SPAN_D2H ? "link D2H" : stream;
}

/* ---- events: a pair around each operation, tied to the host's clock ------------------------------ */

enum { TIES = 16 };

/* An event on an idle stream is stamped between its record and the moment the host sees it: the narrowest of some
 * tries. */
static cudaError_t tie(struct ha_cuda_trace *t, struct tie *tie)
{
    cudaError_t error = cudaSuccess;
    if (!t->tie_stream) error = cudaStreamCreateWithFlags(&t->tie_stream, cudaStreamNonBlocking);
    if (error == cudaSuccess && !tie->event) error = cudaEventCreateWithFlags(&tie->event, cudaEventDefault);
    if (error == cudaSuccess && !tie->spare) error = cudaEventCreateWithFlags(&tie->spare, cudaEventDefault);
    tie->off_ns = (double)INFINITY;
    for (int i = 0; i < TIES && error == cudaSuccess; i++) {
        uint64_t before = ha_now_ns();
        error = cudaEventRecord(tie->spare, t->tie_stream);
        if (error == cudaSuccess) error = cudaEventSynchronize(tie->spare);
        double half = (double)(ha_now_ns() - before) / 2;
        if (error != cudaSuccess || half >= tie->off_ns) continue;
        cudaEvent_t event = tie->event;
        tie->event = tie->spare;
        tie->spare = event;
        tie->off_ns = half;
        tie->host_ns = (double)before + half;
    }
    return error;
}

/* The device's time, in ns since the first tie. The runtime gives differences as a float of milliseconds, exact to some
 * nanoseconds only where they are short: so positions are passed on from event to event. */
struct axis {
    cudaEvent_t anchor;
    double at_ns;
};
static const float anchor_most_ms = 50;

static bool position(struct axis *axis, cudaEvent_t event, double *ns)
{
    float ms;
    if (cudaEventElapsedTime(&ms, axis->anchor, event) != cudaSuccess) return false;
    *ns = axis->at_ns + (double)ms * 1e6;
    if (fabsf(ms) > anchor_most_ms) *axis = (struct axis){ event, *ns };
    return true;
}

/* The difference of the clocks is carried on a line from tie to tie: they drift apart by some 10 us in a second. */
static uint64_t on_host(const struct ha_cuda_trace *t, double device_ns, double last_ns)
{
    double first = t->tie[0].host_ns, last = t->tie[1].host_ns - last_ns;
    double share = last_ns > 0 ? device_ns / last_ns : 0;
    return (uint64_t)(first + (last - first) * share + device_ns);
}

static bool stamp(const struct ha_cuda_trace *t, const struct ticket *k, struct axis *axis, double last_ns,
                  struct ha_span *span)
{
    double begin_ns;
    float ms;
    if (!k->recorded || !position(axis, k->begin, &begin_ns)
        || cudaEventElapsedTime(&ms, k->begin, k->end) != cudaSuccess)
        return false;
    span->begin_ns = on_host(t, begin_ns, last_ns);
    span->end_ns = on_host(t, begin_ns + fmax(0, (double)ms * 1e6), last_ns);
    return true;
}

static void finish_events(struct ha_cuda_trace *t)
{
    struct axis axis = { t->tie[0].event, 0 };
    double last_ns = 0;
    bool tied = true;
    for (size_t i = 0; i < t->used; i++)
        if (nth(t, i)->recorded && cudaEventSynchronize(nth(t, i)->end) != cudaSuccess) nth(t, i)->recorded = false;
    tied = tie(t, &t->tie[1]) == cudaSuccess;
    for (size_t i = 0; i < t->used && tied; i++) {
        double ns; /* hand the position on, so that the last tie is near an anchor */
        if (nth(t, i)->recorded) position(&axis, nth(t, i)->begin, &ns);
    }
    tied = tied && position(&axis, t->tie[1].event, &last_ns);
    axis = (struct axis){ t->tie[0].event, 0 };
    for (size_t i = 0; i < t->used; i++) {
        struct ticket *k = nth(t, i);
        struct ha_span span = { .bytes = k->span.bytes,
                                .zero_copy_bytes = k->span.zero_copy_bytes,
                                .kind = k->span.kind,
                                .lane = lane_of(k->span.kind, k->lane),
                                .name = k->span.name,
                                .enqueue_ns = k->enqueue_ns };
        if (tied && stamp(t, k, &axis, last_ns, &span)) k->sink->span(k->sink->self, &span);
        else lose(t, 1);
    }
    if (tied)
        snprintf(t->source, sizeof t->source, "CUDA events, +-%.0f us",
                 ceil(fmax(t->tie[0].off_ns, t->tie[1].off_ns) / 1e3));
}

/* ---- CUPTI -------------------------------------------------------------------------------------- */

static const char *const graph_name[] = {
    [HA_CUPTI_KERNEL] = "kernel", [HA_CUPTI_COPY] = "copy", [HA_CUPTI_SET] = "memset"
};

/* What kernels read over the link CUPTI does not see: the operation's own count, with its first record. */
static void deliver(const struct ticket *k, const struct ha_cuda_enqueued *x, const struct ha_cupti_record *records)
{
    for (size_t i = 0; i < x->count; i++) {
        const struct ha_cupti_record *r = &records[x->first + i];
        const bool waits = k->span.kind == HA_SPAN_WAIT;
        const struct ha_span span = {
            .begin_ns = r->begin_ns,
            .end_ns = r->end_ns,
            .bytes = r->bytes,
            .zero_copy_bytes = i ? 0 : k->span.zero_copy_bytes,
            .kind = waits ? HA_SPAN_WAIT : r->kind,
            .lane = lane_of(r->kind, k->lane),
            .name = !k->span.graph ? k->span.name
                    : r->operation ? r->operation
                                   : graph_name[r->what],
            .enqueue_ns = i && x->shared ? 0 : k->enqueue_ns,
        };
        k->sink->span(k->sink->self, &span);
    }
}

static uint64_t match_and_deliver(const struct ha_cuda_trace *t, const struct ha_cupti_record *records, size_t count)
{
    struct ha_cuda_enqueued *x = calloc(t->used + 1, sizeof *x);
    if (!x) return t->used;
    for (size_t i = 0; i < t->used; i++) {
        const struct ticket *k = nth(t, i);
        x[i] = (struct ha_cuda_enqueued){ .queue = k->queue, .span = &k->span, .kernels = k->kernels, .of = k };
    }
    const uint64_t lost = ha_cuda_match(x, t->used, records, count, t->ended_ns);
    for (size_t i = 0; i < t->used; i++) deliver(x[i].of, &x[i], records);
    free(x);
    return lost;
}

/* A record that CUPTI lost is one that an operation lacks: the larger number, not both. */
static void finish_cupti(struct ha_cuda_trace *t)
{
    size_t count;
    uint64_t lost;
    ha_cuda_check(t->device, cudaDeviceSynchronize(), "cudaDeviceSynchronize()", "the end of a trace");
    const struct ha_cupti_record *r = ha_cupti_stop(t->cupti, &count, &lost);
    const uint64_t lacking = match_and_deliver(t, r, count);
    lose(t, lacking > lost ? lacking : lost);
}

/* ---- on and off ------------------------------------------------------------------------------------ */

/* From now on, and info says so. */
static void take_events(struct ha_cuda_trace *t)
{
    ha_cupti_close(t->cupti);
    t->cupti = NULL;
    snprintf(t->source, sizeof t->source, "CUDA events");
}

/* What was enqueued before would be recorded too, and is of no operation. */
static bool start(struct ha_cuda_trace *t)
{
    struct ha_why why;
    if (t->cupti)
        ha_cuda_check(t->device, cudaDeviceSynchronize(), "cudaDeviceSynchronize()", "the beginning of a trace");
    if (t->cupti && ha_cupti_start(t->cupti, &why) == HA_OK) return true;
    if (t->cupti && t->forced) {
        ha_cuda_fail(t->device, "tracing: %s", why.text);
        return false;
    }
    if (t->cupti) take_events(t);
    return ha_cuda_check(t->device, tie(t, &t->tie[0]), "cudaEventRecord", "the beginning of a trace") == HA_OK;
}

static void set_sink(struct ha_cuda_trace *t, const struct ha_span_sink *sink)
{
    pthread_mutex_lock(&t->lock);
    t->ended_ns = ha_now_ns(); /* first: what finds no sink begins later */
    __atomic_store_n(&t->sink, sink, __ATOMIC_RELEASE);
    while (!sink && t->open) pthread_cond_wait(&t->closed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

void ha_cuda_trace_set(struct ha_device *dev, const struct ha_span_sink *sink)
{
    struct ha_cuda_trace *t = dev->trace;
    ha_cuda_enter();
    pthread_mutex_lock(&t->switching);
    if (sink) {
        if (!t->tracing) t->tracing = start(t);
        if (t->tracing) set_sink(t, sink);
    } else if (t->tracing) {
        set_sink(t, NULL);
        if (t->cupti) finish_cupti(t);
        else finish_events(t);
        pthread_mutex_lock(&t->lock);
        t->used = 0;
        pthread_mutex_unlock(&t->lock);
        t->tracing = false;
    }
    pthread_mutex_unlock(&t->switching);
}

/* ---- around an operation ---------------------------------------------------------------------------- */

static struct ticket *take(struct ha_cuda_trace *t)
{
    if (t->used == t->blocks_count * BLOCK) {
        const bool room = ha_array_room(&t->blocks, &t->blocks_room, t->blocks_count + 1, sizeof *t->blocks);
        struct ticket *block = room ? calloc(BLOCK, sizeof *block) : NULL;
        if (!block) return NULL;
        t->blocks[t->blocks_count++] = block;
    }
    return nth(t, t->used++);
}

static struct ticket *open_ticket(struct ha_cuda_trace *t)
{
    pthread_mutex_lock(&t->lock);
    const struct ha_span_sink *sink = t->sink;
    struct ticket *k = sink ? take(t) : NULL;
    if (k) {
        *k = (struct ticket){ .sink = sink, .begin = k->begin, .end = k->end };
        t->open++;
    } else if (sink) lose(t, 1);
    pthread_mutex_unlock(&t->lock);
    return k;
}

static bool record_begin(struct ticket *k, cudaStream_t stream)
{
    return (k->begin || cudaEventCreateWithFlags(&k->begin, cudaEventDefault) == cudaSuccess)
           && (k->end || cudaEventCreateWithFlags(&k->end, cudaEventDefault) == cudaSuccess)
           && cudaEventRecord(k->begin, stream) == cudaSuccess;
}

static uint64_t queue_of(const struct ha_cuda_trace *t, struct ha_stream *stream, const struct ha_graph *graph)
{
    if (graph) return ha_cupti_graph(t->cupti, graph->exec);
    if (!stream->queue) stream->queue = ha_cupti_stream(t->cupti, stream->cuda);
    return stream->queue;
}

void *ha_cuda_span_begin(struct ha_stream *stream, const struct ha_cuda_span *span)
{
    struct ha_cuda_trace *t = stream->device->trace;
    /* an event in a capture would be stamped with every launch, and what a graph runs is its launch's */
    if (!__atomic_load_n(&t->sink, __ATOMIC_ACQUIRE) || stream->graph) return NULL;
    struct ticket *k = open_ticket(t);
    if (!k) return NULL;
    k->span = *span;
    k->lane = stream->lane;
    if (t->cupti) k->queue = queue_of(t, stream, span->graph);
    else k->recorded = record_begin(k, stream->cuda);
    k->kernels = ha_cuda_launched;
    k->launch_ns = ha_now_ns();
    return k;
}

void ha_cuda_span_end(struct ha_stream *stream, void *ticket)
{
    struct ha_cuda_trace *t = stream->device->trace;
    struct ticket *k = ticket;
    if (!k) return;
    k->enqueue_ns = ha_now_ns();
    struct ha_span span = { .begin_ns = k->launch_ns,
                            .end_ns = k->enqueue_ns,
                            .kind = HA_SPAN_LAUNCH,
                            .lane = "launch",
                            .name = k->span.name };
    k->kernels = k->span.graph ? k->span.graph->nodes : ha_cuda_launched - k->kernels;
    if (!t->cupti) k->recorded = k->recorded && cudaEventRecord(k->end, stream->cuda) == cudaSuccess;
    k->sink->span(k->sink->self, &span);
    pthread_mutex_lock(&t->lock);
    if (--t->open == 0) pthread_cond_broadcast(&t->closed);
    pthread_mutex_unlock(&t->lock);
}

/* ---- create and destroy ------------------------------------------------------------------------------ */

/* Which source: CUPTI where it is to be had, unless the environment asks for one. What CUPTI does when a kind is first
 * enabled takes up to seconds (pytorch/kineto#542): here, and not in the middle of a run. */
static enum ha_status choose(struct ha_cuda_trace *t, struct ha_why *why)
{
    enum ha_span_source asked;
    HA_TRY(ha_span_source(&asked, why));
    snprintf(t->source, sizeof t->source, "CUDA events");
    if (asked == HA_SPANS_EVENTS) return HA_OK;
    t->forced = asked == HA_SPANS_CUPTI;
    enum ha_status status = ha_cupti_open(&t->cupti, why);
    if (status == HA_WAIVED && !t->forced) return HA_OK;
    if (status != HA_OK) return HA_ERROR;
    snprintf(t->source, sizeof t->source, "CUPTI");
    t->warming = ha_cupti_start(t->cupti, why) == HA_OK;
    if (t->warming) return HA_OK;
    if (t->forced) return HA_ERROR;
    take_events(t);
    return HA_OK;
}

static size_t end_warming(struct ha_cuda_trace *t)
{
    size_t count = 0, kernels = 0;
    uint64_t lost;
    const struct ha_cupti_record *r = t->warming ? ha_cupti_stop(t->cupti, &count, &lost) : NULL;
    for (size_t i = 0; i < count; i++) kernels += r[i].what == HA_CUPTI_KERNEL;
    t->warming = false;
    return kernels;
}

enum ha_status ha_cuda_trace_ready(struct ha_cuda_trace *t, size_t kernels, struct ha_why *why)
{
    if (!t->warming) return HA_OK;
    const size_t seen = end_warming(t);
    if (seen >= kernels) return HA_OK;
    if (t->forced)
        return ha_why(why, HA_ERROR,
                      "CUPTI: of the %zu kernels that ran when the device was opened it saw %zu at their time", kernels,
                      seen);
    take_events(t);
    return HA_OK;
}

enum ha_status ha_cuda_trace_create(struct ha_cuda_trace **trace, struct ha_device *dev, struct ha_why *why)
{
    struct ha_cuda_trace *t = calloc(1, sizeof *t);
    if (!t) return ha_why(why, HA_ERROR, "no memory for tracing");
    t->device = dev;
    pthread_mutex_init(&t->switching, NULL);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->closed, NULL);
    enum ha_status status = choose(t, why);
    if (status == HA_OK) *trace = t;
    else ha_cuda_trace_destroy(t);
    return status;
}

static void destroy_event(cudaEvent_t event)
{
    if (event) cudaEventDestroy(event);
}

void ha_cuda_trace_destroy(struct ha_cuda_trace *t)
{
    if (!t) return;
    if (t->tracing) ha_cuda_trace_set(t->device, NULL);
    end_warming(t);
    for (size_t i = 0; i < t->blocks_count * BLOCK; i++) {
        destroy_event(nth(t, i)->begin);
        destroy_event(nth(t, i)->end);
    }
    for (size_t i = 0; i < t->blocks_count; i++) free(t->blocks[i]);
    for (size_t i = 0; i < 2; i++) {
        destroy_event(t->tie[i].event);
        destroy_event(t->tie[i].spare);
    }
    if (t->tie_stream) cudaStreamDestroy(t->tie_stream);
    ha_cupti_close(t->cupti);
    pthread_cond_destroy(&t->closed);
    pthread_mutex_destroy(&t->lock);
    pthread_mutex_destroy(&t->switching);
    free(t->blocks);
    free(t);
}
