/* What a device says of itself: spans, meters, and that it has failed. */

#include "suites/device/stage.h"

#include "harness/base/clock.h"
#include "harness/base/registry.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- trace ------------------------------------------------------------------------------------------------------- */

enum { LANES = 256, LANE = 96 };
struct spans {
    pthread_mutex_t lock;
    struct {
        const char *lane;
        char said[LANE]; /* the lane, as it was then */
    } of[LANES];
    size_t lanes;
    uint64_t zero_copy_bytes;
    size_t count[HA_SPAN_LAUNCH + 1], wrong, unlikely;
    uint64_t from_ns; /* nothing was enqueued before */
    uint64_t bytes[HA_SPAN_LAUNCH + 1], longest_ns[HA_SPAN_LAUNCH + 1], least_ns, most_ns;
};

static void take(void *self, const struct ha_span *span)
{
    struct spans *t = self;
    pthread_mutex_lock(&t->lock);
    if ((unsigned)span->kind <= HA_SPAN_LAUNCH) {
        t->count[span->kind]++;
        t->bytes[span->kind] += span->bytes;
        if (span->end_ns - span->begin_ns > t->longest_ns[span->kind] && span->end_ns > span->begin_ns)
            t->longest_ns[span->kind] = span->end_ns - span->begin_ns;
    } else t->wrong++;
    if (span->begin_ns > span->end_ns || !span->lane || !span->name) t->wrong++;
    t->zero_copy_bytes += span->zero_copy_bytes;
    if (t->lanes < LANES && span->lane) {
        t->of[t->lanes].lane = span->lane;
        snprintf(t->of[t->lanes++].said, LANE, "%s", span->lane);
    }
    if (span->enqueue_ns && (span->enqueue_ns < t->from_ns || span->enqueue_ns > ha_now_ns())) t->unlikely++;
    if (span->begin_ns < t->least_ns) t->least_ns = span->begin_ns;
    if (span->end_ns > t->most_ns) t->most_ns = span->end_ns;
    pthread_mutex_unlock(&t->lock);
}

static size_t copies_of(const struct spans *t)
{
    return t->count[HA_SPAN_H2D] + t->count[HA_SPAN_D2H] + t->count[HA_SPAN_D2D];
}

enum { BYTES = 40000, UP = 0, BACK, WITHIN, WAYS };
struct traced {
    struct ha_op_block *x, *there, *other, *mapped;
    uint64_t bytes[WAYS], zero_copy, graph;
    size_t copies, pieces; /* spans: of pieces one for each, or one for all */
};

static enum ha_status copy_way(struct ha_op_stage *s, struct traced *r, struct ha_stream *on, size_t way, size_t n)
{
    static const enum ha_direction way_of[WAYS] = { HA_H2D, HA_D2H, HA_D2D };
    HA_OP(s, copy, on, way == BACK ? r->x->at : r->there->at,
          way == BACK ? r->there->at
          : way == UP ? r->x->at
                      : r->other->at,
          n, way_of[way]);
    r->bytes[way] += n;
    r->copies++;
    return HA_OK;
}

/* Rows with gaps between, of which the copy moves what is in them. */
static enum ha_status copy_rows(struct ha_op_stage *s, struct traced *r)
{
    enum { ROWS = 30, ROW = 70, TO = 100, FROM = 90 };
    if (!s->api->copy_2d) return HA_OK;
    HA_OP(s, copy_2d, s->stream[1], r->there->at, TO, r->x->at, FROM, ROW, ROWS, HA_H2D);
    r->bytes[UP] += ROWS * ROW;
    r->copies++;
    return HA_OK;
}

