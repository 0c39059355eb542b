/* Each run of a problem attended by itself, then all merged: one after the other, and on the streams of a device. */

#include "suites/merge/attention_parts.h"

#include "harness/base/thread.h"
#include "harness/base/why.h"
#include "suites/merge/batch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double U = 0x1p-24;

/* ---- one after the other --------------------------------------------------------------------------------------- */

/* What one problem needs beside the block. wanted[runs_count] is of all runs together. */
struct split {
    struct ha_problem *p;
    struct ha_attention_bench *bench;
    struct ha_wanted wanted[HA_RUNS_MAX + 1];
    float *lse;     /* [runs][rows] the natural LSE that the subject returned, rows [tokens][heads] */
    double *merged; /* [4][head_dim] of the oracle's merge */
};

static void split_free(struct split *s)
{
    for (size_t i = 0; i <= HA_RUNS_MAX; i++) ha_wanted_free(&s->wanted[i]);
    free(s->lse);
    free(s->merged);
}

/* It is to be freed after a failure, too. */
static enum ha_status split_make(struct split *s, struct ha_problem *p, struct ha_attention_bench *bench,
                                 struct ha_why *why)
{
    *s = (struct split){ .p = p, .bench = bench };
    s->lse = malloc(p->runs_count * ha_problem_rows(p) * sizeof *s->lse);
    s->merged = malloc(4 * p->head_dim * sizeof *s->merged);
    return s->lse && s->merged ? HA_OK : ha_why(why, HA_ERROR, "no memory");
}

/* Run i alone; only the last one holds the query tokens. */
static struct ha_problem part_of(const struct ha_problem *p, size_t i)
{
    struct ha_problem part = *p;
    part.first_run = i;
    part.runs_count = i + 1;
    part.causal = p->causal && i + 1 == p->runs_count;
    return part;
}

/* the oracle, of each run and of all */
static enum ha_status answer(struct split *s, struct ha_why *why)
{
    const struct ha_problem *p = s->p;
    for (size_t i = 0; i <= p->runs_count; i++) {
        const struct ha_problem part = i < p->runs_count ? part_of(p, i) : *p;
        HA_TRY(ha_wanted_make(&s->wanted[i], &part, &s->bench->profile[p->dtype], why));
    }
    return HA_OK;
}

/* Each run by itself, judged like any other attention. */
static enum ha_status attend_parts(struct split *s, struct ha_attention_result *out, struct ha_why *why)
{
    const struct ha_problem *p = s->p;
    const size_t rows = ha_problem_rows(p);
    HA_TRY(answer(s, why));
    for (size_t i = 0; i < p->runs_count; i++) {
        const struct ha_problem part = part_of(p, i);
        HA_TRY(ha_attention_attend(s->bench, &part, i, why));
    }
    HA_TRY(ha_attention_move(s->bench, p->out_at, p->end_at, HA_D2H, why));
    HA_TRY(ha_attention_given(s->bench, p, why));
    for (size_t i = 0; i < p->runs_count; i++) {
        const struct ha_problem part = part_of(p, i);
        char what[48];
        snprintf(what, sizeof what, "run %zu alone: ", i);
        for (size_t r = 0; r < rows; r++) {
            s->lse[i * rows + r] = *ha_problem_lse(p, i, r);
            HA_TRY(ha_problem_judge(&part, r, what, ha_problem_o(p, i, r), s->lse[i * rows + r],
                                    ha_wanted_state(&s->wanted[i], p, r), out, why));
            HA_TRY(ha_problem_judge_types(&part, r, &s->bench->profile[p->dtype], ha_problem_o(p, i, r),
                                          s->lse[i * rows + r], why));
        }
        HA_TRY(ha_problem_look(&part, i, s->bench, &s->wanted[i], out, why));
    }
    return HA_OK;
}

static struct ha_merge_state state_at(const struct split *s, size_t i, enum ha_form form)
{
    const struct ha_problem *p = s->p;
    char *base = s->bench->there;
    const bool heads_first = s->bench->traits.lse_order == HA_LSE_HEADS_TOKENS;
    return (struct ha_merge_state){
        .o = base + p->o_at + i * p->o_step,
        .lse = (float *)(void *)(base + p->lse_at + i * p->lse_step),
        .sum = form == HA_FORM_MAX_SUM ? (float *)(void *)(base + p->sum_at + i * p->lse_step) : NULL,
        .o_token_stride = p->q_token,
        .o_head_stride = p->q_head,
        .lse_token_stride = heads_first ? 1 : ha_problem_heads(p),
        .lse_head_stride = heads_first ? p->q_len : 1,
    };
}

