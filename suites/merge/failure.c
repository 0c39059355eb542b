#include "suites/merge/failure.h"

#include "harness/base/clock.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "suites/merge/replay.h"
#include "suites/merge/shrink.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHRINKS = 2000, SHOWN = 8 };
static const uint64_t SHRINK_NS = 3000000000u; /* a command and a crashing plugin take long for each trial */

void ha_judgement_say(const struct ha_judgement *j, size_t dim, char *out, size_t size)
{
    char element[32] = "LSE";
    const double got = isnan(j->got) ? (double)NAN : j->got; /* the sign of a NaN has no meaning */
    if (j->element < dim) snprintf(element, sizeof element, "o[%zu]", j->element);
    snprintf(out, size, "row %zu, %s: got %.9g, want %.9g +- %.3g (err/bound %.3g), by %s", j->row, element, got,
             j->want, j->bound, j->ratio, j->against);
}

/* One row at a time on one subject. */
struct trial {
    struct ha_subject subject;
    struct ha_merge_shape shape;
    enum ha_must must;
    struct ha_room room;
    struct ha_merge_rows rows;
    struct ha_batch *batch;
    struct ha_judgement j;
    struct ha_why why;
    uint64_t deadline_ns; /* of the shrinking */
};

static void trial_end(struct trial *t)
{
    if (t->batch) ha_batch_free(t->batch);
    ha_merge_rows_free(&t->rows);
    if (!t->subject.room) ha_room_unmap(&t->room);
    t->room = (struct ha_room){ 0 };
    t->batch = NULL;
}

/* Merges rows of that shape and judges them all; the batch stays until the next. */
static enum ha_status try(struct trial *t, const struct ha_merge_shape *shape, void (*fill)(struct trial *, void *),
                          void *arg)
{
    const size_t bytes = ha_batch_bytes(shape);
    trial_end(t);
    t->j = (struct ha_judgement){ 0 };
    enum ha_status st = ha_merge_rows_make(&t->rows, shape, &t->why);
    if (st == HA_OK)
        st = t->subject.room ? t->subject.room(&t->subject, bytes, &t->room, &t->why)
                             : ha_room_map(bytes, &t->room, &t->why);
    if (st != HA_OK) return st;
    t->batch = ha_batch_make(&t->room, shape);
    if (!t->batch) return ha_why(&t->why, HA_ERROR, "out of memory");
    fill(t, arg);
    st = t->subject.run(&t->subject, t->batch, &t->why);
    if (st == HA_OK) st = ha_batch_intact(t->batch, &t->why);
    for (size_t r = 0; r < t->rows.count && st == HA_OK; r++)
        ha_judge_row(&t->j, t->batch, &t->rows, r, t->must, &t->subject.traits);
    return st == HA_OK ? t->j.status : st;
}

static void fill_task(struct trial *t, void *arg)
{
    const struct {
        const struct ha_merge_task *task;
        void (*fill)(struct ha_merge_row *);
    } *a = arg;
    ha_merge_rows_fill(&t->rows, t->batch, a->task->seed, a->fill, NULL);
}

static void fill_one(struct trial *t, void *arg)
{
    const struct ha_merge_row *from = arg;
    struct ha_merge_row *row = t->rows.row;
    memcpy(row->o, from->o, from->states * from->dim * sizeof *row->o);
    memcpy(row->lse, from->lse, from->states * sizeof *row->lse);
    memcpy(row->sum, from->sum, from->states * sizeof *row->sum);
    ha_merge_rows_store(&t->rows, t->batch);
}

static bool still_fails(void *arg, const struct ha_merge_row *row)
{
    struct trial *t = arg;
    struct ha_merge_shape shape = t->shape;
    struct ha_merge_row copy = *row;
    shape.states = row->states;
    shape.dim = row->dim;
    shape.tokens = shape.heads = 1;
    if (ha_now_ns() > t->deadline_ns) return false;
    if (shape.states < 2) shape.order = HA_ORDER_FLAT;
    if (ha_subject_unfit(&t->subject, &shape)) return false;
    return try(t, &shape, fill_one, &copy) == HA_FAIL;
}

static void print_numbers(FILE *out, const char *name, const double *x, size_t n)
{
    fprintf(out, "    %s =", name);
    for (size_t i = 0; i < n && i < SHOWN; i++) fprintf(out, " %.9g", x[i]);
    fprintf(out, "%s\n", n > SHOWN ? " ..." : "");
}

