/* What a device says of itself: spans, meters, and that it has failed. */

#include "suites/device/stage.h"

#include "harness/base/clock.h"
#include "harness/base/registry.h"
#include "harness/base/why.h"

#include <math.h>
#include <string.h>

/* ---- trace ------------------------------------------------------------------------------------------------------- */

struct spans {
    pthread_mutex_t lock;
    size_t count[HA_SPAN_LAUNCH + 1], wrong, unlikely;
    uint64_t from_ns; /* nothing was enqueued before */
    uint64_t bytes[HA_SPAN_LAUNCH + 1], least_ns, most_ns;
};

static void take(void *self, const struct ha_span *span)
{
    struct spans *t = self;
    pthread_mutex_lock(&t->lock);
    if ((unsigned)span->kind <= HA_SPAN_LAUNCH) {
        t->count[span->kind]++;
        t->bytes[span->kind] += span->bytes;
    } else t->wrong++;
    if (span->begin_ns > span->end_ns || !span->lane || !span->name) t->wrong++;
    if (span->enqueue_ns && (span->enqueue_ns < t->from_ns || span->enqueue_ns > ha_now_ns())) t->unlikely++;
    if (span->begin_ns < t->least_ns) t->least_ns = span->begin_ns;
    if (span->end_ns > t->most_ns) t->most_ns = span->end_ns;
    pthread_mutex_unlock(&t->lock);
}

static size_t copies_of(const struct spans *t)
{
    return t->count[HA_SPAN_H2D] + t->count[HA_SPAN_D2H] + t->count[HA_SPAN_D2D];
}

static enum ha_status judge_trace(struct ha_op_stage *s)
{
    enum { BYTES = 40000, UP = 0, BACK, WITHIN, WAYS };
    static const enum ha_direction way_of[WAYS] = { HA_H2D, HA_D2H, HA_D2D };
    static const enum ha_span_kind kind_of[WAYS] = { HA_SPAN_H2D, HA_SPAN_D2H, HA_SPAN_D2D };
    const size_t copies = 4 * s->rounds;
    static struct spans t = { .lock = PTHREAD_MUTEX_INITIALIZER };
    static const struct ha_span_sink sink = { &t, take };
    struct ha_op_block *x = ha_op_block(s, HA_OP_PINNED, BYTES),
                       *there = x ? ha_op_block(s, HA_OP_DEVICE, BYTES) : NULL,
                       *other = there ? ha_op_block(s, HA_OP_DEVICE, BYTES) : NULL;
    struct ha_device_info before, after;
    if (!other) return HA_ERROR;
    HA_TRY(ha_op_fill(s, x, 0, BYTES));
    pthread_mutex_lock(&t.lock);
    memset(t.count, 0, sizeof t.count);
    memset(t.bytes, 0, sizeof t.bytes);
    t.wrong = t.unlikely = 0;
    t.from_ns = ha_now_ns();
    t.least_ns = UINT64_MAX;
    t.most_ns = 0;
    pthread_mutex_unlock(&t.lock);
    memset(&before, 0, sizeof before);
    memset(&after, 0, sizeof after);
    s->api->info(s->device, &before);
    s->api->trace(s->device, &sink);
    enum ha_status status = HA_OK;
    uint64_t bytes[WAYS] = { 0 };
    for (size_t i = 0; i < copies && status == HA_OK; i++) {
        const size_t n = 1 + ha_op_draw(s, ha_op_draw(s, 2) ? BYTES - 1 : 256), way = i % WAYS;
        status = ha_op_failed(s, "copy",
                              s->api->copy(s->stream[0], way == BACK ? x->at : there->at,
                                           way == BACK ? there->at
                                           : way == UP ? x->at
                                                       : other->at,
                                           n, way_of[way]));
        bytes[way] += n;
    }
    if (status == HA_OK) status = ha_op_failed(s, "stream_sync", s->api->stream_sync(s->stream[0]));
    s->api->trace(s->device, NULL);
    HA_TRY(status);
    s->api->info(s->device, &after);
    s->cases++;
    if (after.spans_lost != before.spans_lost)
        return ha_why(s->why, HA_WAIVED, "the device says that it lost %llu spans",
                      (unsigned long long)(after.spans_lost - before.spans_lost));
    if (t.wrong)
        return ha_op_wrong(s, "trace: %zu spans end before they begin, or have no lane, name or kind", t.wrong);
    if (t.unlikely)
        return ha_op_wrong(s,
                           "trace: %zu spans were enqueued before the trace began or in the future, by "
                           "CLOCK_MONOTONIC_RAW; enqueue_ns is 0 where the device cannot say",
                           t.unlikely);
    for (size_t way = 0; way < WAYS; way++)
        if (t.bytes[kind_of[way]] != bytes[way])
            return ha_op_wrong(s, "trace: spans of %llu bytes %s, where %llu were copied",
                               (unsigned long long)t.bytes[kind_of[way]],
                               way == UP     ? "up"
                               : way == BACK ? "back"
                                             : "within the device",
                               (unsigned long long)bytes[way]);
    const size_t seen = copies_of(&t);
    HA_OP(s, copy, s->stream[0], there->at, x->at, BYTES, HA_H2D);
    HA_OP(s, stream_sync, s->stream[0]);
    if (seen != copies || copies_of(&t) != copies)
        return ha_op_wrong(s, "trace: %zu spans of %zu copies, and %zu after it had ended", seen, copies,
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
    const bool waits = api->flag_wait(stream[0], flag, 1) == HA_OK;
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
    for (int i = 0; i < 4; i++)
        if (api->stream_sync(stream[i % 2]) != HA_ERROR)
            return ha_op_wrong(s, "failure: sync %d after it, of %s, did not return HA_ERROR", i,
                               i % 2 ? "another stream" : "the same stream");
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
    const struct ha_device_config config = { &kernels, 50000000 };
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
