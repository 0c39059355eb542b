#include "suites/merge/work.h"

#include "harness/base/clock.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "suites/merge/stage.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- sources ----------------------------------------------------------------------------- */

static const uint64_t PATIENCE_NS = 60000000000u;

enum ha_status ha_merge_source_open(const struct ha_merge_source *s, struct ha_subject *out, struct ha_why *why)
{
    switch (s->kind) {
    case HA_FROM_FUNCTION: ha_subject_direct(out, s->name, &s->traits, s->merge); return HA_OK;
    case HA_FROM_DEVICE: return ha_subject_device(out, s->name, s->api, s->device, why);
    case HA_FROM_PLUGIN: return ha_subject_plugin(out, s->text, s->limit_ns, why);
    case HA_FROM_EXEC: return ha_subject_exec(out, s->text, s->limit_ns, why);
    }
    return HA_ERROR;
}

enum ha_status ha_merge_source_patience(const struct ha_merge_source *s, struct ha_why *why)
{
    if (s->lost_ns <= PATIENCE_NS) return HA_OK;
    return ha_why(why, HA_ERROR, "given up: it has not answered for %.0f s in all", (double)s->lost_ns / 1e9);
}

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
        cell[i].sense = (struct ha_merge_sense){ (double)NAN, (double)NAN, (double)NAN };
        cell[i].sense_type = HA_DTYPE_COUNT;
    }
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
    if ((st == HA_OK && j->status != HA_FAIL) || index >= cell->first_bad) return;
    cell->first_bad = index;
    cell->task = *t;
    cell->bad = *j;
    cell->why = *why;
}

/* ---- tasks ------------------------------------------------------------------------------- */

struct worker {
    struct ha_subject *subject;  /* [sources] */
    struct ha_merge_trial trial; /* the rows of the task in hand */
};

struct crew {
    const struct ha_merge_job *job;
    struct worker *worker;
    struct ha_merge_task (*task)(void *arg, size_t i);
    void *arg;
    size_t count;
    pthread_mutex_t lock; /* of the following, of the cells, and of what the sources have lost */
    size_t done, left;    /* how many were run; the first that was not */
};

static struct ha_merge_cell *cell_of(const struct crew *c, const struct ha_merge_task *t, size_t source)
{
    return &c->job->cell[t->item * c->job->sources + source];
}

static bool is_plain(const struct ha_merge_task *t) { return t->bundle || !t->c || t->c->stage == HA_STAGE_PLAIN; }

/* A bundle is as many tasks as it has cases, one after the other in the same batch. */
static size_t parts_of(const struct ha_merge_task *t) { return t->bundle ? t->bundle->count : 1; }
static struct ha_merge_task part_of(const struct ha_merge_task *t, size_t i)
{
    struct ha_merge_task part = *t;
    if (!t->bundle) return part;
    part.bundle = NULL;
    part.item = t->bundle->item[i];
    part.c = &ha_merge_cases[part.item];
    part.shape.tokens = 1;
    return part;
}

static bool plants(const struct ha_merge_task *t)
{
    bool any = false;
    for (size_t i = 0; i < parts_of(t) && is_plain(t); i++) {
        const struct ha_merge_case *c = part_of(t, i).c;
        any |= c && c->must == HA_MUST_FAIL;
    }
    return any;
}

/* A subject that crashed or hung on an item is not asked for that item again; a command is asked for many at once. */
static bool due(struct crew *c, const struct ha_merge_task *t, size_t index, size_t source)
{
    if (t->bundle) return true;
    pthread_mutex_lock(&c->lock);
    const struct ha_merge_cell *cell = cell_of(c, t, source);
    const bool over = cell->errors || (c->job->stop_at_first && cell->first_bad <= index);
    pthread_mutex_unlock(&c->lock);
    return !over && !(c->job->skip && c->job->skip(c->job->arg, t, source));
}

/* states of one call */
static size_t at_once(const struct ha_merge_shape *s)
{
    return s->order == HA_ORDER_FLAT || s->states < 2 ? s->states : 2;
}

/* The rows of a task; planted: those at hand, with their errors. */
static void fill(struct ha_merge_trial *trial, const struct ha_merge_task *t, bool planted)
{
    const size_t each = trial->rows.count / parts_of(t);
    for (size_t i = 0; i < parts_of(t); i++) {
        const struct ha_merge_case *c = part_of(t, i).c;
        if (planted) ha_merge_rows_plant(&trial->rows, i * each, each, c->plant);
        else ha_merge_rows_preset(&trial->rows, i * each, each, t->seed, c ? c->fill : ha_random_fill);
    }
    ha_merge_rows_again(&trial->rows, trial->batch);
}

