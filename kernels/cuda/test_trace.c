/* Spans from events, against a runtime whose clock is known, and from CUPTI's records. The host's clock is the test's:
 * it moves with every look at it, and the device's clock runs beside it, from another zero and a little faster. */

#include "harness/base/clock.h"
#include "harness/base/test_beside.h"
#include "harness/base/test_spans.h"
#include "kernels/cuda/fake_cupti.h"
#include "kernels/cuda/trace.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

/* ---- the clocks --------------------------------------------------------------------------------- */

enum { LOOK_NS = 20 };
static const double faster = 20e-6, zero_ns = 7.5e9;
static uint64_t host_now; /* atomic */

uint64_t ha_now_ns(void) { return __atomic_add_fetch(&host_now, LOOK_NS, __ATOMIC_RELAXED); }
static void pass(double ns) { __atomic_fetch_add(&host_now, (uint64_t)ns, __ATOMIC_RELAXED); }
static double host(void) { return (double)__atomic_load_n(&host_now, __ATOMIC_RELAXED); }
static double device_of(double host_ns) { return (host_ns - zero_ns) * (1 + faster); }
static double host_of(double device_ns) { return device_ns / (1 + faster) + zero_ns; }

/* ---- the runtime -------------------------------------------------------------------------------- */

struct CUstream_st {
    double until; /* device time at which what is enqueued ends */
};
struct CUevent_st {
    double stamp;
    bool recorded;
};
enum { RECORD_NS = 300, REACH_NS = 700 };
static int events_made, events_live, streams_live, fail_records, fail_elapsed, fail_creates;
static bool synchronised;
static void (*meanwhile)(void); /* what runs until the device is synchronised */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    *stream = calloc(1, sizeof **stream);
    streams_live++;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    streams_live--;
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    if (flags != cudaEventDefault || (fail_creates && fail_creates-- == 1)) return cudaErrorMemoryAllocation;
    *event = calloc(1, sizeof **event);
    __atomic_fetch_add(&events_made, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&events_live, 1, __ATOMIC_RELAXED);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    events_live--;
    return cudaSuccess;
}
/* stamped when the stream comes to it */
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (fail_records && fail_records-- == 1) return cudaErrorLaunchFailure;
    pass(RECORD_NS);
    double reached = device_of(host() + REACH_NS);
    if (stream->until < reached) stream->until = reached;
    *event = (struct CUevent_st){ stream->until, true };
    return cudaSuccess;
}
static unsigned jitter = 1;
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    double at = host_of(event->stamp);
    if (host() < at) __atomic_store_n(&host_now, (uint64_t)at, __ATOMIC_RELAXED);
    jitter = jitter * 1103515245u + 12345u;
    pass(800 + jitter % 30000); /* until the host notices */
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    if (fail_elapsed && fail_elapsed-- == 1) return cudaErrorInvalidResourceHandle;
    if (!start->recorded || !end->recorded) return cudaErrorInvalidResourceHandle;
    *ms = (float)((end->stamp - start->stamp) / 1e6);
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    synchronised = true;
    if (meanwhile) meanwhile();
    return cudaSuccess;
}

/* ---- device.c ----------------------------------------------------------------------------------- */

enum ha_status ha_cuda_fail(struct ha_device *dev, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(dev->failure, sizeof dev->failure, format, args);
    va_end(args);
    dev->failed = true;
    return HA_ERROR;
}
enum ha_status ha_cuda_check(struct ha_device *dev, cudaError_t error, const char *call, const char *what)
{
    return error == cudaSuccess ? HA_OK : ha_cuda_fail(dev, "%s: %s: %d", what, call, (int)error);
}
void ha_cuda_enter(void) {}

/* ---- what the tests share ----------------------------------------------------------------------- */

__thread unsigned ha_cuda_launched;

static struct test_spans others;
static const struct ha_span_sink other_sink = { &others, test_spans_add };

static struct ha_device device;
static struct CUstream_st queue[2];
static struct ha_stream stream[2];
static struct fake_cupti *fake;