/* The number of row r in copy i, in the order of state_at. */
static float *lse_in(const struct split *s, size_t at, size_t i, size_t r)
{
    const struct ha_problem *p = s->p;
    const size_t heads = ha_problem_heads(p);
    const size_t n = s->bench->traits.lse_order == HA_LSE_HEADS_TOKENS ? r % heads * p->q_len + r / heads : r;
    return (float *)(void *)(p->host + at + i * p->lse_step) + n;
}

/* Attention over all keys, with the bound of a merge of the parts' own bounds and of storing their L. */
static enum ha_status judge_merged(struct split *s, const struct ha_merge_bound *bound, size_t r,
                                   struct ha_attention_result *out, struct ha_why *why)
{
    const struct ha_problem *p = s->p;
    const size_t dim = p->head_dim, runs = p->runs_count;
    const struct ha_ref_state *whole = ha_wanted_state(&s->wanted[runs], p, r);
    struct ha_ref_state part[HA_RUNS_MAX];
    for (size_t i = 0; i < runs; i++) {
        part[i] = *ha_wanted_state(&s->wanted[i], p, r);
        if (bound->form == HA_FORM_BASE2 && part[i].lse != -HUGE_VAL)
            part[i].lse_bound += U * (fabs(part[i].lse) + part[i].lse_bound);
    }
    struct ha_ref_state want = {
        .o = s->merged, .bound = s->merged + dim, .v_min = s->merged + 2 * dim, .v_max = s->merged + 3 * dim, .dim = dim
    };
    ha_ref_merge(part, runs, bound, &want);
    want.o = whole->o;
    want.lse = whole->lse;

    const double lse = ha_form_decode(bound->form, *lse_in(s, p->lse_at, runs, r), *lse_in(s, p->sum_at, runs, r));
    if (lse != -HUGE_VAL) want.lse_bound += U * fabs(lse); /* the judge takes a float */
    char what[48];
    snprintf(what, sizeof what, "%zu runs merged (%s): ", runs, ha_form_name(bound->form));
    return ha_problem_judge(p, r, what, ha_problem_o(p, runs, r), (float)lse, &want, out, why);
}

static enum ha_status judge_all(struct split *s, enum ha_form form, struct ha_attention_result *out, struct ha_why *why)
{
    const struct ha_merge_bound bound = ha_bound_merge(&s->bench->traits, form, HA_F32);
    for (size_t r = 0; r < ha_problem_rows(s->p); r++) HA_TRY(judge_merged(s, &bound, r, out, why));
    return HA_OK;
}

/* of all runs, whose states are put into `states` */
static struct ha_merge merge_of(const struct split *s, enum ha_form form, struct ha_merge_state states[HA_RUNS_MAX])
{
    const struct ha_problem *p = s->p;
    for (size_t i = 0; i < p->runs_count; i++) states[i] = state_at(s, i, form);
    return (struct ha_merge){
        .form = form,
        .dtype = HA_F32,
        .states = states,
        .states_count = p->runs_count,
        .tokens = p->q_len,
        .heads = ha_problem_heads(p),
        .dim = p->head_dim,
        .out = state_at(s, p->runs_count, form),
    };
}

static enum ha_status merge_parts(struct split *s, enum ha_form form, struct ha_attention_result *out,
                                  struct ha_why *why)
{
    const struct ha_problem *p = s->p;
    const size_t runs = p->runs_count, rows = ha_problem_rows(p);
    for (size_t i = 0; i < runs; i++)
        for (size_t r = 0; r < rows; r++) {
            /* with (max, sum) any split of L is a state; that into L and 1 costs no rounding */
            *lse_in(s, p->lse_at, i, r) = ha_form_encode(form, (double)s->lse[i * rows + r], 1);
            *lse_in(s, p->sum_at, i, r) = 1;
        }
    memset(p->host + p->o_at + runs * p->o_step, 0xFF, p->o_step);
    memset(p->host + p->lse_at + runs * p->lse_step, 0xFF, p->lse_step);
    memset(p->host + p->sum_at + runs * p->lse_step, 0xFF, p->lse_step);
    struct ha_merge_state states[HA_RUNS_MAX];
    const struct ha_merge args = merge_of(s, form, states);
    HA_TRY(ha_attention_move(s->bench, p->out_at, p->end_at, HA_H2D, why));
    HA_TRY(ha_attention_merge(s->bench, &args, why));
    HA_TRY(ha_attention_move(s->bench, p->out_at, p->end_at, HA_D2H, why));
    return judge_all(s, form, out, why);
}

