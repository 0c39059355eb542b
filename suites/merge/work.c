#include "suites/merge/work.h"

#include "harness/base/clock.h"
#include "harness/base/stop.h"
#include "harness/base/try.h"
#include "harness/base/why.h"
#include "suites/merge/stage.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum ha_status ha_merge_source_open(const struct ha_merge_source *s, struct ha_subject *out, struct ha_why *why)
{
    switch (s->kind) {
    case HA_FROM_FUNCTION: return ha_subject_direct(out, s->name, &s->traits, s->merge, why);
    case HA_FROM_DEVICE: return ha_subject_device(out, s->name, s->api, s->device, why);
    case HA_FROM_PLUGIN: return ha_subject_plugin(out, s->text, s->limit_ns, why);
    case HA_FROM_EXEC: return ha_subject_exec(out, s->text, s->limit_ns, why);
    }
    return HA_ERROR;
}

uint64_t ha_merge_lost_ns(const struct ha_merge_source *s) { return s->lost_ns ? *s->lost_ns : 0; }

/* ---- cells ------------------------------------------------------------------------------- */

enum ha_status ha_merge_cell_status(const struct ha_merge_cell *c)
{
    if (c->j.status == HA_FAIL) return HA_FAIL;
    if (c->errors) return HA_ERROR;
    return c->runs ? HA_OK : HA_WAIVED;
}

void ha_merge_cells_clear(struct ha_merge_cell *cell, size_t count)
{
    memset(cell, 0, count * sizeof *cell);
    for (size_t i = 0; i < count; i++) {
        cell[i].first_bad = SIZE_MAX;
        cell[i].worst_planted = HUGE_VAL;
    }
}

static void join(struct ha_merge_cell *into, const struct ha_merge_cell *from)
{
    ha_judgement_join(&into->j, &from->j);
    into->runs += from->runs;
    into->waived += from->waived;
    into->refused += from->refused;
    into->errors += from->errors;
    into->worst_planted = fmin(into->worst_planted, from->worst_planted);
    if (from->first_bad < into->first_bad) {
        into->first_bad = from->first_bad;
        into->task = from->task;
        into->bad = from->bad;
        into->why = from->why;
    } else if (into->first_bad == SIZE_MAX && !into->why.text[0]) into->why = from->why;
}

static void note_bad(struct ha_merge_cell *cell, size_t index, const struct ha_merge_task *task,
                     const struct ha_judgement *j, const struct ha_why *why)
{
    if (index >= cell->first_bad) return;
    cell->first_bad = index;
    cell->task = *task;
    cell->bad = *j;
    cell->why = *why;
}

void ha_merge_cell_enter(struct ha_merge_cell *cell, size_t index, const struct ha_merge_task *t, enum ha_status st,
                         bool refused, const struct ha_judgement *j, const struct ha_why *why)
{
    if (st == HA_WAIVED) {
        cell->waived++;
        if (cell->first_bad == SIZE_MAX && !cell->why.text[0]) cell->why = *why;
        return;
    }
    cell->runs++;
    if (refused && t->c && t->c->may_reject) {
        cell->refused++;
        return;
    }
    ha_judgement_join(&cell->j, j);
    if (st == HA_ERROR) cell->errors++;
    if (st == HA_FAIL) cell->j.status = HA_FAIL;
    if (st != HA_OK || j->status == HA_FAIL) note_bad(cell, index, t, j, why);
}

/* ---- a task ------------------------------------------------------------------------------ */

const uint64_t ha_merge_patience_ns = 60000000000u;

struct worker {
    uint64_t *lost_ns;          /* [sources] spent on runs that ended in an error */
    struct ha_subject *subject; /* [sources] */
    struct ha_merge_cell *cell; /* [items][sources] */
    struct ha_room room;        /* for subjects without one of their own */
    struct ha_merge_rows rows;  /* of the task in hand */
    struct ha_batch *batch;     /* those rows in `room`, or NULL */
};

static enum ha_status own_batch(struct worker *w, const struct ha_merge_shape *shape, struct ha_why *why)
{
    const size_t bytes = ha_batch_bytes(shape);
    if (w->room.bytes < bytes) {
        ha_room_unmap(&w->room);
        HA_TRY(ha_room_map(bytes, &w->room, why));
    }
    w->batch = ha_batch_make(&w->room, shape);
    return w->batch ? HA_OK : ha_why(why, HA_ERROR, "no memory for the snapshot of a batch");
}

