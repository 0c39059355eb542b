/* Graphs: kept and not run, launched as often as wanted on any stream, refused where they would not mean anything. */

#include "kernels/host/test_fixture.h"

#include "harness/base/rng.h"

#include <math.h>

enum { DIM = 8, ROWS = 2, FLOATS = ROWS * DIM };

/* Two states in device memory, fed from pinned memory, and their merge, back in pinned memory. */
static struct ha_stream *other;
static float *in[2], *device[2], *lse[2], *merged, *merged_lse, *out;
static uint32_t *flag;
static int calls;

static int open_all(void **state)
{
    device_begin(state);
    other = device_stream(dev, "other");
    for (size_t i = 0; i < 2; i++) {
        in[i] = device_alloc(dev, HA_MEM_PINNED, FLOATS * sizeof(float));
        device[i] = device_alloc(dev, HA_MEM_DEVICE, FLOATS * sizeof(float));
        lse[i] = device_alloc(dev, HA_MEM_MAPPED, ROWS * sizeof(float));
        memset(lse[i], 0, ROWS * sizeof(float));
    }
    merged = device_alloc(dev, HA_MEM_DEVICE, FLOATS * sizeof(float));
    merged_lse = device_alloc(dev, HA_MEM_DEVICE, ROWS * sizeof(float));
    out = device_alloc(dev, HA_MEM_PINNED, FLOATS * sizeof(float));
    flag = device_alloc(dev, HA_MEM_MAPPED, sizeof *flag);
    *flag = 0;
    memset(out, 0, FLOATS * sizeof(float));
    calls = 0;
    return 0;
}

static void count_call(void *arg) { ++*(int *)arg; }

/* Copies up, merge, copy down, and a call; the arrays behind the arguments are gone when this returns. */
static void enqueue_all(struct ha_stream *on)
{
    struct ha_merge_state s[2];
    for (size_t i = 0; i < 2; i++) {
        ok(api->copy(on, device[i], in[i], FLOATS * sizeof(float), HA_H2D));
        s[i] = (struct ha_merge_state){ .o = device[i],
                                        .lse = lse[i],
                                        .o_token_stride = DIM,
                                        .o_head_stride = DIM,
                                        .lse_token_stride = 1,
                                        .lse_head_stride = 1 };
    }
    struct ha_merge m = { .states = s, .states_count = 2, .tokens = ROWS, .heads = 1, .dim = DIM, .out = s[0] };
    m.out.o = merged;
    m.out.lse = merged_lse;
    ok(api->merge(on, &m));
    memset(s, 0, sizeof s);
    ok(api->copy(on, out, merged, FLOATS * sizeof(float), HA_D2H));
    ok(api->host_fn(on, count_call, &calls));
}

static struct ha_graph *capture(void)
{
    ok(api->graph_begin(stream));
    enqueue_all(stream);
    return graph_of(stream);
}

static void set_inputs(uint64_t seed)
{
    for (size_t i = 0; i < 2; i++) {
        ha_rng_normals(seed, i, 0, FLOATS, in[i]);
        ha_rng_normals(seed, 2 + i, 0, ROWS, lse[i]);
    }
}

static void assert_merged(void)
{
    for (size_t r = 0; r < ROWS; r++)
        for (size_t d = 0; d < DIM; d++) {
            double w = 1 / (1 + exp((double)lse[1][r] - (double)lse[0][r])), x = (double)in[0][r * DIM + d];
            double want = w * x + (1 - w) * (double)in[1][r * DIM + d], got = (double)out[r * DIM + d];
            if (!(fabs(got - want) <= 1e-5)) fail_msg("row %zu, element %zu: got %g, want %g", r, d, got, want);
        }
}

