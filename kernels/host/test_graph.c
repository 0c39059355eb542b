/* Graphs: kept and not run, launched as often as wanted on any stream, refused where they would not mean anything. */

#include "kernels/host/test_support.h"

#include "harness/base/rng.h"

#include <math.h>

enum { DIM = 8, ROWS = 2, FLOATS = ROWS * DIM };

/* Two states in device memory, fed from pinned memory, and their merge, back in pinned memory. */
struct fixture {
    struct ha_device *dev;
    struct ha_stream *stream, *other;
    float *in[2], *device[2], *lse[2], *o, *out_lse, *out;
    uint32_t *flag;
    int calls;
    const char *failure; /* that the test ends with */
};

static int open_all(void **state)
{
    static struct fixture f;
    f = (struct fixture){ .dev = device_open(0) };
    f.stream = device_stream(f.dev, "main");
    f.other = device_stream(f.dev, "other");
    for (size_t i = 0; i < 2; i++) {
        f.in[i] = device_alloc(f.dev, HA_MEM_PINNED, FLOATS * sizeof(float));
        f.device[i] = device_alloc(f.dev, HA_MEM_DEVICE, FLOATS * sizeof(float));
        f.lse[i] = device_alloc(f.dev, HA_MEM_MAPPED, ROWS * sizeof(float));
        memset(f.lse[i], 0, ROWS * sizeof(float));
    }
    f.o = device_alloc(f.dev, HA_MEM_DEVICE, FLOATS * sizeof(float));
    f.out_lse = device_alloc(f.dev, HA_MEM_DEVICE, ROWS * sizeof(float));
    f.out = device_alloc(f.dev, HA_MEM_PINNED, FLOATS * sizeof(float));
    f.flag = device_alloc(f.dev, HA_MEM_MAPPED, sizeof *f.flag);
    *f.flag = 0;
    memset(f.out, 0, FLOATS * sizeof(float));
    *state = &f;
    return 0;
}

static int close_all(void **state)
{
    struct fixture *f = *state;
    device_close(f->dev, f->failure);
    return 0;
}

static void count_call(void *arg) { ++*(int *)arg; }

/* Copies up, merge, copy down, and a call; the arrays behind the arguments are gone when this returns. */
static void enqueue_all(struct fixture *f, struct ha_stream *stream)
{
    struct ha_merge_state s[2];
    for (size_t i = 0; i < 2; i++) {
        ok(api->copy(stream, f->device[i], f->in[i], FLOATS * sizeof(float), HA_H2D));
        s[i] = (struct ha_merge_state){ .o = f->device[i],
                                        .lse = f->lse[i],
                                        .o_token_stride = DIM,
                                        .o_head_stride = DIM,
                                        .lse_token_stride = 1,
                                        .lse_head_stride = 1 };
    }
    struct ha_merge_state out = s[0];
    out.o = f->o;
    out.lse = f->out_lse;
    ok(api->merge(stream, &(struct ha_merge){
                              .states = s, .states_count = 2, .tokens = ROWS, .heads = 1, .dim = DIM, .out = out }));
    memset(s, 0, sizeof s);
    ok(api->copy(stream, f->out, f->o, FLOATS * sizeof(float), HA_D2H));
    ok(api->host_fn(stream, count_call, &f->calls));
}

static struct ha_graph *capture(struct fixture *f, struct ha_stream *stream)
{
    struct ha_graph *graph;
    struct ha_why why;
    ok(api->graph_begin(stream));
    enqueue_all(f, stream);
    if (api->graph_end(stream, &graph, &why) != HA_OK) fail_msg("%s", why.text);
    return graph;
}

static void set_inputs(struct fixture *f, uint64_t seed)
{
    for (size_t i = 0; i < 2; i++) {
        ha_rng_normals(seed, i, 0, FLOATS, f->in[i]);
        ha_rng_normals(seed, 2 + i, 0, ROWS, f->lse[i]);
    }
}

static void assert_merged(const struct fixture *f)
{
    for (size_t r = 0; r < ROWS; r++)
        for (size_t d = 0; d < DIM; d++) {
            double w = 1 / (1 + exp((double)f->lse[1][r] - (double)f->lse[0][r])), x = (double)f->in[0][r * DIM + d];
            double want = w * x + (1 - w) * (double)f->in[1][r * DIM + d], got = (double)f->out[r * DIM + d];
            if (!(fabs(got - want) <= 1e-5)) fail_msg("row %zu, element %zu: got %g, want %g", r, d, got, want);
        }
}

