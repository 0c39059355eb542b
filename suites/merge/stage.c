/* Streams, graphs and flags: all pieces of the batch lie in three blocks on a device and beside it, laid out as
 * [batch->begin, batch->end). */

#include "suites/merge/stage.h"

#include "harness/base/clock.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"
#include "suites/merge/attention.h"

#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

enum { LINE = 64, LATE_NS = 20000000, PATIENCE_NS = 1000000000, POISON = 0xFF }; /* POISON: NaN in every type */

/* ---- on a device ------------------------------------------------------------------------- */

struct on_device {
    struct ha_stage_run *s;
    const struct ha_device_api *api;
    struct ha_device *device;
    struct ha_stream *stream;
    size_t bytes;            /* of a block */
    void *in, *there, *back; /* pinned: what is sent; in device memory; pinned: what came back */
};

static enum ha_status device_open(struct on_device *d)
{
    struct ha_stage_run *s = d->s;
    const struct ha_device_api *api = d->api;
    HA_TRY(ha_stage_open(s, NULL));
    d->bytes = (size_t)(s->trial.batch->end - s->trial.batch->begin);
    HA_TRY(api->mem_alloc(d->device, HA_MEM_PINNED, d->bytes, &d->in, s->why));
    HA_TRY(api->mem_alloc(d->device, HA_MEM_DEVICE, d->bytes, &d->there, s->why));
    HA_TRY(api->mem_alloc(d->device, HA_MEM_PINNED, d->bytes, &d->back, s->why));
    return api->stream_create(d->device, "merge", &d->stream, s->why);
}

/* Opens the batch and the device, runs the stage, and closes both. HA_WAIVED: there is no device, or it does not offer
 * what is asked for. */
static enum ha_status run_on_device(struct ha_stage_run *s, enum ha_status (*stage)(struct on_device *d))
{
    struct on_device d = { .s = s, .api = s->subject->api, .device = s->subject->device };
    enum ha_status st = device_open(&d);
    if (st == HA_OK) st = stage(&d);
    if (d.stream) d.api->stream_destroy(d.stream);
    if (d.back) d.api->mem_free(d.device, HA_MEM_PINNED, d.back);
    if (d.there) d.api->mem_free(d.device, HA_MEM_DEVICE, d.there);
    if (d.in) d.api->mem_free(d.device, HA_MEM_PINNED, d.in);
    ha_merge_trial_close(&s->trial);
    return st;
}

/* These enqueue: the way there, the merge, where state `apart` is read from `block` (SIZE_MAX: none is apart), and the
 * way back. */
static enum ha_status send(struct on_device *d, struct ha_stream *stream)
{
    return ha_stage_did(d->s, d->api->copy(stream, d->there, d->in, d->bytes, HA_H2D), "copy to the device");
}

static enum ha_status merge(struct on_device *d, size_t apart, unsigned char *block)
{
    const struct ha_batch *b = d->s->trial.batch;
    struct ha_merge_state states[HA_STAGE_STATES_MAX];
    struct ha_merge call = b->calls[0];
    for (size_t m = 0; m < call.states_count; m++)
        states[m] = ha_subject_there(b, m == apart ? block : d->there, b->in[m]);
    call.states = states;
    call.out = ha_subject_there(b, d->there, b->out);
    return ha_stage_did(d->s, d->api->merge(d->stream, &call), "merge");
}

static enum ha_status fetch(struct on_device *d)
{
    return ha_stage_did(d->s, d->api->copy(d->stream, d->back, d->there, d->bytes, HA_D2H), "copy from the device");
}

/* Poisons all three blocks, and returns when that is done. */
static enum ha_status poison(struct on_device *d)
{
    memset(d->in, POISON, d->bytes);
    memset(d->back, POISON, d->bytes);
    HA_TRY(send(d, d->stream));
    return ha_stage_did(d->s, d->api->stream_sync(d->stream), "poisoning device memory");
}