/* Of several pieces the bytes of all. */
static enum ha_status copy_some(struct ha_op_stage *s, struct traced *r)
{
    enum { PIECES = 3 };
    static const size_t bytes[PIECES] = { 100, 200, 50 };
    void *dst[PIECES];
    const void *src[PIECES];
    if (!s->api->copy_pieces) return HA_OK;
    for (size_t i = 0; i < PIECES; i++) {
        dst[i] = r->there->at + 1000 * i;
        src[i] = r->x->at + 500 * i;
        r->bytes[UP] += bytes[i];
    }
    HA_OP(s, copy_pieces, s->stream[1], &(struct ha_device_pieces){ dst, src, bytes, PIECES }, HA_H2D);
    r->copies++;
    r->pieces = PIECES - 1;
    return HA_OK;
}

/* A host function and a spin of 3 ms each, whose spans must be as long. */
enum { LASTS_NS = 3000000, SEEN_NS = LASTS_NS / 10 * 9 }; /* stamps have a unit */
static void last(void *arg) { ha_sleep_ns(LASTS_NS); }
static enum ha_status enqueue_long(struct ha_op_stage *s)
{
    if (s->api->host_fn) HA_OP(s, host_fn, s->stream[0], last, NULL);
    if (s->api->spin) HA_OP(s, spin, s->stream[0], LASTS_NS);
    return HA_OK;
}

/* A copy that a graph has. */
static enum ha_status copy_launched(struct ha_op_stage *s, struct traced *r)
{
    struct ha_graph *graph = NULL;
    if (!s->api->graph_begin) return HA_OK;
    HA_OP(s, graph_begin, s->stream[0]);
    const enum ha_status kept = copy_way(s, r, s->stream[0], UP, r->graph = 3000),
                         ended = s->api->graph_end(s->stream[0], &graph, s->why);
    HA_TRY(kept);
    HA_TRY(ended);
    const enum ha_status launched = s->api->graph_launch(graph, s->stream[0]),
                         synced = s->api->stream_sync(s->stream[0]);
    s->api->graph_destroy(graph);
    return ha_op_failed(s, "graph_launch", launched == HA_OK ? synced : launched);
}

/* Copies of two streams, each way; what a graph has; what a kernel reads of mapped memory; on a stream that is gone
 * when the trace ends; and last what is held up until after it is to end. */
static enum ha_status enqueue_traced(struct ha_op_stage *s, struct traced *r, struct ha_op_opener *opener)
{
    struct ha_stream *gone = NULL;
    for (size_t i = 0; i < 4 * s->rounds; i++)
        HA_TRY(
            copy_way(s, r, s->stream[i / WAYS % 2], i % WAYS, 1 + ha_op_draw(s, ha_op_draw(s, 2) ? BYTES - 1 : 256)));
    HA_TRY(copy_launched(s, r));
    HA_TRY(copy_rows(s, r));
    HA_TRY(copy_some(s, r));
    HA_TRY(enqueue_long(s));
    if (s->api->move) {
        HA_OP(s, move, s->stream[1],
              &(struct ha_device_move){ r->other->at, r->mapped->at, NULL, NULL, 30, 64, 64, 64 });
        HA_OP(s, move, s->stream[1],
              &(struct ha_device_move){ r->mapped->at, r->there->at, NULL, NULL, 20, 64, 64, 64 });
        r->zero_copy += (uint64_t)(30 + 20) * 64;
    }
    HA_TRY(s->api->stream_create(s->device, "conform gone", &gone, s->why));
    enum ha_status status = copy_way(s, r, gone, UP, 100);
    if (status == HA_OK && s->api->blend)
        status = ha_op_failed(
            s, "blend",
            s->api->blend(gone, &(struct ha_device_blend){ .y = (float *)(void *)r->other->at,
                                                           .x = (const float *)(const void *)r->there->at,
                                                           .rows = 1,
                                                           .cols = 9,
                                                           .y_stride = 9,
                                                           .x_stride = 9,
                                                           .b = 1 }));
    s->api->stream_destroy(gone);
    HA_TRY(status);
    HA_TRY(ha_op_shut(s, s->stream[0]));
    for (size_t way = 0; way < WAYS; way++) HA_TRY(copy_way(s, r, s->stream[0], way, 1000));
    return ha_op_open_later(s, opener);
}

