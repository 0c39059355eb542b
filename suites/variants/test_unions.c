/* trace.json holds what the idle and overlap columns are made of: the ratios of its step, computed from the file alone
 * and by another way, are those of the benchmark. argv[1]: the device, host by default. */

#include "harness/base/pool.h"
#include "harness/base/registry.h"
#include "harness/base/test_folder.h"
#include "harness/report/folder.h"
#include "harness/report/perfetto.h"
#include "suites/variants/bench.h"
#include "suites/variants/test_session.h"

#include <jansson.h>
#include <stdio.h>

static const char *device = "host";

/* ---- the file ------------------------------------------------------------------------------- */

enum { EVENTS_MAX = 20000, LANES_MAX = 64 };
struct event {
    double begin, end; /* us from the step's begin */
    char kind[16];
    int lane;
    double bytes, enqueued; /* NaN: not said */
};
static struct event events[EVENTS_MAX];
static size_t count;
static char lanes[LANES_MAX][96];
static double wall;

static void load_file(void)
{
    json_error_t error;
    json_t *all = json_load_file(test_path("trace.json"), 0, &error), *list = json_object_get(all, "traceEvents"), *e;
    size_t i;
    if (!list) fail_msg("trace.json: %s", error.text);
    count = 0;
    wall = 0;
    memset(lanes, 0, sizeof lanes);
    json_array_foreach(list, i, e)
    {
        const char *type = json_string_value(json_object_get(e, "ph")),
                   *name = json_string_value(json_object_get(e, "name"));
        json_int_t lane = json_integer_value(json_object_get(e, "tid"));
        json_t *args = json_object_get(e, "args");
        assert_true(lane >= 0 && lane < LANES_MAX);
        if (!strcmp(type, "M") && !strcmp(name, "thread_name"))
            snprintf(lanes[lane], sizeof lanes[lane], "%s", json_string_value(json_object_get(args, "name")));
        if (strcmp(type, "X")) continue;
        assert_true(count < EVENTS_MAX);
        double begin = json_number_value(json_object_get(e, "ts")), took = json_number_value(json_object_get(e, "dur"));
        struct event *x = &events[count++];
        *x = (struct event){ begin,      begin + took, "", (int)lane, json_number_value(json_object_get(args, "bytes")),
                             (double)NAN };
        if (json_object_get(args, "enqueued_us")) x->enqueued = json_number_value(json_object_get(args, "enqueued_us"));
        snprintf(x->kind, sizeof x->kind, "%s", json_string_value(json_object_get(e, "cat")));
        if (strcmp(x->kind, "step")) continue;
        assert_true(begin >= 0 && begin <= 0);
        wall = took;
        count--;
    }
    json_decref(all);
    assert_true(wall > 0);
}

/* ---- the ratios, by looking at every stretch between two edges ------------------------------------ */

enum set { K = 1, C = 2, P = 4, UP = 8 };

static unsigned set_of(const struct event *e)
{
    if (!strcmp(e->kind, "kernel") || !strcmp(e->kind, "d2d")) return K;
    if (!strcmp(e->kind, "h2d")) return C | UP;
    if (!strcmp(e->kind, "d2h")) return C;
    return !strcmp(e->kind, "cpu") && !strncmp(lanes[e->lane], "cpu ", 4) ? P : 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What the device turns to at this moment or later: the first to begin, and of those the first that was enqueued. NULL:
 * nothing in this step. */
static const struct event *next_at(double moment)
{
    const struct event *next = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct event *e = &events[i];
        if (!(set_of(e) & (K | C)) || !strncmp(lanes[e->lane], "cpu ", 4) || e->begin < moment || e->begin >= wall)
            continue;
        if (!next || e->begin < next->begin || (e->begin <= next->begin && e->enqueued < next->enqueued)) next = e;
    }
    return next;
}