static void write_file(FILE *out, struct trial *t, const char *by, const char *dir, const char *id)
{
    char path[4096];
    const char *const meta[] = { "case", id, "merged_by", by, NULL };
    struct ha_why why;
    snprintf(path, sizeof path, "%s/%s-%s.safetensors", dir, t->j.against ? "merge" : "batch", by);
    for (char *p = path + strlen(dir) + 1; *p; p++)
        if (*p == '/' || *p == ' ') *p = '_';
    char unique[4096 + 16];
    snprintf(unique, sizeof unique, "%s", path);
    for (int n = 2; n < 10000; n++) {
        FILE *there = fopen(unique, "rb");
        if (!there) break;
        fclose(there);
        snprintf(unique, sizeof unique, "%.*s-%d.safetensors", (int)(strlen(path) - strlen(".safetensors")), path, n);
    }
    if (ha_replay_write(unique, t->batch, true, meta, &why) == HA_OK)
        fprintf(out, "    again, anywhere: habench check lse_merge --replay %s\n", unique);
    else fprintf(out, "    no replay file: %s\n", why.text);
}

/* The smallest row, once the whole task has failed again here. false: it takes the batch, which is no longer at hand.
 */
static bool print_smallest(FILE *out, struct trial *t, size_t r)
{
    struct ha_merge_row row = t->rows.row[r];
    double *copy = malloc((row.states * row.dim + 2 * row.states) * sizeof *copy);
    if (!copy) return false;
    memcpy(copy, row.o, row.states * row.dim * sizeof *copy);
    row.o = copy;
    row.lse = memcpy(copy + row.states * row.dim, row.lse, row.states * sizeof *copy);
    row.sum = memcpy(row.lse + row.states, row.sum, row.states * sizeof *copy);
    row.whole = row.full = false;
    t->deadline_ns = ha_now_ns() + SHRINK_NS;
    /* A smaller row need not have an exact result and is judged by its bound: a row that is wrong by less than that is
     * not made smaller. */
    const enum ha_must asked = t->must;
    if (asked == HA_MUST_EXACT) t->must = HA_MUST_BOUND;
    if (still_fails(t, &row)) ha_merge_shrink(&row, still_fails, t, SHRINKS);
    else t->must = asked;
    t->deadline_ns = UINT64_MAX;
    const bool fails = still_fails(t, &row);
    t->must = asked;
    if (fails) {
        char said[512];
        ha_judgement_say(&t->j, row.dim, said, sizeof said);
        fprintf(out, "    smallest: %zu states of %zu, %s\n", row.states, row.dim, t->j.against ? said : t->why.text);
        for (size_t m = 0; m < row.states && t->shape.plus_inf; m++) /* as it was handed over */
            if (row.lse[m] == -HUGE_VAL) row.lse[m] = HUGE_VAL;
        print_numbers(out, "LSE", row.lse, row.states);
        if (t->shape.form == HA_FORM_MAX_SUM) print_numbers(out, "sum", row.sum, row.states);
        print_numbers(out, "o", row.o, row.states * row.dim);
    } else fprintf(out, "    the row alone does not fail: it takes the batch\n");
    free(copy);
    return fails;
}

static const char *safe(const char *text) { return text[0] ? text : "wrong"; }

void ha_merge_failure_print(FILE *out, const struct ha_merge_suite *suite, const struct ha_merge_source *source,
                            const struct ha_merge_cell *cell, const char *id, const char *dir)
{
    const struct ha_merge_task *task = &cell->task;
    const struct ha_merge_case *c = task->c;
    const bool plain = !c || c->stage == HA_STAGE_PLAIN, planted = c && c->must == HA_MUST_FAIL;
    const bool command = source->kind == HA_FROM_EXEC;
    char said[512];
    ha_judgement_say(&cell->bad, task->shape.dim, said, sizeof said);
    fprintf(out, "%s on %s: %s\n    again: habench check '%s'%s%s%s\n", c ? c->name : "random", source->name,
            cell->bad.against && !cell->why.text[0] ? said : safe(cell->why.text), id, command ? " --exec '" : "",
            command ? source->text : "", command ? "'" : "");
    if (ha_stop || !plain || planted || cell->j.status != HA_FAIL) return;

    struct trial t = { .shape = task->shape,
                       .must = c ? c->must == HA_MUST_COMMUTE ? HA_MUST_BOUND : c->must : HA_MUST_BOUND };
    struct {
        const struct ha_merge_task *task;
        void (*fill)(struct ha_merge_row *);
    } how = { task, c ? c->fill : suite->random_fill };
    if (ha_merge_source_open(source, &t.subject, &t.why) != HA_OK) {
        fprintf(out, "    %s\n", t.why.text);
        return;
    }
    enum ha_status st = try(&t, &task->shape, fill_task, &how);
    if (st == HA_FAIL && t.j.against && !print_smallest(out, &t, t.j.row)) st = try(&t, &task->shape, fill_task, &how);
    if (st == HA_ERROR) fprintf(out, "    %s\n", t.why.text);
    else if (st != HA_FAIL) fprintf(out, "    it did not fail again when it was run alone: is it deterministic?\n");
    if (st == HA_FAIL && dir && t.batch) write_file(out, &t, source->name, dir, id);
    trial_end(&t);
    ha_subject_close(&t.subject);
}