/* The name of a lane is still there, also that of a stream that is gone. */
static enum ha_status judge_lanes(struct ha_op_stage *s, const struct spans *t)
{
    for (size_t i = 0; i < t->lanes; i++)
        if (strncmp(t->of[i].lane, t->of[i].said, LANE - 1) != 0)
            return ha_op_wrong(s, "trace: the lane '%s' of a span was '%s' later", t->of[i].said, t->of[i].lane);
    return HA_OK;
}

/* The bytes of the copy in the graph, where that has one span for all of it: a device that stamps what it launches. */
static uint64_t graph_of(const struct spans *t, const struct traced *r)
{
    return t->count[HA_SPAN_LAUNCH] && t->bytes[HA_SPAN_H2D] != r->bytes[UP] ? r->graph : 0;
}

static enum ha_status judge_spans(struct ha_op_stage *s, const struct spans *t, const struct traced *r)
{
    static const enum ha_span_kind kind_of[WAYS] = { HA_SPAN_H2D, HA_SPAN_D2H, HA_SPAN_D2D };
    if (t->wrong)
        return ha_op_wrong(s, "trace: %zu spans end before they begin, or have no lane, name or kind", t->wrong);
    if (t->unlikely)
        return ha_op_wrong(s,
                           "trace: %zu spans were enqueued before the trace began or in the future, by "
                           "CLOCK_MONOTONIC_RAW; enqueue_ns is 0 where the device cannot say",
                           t->unlikely);
    for (size_t way = 0; way < WAYS; way++)
        if (t->bytes[kind_of[way]] != r->bytes[way] - (way == UP ? graph_of(t, r) : 0))
            return ha_op_wrong(s, "trace: spans of %llu bytes %s, where %llu were copied",
                               (unsigned long long)t->bytes[kind_of[way]],
                               way == UP     ? "up"
                               : way == BACK ? "back"
                                             : "within the device",
                               (unsigned long long)r->bytes[way]);
    /* a span of a host function is the host's own, which a device may not have */
    if (s->api->spin && t->longest_ns[HA_SPAN_KERNEL] < SEEN_NS)
        return ha_op_wrong(s, "trace: the longest span of a kernel is of %.3g ms, where spin took 3",
                           (double)t->longest_ns[HA_SPAN_KERNEL] / 1e6);
    if (s->api->host_fn && t->count[HA_SPAN_CPU] && t->longest_ns[HA_SPAN_CPU] < SEEN_NS)
        return ha_op_wrong(s, "trace: the longest span of a host function is of %.3g ms, where it took 3",
                           (double)t->longest_ns[HA_SPAN_CPU] / 1e6);
    if (t->zero_copy_bytes != r->zero_copy)
        return ha_op_wrong(
            s, "trace: spans of %llu bytes that kernels read and wrote of mapped memory, where these were %llu",
            (unsigned long long)t->zero_copy_bytes, (unsigned long long)r->zero_copy);
    return judge_lanes(s, t);
}

