/* Graphs: what is kept between begin and end runs as often as it is launched, on memory as it is then. */

#include "suites/device/mixture.h"
#include "suites/device/path.h"

#include "harness/base/clock.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <string.h>

static void graph_count(void *arg) { __atomic_fetch_add((uint32_t *)arg, 1, __ATOMIC_ACQ_REL); }

struct kept {
    struct ha_op_path p;
    struct ha_op_block *row, *index; /* row: where move puts row index[0] of `there`, or NULL */
    uint32_t calls, launches;
    uint32_t *flag; /* NULL: no flag_write */
};
enum { ROW = 64 };

struct keeping {
    struct ha_op_stage *s;
    struct kept *k;
};
static enum ha_status keep(void *arg)
{
    const struct keeping *keeping = arg;
    struct ha_op_stage *s = keeping->s;
    struct kept *k = keeping->k;
    struct ha_stream *const on = s->stream[0];
    struct ha_op_path p = k->p;
    HA_OP(s, copy, on, p.there->at, p.x->at, p.bytes, HA_H2D);
    if (k->row) {
        struct ha_device_move m = { k->row->at, p.there->at, NULL, (const uint32_t *)(const void *)k->index->at,
                                    1,          ROW,         ROW,  ROW };
        HA_OP(s, move, on, &m);
        memset(&m, 0, sizeof m);
    }
    if (s->api->host_fn) HA_OP(s, host_fn, on, graph_count, &k->calls);
    HA_OP(s, copy, on, p.out->at, p.there->at, p.bytes, HA_D2H);
    if (k->flag) HA_OP(s, flag_write, on, k->flag, 9);
    return HA_OK;
}

/* x and the index change after the launch and before it runs. */
static enum ha_status launch(struct ha_op_stage *s, struct kept *k, struct ha_graph *graph, struct ha_stream *on)
{
    struct ha_op_path *p = &k->p;
    HA_TRY(ha_op_path_fill(s, p));
    if (k->flag) __atomic_store_n(k->flag, 0, __ATOMIC_RELEASE);
    HA_TRY(ha_op_shut(s, on));
    HA_OP(s, graph_launch, graph, on);
    HA_TRY(ha_op_hold(s)); /* what does not wait runs now, on what was there */
    HA_TRY(ha_op_fill(s, p->x, 0, p->bytes));
    if (k->row) {
        const uint32_t row = (uint32_t)ha_op_draw(s, p->bytes / ROW);
        memcpy(k->index->image, &row, sizeof row);
        HA_TRY(ha_op_put(s, k->index, 0, sizeof row));
        memcpy(k->row->image, p->x->image + row * ROW, ROW);
    }
    ha_op_open(s);
    HA_OP(s, stream_sync, on);
    k->launches++;
    memcpy(p->out->image, p->x->image, p->bytes);
    HA_TRY(ha_op_judge(s, p->out, 0, p->bytes, "launch %u of a graph: what it copied up and back", k->launches));
    if (k->row) HA_TRY(ha_op_judge(s, k->row, 0, ROW, "launch %u of a graph: the row that it moved", k->launches));
    if (s->api->host_fn && k->calls != k->launches)
        return ha_op_wrong(s, "after launch %u of a graph its host function has been called %u times", k->launches,
                           k->calls);
    if (k->flag && __atomic_load_n(k->flag, __ATOMIC_ACQUIRE) != 9)
        return ha_op_wrong(s, "launch %u of a graph: its flag_write did not write", k->launches);
    return HA_OK;
}

static enum ha_status judge_kept(struct ha_op_stage *s, struct kept *k, struct ha_graph *graph)
{
    struct ha_op_path later;
    HA_OP(s, stream_sync, s->stream[0]);
    HA_TRY(ha_op_path_judge(s, &k->p, "what a graph is to copy back, while it was captured"));
    if (k->calls) return ha_op_wrong(s, "graph: a host function was called while it was captured");
    if (k->flag && __atomic_load_n(k->flag, __ATOMIC_ACQUIRE))
        return ha_op_wrong(s, "graph: a flag was written while it was captured");
    for (size_t i = 0; i < s->rounds; i++) HA_TRY(launch(s, k, graph, s->stream[i % 2]));
    HA_TRY(ha_op_path_make(s, &later, HA_OP_PATH_SMALL)); /* the stream runs again what it is given */
    HA_TRY(ha_op_path_up(s, &later, s->stream[0]));
    HA_TRY(ha_op_path_down(s, &later, s->stream[0]));
    HA_OP(s, stream_sync, s->stream[0]);
    return ha_op_path_judge(s, &later, "what a stream copied after it captured a graph");
}

