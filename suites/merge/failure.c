#include "suites/merge/work.h"

#include "harness/base/clock.h"
#include "harness/base/file.h"
#include "harness/base/stop.h"
#include "harness/base/text.h"
#include "harness/base/why.h"

#include <math.h>
#include <unistd.h>

enum { SHRINKS = 2000, SHOWN = 8 };
static const uint64_t SHRINK_NS = 3000000000u; /* a command and a crashing plugin take long for each trial */

/* The task again, and then one row at a time, on one subject. */
struct again {
    struct ha_subject subject;
    const struct ha_merge_task *task;
    ha_merge_fill *fill;
    enum ha_must must;
    struct ha_merge_trial trial;
    struct ha_judgement j;
    struct ha_why why;
    uint64_t deadline_ns; /* of the shrinking */
};

/* Merges rows of that shape, those of the task or just this one, and judges them; the batch stays until the next. */
static enum ha_status try(struct again *a, const struct ha_merge_shape *shape, const struct ha_merge_row *one)
{
    a->j = (struct ha_judgement){ 0 };
    HA_TRY(ha_subject_trial(&a->subject, &a->trial, shape, &a->why));
    if (one) {
        ha_merge_row_copy(a->trial.rows.row, one);
        ha_merge_trial_store(&a->trial);
    } else ha_merge_trial_fill(&a->trial, a->task->seed, a->fill, NULL);
    HA_TRY(a->subject.run(&a->subject, a->trial.batch, &a->why));
    HA_TRY(ha_batch_intact(a->trial.batch, &a->why));
    a->j = ha_merge_trial_judge(&a->trial, a->must, &a->subject.traits);
    return a->j.status;
}

static bool still_fails(void *arg, const struct ha_merge_row *row)
{
    struct again *a = arg;
    struct ha_merge_shape shape = a->task->shape;
    shape.states = row->states;
    shape.dim = row->dim;
    shape.tokens = shape.heads = 1;
    if (ha_now_ns() > a->deadline_ns) return false;
    if (shape.states < 2) shape.order = HA_ORDER_FLAT;
    return !ha_subject_unfit(&a->subject, &shape) && try(a, &shape, row) == HA_FAIL;
}

static void print_numbers(FILE *out, const char *name, const double *x, size_t n)
{
    fprintf(out, "    %s =", name);
    for (size_t i = 0; i < n && i < SHOWN; i++) fprintf(out, " %.9g", x[i]);
    fprintf(out, "%s\n", n > SHOWN ? " ..." : "");
}

#define FAILURES_DIR "lse_merge.failures" /* without a folder of the run */

/* dir/merge-BY.safetensors, or the first of -2, -3, ... that is not there yet */
static void write_file(FILE *out, const struct again *a, const char *by, const char *dir, const char *id)
{
    char path[4096], name[64], number[16] = "";
    const char *const meta[] = { "case", id, "merged_by", by, NULL };
    struct ha_why why;
    enum ha_status st = dir ? HA_OK : ha_file_folder(FAILURES_DIR, &why);
    if (!dir) dir = FAILURES_DIR;
    ha_subject_name(by, name);
    for (int n = 2; n <= 10000; n++) {
        snprintf(path, sizeof path, "%s/%s-%s%s.safetensors", dir, a->j.against ? "merge" : "batch", name, number);
        if (access(path, F_OK) != 0) break;
        snprintf(number, sizeof number, "-%d", n);
    }
    if (st == HA_OK) st = ha_replay_write(path, a->trial.batch, true, meta, &why);
    if (st == HA_OK) {
        fputs("    again, anywhere: habench check lse_merge --replay ", out);
        ha_text_quote(out, path);
        fputc('\n', out);
    } else fprintf(out, "    no replay file: %s\n", why.text);
}

/* The smallest row that fails, once the whole task has failed again here. false: the row alone does not fail, and the
 * batch is no longer at hand. */
static bool print_smallest(FILE *out, struct again *a)
{
    struct ha_merge_shape shape = a->task->shape;
    struct ha_merge_trial own = { .batch = NULL };
    shape.tokens = shape.heads = 1;
    if (ha_merge_trial_open(&own, &shape, NULL, &a->why) != HA_OK) {
        ha_merge_trial_close(&own);
        return false;
    }
    struct ha_merge_row *row = own.rows.row;
    ha_merge_row_copy(row, &a->trial.rows.row[a->j.row]);
    a->deadline_ns = ha_now_ns() + SHRINK_NS;
    /* A smaller row need not have an exact result and is judged by its bound: a row that is wrong by less than that is
     * not made smaller. */
    const enum ha_must asked = a->must;
    if (asked == HA_MUST_EXACT) a->must = HA_MUST_BOUND;
    if (still_fails(a, row)) ha_merge_shrink(row, still_fails, a, SHRINKS);
    else a->must = asked;
    a->deadline_ns = UINT64_MAX;
    const bool fails = still_fails(a, row);
    a->must = asked;
    if (fails) {
        const struct ha_why said = a->j.against ? ha_judgement_say(&a->j, row->dim) : a->why;
        fprintf(out, "    smallest: %zu states of %zu, %s\n", row->states, row->dim, said.text);
        for (size_t m = 0; m < row->states; m++) /* as it was handed over */
            if (ha_batch_marks(&shape, m, 0) && row->lse[m] == -HUGE_VAL) row->lse[m] = HUGE_VAL;
        print_numbers(out, "LSE", row->lse, row->states);
        if (shape.form == HA_FORM_MAX_SUM) print_numbers(out, "sum", row->sum, row->states);
        print_numbers(out, "o", row->o, row->states * row->dim);
    } else fprintf(out, "    the row alone does not fail: it takes the batch\n");
    ha_merge_trial_close(&own);
    return fails;
}

void ha_merge_failure_print(FILE *out, const struct ha_merge_source *source, const struct ha_merge_cell *cell,
                            const char *id, const char *dir)
{
    const struct ha_merge_task *task = &cell->task;
    const struct ha_merge_case *c = task->c;
    const bool plain = !c || c->stage == HA_STAGE_PLAIN, planted = c && c->must == HA_MUST_FAIL;
    struct ha_why said = cell->why;
    if (!said.text[0]) ha_why(&said, HA_FAIL, "wrong");
    if (cell->bad.against && !cell->why.text[0]) said = ha_judgement_say(&cell->bad, task->shape.dim);
    fprintf(out, "%s on %s: %s\n    again: habench check ", c ? c->name : "random", source->name, said.text);
    ha_text_quote(out, id);
    if (source->kind == HA_FROM_EXEC) {
        fputs(" --exec ", out);
        ha_text_quote(out, source->text);
    }
    fputc('\n', out);
    if (ha_stop || !plain || planted || cell->j.status != HA_FAIL) return;

    struct again a = { .task = task,
                       .fill = c ? c->fill : ha_random_fill,
                       .must = c && c->must != HA_MUST_COMMUTE ? c->must : HA_MUST_BOUND };
    enum ha_status st = ha_merge_source_open(source, &a.subject, &a.why);
    if (st == HA_OK) st = try(&a, &task->shape, NULL);
    if (st == HA_FAIL && a.j.against && !print_smallest(out, &a)) st = try(&a, &task->shape, NULL);
    if (st == HA_ERROR || st == HA_WAIVED) fprintf(out, "    %s\n", a.why.text);
    else if (st == HA_OK) fprintf(out, "    it did not fail again when it was run alone: is it deterministic?\n");
    else if (a.trial.batch) write_file(out, &a, source->name, dir, id);
    ha_merge_trial_close(&a.trial);
    ha_subject_close(&a.subject);
}