TEST_WITH(what_is_captured_does_not_run, open_all, close_all)
{
    struct fixture *f = *state;
    set_inputs(f, 1);
    struct ha_graph *graph = capture(f, f->stream);
    ok(api->stream_sync(f->stream));
    assert_int_equal(f->calls, 0);
    for (size_t i = 0; i < FLOATS; i++) assert_true(f->out[i] == 0.0f && isnan(f->device[0][i]));
    /* and the stream goes on as before */
    enqueue_all(f, f->stream);
    ok(api->stream_sync(f->stream));
    assert_int_equal(f->calls, 1);
    assert_merged(f);
    api->graph_destroy(graph);
    api->graph_destroy(NULL);
}

TEST_WITH(a_launch_uses_memory_as_it_is_then, open_all, close_all)
{
    struct fixture *f = *state;
    struct ha_stream *on[] = { f->stream, f->stream, f->other, f->stream };
    set_inputs(f, 1);
    struct ha_graph *graph = capture(f, f->stream);
    for (int i = 0; i < 4; i++) {
        set_inputs(f, 2 + (uint64_t)i);
        ok(api->graph_launch(graph, on[i]));
        ok(api->stream_sync(on[i]));
        assert_merged(f);
        assert_int_equal(f->calls, i + 1);
    }
    set_inputs(f, 9);
    ok(api->graph_launch(graph, f->other));
    if (!embedded)
        ok(api->stream_sync(f->other)); /* the embedded device copies what it launches, more than the contract asks */
    api->graph_destroy(graph);
    ok(api->stream_sync(f->other));
    assert_merged(f);
}

/* A flag in the graph holds each launch up, in stream order. */
TEST_WITH(flags_are_kept, open_all, close_all)
{
    struct fixture *f = *state;
    struct ha_graph *graph;
    struct ha_why why;
    uint32_t *done = device_alloc(f->dev, HA_MEM_MAPPED, sizeof *done);
    *done = 0;
    ok(api->graph_begin(f->stream));
    ok(api->flag_wait(f->stream, f->flag, 1));
    ok(api->host_fn(f->stream, count_call, &f->calls));
    ok(api->flag_write(f->stream, done, 1));
    ok(api->graph_end(f->stream, &graph, &why));
    ok(api->graph_launch(graph, f->stream));
    ok(api->graph_launch(graph, f->stream));
    assert_int_equal(__atomic_load_n(done, __ATOMIC_ACQUIRE), 0);
    __atomic_store_n(f->flag, 1, __ATOMIC_RELEASE);
    ok(api->flag_wait(f->other, done, 1));
    ok(api->stream_sync(f->other));
    ok(api->stream_sync(f->stream));
    assert_int_equal(f->calls, 2);
    api->graph_destroy(graph);
}

/* Two graphs captured on one stream run side by side on two: neither may use scratch of the stream that captured it. */
TEST_WITH(kernels_use_scratch_of_the_launching_stream, open_all, close_all)
{
    struct fixture *f = *state;
    enum { KEYS = 50, LAUNCHES = 40 };
    float *kv = device_alloc(f->dev, HA_MEM_DEVICE, KEYS * DIM * sizeof *kv);
    struct ha_graph *graph[2];
    struct ha_why why;
    ha_rng_normals(3, 0, 0, KEYS * DIM, kv);
    ha_rng_normals(4, 0, 0, FLOATS, f->device[0]);
    memcpy(f->device[1], f->device[0], FLOATS * sizeof(float));
    for (size_t i = 0; i < 2; i++) {
        struct ha_device_seq seq = { .q = f->device[i],
                                     .runs = { { kv, kv, DIM * sizeof *kv, DIM * sizeof *kv, NULL, KEYS } },
                                     .runs_count = 1,
                                     .o = f->device[i] + DIM,
                                     .lse = f->lse[i] };
        ok(api->graph_begin(f->stream));
        ok(api->attend(
            f->stream,
            &(struct ha_device_attend){
                .batch = 1, .q_len = 1, .q_heads = 1, .kv_heads = 1, .head_dim = DIM, .scale = 1, .seqs = &seq }));
        ok(api->graph_end(f->stream, &graph[i], &why));
    }
    for (size_t n = 0; n < LAUNCHES; n++) {
        ok(api->graph_launch(graph[0], f->stream));
        ok(api->graph_launch(graph[1], f->other));
    }
    ok(api->stream_sync(f->stream));
    ok(api->stream_sync(f->other));
    assert_memory_equal(f->device[0], f->device[1], FLOATS * sizeof(float));
    assert_true(!isnan(f->device[0][DIM]) && f->lse[0][0] == f->lse[1][0]);
    for (size_t i = 0; i < 2; i++) api->graph_destroy(graph[i]);
}

