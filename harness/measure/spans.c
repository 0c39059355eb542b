#include "harness/measure/spans.h"

#include "harness/api/device.h"
#include "harness/base/stats.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct ha_span *device_span(const struct ha_timeline *t, size_t i)
{
    const struct ha_timeline_span *s = ha_timeline_at(t, i);
    return s->origin == HA_FROM_DEVICE ? &s->span : NULL;
}

/* ---- what was asked for ------------------------------------------------------------------------------------------ */

/* name: NULL for any */
static uint64_t count_spans(const struct ha_timeline *t, enum ha_span_kind kind, const char *name)
{
    uint64_t spans = 0;
    for (size_t i = 0; i < ha_timeline_count(t); i++) {
        const struct ha_span *s = device_span(t, i);
        spans += s && s->kind == kind && (!name || !strcmp(s->name, name));
    }
    return spans;
}

static enum ha_status has_calls(const struct ha_timeline *t, const char *name, uint64_t calls, struct ha_why *why)
{
    const uint64_t spans = count_spans(t, HA_SPAN_KERNEL, name);
    if (spans >= calls) return HA_OK;
    return ha_why(why, HA_FAIL, "%s was called %llu times while the device was traced, and has %llu spans of a kernel",
                  name, (unsigned long long)calls, (unsigned long long)spans);
}

static const char *const operations[] = {
#define OPERATION(entry, type) #entry,
    HA_DEVICE_OPERATIONS(OPERATION)
};

static bool was_called(uint64_t called, const char *name)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (called >> i & 1 && !strcmp(operations[i], name)) return true;
    return false;
}

/* The device works on what it was asked for, and on nothing else. */
static enum ha_status has_no_others(const struct ha_timeline *t, uint64_t called, struct ha_why *why)
{
    for (size_t i = 0; i < ha_timeline_count(t); i++) {
        const struct ha_span *s = device_span(t, i);
        if (s && s->kind == HA_SPAN_KERNEL && !was_called(called, s->name))
            return ha_why(why, HA_FAIL,
                          "a span is of a kernel '%.80s', which was not called while the device was traced", s->name);
    }
    return HA_OK;
}

static enum ha_status has_copies(const struct ha_timeline *t, enum ha_span_kind kind, uint64_t asked,
                                 struct ha_why *why)
{
    const uint64_t spans = count_spans(t, kind, NULL);
    if (spans >= asked) return HA_OK;
    return ha_why(why, HA_FAIL, "%llu copies %s were asked for while the device was traced, and %llu have a span",
                  (unsigned long long)asked, kind == HA_SPAN_H2D ? "to the device" : "to the host",
                  (unsigned long long)spans);
}

static enum ha_status has_bytes(const struct ha_timeline *t, enum ha_span_kind kind, const uint64_t asked[2],
                                struct ha_why *why)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < ha_timeline_count(t); i++) {
        const struct ha_span *s = device_span(t, i);
        if (s && s->kind == kind) bytes += s->bytes;
    }
    if (bytes >= asked[0] && bytes <= asked[1]) return HA_OK;
    return ha_why(why, HA_FAIL, "%llu bytes were copied %s while the device was traced, and its spans say %llu",
                  (unsigned long long)asked[bytes > asked[1]], kind == HA_SPAN_H2D ? "to the device" : "to the host",
                  (unsigned long long)bytes);
}

/* ---- when -------------------------------------------------------------------------------------------------------- */

/* By the host's own clock. */
static enum ha_status enqueued_within(const struct ha_timeline *t, struct ha_interval w, struct ha_why *why)
{
    static const uint64_t apart_ns = 100000;
    for (size_t i = 0; i < ha_timeline_count(t); i++) {
        const struct ha_span *s = device_span(t, i);
        if (!s || !s->enqueue_ns || (s->enqueue_ns + apart_ns >= w.begin_ns && s->enqueue_ns <= w.end_ns + apart_ns))
            continue;
        return ha_why(why, HA_FAIL,
                      "a span of %s says that it was enqueued %.3f ms after the trace began, which ended after %.3f ms",
                      s->name, ((double)s->enqueue_ns - (double)w.begin_ns) * 1e-6,
                      (double)(w.end_ns - w.begin_ns) * 1e-6);
    }
    return HA_OK;
}

/* Clocks of a device and of the host are compared now and then, and drift meanwhile. */
static enum ha_status lies_within(const struct ha_timeline *t, struct ha_interval w, struct ha_why *why)
{
    static const uint64_t apart_ns = 2000000;
    for (size_t i = 0; i < ha_timeline_count(t); i++) {
        const struct ha_span *s = device_span(t, i);
        if (!s
            || (s->begin_ns + apart_ns >= w.begin_ns && s->end_ns <= w.end_ns + apart_ns && s->begin_ns <= s->end_ns))
            continue;
        return ha_why(why, HA_FAIL,
                      "a span of %s lasts from %.3f ms to %.3f ms after the trace began, which ended after %.3f ms",
                      s->name, ((double)s->begin_ns - (double)w.begin_ns) * 1e-6,
                      ((double)s->end_ns - (double)w.begin_ns) * 1e-6, (double)(w.end_ns - w.begin_ns) * 1e-6);
    }
    return HA_OK;
}