/* Kernels run that were launched when the device was opened. */
static void warm_up(size_t kernels)
{
    const uint64_t begin_ns = (uint64_t)host();
    pass(100);
    for (size_t i = 0; i < kernels && fake; i++)
        fake->kernel("_Z14accuracy_worstILi0EEv13accuracy_args", 3, begin_ns, begin_ns + 50);
}

static void open_trace(void)
{
    struct ha_why why = { "" };
    host_now = UINT64_C(10000000000);
    device = (struct ha_device){ .lock = PTHREAD_MUTEX_INITIALIZER };
    for (size_t i = 0; i < 2; i++) {
        queue[i] = (struct CUstream_st){ 0 };
        stream[i] = (struct ha_stream){ .device = &device, .cuda = &queue[i] };
        snprintf(stream[i].lane, sizeof stream[i].lane, "stream %c", 'a' + (int)i);
    }
    events_made = events_live = streams_live = fail_records = fail_elapsed = fail_creates = 0;
    spans.count = others.count = 0;
    if (ha_cuda_trace_create(&device.trace, &device, &why) != HA_OK) fail_msg("%s", why.text);
    warm_up(2);
    if (ha_cuda_trace_ready(device.trace, 2, &why) != HA_OK) fail_msg("%s", why.text);
}

static int with_events(void **state)
{
    setenv("HABENCH_TRACE", "events", 1);
    fake = NULL;
    open_trace();
    return 0;
}

static int with_cupti(void **state)
{
    setenv("HABENCH_CUPTI", beside("fake_cupti.so"), 1);
    unsetenv("HABENCH_TRACE");
    fake = beside_symbol("fake_cupti.so", FAKE_CUPTI_SYMBOL);
    fake->reset();
    fake->records_in_buffer = 2;
    open_trace();
    for (size_t i = 0; i < 2; i++) stream[i].cuda = fake_cupti_handle(7 + (uint32_t)i);
    return 0;
}

static int close_trace(void **state)
{
    ha_cuda_trace_destroy(device.trace);
    assert_true(events_live == 0 && streams_live == 0);
    return 0;
}

static const struct ha_cuda_span attend = { .kind = HA_SPAN_KERNEL, .name = "attend", .zero_copy_bytes = 640 },
                                 merge = { .kind = HA_SPAN_KERNEL, .name = "merge" },
                                 up = { .kind = HA_SPAN_H2D, .name = "copy H2D", .bytes = 4096 },
                                 wait = { .kind = HA_SPAN_WAIT, .name = "flag_wait" };

/* An operation that takes so long on the device; where it ran, in host time. */
static struct ha_span run(struct ha_stream *s, const struct ha_cuda_span *what, double ns)
{
    void *ticket = ha_cuda_span_begin(s, what);
    pass(1000); /* the enqueue */
    double begin = fmax(s->cuda->until, device_of(host()));
    s->cuda->until = begin + ns * (1 + faster);
    double end = s->cuda->until;
    ha_cuda_span_end(s, ticket);
    return (struct ha_span){ .begin_ns = (uint64_t)host_of(begin), .end_ns = (uint64_t)host_of(end) };
}

static const struct ha_span *nth_of(const char *lane, size_t n)
{
    for (size_t i = 0; i < spans.count; i++)
        if (!strcmp(spans.span[i].lane, lane) && n-- == 0) return &spans.span[i];
    fail_msg("no such span in lane '%s'", lane);
    return NULL;
}

static double apart(uint64_t a, uint64_t b) { return fabs((double)a - (double)b); }

/* ---- events --------------------------------------------------------------------------------------- */

TEST_WITH(nothing_is_recorded_untraced_or_while_capturing, with_events, close_trace)
{
    assert_null(ha_cuda_span_begin(&stream[0], &attend));
    ha_cuda_span_end(&stream[0], NULL);
    assert_int_equal(events_made, 0);
    ha_cuda_trace_set(&device, &sink);
    int before = events_made;
    stream[0].graph = &(struct ha_graph){ .device = &device };
    assert_null(ha_cuda_span_begin(&stream[0], &attend));
    stream[0].graph = NULL;
    assert_int_equal(events_made, before);
    ha_cuda_trace_set(&device, NULL);
    assert_null(ha_cuda_span_begin(&stream[0], &attend));
    ha_cuda_trace_set(&device, NULL); /* once more: nothing to end */
    assert_int_equal(spans.count, 0);
    assert_string_equal(ha_cuda_trace_source(&device), "CUDA events, +-2 us");
}

