#include "suites/variants/bench.h"

#include "harness/base/clock.h"
#include "harness/base/pool.h"
#include "harness/base/stats.h"
#include "harness/base/why.h"
#include "harness/base/worker.h"
#include "suites/variants/run.h"
#include "harness/base/try.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { SAMPLES_LEAST = 30, SAMPLES_FULL = 10, TREND_SAMPLES = 8 };
static const double trend_most = 0.05, interval_most = 0.01;

enum arm { UNTRACED, TRACED, FULL };
enum { ARMS = 3 };

struct series {
    double *x;
    size_t count, capacity;
};

struct state {
    struct ha_bench *bench;
    struct series series[ARMS], warmup;
    struct ha_usage *usage; /* [usages], one for each traced step that counts */
    size_t usages, usages_capacity;
    size_t blocks;
    uint64_t deadline_ns;
    bool measuring; /* the warm-up is over */
};

static enum ha_status push(struct series *s, double x, struct ha_why *why)
{
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 64;
        double *grown = realloc(s->x, capacity * sizeof *grown);
        if (!grown) return ha_why(why, HA_ERROR, "no memory for samples");
        s->x = grown;
        s->capacity = capacity;
    }
    s->x[s->count++] = x;
    return HA_OK;
}

bool ha_bench_settled(const double *x, size_t count)
{
    if (count < TREND_SAMPLES) return false;
    const double *last = x + count - TREND_SAMPLES;
    return fabs(ha_slope(last, TREND_SAMPLES)) * TREND_SAMPLES <= trend_most * ha_median(last, TREND_SAMPLES);
}

bool ha_bench_precise(const double *x, size_t count)
{
    double lo, hi;

    if (count < SAMPLES_LEAST) return false;
    ha_median_interval(x, count, &lo, &hi);
    return (hi - lo) / 2 <= interval_most * ha_median(x, count);
}

/* ---- one pass ------------------------------------------------------------------------------ */

static void trace(struct ha_bench *b, bool on)
{
    struct ha_session *s = b->session;

    s->api->trace(s->device, on ? ha_timeline_sink(b->timeline, HA_FROM_DEVICE) : NULL);
    ha_pool_trace(s->pool, on ? ha_timeline_sink(b->timeline, HA_FROM_POOL) : NULL);
    ha_worker_trace(s->worker, on ? ha_timeline_sink(b->timeline, HA_FROM_WORKER) : NULL);
}

/* What the device itself lost, and what stamped its spans, which may turn out only when a trace has begun. */
static uint64_t spans_lost(struct ha_bench *b)
{
    struct ha_device_info info;

    b->session->api->info(b->session->device, &info);
    snprintf(b->source, sizeof b->source, "%s", info.spans);
    return info.spans_lost;
}

/* The first step after a prefill finds caches and workers as no other step does. */
static bool steady(const struct ha_shape *shape, size_t step) { return step > 0 || shape->steps == 1; }

static enum ha_status count(struct state *s, enum arm arm, size_t step, const struct ha_pass *p,
                            const struct rusage *before, const struct rusage *after, struct ha_why *why)
{
    static const char *const role[ARMS] = { "measure", "traced", "full" };
    struct ha_bench *b = s->bench;
    bool counts = steady(&b->session->workload->shape, step) && s->measuring;
    struct ha_sample sample = {
        counts || arm != UNTRACED ? role[arm] : "warmup",
        s->blocks,
        step,
        (double)(p->window.end_ns - p->window.begin_ns),
        (double)(after->ru_nivcsw - before->ru_nivcsw),
        (double)(after->ru_minflt - before->ru_minflt + after->ru_majflt - before->ru_majflt),
    };

    if (arm == UNTRACED) {
        b->moved.h2d_bytes += p->moved.h2d_bytes;
        b->moved.d2h_bytes += p->moved.d2h_bytes;
        b->moved.copies += p->moved.copies;
        b->moved.zero_copy_bytes += p->moved.zero_copy_bytes;
        b->moved_steps++;
    }
    if (counts) {
        HA_TRY(push(&s->series[arm], sample.step_ns, why));
        if (arm == UNTRACED) {
            b->context_switches += sample.context_switches;
            b->page_faults += sample.page_faults;
        }
    } else if (arm == UNTRACED) {
        b->warmup_samples++;
        if (steady(&b->session->workload->shape, step)) {
            HA_TRY(push(&s->warmup, sample.step_ns, why));
            s->measuring = b->warm = ha_bench_settled(s->warmup.x, s->warmup.count);
        }
    }
    /* discarded samples of the other two say nothing */
    return counts || arm == UNTRACED ? b->sample(b->arg, &sample, why) : HA_OK;
}

static enum ha_status evaluate(struct state *s, struct ha_interval window, struct ha_why *why)
{
    if (s->usages == s->usages_capacity) {
        size_t capacity = s->usages_capacity ? 2 * s->usages_capacity : 64;
        struct ha_usage *grown = realloc(s->usage, capacity * sizeof *grown);
        if (!grown) return ha_why(why, HA_ERROR, "no memory for traced steps");
        s->usage = grown;
        s->usages_capacity = capacity;
    }
    s->usage[s->usages] = (struct ha_usage){ 0 };
    HA_TRY(ha_timeline_measure(s->bench->timeline, window, &s->usage[s->usages++], why));
    return ha_timeline_measure(s->bench->timeline, window, &s->bench->usage, why);
}

