/* What of its passes a benchmark adds up, and what it leaves out. Linked with ha_now_ns wrapped, so that the test tells
 * the time, and with what else is asked of this machine. */

#include "harness/base/pool.h"
#include "harness/base/stores.h"
#include "suites/variants/bench.h"
#include "suites/variants/test_session.h"

#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

static atomic_uint_fast64_t told; /* the time, while it is on */
static const struct ha_device_api *real;

enum { WARMUP = 4, ROUNDS = 10 }; /* passes that settle, and that are precise, where none takes longer than another */

/* While it is on, what is wrapped answers for this machine; and what the judge of disturbance was given. */
static struct {
    atomic_bool on;
    size_t speeds;                   /* asked for so far */
    long usages;                     /* the same of getrusage */
    uint64_t lost;                   /* spans, by the device, so far */
    const struct ha_span_sink *sink; /* of the trace, or NULL */
    bool traced;                     /* the pass at hand, or the one that has ended */
    size_t judged, slow, looks;
    double begin_ns, end_ns;
    char throttle[32];
} wrapped;

uint64_t __real_ha_now_ns(void);
uint64_t __wrap_ha_now_ns(void);
double __real_ha_speed_least(struct ha_pool *pool, double *best);
double __wrap_ha_speed_least(struct ha_pool *pool, double *best);
int __real_getrusage(int who, struct rusage *usage);
int __wrap_getrusage(int who, struct rusage *usage);
void __real_ha_disturbed_judge(const struct ha_core_counts *before, const struct ha_core_counts *after, size_t slow,
                               size_t looks, const char *device_throttle, char out[HA_DISTURBED_MAX]);
void __wrap_ha_disturbed_judge(const struct ha_core_counts *before, const struct ha_core_counts *after, size_t slow,
                               size_t looks, const char *device_throttle, char out[HA_DISTURBED_MAX]);
size_t __real_ha_timeline_dropped(const struct ha_timeline *timeline);
size_t __wrap_ha_timeline_dropped(const struct ha_timeline *timeline);

uint64_t __wrap_ha_now_ns(void) { return wrapped.on ? atomic_load(&told) : __real_ha_now_ns(); }
/* slow in all of the warm-up, which does not count, and three times after it; 0.85 is not slow */
double __wrap_ha_speed_least(struct ha_pool *pool, double *best)
{
    if (!wrapped.on) return __real_ha_speed_least(pool, best);
    return wrapped.speeds++ < WARMUP + 3 ? 0.84 : 0.85;
}
/* between two calls: a context switch, ten minor faults and a hundred major ones */
int __wrap_getrusage(int who, struct rusage *usage)
{
    if (!wrapped.on) return __real_getrusage(who, usage);
    wrapped.usages++;
    *usage = (struct rusage){ .ru_nivcsw = wrapped.usages,
                              .ru_minflt = 10 * wrapped.usages,
                              .ru_majflt = 100 * wrapped.usages };
    return 0;
}
void __wrap_ha_disturbed_judge(const struct ha_core_counts *before, const struct ha_core_counts *after, size_t slow,
                               size_t looks, const char *device_throttle, char out[HA_DISTURBED_MAX])
{
    __real_ha_disturbed_judge(before, after, slow, looks, device_throttle, out);
    wrapped.judged++;
    wrapped.slow = slow;
    wrapped.looks = looks;
    wrapped.begin_ns = before->wall_ns;
    wrapped.end_ns = after->wall_ns;
    snprintf(wrapped.throttle, sizeof wrapped.throttle, "%s", device_throttle);
    if (wrapped.on) strcpy(out, "a cause");
}
size_t __wrap_ha_timeline_dropped(const struct ha_timeline *timeline)
{
    return __real_ha_timeline_dropped(timeline) + (wrapped.on ? 1 : 0);
}

/* The device loses two spans of a trace, which it knows when the trace has ended. */
static void losing_trace(struct ha_device *dev, const struct ha_span_sink *sink)
{
    real->trace(dev, sink);
    wrapped.sink = sink;
    wrapped.traced |= sink != NULL;
    if (!sink) wrapped.lost += 2;
}
static void losing_info(struct ha_device *dev, struct ha_device_info *info)
{
    real->info(dev, info);
    info->spans_lost = wrapped.lost;
    strcpy(info->spans, "a clock");
}
/* its work takes no time */
static enum ha_status host_fn(struct ha_stream *stream, void (*fn)(void *arg), void *arg)
{
    fn(arg);
    return HA_OK;
}
static void throttled_meters(struct ha_device *dev, struct ha_device_meters *out)
{
    strcpy(out->throttle, "power cap");
}