TEST_WITH(operations_are_stamped, with_events, close_trace)
{
    ha_cuda_trace_set(&device, &sink);
    struct ha_span copied = run(&stream[0], &up, 50000), attended = run(&stream[0], &attend, 20000);
    struct ha_span beside_it = run(&stream[1], &wait, 90000), merged = run(&stream[0], &merge, 5000);
    assert_int_equal(spans.count, 4); /* launches at once, the others once they are known */
    ha_cuda_trace_set(&device, NULL);
    assert_int_equal(spans.count, 8);
    const struct {
        struct ha_span ran;
        const char *lane;
        size_t nth;
        const struct ha_cuda_span *what;
        size_t launch;
    } want[] = {
        { copied, "link H2D", 0, &up, 0 },
        { attended, "stream a", 0, &attend, 1 },
        { merged, "stream a", 1, &merge, 3 },
        { beside_it, "stream b", 0, &wait, 2 },
    };
    for (size_t i = 0; i < COUNT(want); i++) {
        const struct ha_span *s = nth_of(want[i].lane, want[i].nth);
        assert_string_equal(s->name, want[i].what->name);
        assert_true(s->kind == want[i].what->kind && s->bytes == want[i].what->bytes
                    && s->zero_copy_bytes == want[i].what->zero_copy_bytes);
        /* from the event before it, which an idle stream comes to at once */
        assert_true(apart(s->begin_ns, want[i].ran.begin_ns) < 4000);
        assert_true(apart(s->end_ns, want[i].ran.end_ns) < 3000);
        assert_int_equal(s->enqueue_ns, nth_of("launch", want[i].launch)->end_ns);
    }
    static const char *const name[] = { "copy H2D", "attend", "flag_wait", "merge" };
    for (size_t i = 0; i < 4; i++) {
        const struct ha_span *s = nth_of("launch", i);
        assert_string_equal(s->name, name[i]);
        assert_int_equal(s->kind, HA_SPAN_LAUNCH);
        assert_true(s->end_ns - s->begin_ns >= 1000 && s->end_ns - s->begin_ns <= 1000 + 4 * LOOK_NS);
        assert_true(s->bytes == 0 && s->zero_copy_bytes == 0);
        if (i) assert_true(s->begin_ns > nth_of("launch", i - 1)->end_ns);
    }
    assert_int_equal(ha_cuda_trace_lost(&device), 0);
}

/* The differences that the runtime gives are floats of milliseconds: after ten minutes they step by 61 us. And the
 * clocks have drifted apart by 12 ms. */
TEST_WITH(a_long_trace_stays_exact, with_events, close_trace)
{
    enum { OPERATIONS = 3000 };
    static struct ha_span ran[OPERATIONS];
    ha_cuda_trace_set(&device, &sink);
    for (size_t i = 0; i < OPERATIONS; i++) {
        ran[i] = run(&stream[i % 2], &merge, 3000 + (double)(i % 7) * 100);
        pass(i % 100 == 99 ? 5e9 : 17e6);
    }
    ha_cuda_trace_set(&device, NULL);
    assert_true(host() > 1.9e11);
    size_t seen[2] = { 0 };
    for (size_t i = 0; i < OPERATIONS; i++) {
        const struct ha_span *s = nth_of(i % 2 ? "stream b" : "stream a", seen[i % 2]++);
        double took = (double)(s->end_ns - s->begin_ns), want = (double)(ran[i].end_ns - ran[i].begin_ns);
        assert_true(apart(s->end_ns, ran[i].end_ns) < 2500);
        assert_true(took >= want - 10 && took <= want + 1500);
    }
    assert_int_equal(ha_cuda_trace_lost(&device), 0);
}