static struct ha_ratios recompute(size_t threads)
{
    static double edge[2 * EVENTS_MAX + 2];
    size_t edges = 0;
    double kernel = 0, any = 0, cpu = 0, both = 0, up = 0, pool = 0, bytes = 0, gap = 0;
    edge[edges++] = 0;
    edge[edges++] = wall;
    for (size_t i = 0; i < count; i++) {
        edge[edges++] = fmin(fmax(events[i].begin, 0), wall);
        edge[edges++] = fmin(fmax(events[i].end, 0), wall);
    }
    qsort(edge, edges, sizeof *edge, by_value);
    for (size_t i = 0; i + 1 < edges; i++) {
        double from = edge[i], to = edge[i + 1], length = to - from;
        unsigned on = 0;
        if (length <= 0) continue;
        for (size_t j = 0; j < count; j++) {
            const struct event *e = &events[j];
            if (e->begin > from || e->end < to) continue;
            on |= set_of(e);
            if (!strncmp(lanes[e->lane], "cpu ", 4)) pool += length;
            if (set_of(e) & UP) bytes += e->bytes * length / (e->end - e->begin);
        }
        kernel += on & K ? length : 0;
        any += on & (K | C) ? length : 0;
        cpu += on & P ? length : 0;
        both += (on & P) && (on & (K | C)) ? length : 0;
        up += on & UP ? length : 0;
        const struct event *next = on & (K | C) ? NULL : next_at(to);
        if (next) gap += isnan(next->enqueued) ? next->enqueued : fmax(0, fmin(to, next->enqueued) - from);
    }
    double less = fmin(cpu, any), nan = (double)NAN;
    return (struct ha_ratios){ .gpu_kernel_idle = 1 - kernel / wall,
                               .gpu_idle = 1 - any / wall,
                               .cpu_idle = 1 - pool / (wall * (double)threads),
                               .overlap = less > 0 ? both / less : nan,
                               .h2d_link_GBps = up > 0 ? bytes / (up * 1e3) : nan,
                               .launch_gap_ns = gap * 1e3 };
}

/* ---- the test ---------------------------------------------------------------------------------------- */

static void sample(void *arg, const struct ha_sample *s) { (void)arg, (void)s; }

static bool same(double a, double b, double tolerance) { return isnan(a) ? isnan(b) : fabs(a - b) <= tolerance; }

static bool lane_begins(const char *with)
{
    for (int i = 0; i < LANES_MAX; i++)
        if (!strncmp(lanes[i], with, strlen(with))) return true;
    return false;
}

/* Every span that touches the step, where it was. */
static void assert_all_there(const struct ha_timeline *t, struct ha_interval w)
{
    size_t n = 0;
    for (size_t i = 0; i < ha_timeline_count(t); i++) {
        const struct ha_span *s = &ha_timeline_at(t, i)->span;
        if (s->end_ns <= w.begin_ns || s->begin_ns >= w.end_ns) continue;
        assert_true(n < count);
        const struct event *e = &events[n++];
        assert_true(same(e->begin * 1e3, (double)s->begin_ns - (double)w.begin_ns, 0.6));
        assert_true(same(e->end * 1e3, (double)s->end_ns - (double)w.begin_ns, 1.1));
        assert_true(same(e->bytes, (double)s->bytes, 0));
        if (s->kind != HA_SPAN_H2D && s->kind != HA_SPAN_D2H) assert_string_equal(lanes[e->lane], s->lane);
    }
    assert_int_equal(n, count);
}

/* A stream, or a thread, does one thing at a time. */
static void assert_in_turn(void)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++) {
            const struct event *a = &events[i], *b = &events[j];
            if (a->lane != b->lane || (strncmp(lanes[a->lane], "stream", 6) && strncmp(lanes[a->lane], "cpu ", 4)))
                continue;
            if (!(a->begin >= b->end - 0.002 || b->begin >= a->end - 0.002))
                fail_msg("lane %s: %g to %g us and %g to %g", lanes[a->lane], a->begin, a->end, b->begin, b->end);
        }
}

static struct ha_check check;
static struct ha_bench bench;
static char case_id[HA_CASE_ID_MAX];

/* a sanitizer sees as much in the kernels of few tokens */
static void open_bench(const char *id)
{
    snprintf(case_id, sizeof case_id, "%s,ctx=%d,device=%s", id, HA_SANITIZED ? 200 : 700, device);
    open_session(case_id);
    check = (struct ha_check){ .session = &session, .id = case_id, .steps = 1 };
    assert_ok(ha_check_run(&check, &reason));
    /* no time: one traced step counts, which is the one that the file shows */
    bench = (struct ha_bench){
        .session = &session, .check = &check, .full_ns = (double)NAN, .time_cap_ns = 0, .sample = sample
    };
}

static void run_bench(void)
{
    assert_ok(ha_bench_run(&bench, &reason));
    assert_int_equal(bench.usage.windows, 1);
}

static void close_bench(void)
{
    ha_bench_free(&bench);
    ha_check_free(&check);
    close_session();
}