/* Waits for the stream and puts all that came back into the batch. */
static enum ha_status finish(struct on_device *d, const char *what)
{
    HA_TRY(ha_stage_did(d->s, d->api->stream_sync(d->stream), what));
    memcpy(d->s->trial.batch->begin, d->back, d->bytes);
    return HA_OK;
}

/* ---- a merge behind a producer that is late, on its own stream and on another, and from a graph with other inputs */

struct producer {
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
    bool enqueued; /* atomic: what reads it has been, so that what is read too early is not there yet */
};

/* A device may hold up whoever enqueues until the producer is done: it is not waited for without end. */
static void produce_late(void *arg)
{
    const struct producer *p = arg;
    const uint64_t end_ns = ha_now_ns() + PATIENCE_NS;
    while (!__atomic_load_n(&p->enqueued, __ATOMIC_ACQUIRE) && ha_now_ns() < end_ns) ha_sleep_ns(LATE_NS / 100);
    ha_sleep_ns(LATE_NS);
    memcpy(p->to, p->from, p->bytes);
}

/* other: the stream of the producer, and event orders it before the merge; or NULL: there is one stream. */
static enum ha_status enqueue(struct on_device *d, struct ha_stream *other, struct ha_event *event,
                              struct producer *producer)
{
    struct ha_stream *first = other ? other : d->stream;
    HA_TRY(ha_stage_did(d->s, d->api->host_fn(first, produce_late, producer), "host_fn"));
    HA_TRY(send(d, first));
    if (other) {
        HA_TRY(ha_stage_did(d->s, d->api->event_record(event, other), "event_record"));
        HA_TRY(ha_stage_did(d->s, d->api->stream_wait(d->stream, event), "stream_wait"));
    }
    HA_TRY(merge(d, SIZE_MAX, NULL));
    return fetch(d);
}

/* Everything is enqueued while the producer sleeps. */
static enum ha_status late(struct on_device *d, struct ha_stream *other, struct ha_event *event)
{
    const char *what = other ? "late producer on another stream" : "late producer on the same stream";
    struct producer producer = { d->in, d->s->trial.batch->snapshot, d->bytes, false };
    HA_TRY(poison(d));
    const enum ha_status st = enqueue(d, other, event, &producer);
    __atomic_store_n(&producer.enqueued, true, __ATOMIC_RELEASE);
    /* wait for the stream even after a failure: the producer reads its argument until then */
    const enum ha_status end = d->api->stream_sync(other ? other : d->stream);
    HA_TRY(st);
    HA_TRY(ha_stage_did(d->s, end, what));
    HA_TRY(finish(d, what));
    return ha_stage_judge(d->s, what);
}

static enum ha_status other_stream(struct on_device *d)
{
    const struct ha_device_api *api = d->api;
    struct ha_stream *other = NULL;
    struct ha_event *event = NULL;
    enum ha_status st = api->stream_create(d->device, "producer", &other, d->s->why);
    if (st == HA_OK) st = api->event_create(d->device, &event, d->s->why);
    if (st == HA_OK) st = late(d, other, event);
    if (event) api->event_destroy(event);
    if (other) api->stream_destroy(other);
    return st;
}

static bool has_graphs(const struct ha_device_api *api)
{
    return api->graph_begin && api->graph_end && api->graph_launch;
}

static enum ha_status enqueue_all(struct on_device *d, const void *arg)
{
    HA_TRY(send(d, d->stream));
    HA_TRY(merge(d, SIZE_MAX, NULL));
    return fetch(d);
}

/* what body(d, arg) enqueues */
static enum ha_status capture(struct on_device *d, enum ha_status (*body)(struct on_device *d, const void *arg),
                              const void *arg, struct ha_graph **graph)
{
    struct ha_why why = { "" };
    HA_TRY(ha_stage_did(d->s, d->api->graph_begin(d->stream), "graph_begin"));
    const enum ha_status st = body(d, arg);
    /* the capture is ended after a failure too, since the stream is used again */
    const enum ha_status end = d->api->graph_end(d->stream, graph, &why);
    HA_TRY(st);
    return end == HA_OK ? HA_OK : ha_why(d->s->why, end, "%s", why.text);
}