static enum ha_status judge_arguments(struct ha_op_stage *s, size_t bytes)
{
    static struct kept k;
    struct ha_graph *graph = NULL;
    k = (struct kept){ .calls = 0 };
    HA_TRY(ha_op_path_make(s, &k.p, bytes));
    if (s->api->flag_write) HA_TRY(ha_op_flag_make(s, &k.flag));
    if (s->api->move && k.p.bytes >= ROW) {
        k.row = ha_op_block(s, HA_OP_DEVICE, ROW);
        k.index = k.row ? ha_op_block(s, HA_OP_DEVICE, sizeof(uint32_t)) : NULL;
        if (!k.index) return HA_ERROR;
        memset(k.index->image, 0, sizeof(uint32_t));
        HA_TRY(ha_op_put(s, k.index, 0, sizeof(uint32_t)));
    }
    HA_OP(s, graph_begin, s->stream[0]);
    /* a thread of its own enqueues what is kept: it is the stream that captures */
    const enum ha_status kept = ha_op_elsewhere(s, keep, &(struct keeping){ s, &k });
    const enum ha_status ended = s->api->graph_end(s->stream[0], &graph, s->why);
    HA_TRY(kept);
    HA_TRY(ended);
    const enum ha_status status = judge_kept(s, &k, graph);
    ha_op_open(s);
    s->api->stream_sync(s->stream[0]);
    s->api->stream_sync(s->stream[1]);
    s->api->graph_destroy(graph);
    return status;
}
/* Steps that are drawn, launched again and again over other bytes. */
static enum ha_status launch_mixture(struct ha_op_stage *s, const struct ha_op_mix *mix, const struct ha_op_step *step,
                                     size_t steps, struct ha_graph *graph)
{
    for (size_t i = 0; i < s->rounds; i++) {
        struct ha_stream *const on = s->stream[i % 2];
        HA_TRY(ha_op_mix_fill(s, mix));
        HA_OP(s, graph_launch, graph, on);
        for (size_t k = 0; k < steps; k++) ha_op_mix_apply(&step[k]);
        HA_OP(s, stream_sync, on);
        HA_TRY(ha_op_mix_judge(s, mix, "launches of a graph of many steps"));
    }
    return HA_OK;
}

static enum ha_status judge_mixture(struct ha_op_stage *s)
{
    enum { STEPS = 24, BYTES = 20000 };
    static struct ha_op_mix mix; /* not on the stack: a graph that runs too late finds them */
    static struct ha_op_step step[STEPS];
    struct ha_graph *graph = NULL;
    HA_TRY(ha_op_mix_make(s, &mix, s->of ? s->most : BYTES));
    HA_OP(s, graph_begin, s->stream[0]);
    enum ha_status kept = HA_OK;
    for (size_t i = 0; i < STEPS && kept == HA_OK; i++) {
        step[i] = ha_op_mix_draw(s, &mix, true);
        kept = ha_op_mix_enqueue(s, &step[i], s->stream[0]);
    }
    const enum ha_status ended = s->api->graph_end(s->stream[0], &graph, s->why);
    HA_TRY(kept);
    HA_TRY(ended);
    const enum ha_status status = launch_mixture(s, &mix, step, STEPS, graph);
    s->api->stream_sync(s->stream[0]);
    s->api->stream_sync(s->stream[1]);
    s->api->graph_destroy(graph);
    return status;
}

/* A graph of so many host functions. */
static enum ha_status launch_often(struct ha_op_stage *s, size_t functions, size_t times)
{
    static uint32_t calls;
    struct ha_graph *graph = NULL;
    if (!s->api->host_fn || !functions || !times) return HA_OK;
    calls = 0;
    HA_OP(s, graph_begin, s->stream[0]);
    enum ha_status kept = HA_OK;
    for (size_t i = 0; i < functions && kept == HA_OK; i++) kept = s->api->host_fn(s->stream[0], graph_count, &calls);
    const enum ha_status ended = s->api->graph_end(s->stream[0], &graph, s->why);
    HA_TRY(ha_op_failed(s, "host_fn", kept));
    HA_TRY(ended);
    enum ha_status status = HA_OK;
    for (size_t i = 0; i < times && status == HA_OK; i++)
        status = ha_op_failed(s, "graph_launch", s->api->graph_launch(graph, s->stream[0]));
    if (status == HA_OK) status = ha_op_failed(s, "stream_sync", s->api->stream_sync(s->stream[0]));
    s->api->graph_destroy(graph);
    HA_TRY(status);
    s->cases++;
    const uint32_t seen = __atomic_load_n(&calls, __ATOMIC_ACQUIRE);
    return seen == functions * times
               ? HA_OK
               : ha_op_wrong(s, "after %zu launches of a graph of %zu host functions these have been called %u times",
                             times, functions, seen);
}