static enum ha_status run(struct split *s, struct ha_attention_result *out, struct ha_why *why)
{
    const struct ha_merge_traits *t = &s->bench->traits;
    HA_TRY(ha_attention_move(s->bench, 0, s->p->end_at, HA_H2D, why));
    HA_TRY(attend_parts(s, out, why));
    for (unsigned form = 0; form < HA_FORM_COUNT; form++)
        if (t->forms >> form & 1u) HA_TRY(merge_parts(s, (enum ha_form)form, out, why));
    return HA_OK;
}

static enum ha_status can_merge(const struct ha_attention_bench *bench, struct ha_why *why)
{
    const struct ha_attention_subject *by = bench->subject;
    const struct ha_merge_traits *t = &bench->traits;
    const bool has_merge = by->kernels ? by->kernels->merge != NULL : by->api->merge != NULL;
    return has_merge && t->forms && t->dtypes >> HA_F32 & 1u && t->states_max != 1
               ? HA_OK
               : ha_why(why, HA_WAIVED, "%s: no merge of f32 states is offered", by->name);
}

enum ha_status ha_attention_split(struct ha_problem *p, struct ha_attention_bench *bench,
                                  struct ha_attention_result *out, struct ha_why *why)
{
    const struct ha_merge_traits *t = &bench->traits;
    HA_TRY(can_merge(bench, why));
    if (t->states_max > 0 && p->runs_count > t->states_max) return HA_OK;
    struct split s;
    enum ha_status status = split_make(&s, p, bench, why);
    if (status == HA_OK) status = run(&s, out, why);
    split_free(&s);
    return status;
}

/* ---- on the streams of a device ---------------------------------------------------------------------------------- */

enum { AT_ONCE = 2, GRAPHS = 2, LATE_NS = 20000000 };

struct streams {
    const struct ha_device_api *api;
    struct ha_stream *of[AT_ONCE]; /* that splits are attended on, by turns; the bench's is that of the merge */
    struct ha_event *done[AT_ONCE];
    struct ha_graph *graph;
};

static enum ha_status streams_make(struct streams *st, const struct ha_attention_subject *by, struct ha_why *why)
{
    *st = (struct streams){ .api = by->api };
    for (size_t i = 0; i < AT_ONCE; i++) {
        HA_TRY(by->api->stream_create(by->device, "split", &st->of[i], why));
        HA_TRY(by->api->event_create(by->device, &st->done[i], why));
    }
    return HA_OK;
}

static void streams_free(struct streams *st)
{
    if (st->graph && st->api->graph_destroy) st->api->graph_destroy(st->graph);
    for (size_t i = 0; i < AT_ONCE; i++) {
        if (st->of[i]) st->api->stream_destroy(st->of[i]);
        if (st->done[i]) st->api->event_destroy(st->done[i]);
    }
}

static void be_late(void *arg) { ha_sleep_ns(LATE_NS); }

/* Each split on one of so many streams. */
static enum ha_status enqueue_splits(const struct split *s, struct ha_stream *const *of, size_t streams)
{
    for (size_t i = 0; i < s->p->runs_count; i++) {
        const struct ha_problem part = part_of(s->p, i);
        HA_TRY(ha_attention_enqueue(s->bench, &part, i, of[i % streams]));
    }
    return HA_OK;
}

static enum ha_status enqueue_merge(const struct split *s, enum ha_form form)
{
    struct ha_merge_state states[HA_RUNS_MAX];
    const struct ha_merge args = merge_of(s, form, states);
    return s->bench->subject->api->merge(s->bench->stream, &args);
}

/* late: the stream whose splits come long after all was enqueued */
static enum ha_status enqueue(const struct split *s, const struct streams *st, enum ha_form form, size_t late)
{
    HA_TRY(st->api->host_fn(st->of[late], be_late, NULL));
    HA_TRY(enqueue_splits(s, st->of, AT_ONCE));
    for (size_t i = 0; i < AT_ONCE; i++) {
        HA_TRY(st->api->event_record(st->done[i], st->of[i]));
        HA_TRY(st->api->stream_wait(s->bench->stream, st->done[i]));
    }
    return enqueue_merge(s, form);
}

/* the same, on one stream */
static enum ha_status capture(const struct split *s, struct streams *st, enum ha_form form, struct ha_why *why)
{
    struct ha_stream *const stream = s->bench->stream;
    enum ha_status status = st->api->graph_begin(stream);
    if (status != HA_OK) return ha_attention_finish(s->bench, "graph_begin", status, why);
    status = enqueue_splits(s, &stream, 1);
    if (status == HA_OK) status = enqueue_merge(s, form);
    /* the capture is ended after a failure too, since the stream is used again */
    const enum ha_status end = st->api->graph_end(stream, &st->graph, why);
    return status == HA_OK ? end : ha_attention_finish(s->bench, "splits in a graph", status, why);
}