/* NULL: it was not made */
static void graph_end(struct on_device *d, struct ha_graph *graph)
{
    d->api->stream_sync(d->stream);
    if (graph && d->api->graph_destroy) d->api->graph_destroy(graph);
}

/* Captured over poison, launched with the case's rows, and with others in the same memory. */
static enum ha_status launches(struct on_device *d, struct ha_graph *graph)
{
    static const char *const what[] = { "graph, first launch",
                                        "graph, second launch, other inputs in the same memory" };
    for (size_t i = 0; i < 2; i++) {
        ha_merge_trial_fill(&d->s->trial, d->s->seed + i, d->s->c->fill, NULL);
        memcpy(d->in, d->s->trial.batch->snapshot, d->bytes);
        HA_TRY(ha_stage_did(d->s, d->api->graph_launch(graph, d->stream), "graph_launch"));
        HA_TRY(finish(d, what[i]));
        HA_TRY(ha_stage_judge(d->s, what[i]));
    }
    return HA_OK;
}

static enum ha_status from_graph(struct on_device *d)
{
    struct ha_graph *graph = NULL;
    HA_TRY(poison(d));
    enum ha_status st = capture(d, enqueue_all, NULL, &graph);
    if (st == HA_OK) st = launches(d, graph);
    graph_end(d, graph);
    return st;
}

static enum ha_status in_order(struct on_device *d)
{
    const struct ha_device_api *api = d->api;
    struct ha_why *why = d->s->why;
    if (!api->host_fn) return ha_why(why, HA_WAIVED, "the device does not offer host_fn");
    HA_TRY(late(d, NULL, NULL));
    HA_TRY(other_stream(d));
    if (has_graphs(api)) return from_graph(d);
    return ha_why(why, HA_OK, "without a graph: the device does not offer graph_begin");
}

/* ---- One state comes from a CPU thread into mapped memory and is announced by a flag. Flag before data is a mistake
 * then made on purpose, and must be seen: a check that misses the planted one would miss a real one too. */

struct writer {
    struct producer state;
    uint32_t *flag;
    bool flag_first;
    sem_t merged; /* where the flag comes first: posted after the merge, and the data is written only then */
};