static enum ha_status steps(struct state *s, enum arm arm, struct ha_pass *p, struct ha_why *why)
{
    struct ha_bench *b = s->bench;
    const struct ha_shape *shape = &b->session->workload->shape;
    struct ha_interval *window = arm == TRACED ? calloc(shape->steps, sizeof *window) : NULL;
    const bool metered = arm == UNTRACED && s->measuring;
    enum ha_status status = HA_OK;
    uint64_t lost_before = 0;

    if (arm == TRACED && !window) return ha_why(why, HA_ERROR, "no memory for windows");
    if (arm == TRACED) {
        ha_timeline_clear(b->timeline);
        lost_before = spans_lost(b);
        trace(b, true);
    }
    if (metered) ha_condition_begin(&b->condition, b->session->api, b->session->device);
    for (size_t step = 0; step < shape->steps && status == HA_OK; step++) {
        struct rusage before, after;
        if (ha_stop) {
            status = ha_why(why, HA_WAIVED, "stopped");
            break;
        }
        getrusage(RUSAGE_SELF, &before);
        status = ha_pass_step(p, step, why);
        getrusage(RUSAGE_SELF, &after);
        if (window) window[step] = p->window;
        if (status == HA_OK) status = count(s, arm, step, p, &before, &after, why);
        if (status == HA_OK && arm == UNTRACED && b->check->expected && step + 1 == b->check->steps_done) {
            status = ha_pass_download(p, why);
            if (status == HA_OK) status = ha_check_again(b->check, why);
        }
    }
    if (metered) ha_condition_end(&b->condition, b->session->api, b->session->device, shape->steps);
    if (arm == TRACED) {
        trace(b, false);
        b->dropped += ha_timeline_dropped(b->timeline) + (size_t)(spans_lost(b) - lost_before);
        for (size_t step = 0; step < shape->steps && status == HA_OK && s->measuring; step++)
            if (steady(shape, step)) status = evaluate(s, window[step], why);
        b->traced = window[shape->steps - 1];
        free(window);
    }
    return status;
}

static enum ha_status pass(struct state *s, enum arm arm, struct ha_why *why)
{
    struct ha_bench *b = s->bench;
    struct ha_session *session = b->session;
    struct ha_why last = { "" };
    struct ha_pass p;

    HA_TRY(ha_pass_begin(&p, session, arm == FULL ? b->full : session->variant,
                         arm == FULL ? b->full_param : session->param, false, why));
    enum ha_status status = steps(s, arm, &p, why);
    if (status == HA_OK && arm == UNTRACED && p.variant->counters) p.variant->counters(p.instance, &b->counters);
    enum ha_status ended = ha_pass_end(&p, &last);
    if (status == HA_OK && ended != HA_OK) status = ha_why(why, ended, "%s", last.text);
    s->blocks++;
    return status;
}

/* ---- all passes ------------------------------------------------------------------------------ */

static bool enough(const struct state *s)
{
    const struct series *u = &s->series[UNTRACED], *t = &s->series[TRACED], *f = &s->series[FULL];
    bool each = u->count && t->count && (f->count || !s->bench->full);

    if (!each) return false;
    if (ha_now_ns() >= s->deadline_ns) return true;
    return ha_bench_precise(u->x, u->count) && t->count >= SAMPLES_LEAST
           && (f->count >= SAMPLES_FULL || !s->bench->full);
}

static enum ha_status passes(struct state *s, struct ha_why *why)
{
    uint64_t warm_until_ns = ha_now_ns() + s->bench->time_cap_ns / 4;

    do {
        for (int arm = 0; arm < ARMS; arm++)
            if (arm != FULL || s->bench->full) HA_TRY(pass(s, (enum arm)arm, why));
        if (ha_now_ns() >= warm_until_ns) s->measuring = true; /* b->warm stays false, and the row says so */
    } while (!enough(s));
    return HA_OK;
}

enum ha_status ha_bench_run(struct ha_bench *b, struct ha_why *why)
{
    struct state s = { .bench = b, .deadline_ns = ha_now_ns() + b->time_cap_ns };
    double nan = (double)NAN;
    enum ha_status status;

    b->step_ns = b->lo_ns = b->hi_ns = b->perturb = nan;
    b->samples = b->warmup_samples = b->moved_steps = b->dropped = 0;
    b->warm = false;
    b->context_switches = b->page_faults = 0;
    b->usage = (struct ha_usage){ 0 };
    b->ratios = (struct ha_ratios){ nan, nan, nan, nan, nan, nan };
    b->moved = (struct ha_meter_count){ 0 };
    b->counters = (struct ha_counters){ nan, nan, nan, nan, nan, nan, 0 };
    b->condition = ha_condition_none();
    b->source[0] = 0;
    b->timeline = NULL;
    status = ha_timeline_create(&b->timeline, why);
    if (status == HA_OK) status = passes(&s, why);
    if (status == HA_OK) {
        const struct series *u = &s.series[UNTRACED], *t = &s.series[TRACED], *f = &s.series[FULL];
        b->samples = u->count;
        b->step_ns = ha_median(u->x, u->count);
        ha_median_interval(u->x, u->count, &b->lo_ns, &b->hi_ns);
        b->perturb = ha_median(t->x, t->count) / b->step_ns - 1;
        if (b->full) b->full_ns = ha_median(f->x, f->count);
        status = ha_usage_medians(s.usage, s.usages, ha_pool_threads(b->session->pool), &b->ratios, why);
    }
    for (int arm = 0; arm < ARMS; arm++) free(s.series[arm].x);
    free(s.warmup.x);
    free(s.usage);
    return status;
}

void ha_bench_free(struct ha_bench *b)
{
    ha_timeline_destroy(b->timeline);
    b->timeline = NULL;
}
