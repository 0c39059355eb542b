/* Spans against what was asked for and against the host's clock, by hand. */

#include "harness/base/test.h"
#include "harness/measure/meter.h"
#include "harness/measure/spans.h"

#include <math.h>

static struct ha_timeline *timeline;
static struct ha_why why;
static int begin(void **state) { return ha_timeline_create(&timeline, &why) == HA_OK ? 0 : -1; }
static int end(void **state)
{
    ha_timeline_destroy(timeline);
    return 0;
}

enum { US = 1000, CALLS = 8, LONG_US = 100 };
static const struct ha_spans_asked asked = { .attend = CALLS,
                                             .clocks = true,
                                             .h2d_bytes = { 4096, 8192 },
                                             .traced = { 1000 * US, 3000 * US },
                                             .busy = { 2000 * US, 2800 * US } };

static void say(enum ha_span_kind kind, const char *lane, const char *name, size_t begin_us, size_t end_us,
                size_t bytes)
{
    const struct ha_span_sink *sink = ha_timeline_sink(timeline, HA_FROM_DEVICE);
    const struct ha_span s = { begin_us * US, end_us * US, bytes, 0, kind, lane, name, 0 };
    sink->span(sink->self, &s);
}

/* Eight kernels one behind the other, each for a share of its 100 us, and a copy. */
static void say_all(size_t kernels, size_t us, size_t copied)
{
    ha_timeline_clear(timeline);
    for (size_t i = 0; i < kernels; i++)
        say(HA_SPAN_KERNEL, "stream a", "attend", 2000 + i * LONG_US, 2000 + i * LONG_US + us, 0);
    say(HA_SPAN_H2D, "link", "copy", 1500, 1600, copied);
}

static enum ha_status judge(const struct ha_spans_asked *a, double *unexplained)
{
    double unused;
    return ha_spans_judge(timeline, a, unexplained ? unexplained : &unused, &why);
}

TEST_WITH(spans_that_agree, begin, end)
{
    double unexplained;
    say_all(CALLS, LONG_US, 4096);
    assert_int_equal(judge(&asked, &unexplained), HA_OK);
    assert_true(unexplained == 0);
    say_all(CALLS, LONG_US - 9, 8192); /* the time of a launch between them */
    assert_int_equal(judge(&asked, &unexplained), HA_OK);
    assert_true(unexplained == 0);
    say_all(CALLS, LONG_US / 4, 8192);
    for (size_t i = 0; i < CALLS; i++) /* what waits is explained */
        say(HA_SPAN_WAIT, "stream a", "flag_wait", 2025 + i * LONG_US, 2000 + (i + 1) * LONG_US, 0);
    assert_int_equal(judge(&asked, &unexplained), HA_OK);
    assert_true(unexplained == 0);
    say_all(CALLS / 2, LONG_US, 8192); /* and a thread that lost its core once is no sign */
    for (size_t i = CALLS / 2; i < CALLS; i++) say(HA_SPAN_KERNEL, "stream a", "attend", 2786 + i, 2787 + i, 0);
    assert_int_equal(judge(&asked, &unexplained), HA_OK);
    assert_true(unexplained < 0.01);
}

/* Waits that are called work, work that nobody asked for, copies that were put together, an early enqueueing. */
TEST_WITH(what_was_not_asked_for, begin, end)
{
    struct ha_spans_asked more = asked;
    more.called = UINT64_C(1) << HA_OPERATION_attend;
    more.up = 1;
    say_all(CALLS, LONG_US, 4096);
    assert_int_equal(judge(&more, NULL), HA_OK);
    more.up = 2;
    assert_int_equal(judge(&more, NULL), HA_FAIL);
    assert_contains(why.text, "2 copies to the device were asked for while the device was traced, and 1 have a span");
    more.up = 1;
    more.down = 1;
    assert_int_equal(judge(&more, NULL), HA_FAIL);
    more.down = 0;
    more.called = UINT64_C(1) << HA_OPERATION_merge;
    assert_int_equal(judge(&more, NULL), HA_FAIL);
    assert_contains(why.text, "a kernel 'attend', which was not called");
    more.called = asked.called;
    const struct ha_span_sink *sink = ha_timeline_sink(timeline, HA_FROM_DEVICE);
    struct ha_span s = { 2000 * US, 2100 * US, 0, 0, HA_SPAN_WAIT, "stream b", "flag_wait", 901 * US };
    sink->span(sink->self, &s);
    assert_int_equal(judge(&more, NULL), HA_OK);
    s.enqueue_ns = 899 * US;
    sink->span(sink->self, &s);
    assert_int_equal(judge(&more, NULL), HA_FAIL);
    assert_contains(why.text, "it was enqueued -0.101 ms after the trace began");
}

TEST_WITH(kernels_that_are_cut_leave_time_unexplained, begin, end)
{
    struct ha_spans_asked none = asked;
    double unexplained;
    say_all(CALLS, LONG_US / 4, 4096);
    assert_int_equal(judge(&asked, &unexplained), HA_OK);
    assert_true(fabs(unexplained - 0.75) < 1e-9);
    none.busy.end_ns = none.busy.begin_ns + 499 * US; /* too short to tell */
    assert_int_equal(judge(&none, &unexplained), HA_OK);
    assert_true(isnan(unexplained));
    ha_timeline_clear(timeline); /* one behind the other */
    for (size_t i = 0; i < CALLS; i++) say(HA_SPAN_KERNEL, "stream a", "attend", 2000 + i * 25, 2025 + i * 25, 0);
    say(HA_SPAN_H2D, "link", "copy", 1500, 1600, 4096);
    assert_int_equal(judge(&asked, &unexplained), HA_OK);
    assert_true(fabs(unexplained - 0.75) < 1e-9);
}

TEST_WITH(contradictions_are_said, begin, end)
{
    struct ha_spans_asked more = asked;
    say_all(CALLS - 1, LONG_US, 4096);
    assert_int_equal(judge(&asked, NULL), HA_FAIL);
    assert_contains(why.text, "attend was called 8 times while the device was traced, and has 7 spans");
    for (size_t bytes = 4095; bytes <= 8193; bytes += 8193 - 4095) {
        say_all(CALLS, LONG_US, bytes);
        assert_int_equal(judge(&asked, NULL), HA_FAIL);
        assert_contains(why.text, "bytes were copied to the device");
    }
    more.merge = 1;
    say_all(CALLS, LONG_US, 4096);
    assert_int_equal(judge(&more, NULL), HA_FAIL);
    say(HA_SPAN_WAIT, "stream a", "merge", 2850, 2900, 0); /* no kernel */
    assert_int_equal(judge(&more, NULL), HA_FAIL);
    say(HA_SPAN_KERNEL, "stream a", "merge", 2900, 2950, 0);
    assert_int_equal(judge(&more, NULL), HA_OK);
}

TEST_WITH(spans_beside_the_trace_or_one_another, begin, end)
{
    say_all(CALLS, LONG_US, 4096);
    say(HA_SPAN_KERNEL, "stream b", "attend", 2000, 2400, 0); /* streams run side by side */
    assert_int_equal(judge(&asked, NULL), HA_OK);
    say(HA_SPAN_KERNEL, "stream a", "attend", 2050, 2350, 0);
    assert_int_equal(judge(&asked, NULL), HA_FAIL);
    assert_contains(why.text, "at the same time");
    say_all(CALLS, LONG_US, 4096);
    say(HA_SPAN_KERNEL, "stream b", "attend", 4000, 5002, 0);
    assert_int_equal(judge(&asked, NULL), HA_FAIL);
    assert_contains(why.text, "a span of attend lasts from 3.000 ms");
}