/* A variant whose step takes 100 ns, and where it is traced 110, of which a kernel runs half; and its companion, whose
 * step takes 50. */
static enum ha_status timed_create(struct ha_instance **self, const struct ha_context *ctx, struct ha_why *why)
{
    wrapped.traced = false;
    *self = (struct ha_instance *)(void *)&wrapped;
    return HA_OK;
}
static enum ha_status timed_attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    const uint64_t begin_ns = atomic_fetch_add(&told, wrapped.sink ? 110 : 100);
    const struct ha_span span = { .kind = HA_SPAN_KERNEL, .name = "x", .begin_ns = begin_ns, .end_ns = begin_ns + 55 };
    if (wrapped.sink) wrapped.sink->span(wrapped.sink->self, &span);
    return HA_OK;
}
static enum ha_status companion_attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    atomic_fetch_add(&told, 50);
    return HA_OK;
}
static void timed_counters(struct ha_instance *self, struct ha_counters *out)
{
    out->select_ns = wrapped.traced ? 99 : 8;
}
static const struct ha_variant timed = { .name = "timed",
                                         .create = timed_create,
                                         .prefill = no_prefill,
                                         .attend = timed_attend,
                                         .counters = timed_counters,
                                         .destroy = no_destroy },
                               companion = { .name = "companion",
                                             .create = timed_create,
                                             .prefill = no_prefill,
                                             .attend = companion_attend,
                                             .destroy = no_destroy };

/* 1000 ns go by after every pass; what the device loses outside of traces is nobody's. */
static void sample_later(void *arg, const struct ha_sample *s)
{
    size_t *traced = arg;
    if (!strcmp(s->role, "step")) return;
    assert_true(s->context_switches == 1 && s->page_faults == 110);
    *traced += !strcmp(s->role, "traced");
    wrapped.lost += 100;
    atomic_fetch_add(&told, 1000);
}

TEST(a_row_adds_up_its_passes)
{
    enum { BEGIN_NS = 1000000, STEPS = 4, AFTER = 1000 };
    open_session("cpu:ctx=20,heads=4/2,head_dim=64,layers=1,steps=4,threads=1");
    struct ha_device_api mine = *session.api;
    const struct ha_check check = { .session = &session, .id = "the case" }; /* no output is compared */
    size_t traced = 0;
    struct ha_bench b = { .session = &session,
                          .check = &check,
                          .full = &companion,
                          .time_cap_ns = UINT64_C(20000000000),
                          .sample = sample_later,
                          .arg = &traced };
    real = session.api;
    mine.trace = losing_trace;
    mine.info = losing_info;
    mine.meters = throttled_meters;
    mine.host_fn = host_fn;
    session.api = &mine;
    session.variant = &timed;
    atomic_store(&told, BEGIN_NS);
    wrapped.on = true;
    const enum ha_status status = ha_bench_run(&b, &reason);
    wrapped.on = false;
    session.api = real;
    assert_ok(status);
    assert_true(b.warm && b.warmup_samples == WARMUP && b.samples == ROUNDS && traced == ROUNDS);
    assert_true(b.step_ns == 100 && b.lo_ns == 100 && b.hi_ns == 100 && b.full_ns == 50);
    assert_near(b.perturb, 0.1, 1e-12);
    assert_near(b.context_switches, ROUNDS, 0);
    assert_near(b.page_faults, ROUNDS * 110, 0);
    assert_near(b.counters.select_ns, 8, 0);
    /* of traced passes, the steps but the first */
    assert_int_equal(b.traced_steps, ROUNDS * (STEPS - 1));
    assert_int_equal(b.usage.windows, ROUNDS);
    assert_int_equal(b.usage.wall_ns, ROUNDS * (STEPS - 1) * 110);
    assert_int_equal(b.usage.kernel_ns, ROUNDS * (STEPS - 1) * 55);
    assert_near(b.ratios.gpu_kernel_idle, 0.5, 1e-12);
    assert_int_equal(ha_timeline_count(b.timeline), STEPS); /* of the last one */
    assert_int_equal(b.dropped, ROUNDS * (1 + 2));
    assert_string_equal(b.source, "a clock");
    /* before and after each pass that is measured, and before each of the companion's */
    assert_int_equal(wrapped.judged, 1);
    assert_int_equal(wrapped.looks, ROUNDS * 3);
    assert_int_equal(wrapped.slow, 3);
    const double warm_ns = BEGIN_NS + WARMUP * (STEPS * 100 + AFTER);
    assert_near(wrapped.begin_ns, warm_ns, 0);
    assert_near(wrapped.end_ns, warm_ns + ROUNDS * (STEPS * (100 + 110 + 50) + 3 * AFTER), 0);
    assert_string_equal(wrapped.throttle, "power cap");
    assert_string_equal(b.disturbed, "a cause");
    ha_bench_free(&b);
    close_session();
}