TEST_WITH(events_are_used_again, with_events, close_trace)
{
    for (int i = 0; i < 5; i++) {
        spans.count = 0;
        ha_cuda_trace_set(&device, &sink);
        for (int n = 0; n < 300; n++) run(&stream[0], &merge, 1000);
        ha_cuda_trace_set(&device, NULL);
        assert_int_equal(spans.count, 600);
        for (size_t n = 1; n < 300; n++)
            assert_true(nth_of("stream a", n)->begin_ns >= nth_of("stream a", n - 1)->end_ns);
    }
    assert_int_equal(events_made, 600 + 4);
}

TEST_WITH(spans_go_to_the_sink_of_their_time, with_events, close_trace)
{
    ha_cuda_trace_set(&device, &sink);
    run(&stream[0], &attend, 1000);
    ha_cuda_trace_set(&device, &other_sink);
    run(&stream[0], &merge, 1000);
    run(&stream[0], &merge, 1000);
    ha_cuda_trace_set(&device, NULL);
    assert_int_equal(spans.count, 2);
    assert_int_equal(others.count, 4);
    assert_string_equal(spans.span[1].name, "attend");
}

TEST_WITH(what_cannot_be_stamped_is_counted, with_events, close_trace)
{
    ha_cuda_trace_set(&device, &sink);
    run(&stream[0], &merge, 1000);
    fail_records = 1;
    run(&stream[0], &merge, 1000);
    fail_records = 2;
    run(&stream[0], &merge, 1000);
    fail_creates = 1;
    run(&stream[0], &merge, 1000);
    ha_cuda_trace_set(&device, NULL);
    assert_int_equal(spans.count, 4 + 1);
    assert_int_equal(ha_cuda_trace_lost(&device), 3);
    ha_cuda_trace_set(&device, &sink);
    for (int i = 0; i < 4; i++) run(&stream[0], &merge, 1000);
    fail_elapsed = 6;
    ha_cuda_trace_set(&device, NULL);
    assert_int_equal(ha_cuda_trace_lost(&device), 4);
}

static void *late(void *arg)
{
    void *ticket = ha_cuda_span_begin(&stream[1], &attend);
    __atomic_store_n((bool *)arg, ticket != NULL, __ATOMIC_RELEASE);
    nanosleep(&(struct timespec){ 0, 30000000 }, NULL);
    ha_cuda_span_end(&stream[1], ticket);
    return NULL;
}

TEST_WITH(the_end_waits_for_what_is_being_enqueued, with_events, close_trace)
{
    pthread_t thread;
    bool begun = false;
    ha_cuda_trace_set(&device, &sink);
    assert_int_equal(pthread_create(&thread, NULL, late, &begun), 0);
    while (!__atomic_load_n(&begun, __ATOMIC_ACQUIRE)) continue;
    ha_cuda_trace_set(&device, NULL);
    assert_int_equal(spans.count, 2);
    nth_of("stream b", 0);
    pthread_join(thread, NULL);
}

enum { THREADS = 4, EACH = 500 };
static void *feed(void *arg)
{
    struct ha_stream *s = arg;
    for (int i = 0; i < EACH; i++) ha_cuda_span_end(s, ha_cuda_span_begin(s, &merge));
    return NULL;
}