/* All of it, once the numbers are there. */
static enum ha_status run_round(struct split *s, struct streams *st, enum ha_form form, size_t round,
                                struct ha_attention_result *out, struct ha_why *why)
{
    const struct ha_problem *p = s->p;
    const bool graph = round >= AT_ONCE;
    for (size_t i = 0; i < p->runs_count; i++) /* with (max, sum) L and 1 are the state */
        for (size_t r = 0; r < ha_problem_rows(p); r++) *lse_in(s, p->sum_at, i, r) = 1;
    HA_TRY(answer(s, why));
    HA_TRY(ha_attention_move(s->bench, 0, round ? p->out_at : p->end_at, HA_H2D, why));
    if (graph && !st->graph) HA_TRY(capture(s, st, form, why));
    const enum ha_status asked = graph ? st->api->graph_launch(st->graph, s->bench->stream)
                                       : enqueue(s, st, form, round),
                         done = asked == HA_OK ? ha_attention_move(s->bench, p->out_at, p->end_at, HA_D2H, why)
                                               : ha_attention_finish(s->bench, "splits on streams", asked, why);
    for (size_t i = 0; i < AT_ONCE; i++) st->api->stream_sync(st->of[i]); /* they read the block, after a failure too */
    HA_TRY(done);
    HA_TRY(ha_attention_given(s->bench, p, why));
    const enum ha_status status = judge_all(s, form, out, why);
    return status == HA_OK || !graph ? status : ha_why_prefix(why, status, "from a graph");
}

/* Each round has numbers of its own in the same memory: a merge that is early finds NaN in the first one, and the
 * states of the round before in the others. */
static enum ha_status run_rounds(const struct ha_problem *shape, struct ha_attention_bench *bench, struct streams *st,
                                 enum ha_form form, struct ha_attention_result *out, struct ha_why *why)
{
    const struct ha_device_api *api = st->api;
    const bool graphs = api->graph_begin && api->graph_end && api->graph_launch;
    enum ha_status status = HA_OK;
    for (size_t round = 0; round < AT_ONCE + (graphs ? GRAPHS : 0) && status == HA_OK; round++) {
        struct ha_problem p = *shape;
        struct split s;
        p.data = round;
        HA_TRY(ha_problem_lay(&p, bench, why));
        status = split_make(&s, &p, bench, why);
        if (status == HA_OK) status = run_round(&s, st, form, round, out, why);
        split_free(&s);
    }
    return status == HA_OK && !graphs ? ha_why(why, HA_OK, "without a graph: the device does not offer graph_begin")
                                      : status;
}

static enum ha_status run_type(struct ha_attention_bench *bench, enum ha_dtype dtype, enum ha_form form, uint64_t seed,
                               struct ha_attention_result *out, struct ha_why *why)
{
    const size_t most = bench->traits.states_max, dim_most = bench->head_dim_max;
    struct ha_problem p = { .case_name = "device_splits",
                            .seed = seed,
                            .dtype = dtype,
                            .batch = 1,
                            .kv_heads = 2,
                            .group = 2,
                            .q_len = 2,
                            .head_dim = dim_most && dim_most < 64 ? dim_most : 64,
                            .runs_count = most && most < HA_RUNS_MAX ? most : HA_RUNS_MAX,
                            .run = { 130, 71, 90, 2 },
                            .causal = true,
                            .scale = 0.125f };
    struct streams st;
    p.copies = p.runs_count + 1;
    enum ha_status status = streams_make(&st, bench->subject, why);
    if (status == HA_OK) status = run_rounds(&p, bench, &st, form, out, why);
    streams_free(&st);
    return status;
}

enum ha_status ha_attention_on_streams(const struct ha_attention_subject *subject, enum ha_form form, uint64_t seed,
                                       struct ha_attention_result *out, struct ha_why *why)
{
    struct ha_attention_bench bench;
    *out = (struct ha_attention_result){ .sense = { (double)NAN, (double)NAN, (double)NAN } };
    if (!subject->api->host_fn) return ha_why(why, HA_WAIVED, "the device does not offer host_fn");
    HA_TRY(ha_attention_open(&bench, subject, seed, why));
    enum ha_status status = can_merge(&bench, why);
    if (status == HA_OK && bench.traits.lse_order == HA_LSE_HEADS_TOKENS)
        status = ha_why(why, HA_WAIVED, "it merges LSE [heads][tokens], and attention writes [tokens][heads]");
    for (unsigned t = 0; t < HA_DTYPE_COUNT && status == HA_OK; t++)
        status = run_type(&bench, (enum ha_dtype)t, form, seed, out, why);
    if (!ha_attention_promises(&bench)) out->outputs = 0;
    ha_attention_close(&bench);
    return status;
}
