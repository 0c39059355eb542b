#include "harness/measure/timeline.h"

#include "harness/base/array.h"
#include "harness/base/stats.h"
#include "harness/base/why.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- intervals --------------------------------------------------------------------------------------------------- */

static int by_begin(const void *a, const void *b)
{
    const struct ha_interval *x = a, *y = b;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

size_t ha_interval_union(struct ha_interval *x, size_t count)
{
    size_t kept = 0;
    if (count > 1) qsort(x, count, sizeof *x, by_begin);
    for (size_t i = 0; i < count; i++) {
        if (x[i].end_ns <= x[i].begin_ns) continue;
        if (kept > 0 && x[i].begin_ns <= x[kept - 1].end_ns) {
            if (x[i].end_ns > x[kept - 1].end_ns) x[kept - 1].end_ns = x[i].end_ns;
        } else {
            x[kept++] = x[i];
        }
    }
    return kept;
}

uint64_t ha_interval_length(const struct ha_interval *x, size_t count)
{
    uint64_t length = 0;
    for (size_t i = 0; i < count; i++) length += x[i].end_ns - x[i].begin_ns;
    return length;
}

uint64_t ha_interval_common(const struct ha_interval *a, size_t a_count, const struct ha_interval *b, size_t b_count)
{
    uint64_t length = 0;
    for (size_t i = 0, j = 0; i < a_count && j < b_count;) {
        uint64_t begin = a[i].begin_ns > b[j].begin_ns ? a[i].begin_ns : b[j].begin_ns;
        uint64_t end = a[i].end_ns < b[j].end_ns ? a[i].end_ns : b[j].end_ns;
        if (end > begin) length += end - begin;
        if (a[i].end_ns < b[j].end_ns) i++;
        else j++;
    }
    return length;
}

/* ---- spans ------------------------------------------------------------------------------------------------------- */

/* A sink is one pointer, so each origin has its own. */
struct inlet {
    struct ha_timeline *timeline;
    enum ha_origin origin;
    struct ha_span_sink sink;
};

struct ha_timeline {
    pthread_mutex_t lock;
    struct ha_timeline_span *spans;
    size_t count, capacity, dropped;
    struct inlet inlets[HA_ORIGIN_COUNT];
};

static void keep(void *self, const struct ha_span *span)
{
    const struct inlet *in = self;
    struct ha_timeline *t = in->timeline;
    pthread_mutex_lock(&t->lock);
    if (ha_array_room(&t->spans, &t->capacity, t->count + 1, sizeof *t->spans))
        t->spans[t->count++] = (struct ha_timeline_span){ *span, in->origin };
    else t->dropped++;
    pthread_mutex_unlock(&t->lock);
}

enum ha_status ha_timeline_create(struct ha_timeline **timeline, struct ha_why *why)
{
    struct ha_timeline *t = calloc(1, sizeof *t);
    if (!t) return ha_why(why, HA_ERROR, "no memory for a timeline");
    pthread_mutex_init(&t->lock, NULL);
    for (int i = 0; i < HA_ORIGIN_COUNT; i++)
        t->inlets[i] = (struct inlet){ t, (enum ha_origin)i, { &t->inlets[i], keep } };
    *timeline = t;
    return HA_OK;
}

const struct ha_span_sink *ha_timeline_sink(struct ha_timeline *t, enum ha_origin origin)
{
    return &t->inlets[origin].sink;
}

void ha_timeline_clear(struct ha_timeline *t)
{
    pthread_mutex_lock(&t->lock);
    t->count = t->dropped = 0;
    pthread_mutex_unlock(&t->lock);
}

size_t ha_timeline_count(const struct ha_timeline *t) { return t->count; }
const struct ha_timeline_span *ha_timeline_at(const struct ha_timeline *t, size_t i) { return &t->spans[i]; }
size_t ha_timeline_dropped(const struct ha_timeline *t) { return t->dropped; }

void ha_timeline_destroy(struct ha_timeline *t)
{
    if (!t) return;
    pthread_mutex_destroy(&t->lock);
    free(t->spans);
    free(t);
}

/* ---- what a window holds ------------------------------------------------------------ */

enum set { KERNEL, COPY, DEVICE, CPU, H2D, D2H, MERGE, ATTEND, PREDICT, LOOKUP, SETS };

static bool is_kernel(const struct ha_span *s, const char *name)
{
    return s->kind == HA_SPAN_KERNEL && !strcmp(s->name, name);
}

static void classify(const struct ha_timeline_span *s, bool in[SETS])
{
    enum ha_span_kind kind = s->span.kind;
    in[KERNEL] = kind == HA_SPAN_KERNEL || kind == HA_SPAN_D2D;
    in[MERGE] = is_kernel(&s->span, "merge");
    in[ATTEND] = is_kernel(&s->span, "attend");
    in[PREDICT] = is_kernel(&s->span, "features") || is_kernel(&s->span, "net");
    in[LOOKUP] = is_kernel(&s->span, "similarity");
    in[H2D] = kind == HA_SPAN_H2D;
    in[D2H] = kind == HA_SPAN_D2H;
    in[COPY] = in[H2D] || in[D2H];
    in[DEVICE] = in[KERNEL] || in[COPY];
    /* selection in the background and host functions are not attention */
    in[CPU] = kind == HA_SPAN_CPU && s->origin == HA_FROM_POOL;
}

static bool runs_on_device(const struct ha_timeline_span *s)
{
    bool in[SETS];
    classify(s, in);
    return in[DEVICE] && s->origin == HA_FROM_DEVICE;
}

static int by_enqueue_within_begin(const void *a, const void *b)
{
    const struct ha_span *x = a, *y = b;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    return (x->enqueue_ns > y->enqueue_ns) - (x->enqueue_ns < y->enqueue_ns);
}

/* Of each stretch of the window in which the device does nothing until an operation begins, the part before the host
 * had enqueued that operation. NaN: the device does not say when that was, or ran nothing. x: room for all spans. */
static double launch_gap(const struct ha_timeline *t, struct ha_interval w, struct ha_span *x)
{
    size_t n = 0;
    uint64_t gap = 0, idle_since = w.begin_ns;
    for (size_t i = 0; i < t->count; i++) {
        const struct ha_span *s = &t->spans[i].span;
        if (runs_on_device(&t->spans[i]) && s->end_ns > w.begin_ns && s->begin_ns < w.end_ns) x[n++] = *s;
    }
    if (n == 0) return (double)NAN;
    qsort(x, n, sizeof *x, by_enqueue_within_begin);
    for (size_t i = 0; i < n; i++) {
        const uint64_t until = x[i].enqueue_ns < x[i].begin_ns ? x[i].enqueue_ns : x[i].begin_ns;
        if (x[i].begin_ns > idle_since && !x[i].enqueue_ns) return (double)NAN;
        if (until > idle_since) gap += until - idle_since;
        if (x[i].end_ns > idle_since) idle_since = x[i].end_ns;
    }
    return (double)gap;
}

enum ha_status ha_timeline_measure(const struct ha_timeline *t, struct ha_interval w, struct ha_usage *sum,
                                   struct ha_why *why)
{
    struct ha_interval *x = malloc(SETS * (t->count + 1) * sizeof *x), *set[SETS];
    size_t n[SETS] = { 0 };
    struct ha_span *spans = malloc((t->count + 1) * sizeof *spans);
    if (!x || !spans) {
        free(x);
        free(spans);
        return ha_why(why, HA_ERROR, "no memory to evaluate %zu spans", t->count);
    }
    for (int i = 0; i < SETS; i++) set[i] = x + (size_t)i * (t->count + 1);
    for (size_t i = 0; i < t->count; i++) {
        const struct ha_span *s = &t->spans[i].span;
        struct ha_interval c = { s->begin_ns > w.begin_ns ? s->begin_ns : w.begin_ns,
                                 s->end_ns < w.end_ns ? s->end_ns : w.end_ns };
        bool in[SETS];
        /* a coarse clock gives a short span no length: it has its bytes all the same */
        const bool instant = s->begin_ns == s->end_ns && s->begin_ns >= w.begin_ns && s->begin_ns < w.end_ns;

        if (c.end_ns <= c.begin_ns && !instant) continue;
        const double share = instant ? 1 : (double)(c.end_ns - c.begin_ns) / (double)(s->end_ns - s->begin_ns);
        classify(&t->spans[i], in);
        for (int j = 0; j < SETS; j++)
            if (in[j]) set[j][n[j]++] = c;
        if (in[H2D]) sum->h2d_bytes += share * (double)s->bytes;
        if (in[D2H]) sum->d2h_bytes += share * (double)s->bytes;
        sum->zero_copy_bytes += share * (double)s->zero_copy_bytes;
        if (t->spans[i].origin == HA_FROM_POOL) sum->pool_ns += c.end_ns - c.begin_ns;
    }
    for (int j = 0; j < SETS; j++) n[j] = ha_interval_union(set[j], n[j]);
    sum->wall_ns += w.end_ns - w.begin_ns;
    sum->kernel_ns += ha_interval_length(set[KERNEL], n[KERNEL]);
    sum->copy_ns += ha_interval_length(set[COPY], n[COPY]);
    sum->device_ns += ha_interval_length(set[DEVICE], n[DEVICE]);
    sum->cpu_ns += ha_interval_length(set[CPU], n[CPU]);
    sum->overlap_ns += ha_interval_common(set[CPU], n[CPU], set[DEVICE], n[DEVICE]);
    sum->h2d_ns += ha_interval_length(set[H2D], n[H2D]);
    sum->d2h_ns += ha_interval_length(set[D2H], n[D2H]);
    sum->merge_ns += ha_interval_length(set[MERGE], n[MERGE]);
    sum->attend_ns += ha_interval_length(set[ATTEND], n[ATTEND]);
    sum->predict_ns += ha_interval_length(set[PREDICT], n[PREDICT]);
    sum->lookup_ns += ha_interval_length(set[LOOKUP], n[LOOKUP]);
    sum->launch_gap_ns += launch_gap(t, w, spans);
    sum->windows++;
    free(x);
    free(spans);
    return HA_OK;
}

static double over(double a, double b) { return b > 0 ? a / b : (double)NAN; }

struct ha_ratios ha_usage_ratios(const struct ha_usage *u, size_t threads)
{
    double wall = (double)u->wall_ns, less = (double)(u->cpu_ns < u->device_ns ? u->cpu_ns : u->device_ns);
    return (struct ha_ratios){
        .gpu_kernel_idle = 1 - over((double)u->kernel_ns, wall),
        .gpu_idle = 1 - over((double)u->device_ns, wall),
        .cpu_idle = 1 - over((double)u->pool_ns, wall * (double)threads),
        .overlap = over((double)u->overlap_ns, less),
        /* bytes per nanosecond are 10^9 bytes per second */
        .h2d_link_GBps = over(u->h2d_bytes, (double)u->h2d_ns),
        .d2h_link_GBps = over(u->d2h_bytes, (double)u->d2h_ns),
        .merge_share = over((double)u->merge_ns, wall),
        .attend_share = over((double)u->attend_ns, wall),
        .predict_share = over((double)u->predict_ns, wall),
        .lookup_share = over((double)u->lookup_ns, wall),
        .launch_gap_ns = over(u->launch_gap_ns, (double)u->steps),
    };
}

enum ha_status ha_usage_medians(const struct ha_usage *steps, size_t count, size_t threads, struct ha_ratios *out,
                                struct ha_why *why)
{
    enum { RATIOS = sizeof(struct ha_ratios) / sizeof(double) };
    double *x = malloc((count + 1) * sizeof *x);
    if (!x) return ha_why(why, HA_ERROR, "no memory for medians");
    for (size_t r = 0; r < RATIOS; r++) {
        size_t n = 0;
        for (size_t i = 0; i < count; i++) {
            struct ha_ratios one = ha_usage_ratios(&steps[i], threads);
            double value;
            memcpy(&value, (const char *)&one + r * sizeof value, sizeof value);
            if (!isnan(value)) x[n++] = value;
        }
        double median = ha_median(x, n);
        memcpy((char *)out + r * sizeof median, &median, sizeof median);
    }
    free(x);
    return HA_OK;
}