/* as the engine does it */
static void write_file(void)
{
    const struct ha_suite *suite = ha_suites_all[0];
    const char *value[64] = { NULL };
    const struct ha_folder_options options = { .path = test_folder,
                                               .mode = "run",
                                               .build = "",
                                               .options = "",
                                               .run_id = "",
                                               .suites = ha_suites_all,
                                               .suites_count = ha_suites_count };
    const struct ha_folder_case of = { .suite = suite, .id = case_id, .from = "", .key_value = value };
    struct ha_folder *out;
    char *text = NULL;
    size_t bytes = 0;
    for (size_t i = 0; i < suite->keys; i++) value[i] = "";
    test_folder_remove(NULL); /* which is made by who opens it */
    if (ha_folder_open(&out, &options, &reason) != HA_EXIT_OK
        || ha_perfetto_events(&text, &bytes, bench.timeline, bench.traced, &reason) != HA_OK
        || ha_folder_trace(out, &of, text, bytes, &reason) != HA_OK || ha_folder_close(out, &reason) != HA_OK)
        fail_msg("%s", reason.text);
    free(text);
}

static void reproduced(const char *id, bool cpu_side, bool copies)
{
    open_bench(id);
    run_bench();
    assert_int_equal(bench.dropped, 0);
    assert_true(*bench.source);
    write_file();
    load_file();
    assert_true(same(wall * 1e3, (double)bench.usage.wall_ns, 0.5));
    struct ha_ratios of_file = recompute(ha_pool_threads(session.pool)), *of = &bench.ratios;
    /* stamps are whole nanoseconds in the file too */
    double tolerance = 1e-6;
    assert_true(same(of_file.gpu_kernel_idle, of->gpu_kernel_idle, tolerance));
    assert_true(same(of_file.gpu_idle, of->gpu_idle, tolerance));
    assert_true(same(of_file.cpu_idle, of->cpu_idle, tolerance));
    assert_true(same(of_file.overlap, of->overlap, tolerance));
    assert_true(same(of_file.h2d_link_GBps, of->h2d_link_GBps, 1e-4 * fabs(of->h2d_link_GBps)));
    assert_true(same(of_file.launch_gap_ns, of->launch_gap_ns, 0.5)
                && of->launch_gap_ns <= of->gpu_idle * wall * 1e3 + 1);
    assert_true(of->gpu_kernel_idle > 0 && of->gpu_kernel_idle < 1);
    assert_true(lane_begins("step") && lane_begins("stream"));
    if (cpu_side) assert_true(lane_begins("cpu ") && of->cpu_idle < 1);
    if (copies) assert_true(lane_begins("link host to device") && of->h2d_link_GBps > 0);
    /* a variant that does not wait for the device has launched a step's work before the step begins there: then there
     * is no such lane */
    if (strcmp(device, "host") && cpu_side) assert_true(lane_begins("launch"));
    assert_all_there(bench.timeline, bench.traced);
    assert_in_turn();
    close_bench();
}

TEST(the_file_has_the_ratios_of_the_benchmark)
{
    static const struct {
        const char *id;
        bool cpu_side, copies;
    } cases[] = {
        { "hgca:heads=4/2,head_dim=64,layers=3,steps=2,q_len=16,blk_size=16,blk_num=8,threads=2", true, false },
        { "offload:heads=4/2,head_dim=64,layers=3,steps=2,threads=1", false, true },
        { "resident:heads=4/2,head_dim=64,layers=3,steps=2,threads=1", false, false },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        print_message("%s\n", cases[i].id); /* which of them it was, where one fails */
        reproduced(cases[i].id, cases[i].cpu_side, cases[i].copies);
    }
}

/* ---- what else the device says ------------------------------------------------------------------------ */

static const struct ha_device_api *real;
static double joules;
static uint64_t lost;

static void meters(struct ha_device *dev, struct ha_device_meters *out)
{
    *out = (struct ha_device_meters){ .sm_clock_MHz = 1755, .energy_J = joules += 3, .throttle = "power cap" };
}

static void info(struct ha_device *dev, struct ha_device_info *out)
{
    real->info(dev, out);
    out->spans_lost = lost += 5;
    snprintf(out->spans, sizeof out->spans, "a test");
}

TEST(meters_and_losses_reach_the_benchmark)
{
    struct ha_device_api mine;
    open_bench("resident:heads=4/2,head_dim=64,layers=1,steps=2,threads=1");
    real = session.api;
    mine = *real;
    mine.meters = meters;
    mine.info = info;
    session.api = &mine;
    run_bench();
    assert_true(bench.condition.readings >= 1);
    assert_true(bench.condition.sm_clock_MHz > 1754 && bench.condition.sm_clock_MHz < 1756);
    assert_true(same(bench.condition.energy_step_J, 1.5, 1e-9));
    assert_string_equal(bench.condition.throttle, "power cap");
    assert_string_equal(bench.source, "a test");
    assert_true(bench.dropped >= 5 && bench.dropped % 5 == 0);
    session.api = real;
    close_bench();
}

TEST_MAIN
{
    if (argc > 1) device = argv[1];
    return test_all("tests", test_folder_make, test_folder_remove);
}