static void *write_state(void *arg)
{
    struct writer *w = arg;
    if (w->flag_first) {
        __atomic_store_n(w->flag, 1, __ATOMIC_RELEASE);
        while (sem_wait(&w->merged) != 0) continue;
    }
    produce_late(&w->state);
    if (!w->flag_first) __atomic_store_n(w->flag, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Mapped memory: a block, and behind it the flag. */
struct mailbox {
    unsigned char *block;
    uint32_t *flag;
};

/* The merge behind the flag; reset: which is 0 again behind it, for the next time that a graph runs. */
static enum ha_status enqueue_announced(struct on_device *d, const struct mailbox *box, bool reset)
{
    struct ha_stage_run *s = d->s;
    HA_TRY(send(d, d->stream));
    HA_TRY(ha_stage_did(s, d->api->flag_wait(d->stream, box->flag, 1), "flag_wait"));
    HA_TRY(merge(d, s->shape.states - 1, box->block));
    HA_TRY(fetch(d));
    return reset ? ha_stage_did(s, d->api->flag_write(d->stream, box->flag, 0), "flag_write") : HA_OK;
}

/* The result lies in the batch. graph: what was captured, or NULL: it is enqueued. */
static enum ha_status merge_announced(struct on_device *d, const struct mailbox *box, struct ha_graph *graph,
                                      bool flag_first, const char *what)
{
    struct ha_stage_run *s = d->s;
    struct writer w = { .state = { box->block, s->trial.batch->snapshot, d->bytes, false },
                        .flag = box->flag,
                        .flag_first = flag_first };
    pthread_t thread;
    HA_TRY(poison(d));
    memset(box->block, POISON, d->bytes);
    memcpy(d->in, s->trial.batch->snapshot, d->bytes);
    sem_init(&w.merged, 0, 0);
    if (pthread_create(&thread, NULL, write_state, &w) != 0) {
        sem_destroy(&w.merged);
        return ha_why(s->why, HA_ERROR, "no thread for the CPU's state");
    }
    const enum ha_status st = graph ? ha_stage_did(s, d->api->graph_launch(graph, d->stream), "graph_launch")
                                    : enqueue_announced(d, box, false);
    __atomic_store_n(&w.state.enqueued, true, __ATOMIC_RELEASE);
    const enum ha_status end = d->api->stream_sync(d->stream);
    sem_post(&w.merged);
    pthread_join(thread, NULL);
    sem_destroy(&w.merged);
    HA_TRY(st);
    HA_TRY(ha_stage_did(s, end, what));
    if (memcmp(box->block, s->trial.batch->snapshot, d->bytes) != 0)
        return ha_why(s->why, HA_FAIL, "%s: wrote over the CPU's state, which is only read", what);
    return finish(d, what);
}

/* A poisoned state holds nothing but NaN, so every element of every merged row must be NaN. */
static enum ha_status poison_seen(struct ha_stage_run *s)
{
    struct ha_judgement j = { .status = HA_OK };
    float o[HA_STAGE_DIM], lse, sum;
    for (size_t r = 0; r < s->trial.rows.count; r++) {
        ha_judge_row(&j, s->trial.batch, &s->trial.rows, r, s->c->must, &s->subject->traits);
        ha_batch_get(s->trial.batch, HA_RESULT, r, o, &lse, &sum);
        size_t i = 0;
        while (i < s->shape.dim && isnan(o[i])) i++;
        if (i == s->shape.dim && isnan(lse)) continue;
        const double got = i < s->shape.dim ? (double)o[i] : (double)lse;
        *s->j = (struct ha_judgement){ .status = HA_FAIL,
                                       .ratio = HUGE_VAL,
                                       .row = r,
                                       .element = i,
                                       .got = got,
                                       .want = (double)NAN,
                                       .against = "NaN, which the buffer was poisoned with",
                                       .rows = s->j->rows,
                                       .exact = s->j->exact };
        return ha_why(s->why, HA_FAIL,
                      "flag before data: the poisoned buffer was not seen: row %zu, element %zu is %.9g, not NaN", r, i,
                      got);
    }
    if (j.status == HA_FAIL) return ha_batch_intact(s->trial.batch, s->why);
    return ha_why(s->why, HA_FAIL, "flag before data: the poisoned buffer was not seen: the result was judged right");
}

static enum ha_status enqueue_reset(struct on_device *d, const void *box) { return enqueue_announced(d, box, true); }

/* The flag is written by the CPU, and reset by the graph: each launch waits for the state of its own. */
static enum ha_status announced_again(struct on_device *d, const struct mailbox *box)
{
    static const char *const what[] = { "graph behind a flag, first launch",
                                        "graph behind a flag that it resets, second launch" };
    struct ha_graph *graph = NULL;
    __atomic_store_n(box->flag, 0, __ATOMIC_RELEASE);
    enum ha_status st = capture(d, enqueue_reset, box, &graph);
    for (size_t i = 0; i < 2 && st == HA_OK; i++) {
        ha_merge_trial_fill(&d->s->trial, d->s->seed + i, d->s->c->fill, NULL);
        st = merge_announced(d, box, graph, false, what[i]);
        if (st == HA_OK) st = ha_stage_judge(d->s, what[i]);
    }
    graph_end(d, graph);
    return st;
}

static enum ha_status announced_in(struct on_device *d, const struct mailbox *box)
{
    const struct ha_device_api *api = d->api;
    __atomic_store_n(box->flag, 0, __ATOMIC_RELEASE);
    HA_TRY(merge_announced(d, box, NULL, false, "data before flag"));
    HA_TRY(ha_stage_judge(d->s, "data before flag"));
    __atomic_store_n(box->flag, 0, __ATOMIC_RELEASE);
    HA_TRY(merge_announced(d, box, NULL, true, "flag before data"));
    HA_TRY(poison_seen(d->s));
    if (!has_graphs(api) || !api->flag_write)
        return ha_why(d->s->why, HA_OK, "without a graph: the device does not offer %s",
                      has_graphs(api) ? "flag_write" : "graph_begin");
    return announced_again(d, box);
}

static enum ha_status announced(struct on_device *d)
{
    const size_t at = (d->bytes + LINE - 1) / LINE * LINE;
    struct ha_why why = { "" };
    void *mapped;
    if (!d->api->flag_wait) return ha_why(d->s->why, HA_WAIVED, "the device does not offer flag_wait");
    if (d->api->mem_alloc(d->device, HA_MEM_MAPPED, at + LINE, &mapped, &why) != HA_OK)
        return ha_why(d->s->why, HA_WAIVED, "needs mapped memory: %.400s", why.text);
    const struct mailbox box = { mapped, (uint32_t *)(void *)((unsigned char *)mapped + at) };
    const enum ha_status st = announced_in(d, &box);
    d->api->mem_free(d->device, HA_MEM_MAPPED, mapped);
    return st;
}

/* ---- splits of one context, on a device that attends to them ------------------------------- */

static enum ha_status splits(struct ha_stage_run *s)
{
    const struct ha_attention_subject by = { .name = s->subject->name,
                                             .api = s->subject->api,
                                             .device = s->subject->device };
    struct ha_attention_result got;
    const enum ha_status st = ha_attention_on_streams(&by, s->shape.form, s->seed, &got, s->why);
    s->j->rows = got.rows;
    s->j->ratio = got.ratio;
    s->j->outputs = got.outputs;
    if (st == HA_OK) s->j->against = "attention over all tokens";
    return st;
}

/* ---- a stage ----------------------------------------------------------------------------- */

enum ha_status ha_merge_stage(const struct ha_merge_case *c, struct ha_subject *subject, enum ha_form form,
                              enum ha_dtype dtype, uint64_t seed, struct ha_judgement *j, struct ha_why *why)
{
    const bool streams = ha_stage_streams(c->stage);
    if (subject->stage && (streams || subject->elsewhere)) return subject->stage(subject, c, form, dtype, seed, j, why);
    struct ha_stage_run s = { .c = c, .subject = subject, .seed = seed, .j = j, .why = why };
    s.shape = (struct ha_merge_shape){
        .states = c->states_min,
        .tokens = 3,
        .heads = 4,
        .dim = HA_STAGE_DIM,
        .form = form,
        .dtype = dtype,
        .plus_inf = c->plus_inf,
        .layout = subject->traits.lse_order == HA_LSE_HEADS_TOKENS ? HA_LAYOUT_HEADS_FIRST : HA_LAYOUT_PACKED,
    };
    why->text[0] = 0;
    const char *unfit = ha_subject_unfit(subject, &s.shape);
    if (unfit) return ha_why(why, HA_WAIVED, "%s", unfit);
    if (streams && !subject->api && !subject->merge)
        return ha_why(why, HA_WAIVED, "it needs streams, and a command has none, nor a function that they could call");
    struct ha_subject embedded = { 0 };
    if (streams && !subject->api) HA_TRY(ha_subject_embedded(&embedded, subject, why));
    if (embedded.api) s.subject = &embedded;
    const enum ha_status st = !streams                      ? ha_stage_huge(&s)
                              : c->stage == HA_STAGE_SPLIT  ? splits(&s)
                              : c->stage == HA_STAGE_STREAM ? run_on_device(&s, in_order)
                                                            : run_on_device(&s, announced);
    ha_subject_close(&embedded);
    if (st == HA_FAIL) j->status = HA_FAIL;
    return st;
}