/* ---- what waits for a graph -------------------------------------------------------------------------------------- */

static uint32_t released; /* atomic: the host function of the graph waits for it */
static void wait_for_release(void *arg)
{
    while (!__atomic_load_n(&released, __ATOMIC_ACQUIRE)) ha_sleep_ns(20000);
}
static void *release_later(void *arg)
{
    ha_sleep_ns(5000000);
    __atomic_store_n(&released, 1, __ATOMIC_RELEASE);
    return NULL;
}

enum waiter { BY_STREAM, BY_EVENT_SYNC, BY_STREAM_SYNC, WAITERS };
static enum ha_status wait_behind(struct ha_op_stage *s, enum waiter by, struct ha_graph *graph, struct ha_event *event)
{
    HA_OP(s, graph_launch, graph, s->stream[0]);
    if (by != BY_STREAM_SYNC) HA_OP(s, event_record, event, s->stream[0]);
    if (by == BY_STREAM) HA_OP(s, stream_wait, s->stream[1], event);
    else if (by == BY_EVENT_SYNC) HA_OP(s, event_sync, event);
    else HA_OP(s, stream_sync, s->stream[0]);
    return HA_OK;
}

/* A graph whose copy comes late is over when its last node is, for an event behind it and for the stream. */
static enum ha_status judge_end(struct ha_op_stage *s, enum waiter by, struct ha_event *event)
{
    static const char *const text[WAITERS] = { "what a stream copied behind stream_wait for an event behind a graph",
                                               "what was copied after event_sync of an event behind a graph",
                                               "what was copied after stream_sync behind a graph" };
    struct ha_graph *graph = NULL;
    struct ha_op_path p;
    pthread_t thread;
    HA_TRY(ha_op_path_make(s, &p, HA_OP_PATH_SMALL));
    __atomic_store_n(&released, 0, __ATOMIC_RELEASE);
    HA_OP(s, graph_begin, s->stream[0]);
    enum ha_status kept = s->api->host_fn(s->stream[0], wait_for_release, NULL);
    if (kept == HA_OK) kept = ha_op_path_up(s, &p, s->stream[0]);
    const enum ha_status ended = s->api->graph_end(s->stream[0], &graph, s->why);
    HA_TRY(ha_op_failed(s, "host_fn", kept));
    HA_TRY(ended);
    const bool starts = ha_thread_start(&thread, release_later, NULL) == 0;
    enum ha_status status = starts ? wait_behind(s, by, graph, event) : ha_why(s->why, HA_ERROR, "no thread to be had");
    if (status == HA_OK) status = ha_op_path_down(s, &p, s->stream[1]);
    if (status == HA_OK) status = ha_op_failed(s, "stream_sync", s->api->stream_sync(s->stream[1]));
    if (starts) pthread_join(thread, NULL);
    s->api->stream_sync(s->stream[0]);
    s->api->graph_destroy(graph);
    return status == HA_OK ? ha_op_path_judge(s, &p, text[by]) : status;
}

static enum ha_status judge_ends(struct ha_op_stage *s)
{
    struct ha_event *event;
    if (!s->api->host_fn || !s->api->event_create) return HA_OK;
    HA_TRY(s->api->event_create(s->device, &event, s->why));
    enum ha_status status = HA_OK;
    for (enum waiter by = BY_STREAM; by < WAITERS && status == HA_OK; by++) status = judge_end(s, by, event);
    s->api->event_destroy(event);
    return status;
}

/* ---- graphs beside one another ----------------------------------------------------------------------------------- */

/* Two streams capture at the same time, turn by turn, and a third graph is empty. The two graphs are launched side by
 * side; then the first one six times on both streams by turns, with no sync between. */