TEST_WITH(what_is_captured_does_not_run, open_all, device_end)
{
    set_inputs(1);
    struct ha_graph *graph = capture();
    ok(api->stream_sync(stream));
    assert_int_equal(calls, 0);
    for (size_t i = 0; i < FLOATS; i++) assert_true(out[i] == 0.0f && isnan(device[0][i]));
    /* and the stream goes on as before */
    enqueue_all(stream);
    ok(api->stream_sync(stream));
    assert_int_equal(calls, 1);
    assert_merged();
    api->graph_destroy(graph);
    api->graph_destroy(NULL);
}

TEST_WITH(a_launch_uses_memory_as_it_is_then, open_all, device_end)
{
    struct ha_stream *on[] = { stream, stream, other, stream };
    set_inputs(1);
    struct ha_graph *graph = capture();
    for (int i = 0; i < 4; i++) {
        set_inputs(2 + (uint64_t)i);
        ok(api->graph_launch(graph, on[i]));
        ok(api->stream_sync(on[i]));
        assert_merged();
        assert_int_equal(calls, i + 1);
    }
    set_inputs(9);
    ok(api->graph_launch(graph, other));
    if (!embedded)
        ok(api->stream_sync(other)); /* the embedded device copies what it launches, more than the contract asks */
    api->graph_destroy(graph);
    ok(api->stream_sync(other));
    assert_merged();
}

/* A flag in the graph holds each launch up, in stream order. */
TEST_WITH(flags_are_kept, open_all, device_end)
{
    uint32_t *done = device_alloc(dev, HA_MEM_MAPPED, sizeof *done);
    *done = 0;
    ok(api->graph_begin(stream));
    ok(api->flag_wait(stream, flag, 1));
    ok(api->host_fn(stream, count_call, &calls));
    ok(api->flag_write(stream, done, 1));
    struct ha_graph *graph = graph_of(stream);
    ok(api->graph_launch(graph, stream));
    ok(api->graph_launch(graph, stream));
    assert_int_equal(__atomic_load_n(done, __ATOMIC_ACQUIRE), 0);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    ok(api->flag_wait(other, done, 1));
    ok(api->stream_sync(other));
    ok(api->stream_sync(stream));
    assert_int_equal(calls, 2);
    api->graph_destroy(graph);
}

/* Two graphs captured on one stream run side by side on two: neither may use scratch of the stream that captured it. */
TEST_WITH(kernels_use_scratch_of_the_launching_stream, open_all, device_end)
{
    enum { KEYS = 50, LAUNCHES = 40 };
    float *kv = device_alloc(dev, HA_MEM_DEVICE, KEYS * DIM * sizeof *kv);
    struct ha_graph *graph[2];
    ha_rng_normals(3, 0, 0, KEYS * DIM, kv);
    ha_rng_normals(4, 0, 0, FLOATS, device[0]);
    memcpy(device[1], device[0], FLOATS * sizeof(float));
    for (size_t i = 0; i < 2; i++) {
        struct ha_device_seq seq = { .q = device[i],
                                     .runs = { { kv, kv, DIM * sizeof *kv, DIM * sizeof *kv, NULL, KEYS } },
                                     .runs_count = 1,
                                     .o = device[i] + DIM,
                                     .lse = lse[i] };
        ok(api->graph_begin(stream));
        ok(api->attend(
            stream,
            &(struct ha_device_attend){
                .batch = 1, .q_len = 1, .q_heads = 1, .kv_heads = 1, .head_dim = DIM, .scale = 1, .seqs = &seq }));
        graph[i] = graph_of(stream);
    }
    for (size_t n = 0; n < LAUNCHES; n++) {
        ok(api->graph_launch(graph[0], stream));
        ok(api->graph_launch(graph[1], other));
    }
    ok(api->stream_sync(stream));
    ok(api->stream_sync(other));
    assert_memory_equal(device[0], device[1], FLOATS * sizeof(float));
    assert_true(!isnan(device[0][DIM]) && lse[0][0] == lse[1][0]);
    for (size_t i = 0; i < 2; i++) api->graph_destroy(graph[i]);
}