/* Has the rows merged in the batch at hand, or in *theirs, where the subject brings its own memory. HA_FAIL: it
 * refused, or wrote elsewhere. */
static enum ha_status merge(const struct ha_merge_trial *trial, struct ha_subject *subject, struct ha_batch **theirs,
                            bool *refused, struct ha_why *why)
{
    const struct ha_merge_shape *shape = &trial->batch->shape;
    if (subject->room) {
        struct ha_room room;
        HA_TRY(subject->room(subject, ha_batch_bytes(shape), &room, why));
        *theirs = ha_batch_make(&room, shape);
        if (!*theirs) return ha_why(why, HA_ERROR, "no memory for the snapshot of a batch");
        ha_merge_rows_again(&trial->rows, *theirs);
    }
    struct ha_batch *batch = *theirs ? *theirs : trial->batch;
    const enum ha_status st = subject->run(subject, batch, why);
    *refused = st == HA_FAIL;
    return st == HA_OK ? ha_batch_intact(batch, why) : st;
}

/* The rows of part i; planted: an error is, and must be seen. */
static struct ha_judgement work_judge(struct ha_merge_rows *rows, const struct ha_batch *batch,
                                      const struct ha_merge_traits *traits, const struct ha_merge_task *t, size_t i,
                                      bool planted)
{
    const struct ha_merge_case *c = part_of(t, i).c;
    const enum ha_must must = !c || (c->must == HA_MUST_FAIL && !planted) ? HA_MUST_BOUND : c->must;
    const size_t each = rows->count / parts_of(t);
    struct ha_judgement j = { 0 };
    for (size_t r = i * each; r < (i + 1) * each; r++)
        if (t->row == SIZE_MAX || t->row == r) ha_judge_row(&j, batch, rows, r, must, traits);
    if (j.against) j.row -= i * each;
    return j;
}

/* What the traits let pass: of the first rows [first, first + count) of each item in each form and type. */
static enum ha_status sense(struct crew *c, struct worker *w, size_t source, const struct ha_merge_task *t,
                            const struct ha_batch *batch, size_t first, size_t count, struct ha_why *why)
{
    struct ha_merge_cell *cell = cell_of(c, t, source);
    const unsigned bit = 1u << ((unsigned)t->shape.form * HA_DTYPE_COUNT + (unsigned)t->shape.dtype);
    struct ha_merge_sense s;
    pthread_mutex_lock(&c->lock);
    const bool asked = (cell->sensed & bit) || t->row != SIZE_MAX;
    cell->sensed |= bit;
    pthread_mutex_unlock(&c->lock);
    if (asked) return HA_OK;
    const enum ha_status st = ha_judge_sense(&s, batch, &w->trial.rows, first, count, &w->subject[source].traits,
                                             &c->job->source[source]->usual, why);
    pthread_mutex_lock(&c->lock);
    if ((unsigned)t->shape.dtype < cell->sense_type)
        cell->sense = (struct ha_merge_sense){ s.o, s.lse, cell->sense.times };
    if ((unsigned)t->shape.dtype <= cell->sense_type) {
        cell->sense_type = (unsigned)t->shape.dtype;
        cell->sense.o = fmax(cell->sense.o, s.o);
        cell->sense.lse = fmax(cell->sense.lse, s.lse);
    }
    cell->sense.times = fmax(cell->sense.times, s.times);
    if (isnan(s.o) && isnan(s.lse)) cell->sensed &= ~bit; /* all of it was copied */
    pthread_mutex_unlock(&c->lock);
    return st;
}

/* What is right is held against chance. */
static void hold(struct crew *c, struct worker *w, size_t source, const struct ha_merge_task *t, size_t index,
                 const struct ha_batch *batch, size_t first, size_t count)
{
    struct ha_merge_cell *cell = cell_of(c, t, source);
    if (t->row != SIZE_MAX) return;
    pthread_mutex_lock(&c->lock);
    struct ha_merge_sample sample = cell->sample;
    pthread_mutex_unlock(&c->lock);
    ha_judge_chances(&sample, batch, &w->trial.rows, first, count, ((uint64_t)index << 32) + first,
                     &w->subject[source].traits);
    pthread_mutex_lock(&c->lock);
    ha_merge_sample_join(&cell->sample, &sample);
    pthread_mutex_unlock(&c->lock);
}