/* A graph may hold the work of another, and a stream may go in the middle of a capture. */
TEST_WITH(graphs_nest_and_are_given_up, open_all, close_all)
{
    struct fixture *f = *state;
    if (!embedded) {
        struct ha_graph *graph = capture(f, f->stream);
        ok(api->graph_begin(f->other));
        assert_int_equal(api->graph_launch(graph, f->other), HA_ERROR);
        f->failure = "graph_launch on stream other: between graph_begin and graph_end";
        api->graph_destroy(graph);
        return;
    }
    struct ha_graph *inner = capture(f, f->stream), *outer;
    struct ha_why why;
    ok(api->graph_begin(f->other));
    ok(api->graph_launch(inner, f->other));
    ok(api->graph_launch(inner, f->other));
    ok(api->graph_end(f->other, &outer, &why));
    api->graph_destroy(inner);
    ok(api->stream_sync(f->other));
    assert_int_equal(f->calls, 0);
    set_inputs(f, 5);
    ok(api->graph_launch(outer, f->stream));
    ok(api->stream_sync(f->stream));
    assert_int_equal(f->calls, 2);
    assert_merged(f);
    ok(api->graph_begin(f->other));
    enqueue_all(f, f->other);
    device_release(f->other);
    f->other = device_stream(f->dev, "other");
    enqueue_all(f, f->other);
    ok(api->stream_sync(f->other));
    assert_int_equal(f->calls, 3);
}

/* Each does one wrong thing; the device fails at once and says which. */
#define F(name) static enum ha_status name(struct fixture *f)
F(begins_twice)
{
    ok(api->graph_begin(f->stream));
    return api->graph_begin(f->stream);
}
F(launches_what_is_destroyed)
{
    struct ha_graph *graph = capture(f, f->stream);
    api->graph_destroy(graph);
    return api->graph_launch(graph, f->stream);
}
F(destroys_twice)
{
    struct ha_graph *graph = capture(f, f->stream);
    api->graph_destroy(graph);
    api->graph_destroy(graph);
    return HA_ERROR;
}
F(records_in_a_graph)
{
    struct ha_event *event = device_event(f->dev);
    ok(api->graph_begin(f->stream));
    return api->event_record(event, f->stream);
}
F(waits_in_a_graph)
{
    struct ha_event *event = device_event(f->dev);
    ok(api->event_record(event, f->other));
    ok(api->graph_begin(f->stream));
    return api->stream_wait(f->stream, event);
}
F(captures_a_wrong_operand)
{
    ok(api->graph_begin(f->stream));
    return api->copy(f->stream, f->in[0], f->in[1], 4, HA_H2D);
}
F(launches_on_another_device)
{
    struct ha_device *dev = device_open(0);
    struct ha_stream *stream = device_stream(dev, "main");
    struct ha_graph *graph = capture(f, f->stream);
    enum ha_status status = api->graph_launch(graph, stream);
    device_close(dev, "a graph of another device");
    captures_a_wrong_operand(f); /* the other one has not failed before */
    return status;
}

TEST(misuse_is_caught)
{
    static const struct {
        enum ha_status (*wrong)(struct fixture *f);
        const char *words;
    } cases[] = {
        { begins_twice, "graph_begin on stream main: begun already" },
        { launches_what_is_destroyed, "graph_launch on stream main: the graph was destroyed" },
        { destroys_twice, "destroyed before" },
        { records_in_a_graph, "event_record on stream main: between graph_begin and graph_end" },
        { waits_in_a_graph, "stream_wait on stream main: between graph_begin and graph_end" },
        { captures_a_wrong_operand, "copy H2D on stream main: destination" },
        { launches_on_another_device, "copy H2D on stream main: destination" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        void *fresh;
        struct ha_graph *graph = NULL;
        struct ha_why why = { "" };
        assert_int_equal(open_all(&fresh), 0);
        struct fixture *f = fresh;
        assert_int_equal(cases[i].wrong(f), HA_ERROR);
        f->failure = cases[i].words;
        assert_int_equal(api->graph_end(f->stream, &graph, &why), HA_ERROR);
        assert_true(*why.text && !graph);
        assert_int_equal(api->graph_begin(f->stream), HA_ERROR);
        assert_int_equal(f->calls, 0);
        close_all(&fresh);
    }
}

TEST_WITH(an_end_without_a_begin_is_refused, open_all, close_all)
{
    struct fixture *f = *state;
    struct ha_graph *graph = NULL;
    struct ha_why why = { "" };
    assert_int_equal(api->graph_end(f->stream, &graph, &why), HA_ERROR);
    assert_string_equal(why.text, "graph_end on stream main: there was no graph_begin");
    assert_null(graph);
    assert_no_failure(f->dev); /* it explained itself */
    ok(api->graph_begin(f->stream));
    ok(api->graph_end(f->stream, &graph, &why));
    ok(api->graph_launch(graph, f->other)); /* of nothing */
    ok(api->stream_sync(f->other));
}

int main(void)
{
    device_test_begin();
    return test_all("device: graphs", NULL, NULL);
}