TEST_WITH(streams_are_fed_from_threads_of_their_own, with_events, close_trace)
{
    pthread_t thread[THREADS];
    static struct CUstream_st queues[THREADS];
    static struct ha_stream streams[THREADS];
    ha_cuda_trace_set(&device, &sink);
    for (size_t i = 0; i < THREADS; i++) {
        streams[i] = (struct ha_stream){ .device = &device, .cuda = &queues[i], .lane = "stream x" };
        assert_int_equal(pthread_create(&thread[i], NULL, feed, &streams[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    ha_cuda_trace_set(&device, NULL);
    assert_int_equal(spans.count, 2 * THREADS * EACH);
}

/* ---- CUPTI ---------------------------------------------------------------------------------------- */

#define FMA                   \
    "_ZN46_GLOBAL__N__59d543" \
    "8a_13_attend_fma_cu_f0126e9d10attend_fmaIL8ha_dtype0ELj2ELj1EEEv12ha_cuda_call"
#define COMBINE "_ZN50_GLOBAL__N__7b0f3c51_17_attend_combine_cu_4d00c1a914attend_combineENS_7joiningE"
#define MERGE   "_Z9merge_fewILi2EL8ha_dtype1ELb0EEv10merge_argsIXT_EE"
#define WAIT    "_Z9flag_wait9flag_args"
#define WRITE   "_Z10flag_write9flag_args"
#define GEMM    "ampere_sgemm_128x64_tn"

static uint64_t from; /* of the trace: times of tests are since then */

static void begin_trace(void)
{
    ha_cuda_trace_set(&device, &sink);
    from = (uint64_t)host();
    pass(1000000);
}

static void kernel(const char *function, uint32_t on, uint64_t begin_ns, uint64_t end_ns)
{
    fake->kernel(function, on, from + begin_ns, from + end_ns);
}

/* An operation with its kernels. */
static void enqueue(struct ha_stream *s, const struct ha_cuda_span *what, unsigned kernels)
{
    void *ticket = ha_cuda_span_begin(s, what);
    assert_non_null(ticket);
    ha_cuda_launched += kernels;
    ha_cuda_span_end(s, ticket);
}

static void run_kernel(struct ha_stream *s, const struct ha_cuda_span *what, const char *function, uint32_t on,
                       uint64_t begin_ns, uint64_t end_ns)
{
    enqueue(s, what, 1);
    kernel(function, on, begin_ns, end_ns);
}

static const struct ha_cuda_span product = { .kind = HA_SPAN_KERNEL, .name = "product", .library = true },
                                 host_fn = { .kind = HA_SPAN_CPU, .name = "host_fn" };

TEST_WITH(records_become_spans, with_cupti, close_trace)
{
    begin_trace();
    synchronised = false;
    enqueue(&stream[0], &attend, 2);
    enqueue(&stream[1], &up, 0);
    enqueue(&stream[0], &product, 0);
    enqueue(&stream[1], &wait, 0); /* the driver's own leaves no record, */
    enqueue(&stream[1], &host_fn, 0);
    enqueue(&stream[1], &wait, 3); /* and one by kernels three */
    struct ha_graph graph = { .device = &device, .exec = fake_cupti_handle(3), .nodes = 4 };
    enqueue(&stream[1], &(struct ha_cuda_span){ .kind = HA_SPAN_KERNEL, .name = "graph_launch", .graph = &graph }, 0);
    enqueue(&stream[0], &merge, 1);
    kernel(GEMM, 7, 2000, 2100);
    fake->set(7, 64, from + 1950, from + 1990);
    kernel(COMBINE, 7, 1600, 1700);
    kernel(FMA, 7, 1000, 1500);
    kernel(MERGE, 7, 2700, 2800);
    kernel(MERGE, 99, 2900, 3000); /* somebody else's */
    fake->copy(1, 8, 4096, from + 900, from + 1200);
    kernel(WRITE, 8, 2200, 2210);
    kernel(WAIT, 8, 2220, 2300);
    kernel(WRITE, 8, 2310, 2320);
    fake->graph = 3; /* on whatever stream */
    kernel(WAIT, 55, 2400, 2500);
    kernel(MERGE, 56, 2500, 2600);
    fake->copy(2, 55, 32, from + 2610, from + 2620);
    fake->set(55, 32, from + 2630, from + 2640);
    fake->graph = 0;
    size_t launches = spans.count;
    ha_cuda_trace_set(&device, NULL);
    assert_true(synchronised);
    assert_int_equal(launches, 8);
    static const struct {
        struct ha_span span;
        int launch; /* the call that it came with */
    } want[] = {
        { { 1000, 1500, 0, 640, HA_SPAN_KERNEL, "stream a", "attend", 0 }, 0 },
        { { 1600, 1700, 0, 0, HA_SPAN_KERNEL, "stream a", "attend", 0 }, 0 },
        { { 1950, 1990, 0, 0, HA_SPAN_D2D, "stream a", "product", 0 }, 2 },
        { { 2000, 2100, 0, 0, HA_SPAN_KERNEL, "stream a", "product", 0 }, 2 },
        { { 2700, 2800, 0, 0, HA_SPAN_KERNEL, "stream a", "merge", 0 }, 7 },
        { { 900, 1200, 4096, 0, HA_SPAN_H2D, "link H2D", "copy H2D", 0 }, 1 },
        { { 2200, 2210, 0, 0, HA_SPAN_WAIT, "stream b", "flag_wait", 0 }, 5 },
        { { 2220, 2300, 0, 0, HA_SPAN_WAIT, "stream b", "flag_wait", 0 }, 5 },
        { { 2310, 2320, 0, 0, HA_SPAN_WAIT, "stream b", "flag_wait", 0 }, 5 },
        { { 2400, 2500, 0, 0, HA_SPAN_WAIT, "stream b", "flag_wait", 0 }, 6 },
        { { 2500, 2600, 0, 0, HA_SPAN_KERNEL, "stream b", "merge", 0 }, 6 },
        { { 2610, 2620, 32, 0, HA_SPAN_D2H, "link D2H", "copy", 0 }, 6 },
        { { 2630, 2640, 0, 0, HA_SPAN_D2D, "stream b", "memset", 0 }, 6 },
    };
    assert_int_equal(spans.count, launches + COUNT(want));
    for (size_t i = 0; i < COUNT(want); i++) {
        const struct ha_span *s = &spans.span[launches + i], *w = &want[i].span;
        assert_true(s->begin_ns == from + w->begin_ns && s->end_ns == from + w->end_ns && s->bytes == w->bytes);
        assert_true(s->zero_copy_bytes == w->zero_copy_bytes && s->kind == w->kind);
        assert_string_equal(s->lane, w->lane);
        assert_string_equal(s->name, w->name);
        assert_int_equal(s->enqueue_ns, spans.span[want[i].launch].end_ns);
    }
    assert_int_equal(ha_cuda_trace_lost(&device), 0);
    assert_int_equal(events_made, 0);
    assert_string_equal(ha_cuda_trace_source(&device), "CUPTI");
}

/* Another thread enqueues, before a trace and when it has ended: nobody asked for that. */
static void another_merge(void)
{
    const uint64_t begin_ns = (uint64_t)host();
    pass(1000);
    fake->kernel(MERGE, 7, begin_ns, begin_ns + 500);
}

TEST_WITH(what_is_enqueued_beside_a_trace_is_not_missed, with_cupti, close_trace)
{
    synchronised = false;
    meanwhile = another_merge;
    begin_trace();
    assert_true(synchronised);
    run_kernel(&stream[0], &merge, MERGE, 7, 1000, 1100);
    ha_cuda_trace_set(&device, NULL);
    meanwhile = NULL;
    assert_int_equal(spans.count, 2);
    assert_int_equal(spans.span[1].begin_ns, from + 1000);
    assert_int_equal(ha_cuda_trace_lost(&device), 0);
}

TEST_WITH(every_trace_is_its_own, with_cupti, close_trace)
{
    for (int i = 0; i < 3; i++) {
        spans.count = 0;
        begin_trace();
        run_kernel(&stream[i % 2], i % 2 ? &merge : &attend, i % 2 ? MERGE : FMA, 7 + (uint32_t)i % 2, 1000, 1500);
        ha_cuda_trace_set(&device, NULL);
        kernel(FMA, 7, 1600, 1700); /* untraced: nobody sees it */
        assert_int_equal(spans.count, 2);
        assert_string_equal(spans.span[1].name, i % 2 ? "merge" : "attend");
        assert_string_equal(spans.span[1].lane, stream[i % 2].lane);
        assert_true(spans.span[1].zero_copy_bytes == (i % 2 ? 0 : 640));
    }
    assert_int_equal(ha_cuda_trace_lost(&device), 0);
}

/* Whose the kernels of products in a row are is known where each has one; else only that the first is the first's. */
TEST_WITH(products_in_a_row, with_cupti, close_trace)
{
    for (uint64_t each = 1; each <= 2; each++) {
        spans.count = 0;
        begin_trace();
        for (uint64_t i = 0; i < 2; i++) enqueue(&stream[0], &product, 0);
        for (uint64_t i = 0; i < 2 * each; i++) kernel(GEMM, 7, 1000 + 100 * i, 1050 + 100 * i);
        run_kernel(&stream[0], &merge, MERGE, 7, 5000, 5100);
        ha_cuda_trace_set(&device, NULL);
        assert_int_equal(spans.count, 3 + 2 * each + 1);
        for (size_t i = 0; i < 2 * each; i++) {
            assert_string_equal(spans.span[3 + i].name, "product");
            assert_int_equal(spans.span[3 + i].enqueue_ns, each == 1 || i == 0 ? spans.span[i].end_ns : 0);
        }
        assert_int_equal(spans.span[3 + 2 * each].enqueue_ns, spans.span[2].end_ns);
        assert_int_equal(ha_cuda_trace_lost(&device), 0);
    }
}

TEST_WITH(a_stream_that_was_made_again_has_other_records, with_cupti, close_trace)
{
    begin_trace();
    run_kernel(&stream[0], &merge, MERGE, 7, 1000, 1100);
    stream[0].cuda = fake_cupti_handle(12); /* as ha_cuda_stream_create does */
    stream[0].queue = 0;
    run_kernel(&stream[0], &attend, FMA, 12, 1050, 1200);
    ha_cuda_trace_set(&device, NULL);
    assert_int_equal(spans.count, 4);
    assert_int_equal(ha_cuda_trace_lost(&device), 0);
}

TEST_WITH(what_cupti_lost_is_counted, with_cupti, close_trace)
{
    begin_trace();
    enqueue(&stream[1], &up, 0); /* bytes that no record tells of */
    enqueue(&stream[0], &attend, 1);
    kernel(FMA, 7, 1000, 1100);
    fake->kernel(FMA, 7, 0, 0); /* a record without a stamp */
    ha_cuda_trace_set(&device, NULL);
    assert_int_equal(spans.count, 2 + 1);
    assert_int_equal(ha_cuda_trace_lost(&device), 1);
    spans.count = 0;
    begin_trace();
    enqueue(&stream[0], &attend, 2); /* a kernel without a record, */
    enqueue(&stream[0], &merge, 1);  /* and what follows it is not known, */
    enqueue(&stream[1], &merge, 1);  /* but on another stream it is */
    fake->lose = 2;
    kernel(FMA, 7, 1000, 1100);
    kernel(COMBINE, 7, 1200, 1300);
    kernel(MERGE, 7, 1400, 1500);
    kernel(MERGE, 8, 1400, 1500);
    ha_cuda_trace_set(&device, NULL);
    assert_int_equal(spans.count, 3 + 1);
    assert_string_equal(spans.span[3].lane, "stream b");
    assert_int_equal(ha_cuda_trace_lost(&device), 1 + 3);
    begin_trace();
    run_kernel(&stream[0], &merge, MERGE, 7, 1000, 1100);
    kernel(MERGE, 7, 1200, 1300);      /* of an operation that nobody knows */
    fake->kernel(MERGE, 99, 100, 200); /* by another clock, and not ours, but who knows */
    ha_cuda_trace_set(&device, NULL);
    assert_int_equal(ha_cuda_trace_lost(&device), 1 + 3 + 1);
}

/* From create to ready: kinds are enabled once before anything is timed, and what ran meanwhile must have been seen. */
TEST_WITH(a_meter_that_sees_nothing, with_cupti, close_trace)
{
    for (int forced = 0; forced < 2; forced++)
        for (size_t seen = 0; seen < 3; seen++) {
            struct ha_why why = { "" };
            ha_cuda_trace_destroy(device.trace);
            if (forced) setenv("HABENCH_TRACE", "cupti", 1);
            fake->ever = 0;
            assert_int_equal(ha_cuda_trace_create(&device.trace, &device, &why), HA_OK);
            assert_true(fake->enabled == fake->ever && fake->enabled != 0);
            warm_up(seen);
            const enum ha_status status = ha_cuda_trace_ready(device.trace, 2, &why);
            assert_true(fake->enabled == 0);
            assert_int_equal(status, seen < 2 && forced ? HA_ERROR : HA_OK);
            if (forced && seen < 2) assert_non_null(strstr(why.text, "of the 2 kernels that ran"));
            else assert_string_equal(ha_cuda_trace_source(&device), seen < 2 ? "CUDA events" : "CUPTI");
        }
}

/* A declared fallback where CUPTI was not asked for; where it was, an error. */
TEST_WITH(a_meter_that_fails, with_cupti, close_trace)
{
    fake->fail_kind = 10;
    ha_cuda_trace_set(&device, &sink);
    assert_string_equal(ha_cuda_trace_source(&device), "CUDA events");
    for (size_t i = 0; i < 2; i++) stream[i].cuda = &queue[i];
    run(&stream[0], &merge, 1000);
    ha_cuda_trace_set(&device, NULL);
    assert_int_equal(spans.count, 2);
    assert_false(device.failed);
    ha_cuda_trace_destroy(device.trace);
    fake->fail_kind = 0;
    setenv("HABENCH_TRACE", "cupti", 1);
    open_trace();
    fake->fail_kind = 10;
    ha_cuda_trace_set(&device, &sink);
    assert_true(device.failed);
    assert_non_null(strstr(device.failure, "error 35, insufficient privileges"));
    assert_null(ha_cuda_span_begin(&stream[0], &merge));
    ha_cuda_trace_set(&device, NULL);
}

TEST_WITH(a_trace_that_is_on_at_the_end, with_cupti, close_trace)
{
    ha_cuda_trace_set(&device, &sink);
    ha_cuda_trace_destroy(device.trace);
    assert_true(fake->enabled == 0);
    open_trace();
    ha_cuda_trace_destroy(device.trace); /* and one that did not come to be ready */
    struct ha_why why;
    assert_int_equal(ha_cuda_trace_create(&device.trace, &device, &why), HA_OK);
    ha_cuda_trace_destroy(device.trace);
    assert_true(fake->enabled == 0);
    open_trace();
}

TEST(what_is_asked_for)
{
    static const struct {
        const char *trace, *cupti, *says;
        enum ha_status status;
    } cases[] = {
        { "cupit", "off", "neither cupti nor events", HA_ERROR },
        { "cupti", "off", "off (HABENCH_CUPTI)", HA_ERROR },
        { "cupti", "/nowhere/libcupti.so", "No such file", HA_ERROR },
        { "", "/nowhere/libcupti.so", "No such file", HA_ERROR },
        { "events", "/nowhere/libcupti.so", "CUDA events", HA_OK },
        { "", "off", "CUDA events", HA_OK },
#ifdef HA_CUDA_EMULATED
        { "", "", "CUDA events", HA_OK },
        { "cupti", "", "an emulated device has none", HA_ERROR },
#endif
        { "cupti", "fake_cupti.so", "CUPTI", HA_OK },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ha_why why = { "" };
        setenv("HABENCH_TRACE", cases[i].trace, 1);
        setenv("HABENCH_CUPTI", strncmp(cases[i].cupti, "fake", 4) ? cases[i].cupti : beside(cases[i].cupti), 1);
        device = (struct ha_device){ .lock = PTHREAD_MUTEX_INITIALIZER };
        assert_int_equal(ha_cuda_trace_create(&device.trace, &device, &why), cases[i].status);
        if (cases[i].status == HA_OK) assert_int_equal(ha_cuda_trace_ready(device.trace, 0, &why), HA_OK);
        const char *text = cases[i].status == HA_OK ? ha_cuda_trace_source(&device) : why.text;
        if (!strstr(text, cases[i].says)) fail_msg("'%s' lacks '%s'", text, cases[i].says);
        if (cases[i].status == HA_OK) ha_cuda_trace_destroy(device.trace);
    }
}

static int not_forever(void **state) { return alarm(300) != 0; }

TEST_MAIN { return test_all("tests", not_forever, NULL); }