static void enter(struct crew *c, size_t source, const struct ha_merge_task *t, size_t index, bool planted,
                  enum ha_status st, bool refused, struct ha_judgement j, struct ha_why why)
{
    struct ha_merge_cell *cell = cell_of(c, t, source);
    pthread_mutex_lock(&c->lock);
    if (planted && st == HA_OK) {
        cell->worst_planted = fmin(cell->worst_planted, j.ratio);
        if (j.ratio > 1) j = (struct ha_judgement){ 0 };
        else st = ha_why(&why, HA_FAIL, "the planted error was not seen: err/bound is %.3g", j.ratio);
    }
    ha_merge_cell_enter(cell, index, t, st, refused, &j, &why);
    pthread_mutex_unlock(&c->lock);
}

/* Each call of a command is a process. */
static bool is_repeated(const struct ha_merge_source *source, size_t index)
{
    return index % (source->kind == HA_FROM_EXEC ? 16 : 8) == 0;
}

/* The rows that were merged and judged, once more: other bits are a fault of who does not say that they vary, and are
 * judged as the first ones where he does. */
static void ask_again(struct crew *c, struct worker *w, size_t source, const struct ha_merge_task *t, size_t index,
                      struct ha_batch *batch)
{
    struct ha_subject *subject = &w->subject[source];
    struct ha_merge_again again;
    struct ha_why why = { "" };
    enum ha_status st = ha_merge_run_again(subject, batch, &again, &why);
    const size_t rows = w->trial.rows.count / parts_of(t);
    const bool same = st == HA_OK && again.row == SIZE_MAX;
    for (size_t i = 0; i < parts_of(t); i++) {
        const struct ha_merge_task part = part_of(t, i);
        struct ha_merge_cell *cell = cell_of(c, &part, source);
        pthread_mutex_lock(&c->lock);
        cell->again += rows;
        cell->varied += !same;
        pthread_mutex_unlock(&c->lock);
        if (st != HA_OK) enter(c, source, &part, index, false, st, false, (struct ha_judgement){ 0 }, why);
        else if (same) continue;
        else if (subject->traits.varies) {
            const struct ha_judgement j = work_judge(&w->trial.rows, batch, &subject->traits, t, i, false);
            enter(c, source, &part, index, false, st, false, j, why);
        } else if (again.row / rows == i)
            enter(c, source, &part, index, false, HA_FAIL, false, (struct ha_judgement){ 0 }, again.where);
    }
}

/* One subject on the rows of a task, in which errors are planted or not. */
static void ask(struct crew *c, struct worker *w, size_t source, const struct ha_merge_task *t, size_t index,
                bool planted)
{
    struct ha_merge_source *from = c->job->source[source];
    struct ha_subject *subject = &w->subject[source];
    struct ha_batch *theirs = NULL;
    struct ha_judgement staged = { 0 };
    struct ha_why why = { "" };
    bool refused = false;
    const uint64_t begin_ns = ha_now_ns();
    pthread_mutex_lock(&c->lock);
    enum ha_status st = ha_merge_source_patience(from, &why);
    pthread_mutex_unlock(&c->lock);
    if (st == HA_OK) st = ha_claims_merge(&subject->traits, at_once(&t->shape), &why);
    if (st == HA_OK && is_plain(t)) st = merge(&w->trial, subject, &theirs, &refused, &why);
    else if (st == HA_OK) st = ha_merge_stage(t->c, subject, t->shape.form, t->shape.dtype, t->seed, &staged, &why);
    for (size_t i = 0; i < parts_of(t) && !(planted && st == HA_WAIVED); i++) {
        const struct ha_merge_task part = part_of(t, i);
        const struct ha_batch *batch = theirs ? theirs : w->trial.batch;
        const size_t each = w->trial.rows.count / parts_of(t);
        struct ha_judgement j = staged;
        struct ha_why reason = why;
        enum ha_status so_far = st;
        if (planted && part.c->must != HA_MUST_FAIL) continue;
        if (st == HA_OK && is_plain(t)) j = work_judge(&w->trial.rows, batch, &subject->traits, t, i, planted);
        if (st == HA_OK && is_plain(t) && !planted && j.status == HA_OK) {
            so_far = sense(c, w, source, &part, batch, i * each, each, &reason);
            hold(c, w, source, &part, index, batch, i * each, each);
        }
        enter(c, source, &part, index, planted, so_far, refused, j, reason);
    }
    if (st == HA_OK && is_plain(t) && !planted && is_repeated(from, index))
        ask_again(c, w, source, t, index, theirs ? theirs : w->trial.batch);
    if (theirs) ha_batch_free(theirs);
    else if (is_plain(t)) ha_batch_restore(w->trial.batch, st != HA_OK);
    if (st != HA_ERROR) return;
    pthread_mutex_lock(&c->lock);
    from->lost_ns += ha_now_ns() - begin_ns;
    pthread_mutex_unlock(&c->lock);
}