enum { BESIDE = 3 };
static enum ha_status capture_beside(struct ha_op_stage *s, struct ha_graph *graph[BESIDE], struct ha_op_path p[2],
                                     uint32_t calls[2])
{
    for (size_t i = 0; i < 2; i++) HA_OP(s, graph_begin, s->stream[i]);
    for (size_t turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < 2; i++) {
            if (turn) HA_TRY(ha_op_path_down(s, &p[i], s->stream[i]));
            else HA_TRY(ha_op_path_up(s, &p[i], s->stream[i]));
            if (s->api->host_fn) HA_OP(s, host_fn, s->stream[i], graph_count, &calls[i]);
        }
    for (size_t i = 0; i < 2; i++) HA_TRY(s->api->graph_end(s->stream[i], &graph[i], s->why));
    HA_OP(s, graph_begin, s->stream[0]);
    HA_TRY(s->api->graph_end(s->stream[0], &graph[2], s->why));
    return HA_OK;
}

static enum ha_status launch_beside(struct ha_op_stage *s, struct ha_graph *graph[BESIDE], struct ha_op_path p[2],
                                    uint32_t calls[2])
{
    HA_OP(s, graph_launch, graph[2], s->stream[0]);
    HA_TRY(ha_op_shut(s, s->stream[0]));
    HA_OP(s, graph_launch, graph[0], s->stream[0]);
    HA_OP(s, graph_launch, graph[1], s->stream[1]);
    HA_TRY(ha_op_hold(s));
    ha_op_open(s);
    for (size_t i = 0; i < 2; i++) HA_OP(s, stream_sync, s->stream[i]);
    for (size_t i = 0; i < 2; i++)
        HA_TRY(ha_op_path_judge(s, &p[i], "what a graph copied up and back that was captured beside another one"));
    for (size_t i = 0; i < 6; i++) HA_OP(s, graph_launch, graph[0], s->stream[i % 2]);
    for (size_t i = 0; i < 2; i++) HA_OP(s, stream_sync, s->stream[i]);
    HA_TRY(ha_op_path_judge(s, &p[0], "what a graph copied that was launched on two streams at a time"));
    const uint32_t want[2] = { 2 * 7, 2 };
    for (size_t i = 0; i < 2 && s->api->host_fn; i++) {
        s->cases++;
        if (calls[i] != want[i])
            return ha_op_wrong(
                s,
                "graphs that were captured side by side: after %u launches, on two streams, the two host functions "
                "of graph %zu have been called %u times",
                want[i] / 2, i + 1, calls[i]);
    }
    return HA_OK;
}

static enum ha_status judge_beside(struct ha_op_stage *s)
{
    static uint32_t calls[2];
    struct ha_graph *graph[BESIDE] = { NULL };
    struct ha_op_path p[2];
    calls[0] = calls[1] = 0;
    for (size_t i = 0; i < 2; i++) HA_TRY(ha_op_path_make(s, &p[i], HA_OP_PATH_SMALL));
    enum ha_status status = capture_beside(s, graph, p, calls);
    if (status == HA_OK) status = launch_beside(s, graph, p, calls);
    ha_op_open(s);
    for (size_t i = 0; i < 2; i++) s->api->stream_sync(s->stream[i]);
    for (size_t i = 0; i < BESIDE; i++)
        if (graph[i]) s->api->graph_destroy(graph[i]);
    ha_op_clear(s);
    return status;
}

/* ---- one graph in flight on two streams -------------------------------------------------------------------------- */

static void nap(void *arg) { ha_sleep_ns(1000000); }

/* Its memory is its own until it is over: it copies y aside, and in a while back to y one row further on. */
static enum ha_status keep_step(struct ha_op_stage *s, const struct ha_op_block *y, const struct ha_op_block *aside)
{
    HA_OP(s, copy, s->stream[0], aside->at, y->at, y->bytes, HA_D2D);
    if (s->api->host_fn) HA_OP(s, host_fn, s->stream[0], nap, NULL);
    HA_OP(s, copy, s->stream[0], y->at + ROW, aside->at, y->bytes - ROW, HA_D2D);
    return HA_OK;
}

static enum ha_status launch_steps(struct ha_op_stage *s, struct ha_graph *graph, struct ha_op_block *y)
{
    enum { LAUNCHES = 6 };
    for (size_t i = 0; i < LAUNCHES; i++) HA_OP(s, graph_launch, graph, s->stream[i % 2]);
    for (size_t i = 0; i < LAUNCHES; i++) memmove(y->image + ROW, y->image, y->bytes - ROW);
    for (size_t i = 0; i < 2; i++) HA_OP(s, stream_sync, s->stream[i]);
    return ha_op_judge(s, y, 0, y->bytes,
                       "%d launches of a graph on two streams by turns, each over what the last left", LAUNCHES);
}

