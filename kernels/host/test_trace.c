/* Spans: one for each operation, in lanes that do one thing at a time, with the bytes that moved. */

#include "kernels/host/test_fixture.h"

#include "harness/base/clock.h"
#include "harness/base/test_spans.h"

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

static void nap_there(void *arg) { nap(*(long *)arg); }

DEVICE_TEST(every_operation_gives_its_span)
{
    enum { N = 256, DIM = 4, KEYS = 3, ROWS = 4 };
    struct ha_stream *b = device_stream(dev, "b");
    struct ha_event *e = device_event(dev);
    float *d = device_alloc(dev, HA_MEM_DEVICE, N * sizeof *d), *m = device_alloc(dev, HA_MEM_MAPPED, N * sizeof *m);
    float *h = device_alloc(dev, HA_MEM_PINNED, N * sizeof *h), pageable[N] = { 0 };
    uint32_t *flag = device_alloc(dev, HA_MEM_MAPPED, sizeof *flag);
    uint32_t *up = device_alloc(dev, HA_MEM_MAPPED, ROWS * sizeof *up),
             *down = device_alloc(dev, HA_MEM_DEVICE, ROWS * sizeof *down);
    long two_ms = 2000000;
    for (size_t i = 0; i < N; i++) h[i] = m[i] = (float)i / N;
    for (uint32_t i = 0; i < ROWS; i++) up[i] = down[i] = ROWS - 1 - i;
    *flag = 0;

    ok(api->copy(stream, d, h, 64, HA_H2D)); /* before tracing: no span */
    spans.count = 0;
    uint64_t from = ha_now_ns();
    api->trace(dev, &sink);
    ok(api->copy(stream, d, h, N * sizeof *d, HA_H2D));
    ok(api->copy_2d(stream, d + 128, 32, d, 16, 16, 4, HA_D2D));
    ok(api->copy(stream, h, d, 100, HA_D2H));
    ok(api->host_fn(stream, nap_there, &two_ms));
    ok(api->event_record(e, stream));
    ok(api->stream_wait(b, e));
    ok(api->flag_write(b, flag, 1));
    ok(api->flag_wait(stream, flag, 1));
    ok(api->blend(stream, &(struct ha_device_blend){ d, m, 2, 5, 8, 8, 0, 1 }));
    ok(api->blend(stream, &(struct ha_device_blend){ m, d, 2, 5, 8, 8, 1, 1 }));
    struct ha_merge_state states[] = {
        { .o = d, .lse = d + 64, .o_token_stride = 2 * DIM, .o_head_stride = DIM,
          .lse_token_stride = 2, .lse_head_stride = 1 },
        { .o = m, .lse = m + 64, .o_token_stride = 2 * DIM, .o_head_stride = DIM,
          .lse_token_stride = 2, .lse_head_stride = 1 },
    }, out = states[0];
    out.o = d + 128;
    out.lse = d + 192;
    ok(api->merge(stream, &(struct ha_merge){
                              .states = states, .states_count = 2, .tokens = 3, .heads = 2, .dim = DIM, .out = out }));
    struct ha_device_seq seq = { .q = d,
                                 .runs = { { d, m, 16, 16, NULL, KEYS }, { m, m, 16, 16, NULL, 1 } },
                                 .runs_count = 2,
                                 .o = d + 32,
                                 .lse = m + 128 };
    ok(api->attend(
        stream, &(struct ha_device_attend){
                    .batch = 1, .q_len = 1, .q_heads = 2, .kv_heads = 1, .head_dim = DIM, .scale = 1, .seqs = &seq }));
    ok(api->move(stream, &(struct ha_device_move){ d, m, NULL, up, ROWS, 24, 32, 32 }));
    ok(api->move(stream, &(struct ha_device_move){ m, d, down, NULL, ROWS, 24, 32, 32 }));
    ok(api->move(stream, &(struct ha_device_move){ d + 128, d, NULL, NULL, ROWS, 24, 32, 32 }));
    ok(api->copy_pieces(stream,
                        &(struct ha_device_pieces){ (void *[]){ d, d + 32 }, (const void *[]){ h, pageable },
                                                    (size_t[]){ 100, 23 }, 2 },
                        HA_H2D));
    ok(api->read(stream, m, 64, down));
    ok(api->read(stream, d, 64, down));
    ok(api->spin(stream, 1000));
    ok(api->stream_sync(stream));
    ok(api->stream_sync(b));
    uint64_t to = ha_now_ns();
    api->trace(dev, NULL);
    ok(api->copy(stream, d, h, 64, HA_H2D)); /* after tracing */
    ok(api->stream_sync(stream));

    static const struct {
        const char *lane, *name;
        enum ha_span_kind kind;
        uint64_t bytes, zero_copy_bytes;
    } want[] = {
        { "link D2H", "copy D2H", HA_SPAN_D2H, 100, 0 },
        { "link H2D", "copy H2D", HA_SPAN_H2D, 1024, 0 },
        { "link H2D", "copy_pieces H2D", HA_SPAN_H2D, 123, 0 },
        { "stream b", "stream_wait", HA_SPAN_WAIT, 0, 0 },
        { "stream b", "flag_write", HA_SPAN_WAIT, 0, 0 },
        { "stream main", "copy_2d D2D", HA_SPAN_D2D, 64, 0 },
        { "stream main", "host_fn", HA_SPAN_CPU, 0, 0 },
        { "stream main", "flag_wait", HA_SPAN_WAIT, 0, 0 },
        { "stream main", "blend", HA_SPAN_KERNEL, 0, 40 },
        { "stream main", "blend", HA_SPAN_KERNEL, 0, 40 },
        { "stream main", "merge", HA_SPAN_KERNEL, 0, 6 * (DIM + 1) * 4 },
        { "stream main", "attend", HA_SPAN_KERNEL, 0, (KEYS + 2) * DIM * 4 },
        { "stream main", "move", HA_SPAN_KERNEL, 0, ROWS * 24 + ROWS * 4 },
        { "stream main", "move", HA_SPAN_KERNEL, 0, ROWS * 24 },
        { "stream main", "move", HA_SPAN_KERNEL, 0, 0 },
        { "stream main", "read", HA_SPAN_KERNEL, 0, 64 },
        { "stream main", "read", HA_SPAN_KERNEL, 0, 0 },
        { "stream main", "spin", HA_SPAN_KERNEL, 0, 0 },
    };
    assert_int_equal(spans.count, COUNT(want));
    assert_well_formed(from, to);
    for (size_t i = 0; i < COUNT(want); i++) {
        const struct ha_span *s = &spans.span[i];
        assert_string_equal(s->lane, want[i].lane);
        assert_string_equal(s->name, want[i].name);
        assert_int_equal(s->kind, want[i].kind);
        assert_int_equal(s->bytes, want[i].bytes);
        assert_int_equal(s->zero_copy_bytes, want[i].zero_copy_bytes);
        assert_true(s->enqueue_ns >= from && s->enqueue_ns <= s->begin_ns);
    }
    const struct ha_span *waited = &spans.span[3], *slept = &spans.span[6], *flagged = &spans.span[7];
    assert_true(slept->end_ns - slept->begin_ns >= (uint64_t)two_ms);
    assert_true(waited->end_ns >= slept->end_ns);
    assert_true(flagged->end_ns >= waited->end_ns);
}

/* Copies of one direction take turns, whatever stream they come from; the other direction does not wait. */
DEVICE_TEST(the_link_is_one_for_each_direction)
{
    enum { STREAMS = 3, EACH = 20, BYTES = 1 << 18 };
    static const char *const name[STREAMS] = { "a", "b", "c" };
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
}

TEST(tracing_ends_on_a_failed_device)
{
    dev = device_open(10000000);
    stream = device_stream(dev, "main");
    uint32_t *flag = device_alloc(dev, HA_MEM_MAPPED, sizeof *flag);
    long one_us = 1000;
    *flag = 0;
    spans.count = 0;
    api->trace(dev, &sink);
    ok(api->flag_wait(stream, flag, 1));
    for (int i = 0; i < 10; i++) ok(api->host_fn(stream, nap_there, &one_us));
    api->trace(dev, NULL);
    assert_int_equal(spans.count, 1); /* what was dropped did not happen */
    assert_string_equal(spans.span[0].name, "flag_wait");
    device_close(dev, "stream main: flag_wait");
}