static enum ha_status judge_trace(struct ha_op_stage *s)
{
    static struct spans t = { .lock = PTHREAD_MUTEX_INITIALIZER };
    static const struct ha_span_sink sink = { &t, take };
    struct traced r = { .copies = 0 };
    struct ha_device_info before, after;
    struct ha_op_opener opener;
    if (!(r.x = ha_op_block(s, HA_OP_PINNED, BYTES)) || !(r.there = ha_op_block(s, HA_OP_DEVICE, BYTES))
        || !(r.other = ha_op_block(s, HA_OP_DEVICE, BYTES)) || !(r.mapped = ha_op_block(s, HA_OP_MAPPED, BYTES)))
        return HA_ERROR;
    HA_TRY(ha_op_fill(s, r.x, 0, BYTES));
    pthread_mutex_lock(&t.lock);
    memset(t.count, 0, sizeof t.count);
    memset(t.bytes, 0, sizeof t.bytes);
    memset(t.longest_ns, 0, sizeof t.longest_ns);
    t.wrong = t.unlikely = t.lanes = 0;
    t.zero_copy_bytes = 0;
    t.from_ns = ha_now_ns();
    t.least_ns = UINT64_MAX;
    t.most_ns = 0;
    pthread_mutex_unlock(&t.lock);
    memset(&before, 0, sizeof before);
    memset(&after, 0, sizeof after);
    s->api->info(s->device, &before);
    s->api->trace(s->device, &sink);
    const enum ha_status status = enqueue_traced(s, &r, &opener);
    if (status != HA_OK) ha_op_open(s);
    s->api->trace(s->device, NULL);
    const size_t seen = copies_of(&t);
    if (status == HA_OK) ha_op_opened(&opener);
    HA_TRY(status);
    for (size_t i = 0; i < HA_OP_STREAMS; i++) HA_OP(s, stream_sync, s->stream[i]);
    s->api->info(s->device, &after);
    s->cases++;
    if (after.spans_lost != before.spans_lost)
        return ha_why(s->why, HA_WAIVED, "the device says that it lost %llu spans",
                      (unsigned long long)(after.spans_lost - before.spans_lost));
    HA_TRY(judge_spans(s, &t, &r));
    HA_OP(s, copy, s->stream[0], r.there->at, r.x->at, BYTES, HA_H2D);
    HA_OP(s, stream_sync, s->stream[0]);
    r.copies -= graph_of(&t, &r) > 0;
    if (seen < r.copies || seen > r.copies + r.pieces || copies_of(&t) != seen)
        return ha_op_wrong(s, "trace: %zu spans of %zu copies when it had ended, and %zu later", seen, r.copies,
                           copies_of(&t) - seen);
    return HA_OK;
}
const struct ha_op ha_op_trace = {
    .name = "trace",
    .doc = "a span for each copy, with its bytes, until it ends",
    .needs = { HA_OP_ENTRY(trace) },
    .judge = judge_trace,
    .keys = "times",
};

/* ---- meters ------------------------------------------------------------------------------------------------------ */

static enum ha_status judge_meters(struct ha_op_stage *s)
{
    struct ha_device_meters m = ha_device_meters_none(true);
    s->api->meters(s->device, &m);
    const struct {
        const char *name;
        double value, most;
    } of[] = {
        { "sm_clock_MHz", m.sm_clock_MHz, 20000 },
        { "sm_clock_max_MHz", m.sm_clock_max_MHz, 20000 },
        { "memory_clock_MHz", m.memory_clock_MHz, 100000 },
        { "memory_clock_max_MHz", m.memory_clock_max_MHz, 100000 },
        { "temperature_C", m.temperature_C, 150 },
        { "power_W", m.power_W, 100000 },
        { "energy_J", m.energy_J, HUGE_VAL },
        { "link_gen", m.link_gen, 10 },
        { "link_gen_max", m.link_gen_max, 10 },
        { "link_width", m.link_width, 64 },
        { "link_width_max", m.link_width_max, 64 },
        { "link_rx_GBps", m.link_rx_GBps, 10000 },
        { "link_tx_GBps", m.link_tx_GBps, 10000 },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        s->cases++;
        if (!isnan(of[i].value) && !(of[i].value >= 0 && of[i].value <= of[i].most))
            return ha_op_wrong(s, "meters: %s is %g", of[i].name, of[i].value);
    }
    if (!memchr(m.throttle, 0, sizeof m.throttle) || !memchr(m.bus_id, 0, sizeof m.bus_id))
        return ha_op_wrong(s, "meters: a text has no end");
    return HA_OK;
}
const struct ha_op ha_op_meters = {
    .name = "meters", .doc = "not readable, or plausible", .needs = { HA_OP_ENTRY(meters) }, .judge = judge_meters
};

/* ---- failure ----------------------------------------------------------------------------------------------------- */

