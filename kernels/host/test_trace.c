/* Spans: one for each operation, in lanes that do one thing at a time, with the bytes that moved. */

#include "kernels/host/test_support.h"

#include "harness/base/clock.h"

#include <time.h>

enum { SPANS_MAX = 4096 };

struct spans {
    pthread_mutex_t lock;
    size_t count;
    struct ha_span span[SPANS_MAX];
};

static void spans_add(void *self, const struct ha_span *span)
{
    struct spans *s = self;
    pthread_mutex_lock(&s->lock);
    if (s->count < SPANS_MAX) s->span[s->count++] = *span;
    pthread_mutex_unlock(&s->lock);
}

static struct spans spans = { .lock = PTHREAD_MUTEX_INITIALIZER };
static const struct ha_span_sink sink = { &spans, spans_add };

static int by_lane_and_time(const void *a, const void *b)
{
    const struct ha_span *x = a, *y = b;
    int lane = strcmp(x->lane, y->lane);
    return lane ? lane : (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* Also sorts them. */
static void assert_well_formed(uint64_t from, uint64_t to)
{
    qsort(spans.span, spans.count, sizeof *spans.span, by_lane_and_time);
    for (size_t i = 0; i < spans.count; i++) {
        const struct ha_span *s = &spans.span[i];
        assert_true(from <= s->begin_ns && s->begin_ns <= s->end_ns && s->end_ns <= to);
        if (i > 0 && !strcmp(s->lane, s[-1].lane)) assert_true(s[-1].end_ns <= s->begin_ns);
    }
}

static const struct ha_span *find(const char *lane, const char *name)
{
    for (size_t i = 0; i < spans.count; i++)
        if (!strcmp(spans.span[i].lane, lane) && !strcmp(spans.span[i].name, name)) return &spans.span[i];
    fail_msg("no span '%s' in lane '%s'", name, lane);
    return NULL;
}

static void nap(void *arg) { nanosleep(&(struct timespec){ 0, *(long *)arg }, NULL); }

TEST(every_operation_gives_its_span)
{
    enum { N = 256, DIM = 4, KEYS = 3 };
    struct ha_device *dev = device_open(0);
    struct ha_stream *a = device_stream(dev, "a"), *b = device_stream(dev, "b");
    struct ha_event *e = device_event(dev);
    float *d = device_alloc(dev, HA_MEM_DEVICE, N * sizeof *d), *m = device_alloc(dev, HA_MEM_MAPPED, N * sizeof *m);
    float *h = device_alloc(dev, HA_MEM_PINNED, N * sizeof *h);
    uint32_t *flag = device_alloc(dev, HA_MEM_MAPPED, sizeof *flag);
    long two_ms = 2000000;
    for (size_t i = 0; i < N; i++) h[i] = m[i] = (float)i / N;
    *flag = 0;

    ok(api->copy(a, d, h, 64, HA_H2D)); /* before tracing: no span */
    spans.count = 0;
    uint64_t from = ha_now_ns();
    api->trace(dev, &sink);
    ok(api->copy(a, d, h, N * sizeof *d, HA_H2D));
    ok(api->copy_2d(a, d + 128, 32, d, 16, 16, 4, HA_D2D));
    ok(api->copy(a, h, d, 100, HA_D2H));
    ok(api->host_fn(a, nap, &two_ms));
    ok(api->event_record(e, a));
    ok(api->stream_wait(b, e));
    ok(api->flag_write(b, flag, 1));
    ok(api->flag_wait(a, flag, 1));
    ok(api->blend(a, &(struct ha_device_blend){ d, m, 2, 5, 8, 8, 0, 1 }));
    ok(api->blend(a, &(struct ha_device_blend){ m, d, 2, 5, 8, 8, 1, 1 }));
    struct ha_merge_state states[] = {
        { .o = d, .lse = d + 64, .o_token_stride = 2 * DIM, .o_head_stride = DIM,
          .lse_token_stride = 2, .lse_head_stride = 1 },
        { .o = m, .lse = m + 64, .o_token_stride = 2 * DIM, .o_head_stride = DIM,
          .lse_token_stride = 2, .lse_head_stride = 1 },
    }, out = states[0];
    out.o = d + 128;
    out.lse = d + 192;
    ok(api->merge(
        a, &(struct ha_merge){ .states = states, .states_count = 2, .tokens = 3, .heads = 2, .dim = DIM, .out = out }));
    struct ha_device_seq seq = { .q = d,
                                 .runs = { { d, m, 16, 16, NULL, KEYS }, { m, m, 16, 16, NULL, 1 } },
                                 .runs_count = 2,
                                 .o = d + 32,
                                 .lse = m + 128 };
    ok(api->attend(
        a, &(struct ha_device_attend){
               .batch = 1, .q_len = 1, .q_heads = 2, .kv_heads = 1, .head_dim = DIM, .scale = 1, .seqs = &seq }));
    ok(api->stream_sync(a));
    ok(api->stream_sync(b));
    uint64_t to = ha_now_ns();
    api->trace(dev, NULL);
    ok(api->copy(a, d, h, 64, HA_H2D)); /* after tracing */
    ok(api->stream_sync(a));

    assert_int_equal(spans.count, 11);
    assert_well_formed(from, to);
    static const struct {
        const char *lane, *name;
        enum ha_span_kind kind;
        uint64_t bytes, zero_copy_bytes;
    } want[] = {
        { "link H2D", "copy H2D", HA_SPAN_H2D, 1024, 0 },
        { "link D2H", "copy D2H", HA_SPAN_D2H, 100, 0 },
        { "stream a", "copy_2d D2D", HA_SPAN_D2D, 64, 0 },
        { "stream a", "host_fn", HA_SPAN_CPU, 0, 0 },
        { "stream a", "flag_wait", HA_SPAN_WAIT, 0, 0 },
        { "stream a", "blend", HA_SPAN_KERNEL, 0, 40 },
        { "stream a", "merge", HA_SPAN_KERNEL, 0, 6 * (DIM + 1) * 4 },
        { "stream a", "attend", HA_SPAN_KERNEL, 0, (KEYS + 2) * DIM * 4 },
        { "stream b", "stream_wait", HA_SPAN_WAIT, 0, 0 },
        { "stream b", "flag_write", HA_SPAN_WAIT, 0, 0 },
    };
    for (size_t i = 0; i < COUNT(want); i++) {
        const struct ha_span *s = find(want[i].lane, want[i].name);
        assert_int_equal(s->kind, want[i].kind);
        assert_int_equal(s->bytes, want[i].bytes);
        assert_int_equal(s->zero_copy_bytes, want[i].zero_copy_bytes);
    }
    const struct ha_span *slept = find("stream a", "host_fn"), *waited = find("stream b", "stream_wait");
    assert_true(slept->end_ns - slept->begin_ns >= (uint64_t)two_ms);
    assert_true(waited->end_ns >= slept->end_ns);
    assert_true(find("stream a", "flag_wait")->end_ns >= waited->end_ns);

    device_close(dev, NULL);
}

/* Copies of one direction take turns, whatever stream they come from; the other direction does not wait. */
TEST(the_link_is_one_for_each_direction)
{
    enum { STREAMS = 3, EACH = 20, BYTES = 1 << 18 };
    static const char *const name[STREAMS] = { "a", "b", "c" };
    struct ha_device *dev = device_open(0);
    struct ha_stream *s[STREAMS];
    char *d[STREAMS], *h[STREAMS];
    for (size_t i = 0; i < STREAMS; i++) {
        s[i] = device_stream(dev, name[i]);
        d[i] = device_alloc(dev, HA_MEM_DEVICE, 2 * BYTES);
        h[i] = device_alloc(dev, HA_MEM_PINNED, 2 * BYTES);
    }
    spans.count = 0;
    uint64_t from = ha_now_ns();
    api->trace(dev, &sink);
    for (size_t n = 0; n < EACH; n++)
        for (size_t i = 0; i < STREAMS; i++) {
            ok(api->copy(s[i], d[i], h[i], BYTES, HA_H2D));
            ok(api->copy(s[i], h[i] + BYTES, d[i] + BYTES, BYTES, HA_D2H));
        }
    api->trace(dev, NULL); /* returns with the last span */
    assert_int_equal(spans.count, 2 * STREAMS * EACH);
    assert_well_formed(from, ha_now_ns());
    size_t up = 0, down = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < spans.count; i++) {
        up += !strcmp(spans.span[i].lane, "link H2D");
        down += !strcmp(spans.span[i].lane, "link D2H");
        bytes += spans.span[i].bytes;
    }
    assert_int_equal(up, STREAMS * EACH);
    assert_int_equal(down, STREAMS * EACH);
    assert_int_equal(bytes, (uint64_t)2 * STREAMS * EACH * BYTES);
    device_close(dev, NULL);
}

TEST(tracing_ends_on_a_failed_device)
{
    struct ha_device *dev = device_open(10000000);
    struct ha_stream *s = device_stream(dev, "main");
    uint32_t *flag = device_alloc(dev, HA_MEM_MAPPED, sizeof *flag);
    long one_us = 1000;
    *flag = 0;
    spans.count = 0;
    api->trace(dev, &sink);
    ok(api->flag_wait(s, flag, 1));
    for (int i = 0; i < 10; i++) ok(api->host_fn(s, nap, &one_us));
    api->trace(dev, NULL);
    assert_int_equal(spans.count, 1); /* what was dropped did not happen */
    assert_string_equal(spans.span[0].name, "flag_wait");
    device_close(dev, "stream main: flag_wait");
}

int main(void)
{
    device_test_begin();
    return test_all("host: trace", NULL, NULL);
}