/* A graph may hold the work of another, and a stream may go in the middle of a capture. */
TEST_WITH(graphs_nest_and_are_given_up, open_all, device_end)
{
    if (!embedded) {
        struct ha_graph *graph = capture();
        ok(api->graph_begin(other));
        assert_int_equal(api->graph_launch(graph, other), HA_ERROR);
        failure = "graph_launch on stream other: between graph_begin and graph_end";
        api->graph_destroy(graph);
        return;
    }
    struct ha_graph *inner = capture();
    ok(api->graph_begin(other));
    ok(api->graph_launch(inner, other));
    ok(api->graph_launch(inner, other));
    struct ha_graph *outer = graph_of(other);
    api->graph_destroy(inner);
    ok(api->stream_sync(other));
    assert_int_equal(calls, 0);
    set_inputs(5);
    ok(api->graph_launch(outer, stream));
    ok(api->stream_sync(stream));
    assert_int_equal(calls, 2);
    assert_merged();
    ok(api->graph_begin(other));
    enqueue_all(other);
    device_release(other);
    other = device_stream(dev, "other");
    enqueue_all(other);
    ok(api->stream_sync(other));
    assert_int_equal(calls, 3);
}

/* Each does one wrong thing; the device fails at once and says which, and what was captured is no graph. */
static void refused_with_the_graph(enum ha_status (*wrong)(void), const char *words)
{
    struct ha_graph *graph = NULL;
    *why.text = 0;
    refused(wrong, words);
    assert_int_equal(api->graph_end(stream, &graph, &why), HA_ERROR);
    assert_true(*why.text && !graph);
    assert_int_equal(api->graph_begin(stream), HA_ERROR);
    assert_int_equal(calls, 0);
}
#define WRONG(name, words) WRONG_USE(name, words, open_all, device_end, refused_with_the_graph)
WRONG(begins_twice, "graph_begin on stream main: begun already")
{
    ok(api->graph_begin(stream));
    return api->graph_begin(stream);
}
WRONG(launches_what_is_destroyed, "graph_launch on stream main: the graph was destroyed")
{
    struct ha_graph *graph = capture();
    api->graph_destroy(graph);
    return api->graph_launch(graph, stream);
}
WRONG(destroys_twice, "destroyed before")
{
    struct ha_graph *graph = capture();
    api->graph_destroy(graph);
    api->graph_destroy(graph);
    return HA_ERROR;
}
WRONG(records_in_a_graph, "event_record on stream main: between graph_begin and graph_end")
{
    struct ha_event *event = device_event(dev);
    ok(api->graph_begin(stream));
    return api->event_record(event, stream);
}
WRONG(waits_in_a_graph, "stream_wait on stream main: between graph_begin and graph_end")
{
    struct ha_event *event = device_event(dev);
    ok(api->event_record(event, other));
    ok(api->graph_begin(stream));
    return api->stream_wait(stream, event);
}
WRONG(captures_a_wrong_operand, "copy H2D on stream main: destination")
{
    ok(api->graph_begin(stream));
    return api->copy(stream, in[0], in[1], 4, HA_H2D);
}
WRONG(launches_on_another_device, "copy H2D on stream main: destination")
{
    struct ha_device *stranger = device_open(0);
    struct ha_graph *graph = capture();
    assert_int_equal(api->graph_launch(graph, device_stream(stranger, "main")), HA_ERROR);
    device_close(stranger, "a graph of another device");
    return wrong_captures_a_wrong_operand(); /* this one has not failed before */
}

TEST_WITH(an_end_without_a_begin_is_refused, open_all, device_end)
{
    struct ha_graph *graph = NULL;
    *why.text = 0;
    assert_int_equal(api->graph_end(stream, &graph, &why), HA_ERROR);
    assert_string_equal(why.text, "graph_end on stream main: there was no graph_begin");
    assert_null(graph);
    assert_no_failure(dev); /* it explained itself */
    ok(api->graph_begin(stream));
    ok(api->graph_end(stream, &graph, &why));
    ok(api->graph_launch(graph, other)); /* of nothing */
    ok(api->stream_sync(other));
}