/* ---- by the clock ------------------------------------------------------------------------------------------------ */

/* A variant whose CPU side stores the output, a half each of two threads. */
enum { HALF = 4 * 64 * sizeof(float) / 2 };
static struct ha_context storing;
static char *window;

static enum ha_status storing_create(struct ha_instance **self, const struct ha_context *ctx, struct ha_why *why)
{
    storing = *ctx;
    *self = (struct ha_instance *)(void *)&storing;
    return HA_OK;
}
static void store_half(void *arg, size_t task, size_t worker)
{
    const uint64_t begun = ha_stores_begin();
    memset(window + task * HALF, 0, HALF);
    ha_stores_end(begun, HALF);
}
static enum ha_status storing_attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    void *mapped;
    HA_TRY(storing.api->stream_sync(storing.stream)); /* the step before is over, and its end is stamped */
    HA_TRY(storing.api->map_device(storing.device, step->o, 2 * HALF, &mapped, why));
    window = mapped;
    ha_pool_run(storing.pool, "put", 2, store_half, NULL);
    storing.api->unmap_device(storing.device, mapped);
    return HA_OK;
}

static void sample(void *arg, const struct ha_sample *s) { (void)arg, (void)s; }

static struct ha_bench measured(const struct ha_variant *variant)
{
    const struct ha_check check = { .session = &session, .id = "the case" };
    struct ha_bench b = { .session = &session, .check = &check, .time_cap_ns = 20000000, .sample = sample };
    session.variant = variant;
    assert_ok(ha_bench_run(&b, &reason));
    return b;
}

TEST(what_threads_store_goes_over_the_link)
{
    static const struct ha_variant variant = { .name = "storing",
                                               .create = storing_create,
                                               .prefill = no_prefill,
                                               .attend = storing_attend,
                                               .destroy = no_destroy };
    open_session("cpu:ctx=20,heads=4/2,head_dim=64,layers=1,steps=4,threads=2");
    struct ha_bench b = measured(&variant);
    assert_true(b.moved_steps > 0 && b.traced_steps > 0);
    assert_int_equal(b.moved.h2d_bytes, b.moved_steps * 2 * HALF);
    assert_int_equal(b.moved.copies, 0);
    assert_near(b.usage.h2d_bytes, (double)(b.traced_steps * 2 * HALF), 1e-6);
    assert_true(b.ratios.h2d_link_GBps > 0 && b.ratios.gpu_idle < 1);
    ha_bench_free(&b);
    close_session();
}

/* A variant that lets the device wait, a nap long, before each of its two copies. */
enum { NAP_US = 2000 };
static enum ha_status napping_attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    for (int i = 0; i < 2; i++) {
        HA_TRY(storing.api->stream_sync(storing.stream));
        usleep(NAP_US);
        HA_TRY(storing.api->copy(storing.stream, step->o, step->q, 2 * HALF, HA_D2D));
    }
    return HA_OK;
}

TEST(a_host_that_is_late_leaves_gaps)
{
    static const struct ha_variant variant = { .name = "napping",
                                               .create = storing_create,
                                               .prefill = no_prefill,
                                               .attend = napping_attend,
                                               .destroy = no_destroy };
    open_session("cpu:ctx=20,heads=4/2,head_dim=64,layers=1,steps=4,threads=1");
    struct ha_bench b = measured(&variant);
    assert_true(b.ratios.launch_gap_ns >= 2 * 1e3 * NAP_US * 0.95);
    ha_bench_free(&b);
    close_session();
}
