/* Spans as events of a trace: those of the window, in microseconds from its begin, a lane for each of their names. */

#define _GNU_SOURCE /* asprintf */
#include "harness/report/perfetto.h"

#include "harness/base/test.h"

#include <jansson.h>

static struct ha_timeline *timeline;
static struct ha_why why;

static void put(enum ha_span_kind kind, const char *lane, const char *name, uint64_t begin_ns, uint64_t end_ns)
{
    const struct ha_span_sink *sink = ha_timeline_sink(timeline, HA_FROM_DEVICE);
    sink->span(sink->self,
               &(struct ha_span){ .kind = kind, .lane = lane, .name = name, .begin_ns = begin_ns, .end_ns = end_ns });
}

/* The events of [1000, 9000); is to be freed. */
static json_t *events(void)
{
    char *text, *all;
    size_t bytes;
    json_error_t error;
    const struct ha_interval window = { 1000, 9000 };
    if (ha_perfetto_events(&text, &bytes, timeline, window, &why) != HA_OK) fail_msg("%s", why.text);
    assert_int_equal(bytes, strlen(text));
    assert_true(asprintf(&all, "[%s]", text) > 0);
    json_t *j = json_loads(all, 0, &error);
    if (!j) fail_msg("%s", error.text);
    free(text), free(all);
    return j;
}

static int make(void **state) { return ha_timeline_create(&timeline, &why) != HA_OK; }
static int unmake(void **state)
{
    ha_timeline_destroy(timeline);
    return 0;
}

static const char *text_of(const json_t *e, const char *name) { return json_string_value(json_object_get(e, name)); }
static double number_of(const json_t *e, const char *name) { return json_number_value(json_object_get(e, name)); }

TEST_WITH(spans_of_the_window_are_events, make, unmake)
{
    static const struct {
        enum ha_span_kind kind;
        const char *lane, *name;
        uint64_t begin_ns, end_ns;
        double tid, ts, dur; /* tid 0: it is none of the window */
        const char *cat;
    } each[] = {
        { HA_SPAN_KERNEL, "main", "attend", 2000, 3500, 2, 1, 1.5, "kernel" },
        { HA_SPAN_H2D, "main", "copy", 2000, 3000, 3, 1, 1, "h2d" },
        { HA_SPAN_KERNEL, "main", "early", 0, 1001, 2, -1, 1.001, "kernel" },
        { HA_SPAN_KERNEL, "main", "late", 8999, 12000, 2, 7.999, 3.001, "kernel" },
        { HA_SPAN_D2H, "other", "copy", 4000, 5000, 4, 3, 1, "d2h" },
        { HA_SPAN_CPU, NULL, "a \"task\"\n", 4000, 5000, 5, 3, 1, "cpu" },
        { HA_SPAN_KERNEL, "main", "before", 0, 1000, 0, 0, 0, NULL },
        { HA_SPAN_KERNEL, "third", "behind", 9000, 9001, 0, 0, 0, NULL },
    };
    static const char *const lanes[] = { "step", "main", "link host to device", "link device to host", "device" };
    for (size_t i = 0; i < COUNT(each); i++)
        put(each[i].kind, each[i].lane, each[i].name, each[i].begin_ns, each[i].end_ns);
    json_t *all = events(), *e;
    size_t at, named = 0, seen = 0;
    json_array_foreach(all, at, e)
    {
        if (!strcmp(text_of(e, "ph"), "M")) { /* ahead of the lane's first event */
            assert_true(named < COUNT(lanes) && number_of(e, "tid") == (double)named + 1);
            assert_string_equal(text_of(json_object_get(e, "args"), "name"), lanes[named++]);
            continue;
        }
        if (number_of(e, "tid") == 1) { /* the window itself */
            assert_true(number_of(e, "ts") == 0 && number_of(e, "dur") == 8);
            continue;
        }
        assert_true(seen < COUNT(each) && number_of(e, "tid") == each[seen].tid);
        assert_true(number_of(e, "ts") == each[seen].ts && number_of(e, "dur") == each[seen].dur);
        assert_string_equal(text_of(e, "cat"), each[seen].cat);
        assert_string_equal(text_of(e, "name"), each[seen].name);
        seen++;
    }
    assert_int_equal(seen, 6);
    assert_int_equal(named, COUNT(lanes));
    json_decref(all);
}

/* A copy is the link's, whoever asked for it; what a thread stores is in the lane of the thread. */
TEST_WITH(stores_stay_in_their_lane, make, unmake)
{
    const struct ha_span_sink *pool = ha_timeline_sink(timeline, HA_FROM_POOL);
    const struct ha_span stored = {
        .kind = HA_SPAN_H2D, .lane = "cpu 0", .name = "store", .bytes = 7, .begin_ns = 2000, .end_ns = 3000
    };
    pool->span(pool->self, &stored);
    const struct ha_span copied = {
        .kind = HA_SPAN_H2D, .lane = "main", .name = "copy", .begin_ns = 2000, .end_ns = 3000, .enqueue_ns = 500
    };
    const struct ha_span_sink *of_device = ha_timeline_sink(timeline, HA_FROM_DEVICE);
    of_device->span(of_device->self, &copied);
    json_t *all = events();
    assert_int_equal(json_array_size(all), 2 + 2 + 2);
    assert_null(json_object_get(json_object_get(json_array_get(all, 3), "args"), "enqueued_us"));
    assert_true(number_of(json_object_get(json_array_get(all, 5), "args"), "enqueued_us") == -0.5);
    assert_string_equal(text_of(json_object_get(json_array_get(all, 2), "args"), "name"), "cpu 0");
    assert_string_equal(text_of(json_array_get(all, 3), "cat"), "h2d");
    assert_true(number_of(json_object_get(json_array_get(all, 3), "args"), "bytes") == 7);
    assert_string_equal(text_of(json_object_get(json_array_get(all, 4), "args"), "name"), "link host to device");
    json_decref(all);
}

/* More lanes than are told apart: the last ones are left out. */
TEST_WITH(lanes_may_be_too_many, make, unmake)
{
    enum { LANES = 600, MOST = 512 };
    static char lane[LANES][8];
    for (size_t i = 0; i < LANES; i++) {
        snprintf(lane[i], sizeof lane[i], "%zu", i);
        put(HA_SPAN_KERNEL, lane[i], "x", 2000, 3000);
    }
    put(HA_SPAN_KERNEL, lane[MOST - 2], "x", 2000, 3000);
    json_t *all = events();
    assert_int_equal(json_array_size(all), 2 * MOST + 1); /* a name and a span for each, and one span more */
    json_decref(all);
}