static enum ha_status judge_turns(struct ha_op_stage *s)
{
    enum { BYTES = 4096 };
    struct ha_graph *graph = NULL;
    struct ha_op_block *y = ha_op_block(s, HA_OP_DEVICE, BYTES),
                       *aside = y ? ha_op_block(s, HA_OP_DEVICE, BYTES) : NULL;
    if (!aside) return HA_ERROR;
    HA_TRY(ha_op_fill(s, y, 0, BYTES));
    HA_OP(s, graph_begin, s->stream[0]);
    const enum ha_status kept = keep_step(s, y, aside), ended = s->api->graph_end(s->stream[0], &graph, s->why);
    HA_TRY(kept);
    HA_TRY(ended);
    const enum ha_status status = launch_steps(s, graph, y);
    for (size_t i = 0; i < 2; i++) s->api->stream_sync(s->stream[i]);
    s->api->graph_destroy(graph);
    ha_op_clear(s);
    return status;
}

/* ---- of a stream that is gone, and of many pieces ---------------------------------------------------------------- */

static enum ha_status keep_pieces(struct ha_op_stage *s, const struct ha_op_path *p, struct ha_stream *on)
{
    enum { PIECES = 900 };
    const size_t n = p->bytes < PIECES ? p->bytes : PIECES, each = p->bytes / n;
    void *dst[PIECES];
    const void *src[PIECES];
    size_t bytes[PIECES];
    for (size_t i = 0; i < n; i++) {
        dst[i] = p->there->at + i * each;
        src[i] = p->x->at + i * each;
        bytes[i] = i + 1 < n ? each : p->bytes - i * each;
    }
    HA_OP(s, copy_pieces, on, &(struct ha_device_pieces){ dst, src, bytes, n }, HA_H2D);
    return HA_OK;
}

static enum ha_status launch_after(struct ha_op_stage *s, struct ha_op_path *p, struct ha_stream *on,
                                   struct ha_graph **graph)
{
    HA_OP(s, graph_begin, on);
    enum ha_status kept = s->api->copy_pieces ? keep_pieces(s, p, on) : HA_OK;
    if (kept == HA_OK && !s->api->copy_pieces) kept = ha_op_path_up(s, p, on);
    if (kept == HA_OK) kept = ha_op_path_down(s, p, on);
    const enum ha_status ended = s->api->graph_end(on, graph, s->why);
    HA_TRY(kept);
    return ended;
}

static enum ha_status judge_gone(struct ha_op_stage *s)
{
    struct ha_op_path p;
    struct ha_stream *gone = NULL;
    struct ha_graph *graph = NULL;
    HA_TRY(ha_op_path_make(s, &p, HA_OP_PATH_SMALL));
    HA_TRY(s->api->stream_create(s->device, "conform gone", &gone, s->why));
    enum ha_status status = launch_after(s, &p, gone, &graph);
    s->api->stream_destroy(gone);
    HA_TRY(status);
    status = ha_op_path_fill(s, &p);
    if (status == HA_OK) status = ha_op_failed(s, "graph_launch", s->api->graph_launch(graph, s->stream[1]));
    if (status == HA_OK) status = ha_op_failed(s, "stream_sync", s->api->stream_sync(s->stream[1]));
    s->api->graph_destroy(graph);
    HA_TRY(status);
    memcpy(p.out->image, p.x->image, p.bytes);
    HA_TRY(ha_op_path_judge(s, &p, "what a graph copied, some of it by 900 pieces, whose stream is gone"));
    ha_op_clear(s);
    return HA_OK;
}

static enum ha_status judge_graph(struct ha_op_stage *s)
{
    HA_TRY(judge_beside(s));
    HA_TRY(judge_turns(s));
    HA_TRY(judge_gone(s));
    static const size_t sizes[] = { 256 << 10, 4096, 128 };
    for (size_t i = 0; i < (s->of ? 1 : sizeof sizes / sizeof *sizes); i++) {
        HA_TRY(judge_arguments(s, sizes[i]));
        ha_op_clear(s);
    }
    HA_TRY(judge_ends(s));
    HA_TRY(launch_often(s, 1, ha_op_often(s)));
    HA_TRY(launch_often(s, ha_op_often(s), 2));
    return judge_mixture(s);
}
const struct ha_op ha_op_graph = {
    .name = "graph",
    .doc = "kept and not run; launched with memory as it is then",
    .needs = { HA_OP_ENTRY(graph_begin), HA_OP_ENTRY(graph_end), HA_OP_ENTRY(graph_launch),
               HA_OP_ENTRY(graph_destroy) },
    .judge = judge_graph,
    .keys = "size times",
    .held_ms = 6,
};
