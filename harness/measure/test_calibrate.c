/* The calibration, shown devices whose meters lie: the embedded one, with what it tells changed on the way. */

#include "harness/measure/calibrate.h"
#include "harness/measure/test_host.h"

#include <math.h>

static struct {
    double up, down;           /* factors of what spans say: bytes each way */
    uint64_t apart_ns;         /* the first half of the copies seems so much too early, the rest too late */
    double length;             /* and time: of what was asked, however long this host took; 0: the time it took */
    size_t drop_each;          /* every n-th span is not told */
    uint64_t lost;             /* more, whenever it is asked */
    bool busy_when_idle, real; /* a span of nothing; not a stand-in */
    double link_rx_GBps;
} lie;
static struct ha_device_api liar;
static struct ha_span_sink real_sink;
static size_t told, copies_told, spins_told, spins_short; /* short: its real span is shorter than what was asked for */
static uint64_t asked_ns;                                 /* of the last spin */

static enum ha_status spin(struct ha_stream *s, uint64_t ns)
{
    __atomic_store_n(&asked_ns, ns, __ATOMIC_RELAXED);
    return host->spin(s, ns);
}

static void tell(void *self, const struct ha_span *span)
{
    struct ha_span s = *span;
    const uint64_t asked = __atomic_load_n(&asked_ns, __ATOMIC_RELAXED);
    if (lie.drop_each && __atomic_add_fetch(&told, 1, __ATOMIC_RELAXED) % lie.drop_each == 0) return;
    s.bytes = (uint64_t)((double)s.bytes * (s.kind == HA_SPAN_H2D ? lie.up : lie.down));
    if (s.kind == HA_SPAN_H2D || s.kind == HA_SPAN_D2H) {
        const bool first = __atomic_add_fetch(&copies_told, 1, __ATOMIC_RELAXED) <= 64;
        s.begin_ns += first ? -lie.apart_ns : lie.apart_ns;
        s.end_ns += first ? -lie.apart_ns : lie.apart_ns;
    }
    if (s.kind == HA_SPAN_KERNEL) {
        __atomic_add_fetch(&spins_told, 1, __ATOMIC_RELAXED);
        if (s.end_ns - s.begin_ns < asked) __atomic_add_fetch(&spins_short, 1, __ATOMIC_RELAXED);
        if (lie.length > 0) s.end_ns = s.begin_ns + (uint64_t)((double)asked * lie.length);
    }
    real_sink.span(real_sink.self, &s);
}

static void trace(struct ha_device *dev, const struct ha_span_sink *sink)
{
    static const struct ha_span_sink mine = { NULL, tell };
    if (sink) real_sink = *sink;
    host->trace(dev, sink ? &mine : NULL);
    if (sink || !lie.busy_when_idle) return;
    struct ha_span none = { .begin_ns = 1, .end_ns = UINT64_MAX / 2, .kind = HA_SPAN_KERNEL, .lane = "x", .name = "x" };
    real_sink.span(real_sink.self, &none);
}

static void info(struct ha_device *dev, struct ha_device_info *out)
{
    static uint64_t lost;
    host->info(dev, out);
    out->spans_lost = lost += lie.lost;
    if (lie.real) out->compute_threads = 0;
}

static void meters(struct ha_device *dev, struct ha_device_meters *out)
{
    out->link_rx_GBps = out->want_link_GBps ? lie.link_rx_GBps : (double)NAN;
    out->sm_clock_MHz = 1755;
}

static int open_liar(void **state)
{
    memset(&lie, 0, sizeof lie);
    lie.up = lie.down = 1;
    open_host(state);
    liar = *host;
    liar.trace = trace;
    liar.spin = spin;
    liar.info = info;
    return 0;
}

static const char *text; /* of the last one */

static enum ha_status calibrate(void)
{
    struct ha_ceilings c = { .meters = ha_meters_read(&liar, device, false) };
    FILE *out = test_print();
    for (int i = 0; i < HA_CEILINGS; i++) c.of[i] = (struct ha_reading){ 2, 2, 2, 1 };
    enum ha_status status = ha_calibrate(out, &liar, device, &c, &why);
    if (status != HA_OK) fputs(why.text, out);
    text = test_printed();
    return status;
}

/* It is noticed, in the line of that name. */
static void noticed(const char *line)
{
    assert_int_equal(calibrate(), HA_ERROR);
    const char *at = strstr(text, line);
    if (!at || !strstr(at, "WRONG") || memchr(at, '\n', (size_t)(strstr(at, "WRONG") - at)))
        fail_msg("no WRONG in line '%s' of\n%s", line, text);
    assert_non_null(strstr(text, "its meters are off"));
}

static const char *const duties[] = { "busy for 10% of the time             ok: spans say 10.00% of 10.00%",
                                      "busy for 50% of the time             ok: spans say 50.00% of 50.00%",
                                      "busy for 90% of the time             ok: spans say 90.00% of 90.00%" };

/* Spins that took as long as was asked, as they do where nothing else uses the cores; those of a busy host take longer,
 * never less. */
TEST_WITH(a_device_that_tells_the_truth, open_liar, close_host)
{
    lie.length = 1;
    spins_told = spins_short = 0;
    if (calibrate() != HA_OK) fail_msg("%s", text);
    assert_null(strstr(text, "WRONG"));
    assert_non_null(strstr(text, "link counters, host to device        -: not readable"));
    for (size_t i = 0; i < COUNT(duties); i++) assert_non_null(strstr(text, duties[i]));
    assert_true(spins_told > 0 && spins_short == 0);
}

TEST_WITH(bytes_that_are_off_by_a_little, open_liar, close_host)
{
    lie.up = 1.002;
    noticed("bytes in the spans");
    lie.up = 1;
    lie.down = 0.998;
    noticed("bytes in the spans");
}

/* A clock that is carried from the device's to the host's is off by some microseconds: no copy is cut off by it. */
TEST_WITH(copies_that_seem_early_or_late, open_liar, close_host)
{
    lie.length = 1;
    lie.apart_ns = 40000;
    copies_told = 0;
    if (calibrate() != HA_OK) fail_msg("%s", text);
}

TEST_WITH(stretched_spans, open_liar, close_host)
{
    lie.length = 1.04;
    noticed("busy for 50%");
    noticed("busy for 90%");
    lie.length = 0.96;
    noticed("busy for 90%");
}

TEST_WITH(missing_spans, open_liar, close_host)
{
    lie.length = 1;
    lie.drop_each = 2; /* some of every window, however few spins it has */
    noticed("busy for 50%");
    lie.real = true; /* judged over the whole window then */
    noticed("busy for 90%");
}

TEST_WITH(an_idle_device_that_seems_busy, open_liar, close_host)
{
    lie.busy_when_idle = true;
    noticed("empty window");
}

TEST_WITH(lost_spans_end_it, open_liar, close_host)
{
    lie.lost = 3;
    assert_int_equal(calibrate(), HA_ERROR);
    assert_non_null(strstr(text, "the device lost"));
}

TEST_WITH(what_it_lacks_is_said, open_liar, close_host)
{
    liar.spin = NULL;
    liar.meters = meters;
    lie.link_rx_GBps = 2.25;
    if (calibrate() != HA_OK) fail_msg("%s", text);
    assert_non_null(strstr(text, "busy for 50% of the time             -: the device has no spin"));
    assert_non_null(strstr(text, "link counters, host to device        2.2 GB/s while 2.0 GB/s were copied"));
    assert_non_null(strstr(text, "SM clock under load                  1755 MHz"));
}