/* Merges the rows with one subject and judges them. HA_FAIL with j->status HA_OK: it refused, or wrote elsewhere. */
static enum ha_status merge_rows(struct worker *w, size_t source, const struct ha_merge_task *t, enum ha_must must,
                                 struct ha_judgement *j, bool *refused, struct ha_why *why)
{
    struct ha_subject *subject = &w->subject[source];
    struct ha_batch *batch = w->batch, *theirs = NULL;
    *refused = false;
    if (subject->room) {
        struct ha_room room;
        HA_TRY(subject->room(subject, ha_batch_bytes(&t->shape), &room, why));
        batch = theirs = ha_batch_make(&room, &t->shape);
        if (!batch) return ha_why(why, HA_ERROR, "no memory for the snapshot of a batch");
        ha_merge_rows_again(&w->rows, batch);
    }
    const uint64_t begin_ns = ha_now_ns();
    enum ha_status st = subject->run(subject, batch, why);
    if (st == HA_ERROR) w->lost_ns[source] += ha_now_ns() - begin_ns;
    *refused = st == HA_FAIL;
    if (st == HA_OK) st = ha_batch_intact(batch, why);
    for (size_t r = 0; r < w->rows.count && st == HA_OK; r++)
        if (t->row == SIZE_MAX || t->row == r) ha_judge_row(j, batch, &w->rows, r, must, &subject->traits);
    if (theirs) ha_batch_free(theirs);
    else ha_batch_restore(batch, st != HA_OK);
    return st;
}

/* The rows are judged twice: without the planted error they must pass, with it they must fail. */
static void run_planted(const struct ha_merge_job *job, struct worker *w, size_t source, const struct ha_merge_task *t,
                        size_t index)
{
    struct ha_merge_cell *cell = &w->cell[t->item * job->sources + source];
    struct ha_judgement j = { 0 };
    struct ha_why why = { "" };
    bool refused;
    enum ha_status st = merge_rows(w, source, t, HA_MUST_FAIL, &j, &refused, &why);
    if (st == HA_OK) {
        cell->worst_planted = fmin(cell->worst_planted, j.ratio);
        if (j.ratio > 1) {
            cell->runs++;
            return;
        }
        st = ha_why(&why, HA_FAIL, "the planted error was not seen: err/bound is %.3g", j.ratio);
    }
    ha_merge_cell_enter(cell, index, t, st, refused, &j, &why);
}

static bool due(const struct ha_merge_job *job, const struct worker *w, size_t source, const struct ha_merge_task *t)
{
    const struct ha_merge_cell *cell = &w->cell[t->item * job->sources + source];
    /* a subject that crashed or hung on an item is not asked for that item again */
    if (cell->errors || (job->stop_at_first && cell->first_bad != SIZE_MAX)) return false;
    return !job->skip || !job->skip(job->arg, t, source);
}

static void run_subject(const struct ha_merge_job *job, struct worker *w, size_t source, const struct ha_merge_task *t,
                        size_t index)
{
    struct ha_merge_cell *cell = &w->cell[t->item * job->sources + source];
    const char *unfit = ha_subject_unfit(&w->subject[source], &t->shape);
    const uint64_t lost_ns = w->lost_ns[source] + ha_merge_lost_ns(&job->source[source]);
    struct ha_judgement j = { 0 };
    struct ha_why why = { "" };
    bool refused = false;
    enum ha_status st;
    if (unfit) st = ha_why(&why, HA_WAIVED, "%s", unfit);
    else if (t->row != SIZE_MAX && t->row >= t->shape.tokens * t->shape.heads)
        st = ha_why(&why, HA_WAIVED, "there is no row %zu", t->row);
    else if (lost_ns > ha_merge_patience_ns)
        st = ha_why(&why, HA_ERROR, "given up: it has not answered for %.0f s in all", (double)lost_ns / 1e9);
    else if (t->c && t->c->stage != HA_STAGE_PLAIN)
        st = ha_merge_stage(t->c, &w->subject[source], t->shape.form, t->shape.dtype, t->seed, &j, &why);
    else
        st = merge_rows(w, source, t, t->c ? t->c->must == HA_MUST_FAIL ? HA_MUST_BOUND : t->c->must : HA_MUST_BOUND,
                        &j, &refused, &why);
    ha_merge_cell_enter(cell, index, t, st, refused, &j, &why);
}

static void give_up(const struct ha_merge_job *job, struct worker *w, const struct ha_merge_task *t, size_t index,
                    struct ha_why *why)
{
    const struct ha_judgement none = { 0 };
    for (size_t s = 0; s < job->sources; s++)
        ha_merge_cell_enter(&w->cell[t->item * job->sources + s], index, t, HA_ERROR, false, &none, why);
}

