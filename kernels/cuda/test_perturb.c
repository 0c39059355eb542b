/* What CUPTI costs shows in `perturb`, and marks the row; what it costs once does not. trace.c over the stand-in, under
 * a benchmark of a variant whose steps take no time but that which the test tells. Linked with ha_now_ns wrapped, and
 * with what looks for slow cores by it. */

#include "harness/base/pool.h"
#include "harness/base/test_beside.h"
#include "kernels/cuda/fake_cupti.h"
#include "kernels/cuda/trace.h"
#include "harness/report/row.h"
#include "suites/variants/bench.h"
#include "suites/variants/fill.h"
#include "suites/variants/test_session.h"

#include <stdatomic.h>

static atomic_uint_fast64_t told; /* the time, unless 0 */

uint64_t __real_ha_now_ns(void);
uint64_t __wrap_ha_now_ns(void);
double __wrap_ha_speed_least(struct ha_pool *pool, double *best);
uint64_t __wrap_ha_now_ns(void)
{
    const uint64_t now = atomic_load(&told);
    return now ? now : __real_ha_now_ns();
}
double __wrap_ha_speed_least(struct ha_pool *pool, double *best) { return 1; }

static void pass_by(uint64_t ns) { atomic_fetch_add(&told, ns); }

/* ---- a variant with 10 launches of 5 us in a step, on a device of the emulation that is traced and does nothing */

enum { LAUNCHES = 10, LAUNCH_NS = 5000, STREAM = 7 };
static struct fake_cupti *fake;
static struct ha_device cuda;
static struct ha_stream stream;
static const struct ha_device_api *real;
static double longest_traced_ns, run_ns; /* of steps; of the benchmark */

static void trace(struct ha_device *dev, const struct ha_span_sink *sink) { ha_cuda_trace_set(&cuda, sink); }

static void info(struct ha_device *dev, struct ha_device_info *out)
{
    real->info(dev, out);
    out->spans_lost = ha_cuda_trace_lost(&cuda);
    snprintf(out->spans, sizeof out->spans, "%s", ha_cuda_trace_source(&cuda));
}

/* its work takes no time */
static enum ha_status host_fn(struct ha_stream *s, void (*fn)(void *arg), void *arg)
{
    fn(arg);
    return HA_OK;
}

static enum ha_status create(struct ha_instance **self, const struct ha_context *ctx, struct ha_why *why)
{
    *self = (struct ha_instance *)(void *)&cuda;
    return HA_OK;
}

static enum ha_status attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    static const struct ha_cuda_span merge = { .kind = HA_SPAN_KERNEL, .name = "merge" };
    for (int i = 0; i < LAUNCHES; i++) {
        void *ticket = ha_cuda_span_begin(&stream, &merge);
        ha_cuda_launched++;
        const uint64_t begin_ns = atomic_load(&told);
        pass_by(LAUNCH_NS);
        fake->launch();
        fake->kernel("_Z9merge_fewILi2EL8ha_dtype1ELb0EEv10merge_args", STREAM, begin_ns, begin_ns + LAUNCH_NS / 2);
        ha_cuda_span_end(&stream, ticket);
    }
    return HA_OK;
}

static const struct ha_variant variant = {
    .name = "launching", .create = create, .prefill = no_prefill, .attend = attend, .destroy = no_destroy
};

static void sample(void *arg, const struct ha_sample *s)
{
    if (!strcmp(s->role, "traced") && s->step_ns > longest_traced_ns) longest_traced_ns = s->step_ns;
}

/* ---- */

static int begin(void **state)
{
    fake = beside_symbol("fake_cupti.so", FAKE_CUPTI_SYMBOL);
    setenv("HABENCH_CUPTI", beside("fake_cupti.so"), 1);
    setenv("HABENCH_TRACE", "cupti", 1);
    open_session("cpu:ctx=20,heads=4/2,head_dim=64,layers=1,steps=4,threads=1");
    return 0;
}

static int end(void **state)
{
    close_session();
    return 0;
}

/* The table of the row. */
static const char *table_of(const struct ha_bench *b)
{
    static char text[1 << 13];
    struct ha_row row;
    struct ha_entry entry = { .row = &row };
    struct ha_ceilings none = { 0 };
    ha_fields_clear(&ha_suite_variants, &row);
    row.layers = row.threads = 1;
    row.head.verdict = HA_PASS;
    strcpy(row.variant, "launching");
    ha_fill_bench(&row, b, &none, (double)NAN);
    FILE *f = fmemopen(text, sizeof text, "w");
    ha_table_print(f, &(struct ha_results){ .entry = &entry, .entries = 1, .measured = true });
    assert_int_equal(fclose(f), 0);
    return text;
}

static void measure(struct ha_bench *b)
{
    struct ha_device_api mine = *session.api;
    const struct ha_check check = { .session = &session, .id = "the case" }; /* no output is compared */
    *b = (struct ha_bench){
        .session = &session, .check = &check, .time_cap_ns = UINT64_C(20000000000), .sample = sample
    };
    cuda = (struct ha_device){ .lock = PTHREAD_MUTEX_INITIALIZER };
    stream = (struct ha_stream){ .device = &cuda, .cuda = fake_cupti_handle(STREAM), .lane = "stream" };
    atomic_store(&told, 1000000);
    longest_traced_ns = 0;
    assert_ok(ha_cuda_trace_create(&cuda.trace, &cuda, &reason));
    assert_ok(ha_cuda_trace_ready(cuda.trace, 0, &reason));
    real = session.api;
    mine.trace = trace;
    mine.info = info;
    mine.host_fn = host_fn;
    session.api = &mine;
    session.variant = &variant;
    const uint64_t begin_ns = atomic_load(&told);
    const enum ha_status status = ha_bench_run(b, &reason);
    run_ns = (double)(atomic_load(&told) - begin_ns);
    atomic_store(&told, 0);
    session.api = real;
    assert_ok(status);
}

TEST_WITH(what_tracing_costs_marks_the_row, begin, end)
{
    static const struct {
        uint64_t launch_ns, buffer_ns, code_ns;
        double perturb;
        bool marked;
    } cases[] = {
        { 0, 0, 0, 0, false },
        { 200, 0, 0, 0.04, false },
        { 1000, 0, 0, 0.2, true },
        { 3000, 0, 0, 0.6, true },
        { 0, 1000000, 0, 0, false },             /* the first step of a trace asks for the buffer, and does not count */
        { 0, 0, UINT64_C(5000000000), 0, false } /* before anything is measured */
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ha_bench b;
        fake->reset();
        fake->pass = pass_by;
        fake->launch_ns = cases[i].launch_ns;
        fake->buffer_ns = cases[i].buffer_ns;
        fake->code_ns = cases[i].code_ns;
        measure(&b);
        assert_near(b.perturb, cases[i].perturb, 1e-9);
        assert_near(longest_traced_ns, LAUNCHES * (LAUNCH_NS + (double)cases[i].launch_ns), 1e-6);
        assert_true(b.traced_steps > 0 && b.dropped == 0 && run_ns < 1e9);
        assert_string_equal(b.source, "CUPTI");
        assert_int_equal(strstr(table_of(&b), "\n~ 1 of 1: ") != NULL, cases[i].marked);
        ha_bench_free(&b);
        ha_cuda_trace_destroy(cuda.trace);
    }
}