/* Whether the subject cannot be asked for such a task; why says the reason. */
static bool unfit(const struct worker *w, size_t source, const struct ha_merge_task *t, struct ha_why *why)
{
    const char *reason = ha_subject_unfit(&w->subject[source], &t->shape);
    const bool no_row = t->row != SIZE_MAX && t->row >= t->shape.tokens * t->shape.heads;
    if (reason) ha_why(why, HA_WAIVED, "%s", reason);
    else if (no_row) ha_why(why, HA_WAIVED, "there is no row %zu", t->row);
    return reason || no_row;
}

/* one status for all of a task */
static void enter_all(struct crew *c, size_t source, const struct ha_merge_task *t, size_t index, enum ha_status st,
                      const struct ha_why *why)
{
    for (size_t i = 0; i < parts_of(t); i++) {
        const struct ha_merge_task part = part_of(t, i);
        enter(c, source, &part, index, false, st, false, (struct ha_judgement){ 0 }, *why);
    }
}

/* Each subject on the rows; where errors are planted in them, once without and once with. */
static void run_task(struct crew *c, struct worker *w, const struct ha_merge_task *t, size_t index)
{
    const size_t sources = c->job->sources;
    struct ha_why why = { "" };
    bool any = false;
    for (size_t s = 0; s < sources && t->shape.tokens; s++) {
        if (!due(c, t, index, s)) continue;
        if (unfit(w, s, t, &why)) enter_all(c, s, t, index, HA_WAIVED, &why);
        else any = true;
    }
    if (!any) return;
    const enum ha_status st = is_plain(t) ? ha_merge_trial_open(&w->trial, &t->shape, NULL, &why) : HA_OK;
    for (int planted = 0; planted <= (int)(st == HA_OK && plants(t)); planted++) {
        if (st == HA_OK && is_plain(t)) fill(&w->trial, t, planted);
        for (size_t s = 0; s < sources; s++) {
            struct ha_why other;
            if (!due(c, t, index, s) || unfit(w, s, t, &other)) continue;
            if (st == HA_OK) ask(c, w, s, t, index, planted);
            else enter_all(c, s, t, index, st, &why);
        }
    }
}

/* ---- threads ----------------------------------------------------------------------------- */

static void pull(void *arg, size_t index, size_t worker)
{
    struct crew *c = arg;
    /* set by a signal to whichever thread */
    const bool over = __atomic_load_n(&ha_stop, __ATOMIC_RELAXED)
                      || (c->job->deadline_ns && ha_now_ns() >= c->job->deadline_ns);
    if (!over) {
        const struct ha_merge_task t = c->task(c->arg, index);
        run_task(c, &c->worker[worker], &t, index);
    }
    pthread_mutex_lock(&c->lock);
    if (over && index < c->left) c->left = index;
    const size_t done = c->done += !over;
    pthread_mutex_unlock(&c->lock);
    if (!over && worker == 0 && c->job->progress) c->job->progress(c->job->arg, done, c->count);
}

enum ha_status ha_merge_job_run(const struct ha_merge_job *job, size_t count,
                                struct ha_merge_task (*task)(void *arg, size_t i), void *arg, struct ha_pool *pool,
                                struct ha_why *why)
{
    const size_t threads = pool ? ha_pool_threads(pool) : 1, subjects = threads * job->sources;
    struct worker *worker = calloc(threads, sizeof *worker);
    struct ha_subject *subject = calloc(subjects, sizeof *subject);
    enum ha_status st = worker && subject ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < subjects && st == HA_OK; i++)
        st = ha_merge_source_open(job->source[i % job->sources], &subject[i], why);
    if (st == HA_OK) {
        struct crew crew = { .job = job, .worker = worker, .task = task, .arg = arg, .count = count, .left = count };
        pthread_mutex_init(&crew.lock, NULL);
        for (size_t i = 0; i < threads; i++) worker[i].subject = subject + i * job->sources;
        if (pool) ha_pool_run(pool, "merge", count, pull, &crew);
        else
            for (size_t i = 0; i < count; i++) pull(&crew, i, 0);
        if (job->done) *job->done = crew.left;
        pthread_mutex_destroy(&crew.lock);
    }
    for (size_t i = 0; subject && i < subjects; i++) ha_subject_close(&subject[i]);
    for (size_t i = 0; worker && i < threads; i++) ha_merge_trial_close(&worker[i].trial);
    free(subject);
    free(worker);
    return st;
}