static void run_task(const struct ha_merge_job *job, struct worker *w, const struct ha_merge_task *t, size_t index)
{
    const bool plain = !t->c || t->c->stage == HA_STAGE_PLAIN, planted = plain && t->c && t->c->must == HA_MUST_FAIL;
    struct ha_why why = { "" };
    bool any = false;
    for (size_t s = 0; s < job->sources; s++) any |= due(job, w, s, t);
    if (!any) return;
    if (plain) {
        if (ha_merge_rows_make(&w->rows, &t->shape, &why) != HA_OK || own_batch(w, &t->shape, &why) != HA_OK) {
            give_up(job, w, t, index, &why);
            ha_merge_rows_free(&w->rows);
            return;
        }
        ha_merge_rows_fill(&w->rows, w->batch, t->seed, t->c ? t->c->fill : job->suite->random_fill, NULL);
    }
    for (size_t s = 0; s < job->sources; s++)
        if (due(job, w, s, t)) run_subject(job, w, s, t, index);
    if (planted) {
        ha_merge_rows_fill(&w->rows, w->batch, t->seed, t->c->fill, t->c->plant);
        for (size_t s = 0; s < job->sources; s++)
            if (due(job, w, s, t) && !ha_subject_unfit(&w->subject[s], &t->shape)) run_planted(job, w, s, t, index);
    }
    if (plain) {
        ha_batch_free(w->batch);
        ha_merge_rows_free(&w->rows);
    }
}

/* ---- threads ----------------------------------------------------------------------------- */

struct crew {
    const struct ha_merge_job *job;
    struct worker *worker;
    struct ha_merge_task (*task)(void *arg, size_t i);
    void *arg;
    size_t count;
    atomic_size_t done, left; /* how many were run; the first that was not */
};

static void pull(void *arg, size_t index, size_t worker)
{
    struct crew *c = arg;
    /* set by a signal to whichever thread */
    if (__atomic_load_n(&ha_stop, __ATOMIC_RELAXED) || (c->job->deadline_ns && ha_now_ns() >= c->job->deadline_ns)) {
        size_t left = atomic_load(&c->left);
        while (index < left && !atomic_compare_exchange_weak(&c->left, &left, index)) {
        }
        return;
    }
    const struct ha_merge_task t = c->task(c->arg, index);
    run_task(c->job, &c->worker[worker], &t, index);
    const size_t done = atomic_fetch_add(&c->done, 1) + 1;
    if (worker == 0 && c->job->progress) c->job->progress(c->job->arg, done, c->count);
}

static enum ha_status hire(struct worker *w, const struct ha_merge_job *job, struct ha_why *why)
{
    w->subject = calloc(job->sources, sizeof *w->subject);
    w->cell = calloc(job->items * job->sources, sizeof *w->cell);
    w->lost_ns = calloc(job->sources, sizeof *w->lost_ns);
    if (!w->subject || !w->cell || !w->lost_ns) return ha_why(why, HA_ERROR, "out of memory");
    ha_merge_cells_clear(w->cell, job->items * job->sources);
    for (size_t s = 0; s < job->sources; s++) HA_TRY(ha_merge_source_open(&job->source[s], &w->subject[s], why));
    return HA_OK;
}

static void dismiss(struct worker *w, const struct ha_merge_job *job)
{
    for (size_t s = 0; w->subject && s < job->sources; s++) ha_subject_close(&w->subject[s]);
    ha_room_unmap(&w->room);
    free(w->subject);
    free(w->cell);
    free(w->lost_ns);
}

static void gather(const struct ha_merge_job *job, const struct worker *w)
{
    for (size_t k = 0; k < job->items * job->sources; k++) join(&job->cell[k], &w->cell[k]);
    for (size_t s = 0; s < job->sources; s++)
        if (job->source[s].lost_ns) *job->source[s].lost_ns += w->lost_ns[s];
}

enum ha_status ha_merge_job_run(const struct ha_merge_job *job, size_t count,
                                struct ha_merge_task (*task)(void *arg, size_t i), void *arg, struct ha_pool *pool,
                                struct ha_why *why)
{
    const size_t threads = pool ? ha_pool_threads(pool) : 1;
    struct worker *worker = calloc(threads, sizeof *worker);
    enum ha_status st = worker ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < threads && st == HA_OK; i++) st = hire(&worker[i], job, why);
    if (st == HA_OK) {
        struct crew crew = { .job = job, .worker = worker, .task = task, .arg = arg, .count = count, .left = count };
        if (pool) ha_pool_run(pool, "merge", count, pull, &crew);
        else
            for (size_t i = 0; i < count; i++) pull(&crew, i, 0);
        if (job->done) *job->done = atomic_load(&crew.left);
        for (size_t i = 0; i < threads; i++) gather(job, &worker[i]);
    }
    for (size_t i = 0; worker && i < threads; i++) dismiss(&worker[i], job);
    free(worker);
    return st;
}