static int by_lane_and_begin(const void *a, const void *b)
{
    const struct ha_span *x = a, *y = b;
    const int lane = strcmp(x->lane, y->lane);
    return lane ? lane : (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* Kernels of one lane run one after the other. A device whose spans are stamped between operations has no say in when a
 * copy got its engine. x: room for all spans. */
static enum ha_status run_in_turn(const struct ha_timeline *t, struct ha_interval w, struct ha_span *x,
                                  struct ha_why *why)
{
    static const double share_most = 0.05;
    size_t n = 0;
    double across = 0;
    for (size_t i = 0; i < ha_timeline_count(t); i++) {
        const struct ha_span *s = device_span(t, i);
        if (s && (s->kind == HA_SPAN_KERNEL || s->kind == HA_SPAN_WAIT)) x[n++] = *s;
    }
    qsort(x, n, sizeof *x, by_lane_and_begin);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(x[i].lane, x[i - 1].lane) != 0) continue;
        if (x[i].begin_ns < x[i - 1].end_ns)
            across += (double)((x[i].end_ns < x[i - 1].end_ns ? x[i].end_ns : x[i - 1].end_ns) - x[i].begin_ns);
        if (x[i].end_ns < x[i - 1].end_ns) x[i].end_ns = x[i - 1].end_ns;
    }
    if (across <= share_most * (double)(w.end_ns - w.begin_ns)) return HA_OK;
    return ha_why(why, HA_FAIL, "spans of one stream run at the same time, for %.3g of %.3g ms", across * 1e-6,
                  (double)(w.end_ns - w.begin_ns) * 1e-6);
}

static int by_begin(const void *a, const void *b)
{
    const struct ha_interval *x = a, *y = b;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* Everything that runs, waits or computes on the host explains why the device does what it does. On a host that is busy
 * some gaps are long, as a thread has lost its core; spans that are cut leave a gap behind each, or all of it at the
 * end. x: room for all, gaps: twice. */
static double unexplained_of(const struct ha_timeline *t, struct ha_interval w, struct ha_interval *x, double *gaps)
{
    enum { SPANS_LEAST = 8 };
    static const double launch_ns = 10000, window_ns = 500000;
    const double window = w.end_ns > w.begin_ns ? (double)(w.end_ns - w.begin_ns) : 0;
    double *const lengths = gaps + ha_timeline_count(t);
    size_t n = 0;
    for (size_t i = 0; i < ha_timeline_count(t); i++) {
        const struct ha_span *s = &ha_timeline_at(t, i)->span;
        const struct ha_interval in = { s->begin_ns > w.begin_ns ? s->begin_ns : w.begin_ns,
                                        s->end_ns < w.end_ns ? s->end_ns : w.end_ns };
        if (in.end_ns > in.begin_ns) x[n++] = in;
    }
    if (window < window_ns || n < SPANS_LEAST) return (double)NAN;
    qsort(x, n, sizeof *x, by_begin);
    uint64_t until = x[0].end_ns;
    for (size_t i = 0; i < n; i++) {
        lengths[i] = (double)(x[i].end_ns - x[i].begin_ns);
        gaps[i] = i && x[i].begin_ns > until ? (double)(x[i].begin_ns - until) : 0;
        if (x[i].end_ns > until) until = x[i].end_ns;
    }
    const double gap = ha_median(gaps, n), behind = (double)(w.end_ns - until),
                 between = gap > launch_ns ? gap / (gap + ha_median(lengths, n)) : 0,
                 tail = behind > launch_ns ? behind / window : 0;
    return between > tail ? between : tail;
}

static enum ha_status judge(const struct ha_timeline *t, const struct ha_spans_asked *a, struct ha_span *spans,
                            struct ha_why *why)
{
    HA_TRY(has_calls(t, "attend", a->attend, why));
    HA_TRY(has_calls(t, "merge", a->merge, why));
    HA_TRY(has_calls(t, "product", a->product, why));
    if (a->called) HA_TRY(has_no_others(t, a->called, why));
    HA_TRY(has_copies(t, HA_SPAN_H2D, a->up, why));
    HA_TRY(has_copies(t, HA_SPAN_D2H, a->down, why));
    HA_TRY(has_bytes(t, HA_SPAN_H2D, a->h2d_bytes, why));
    HA_TRY(has_bytes(t, HA_SPAN_D2H, a->d2h_bytes, why));
    if (!a->clocks) return HA_OK;
    HA_TRY(enqueued_within(t, a->traced, why));
    HA_TRY(lies_within(t, a->traced, why));
    return run_in_turn(t, a->traced, spans, why);
}

enum ha_status ha_spans_judge(const struct ha_timeline *t, const struct ha_spans_asked *asked, double *unexplained,
                              struct ha_why *why)
{
    const size_t n = ha_timeline_count(t);
    struct ha_span *spans = malloc((n + 1) * sizeof *spans);
    struct ha_interval *x = malloc((n + 1) * sizeof *x);
    double *gaps = malloc(2 * (n + 1) * sizeof *gaps);
    const bool room = spans && x && gaps;
    const enum ha_status status = room ? judge(t, asked, spans, why)
                                       : ha_why(why, HA_ERROR, "no memory to judge %zu spans", n);
    *unexplained = room ? unexplained_of(t, asked->busy, x, gaps) : (double)NAN;
    free(spans);
    free(x);
    free(gaps);
    return status;
}