/* Of a device of its own, which is lost with it. */
static enum ha_status fail(struct ha_op_stage *s, struct ha_device *dev, struct ha_stream *stream[2],
                           struct ha_event *event, uint32_t *flag)
{
    const struct ha_device_api *api = s->api;
    char first[512];
    s->cases++;
    if (api->failure(dev))
        return ha_op_wrong(s, "failure: a device that has done nothing says: %.300s", api->failure(dev));
    __atomic_store_n(flag, 0, __ATOMIC_RELEASE);
    const bool waits = api->flag_wait(stream[0], flag, 1) == HA_OK && api->flag_wait(stream[1], flag, 3) == HA_OK;
    if (event && api->event_record(event, stream[0]) != HA_OK)
        return ha_op_wrong(s, "failure: event_record behind a flag_wait did not succeed");
    if (!waits || api->stream_sync(stream[0]) != HA_ERROR)
        return ha_op_wrong(s, "failure: stream_sync of a stream that waited for a flag beyond the wait limit did not "
                              "return HA_ERROR");
    const char *text = api->failure(dev);
    if (!text || !*text) return ha_op_wrong(s, "failure: a wait limit was exceeded, and failure says nothing");
    strncpy(first, text, sizeof first - 1);
    first[sizeof first - 1] = 0;
    if (!strstr(first, "flag_wait"))
        return ha_op_wrong(s,
                           "failure: a wait limit was exceeded, and failure does not name the flag_wait that waits: "
                           "%.300s",
                           first);
    if (!strstr(strstr(first, "flag_wait") + 1, "flag_wait"))
        return ha_op_wrong(s, "failure: two streams wait, and failure names one flag_wait: %.300s", first);
    for (int i = 0; i < 4; i++)
        if (api->stream_sync(stream[i % 2]) != HA_ERROR)
            return ha_op_wrong(s, "failure: sync %d after it, of %s, did not return HA_ERROR", i,
                               i % 2 ? "another stream" : "the same stream");
    if (api->flag_wait(stream[1], flag, 2) == HA_OK
        && api->stream_sync(stream[1]) != HA_ERROR) /* one more reason to fail */
        return ha_op_wrong(s, "failure: a second flag_wait beyond the wait limit ended well");
    if (event && api->event_sync(event) != HA_ERROR)
        return ha_op_wrong(s, "failure: event_sync after it did not return HA_ERROR");
    text = api->failure(dev);
    if (!text || strncmp(text, first, sizeof first - 1) != 0)
        return ha_op_wrong(s, "failure: it said '%.150s' and says '%.150s' later", first, text ? text : "nothing");
    return HA_OK;
}

static enum ha_status judge_failure(struct ha_op_stage *s)
{
    const struct ha_device_api *api = s->api;
    struct ha_kernels kernels;
    struct ha_device *dev = NULL;
    struct ha_stream *stream[2] = { NULL, NULL };
    struct ha_event *event = NULL;
    void *flag = NULL;
    HA_TRY(ha_kernels_resolve(s->isa, &kernels, s->why));
    const struct ha_device_config config = { &kernels, 200000000 };
    HA_TRY(api->open(&dev, &config, s->why));
    enum ha_status status = api->mem_alloc(dev, HA_MEM_MAPPED, sizeof(uint32_t), &flag, s->why);
    for (int i = 0; i < 2 && status == HA_OK; i++)
        status = api->stream_create(dev, i ? "conform beside" : "conform waits", &stream[i], s->why);
    if (status == HA_OK && api->event_create && api->event_record && api->event_sync)
        status = api->event_create(dev, &event, s->why);
    if (status == HA_OK) status = fail(s, dev, stream, event, flag);
    if (event) api->event_destroy(event);
    for (int i = 0; i < 2; i++)
        if (stream[i]) api->stream_destroy(stream[i]);
    if (flag) api->mem_free(dev, HA_MEM_MAPPED, flag);
    api->close(dev);
    return status;
}
const struct ha_op ha_op_failure = {
    .name = "failure",
    .doc = "said once and for all, and returned by every later sync",
    .needs = { HA_OP_ENTRY(failure), HA_OP_ENTRY(flag_wait) },
    .judge = judge_failure,
};
