#include "harness/base/clock.h"
#include "harness/base/fingerprint.h"
#include "harness/base/registry.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "harness/engine/point.h"
#include "harness/report/row.h"
#include "suites/merge/attention.h"
#include "suites/merge/point.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Judges the points of a group. */

enum { FAILURES_SHOWN = 20, STATES_GALLERY = 7 };
static const uint64_t RANDOM_ROWS = 20000, EXHAUSTIVE_ROWS = 10000000;

struct run {
    struct ha_suite_config config;
    struct ha_merge_party party;
    struct ha_pool *pool; /* NULL until the first group that is no stranger's */
    size_t failures;      /* printed */
    /* of the group at hand */
    struct ha_group *group;
    enum ha_merge_part part;
    const char *title;
    struct ha_merge_source **source; /* those of its points that can be asked */
    size_t sources, *of;             /* [count] of source; SIZE_MAX: that point has its verdict */
    struct ha_pool *threads;         /* NULL: the group runs on one */
    size_t items;                    /* the cases, or kinds and types of random merges */
    bool *asked;                     /* [items] */
    struct ha_merge_cell *cell;      /* [items][sources] */
};

static const struct ha_merge_point *point_of(const struct run *run, size_t i) { return run->group->point[i]; }
static struct ha_merge_result *row_of(const struct run *run, size_t i) { return run->group->row[i]; }
static size_t item_of(const struct run *run, size_t i)
{
    const struct ha_merge_point *p = point_of(run, i);
    return run->part == HA_PART_RANDOM ? p->kind * HA_DTYPE_COUNT + p->axes.dtype - 1 : p->item;
}

static enum ha_status begin(void **out, const struct ha_suite_config *config, const struct ha_results *before,
                            struct ha_why *why)
{
    struct run *run = *out = calloc(1, sizeof *run);
    if (!run) return ha_why(why, HA_ERROR, "out of memory");
    run->config = *config;
    run->party.config = &run->config;
    return HA_OK;
}

static void end(void *arg)
{
    struct run *run = arg;
    if (!run) return;
    if (run->pool) ha_pool_destroy(run->pool);
    ha_merge_party_free(&run->party);
    free(run);
}

/* ---- the group --------------------------------------------------------------------------------------------------- */

static void say(const struct run *run, size_t i, const char *why)
{
    snprintf(row_of(run, i)->head.reason, sizeof row_of(run, i)->head.reason, "%s", why);
}

/* What each point's `by` stands for, once. Who cannot be opened is an error of every point that asks for him; one that
 * computes nothing is not judged. */
static enum ha_status gather_sources(struct run *run, struct ha_why *why)
{
    for (size_t i = 0; i < run->group->count; i++) {
        const struct ha_merge_point *p = point_of(run, i);
        const bool defect = run->part == HA_PART_GALLERY;
        struct ha_merge_member *m = ha_merge_party_find(&run->party, defect ? ha_merge_defects[p->defect].name : p->by);
        if (!m) return ha_why(why, HA_ERROR, "out of memory");
        run->of[i] = SIZE_MAX;
        ha_result_set(run->group, i, m->status, &m->why);
        if (m->status != HA_OK) continue;
        snprintf(row_of(run, i)->subject, sizeof row_of(run, i)->subject, "%s", m->source.name);
        row_of(run, i)->exp_eps = m->source.exp.worst;
        row_of(run, i)->log_eps = m->source.log.worst;
        if (m->null) {
            row_of(run, i)->head.verdict = HA_UNCHECKED;
            say(run, i, "a device of the kind null computes nothing");
            continue;
        }
        size_t s = 0;
        while (s < run->sources && run->source[s] != &m->source) s++;
        if (s == run->sources) run->source[run->sources++] = &m->source;
        run->of[i] = s;
    }
    return HA_OK;
}

static enum ha_status open_group(void *arg, struct ha_group *group, struct ha_why *why)
{
    struct run *run = arg;
    const struct ha_merge_point *first = group->point[0];
    run->group = group;
    run->part = ha_merge_part(first);
    run->items = run->part == HA_PART_RANDOM ? HA_MERGE_RANDOM : HA_MERGE_CASES;
    run->title = run->part == HA_PART_RANDOM      ? "random merges"
                 : run->part == HA_PART_GALLERY   ? "known defects"
                 : run->part == HA_PART_ATTENTION ? ha_attention_cases[first->problem].name
                                                  : ha_merge_item_name(first);
    run->source = calloc(group->count, sizeof(struct ha_merge_source *));
    run->of = calloc(group->count, sizeof *run->of);
    run->asked = calloc(run->items, sizeof *run->asked);
    run->cell = NULL;
    run->sources = 0;
    if (!run->source || !run->of || !run->asked) return ha_why(why, HA_ERROR, "out of memory");
    if (run->part == HA_PART_REPLAY) return HA_OK;
    ha_merge_party_again(&run->party);
    HA_TRY(gather_sources(run, why));
    for (size_t i = 0; i < run->items; i++) run->asked[i] = run->part == HA_PART_GALLERY;
    for (size_t i = 0; i < group->count; i++)
        if (item_of(run, i) < run->items) run->asked[item_of(run, i)] = true;
    run->cell = malloc((run->items * run->sources + 1) * sizeof *run->cell);
    if (!run->cell) return ha_why(why, HA_ERROR, "out of memory");
    ha_merge_cells_clear(run->cell, run->items * run->sources);
    bool strange = run->part == HA_PART_ATTENTION; /* which has threads of its own */
    for (size_t s = 0; s < run->sources; s++)
        strange |= run->source[s]->kind == HA_FROM_PLUGIN || run->source[s]->kind == HA_FROM_EXEC;
    if (!strange && !run->pool) {
        HA_TRY(ha_pool_create(&run->pool, HA_TEAM_DEFAULT, 0, why));
        ha_pool_rest(run->pool);
    }
    run->threads = strange ? NULL : run->pool;
    return HA_OK;
}

static void close_group(void *arg, struct ha_group *group)
{
    struct run *run = arg;
    free(run->source);
    free(run->of);
    free(run->asked);
    free(run->cell);
}

static void draw(void *arg, size_t done, size_t of)
{
    const struct run *run = arg;
    if (run->config.engine.progress) run->config.engine.progress(run->config.engine.arg, done, of, run->title);
}

static bool over(const struct run *run)
{
    return ha_stop || (run->group->deadline_ns && ha_now_ns() >= run->group->deadline_ns);
}

/* Of the gallery: many states only where the case asks for them, or is there to find the defect; streams, which are
 * not those of a defect, only where it is. */
static bool skip_much(void *arg, const struct ha_merge_task *t, size_t source)
{
    const struct run *run = arg;
    const struct ha_merge_defect *d = &ha_merge_defects[ha_merge_defect_index(run->source[source]->name)];
    const size_t least = t->c->states_min > STATES_GALLERY ? t->c->states_min : STATES_GALLERY;
    return (t->shape.states > least || ha_stage_streams(t->c->stage)) && strcmp(t->c->name, d->finder) != 0;
}

/* Tasks on all sources. false in *complete: not all of them were run. */
static enum ha_status run_tasks(struct run *run, struct ha_merge_task (*task)(void *arg, size_t i), void *arg,
                                size_t count, bool *complete, struct ha_why *why)
{
    const bool gallery = run->part == HA_PART_GALLERY;
    size_t done = 0;
    const struct ha_merge_job job = { .source = run->source,
                                      .sources = run->sources,
                                      .items = run->items,
                                      .stop_at_first = gallery,
                                      .skip = gallery ? skip_much : NULL,
                                      .cell = run->cell,
                                      .progress = draw,
                                      .arg = run,
                                      .deadline_ns = run->group->deadline_ns,
                                      .done = &done };
    const enum ha_status st = ha_merge_job_run(&job, count, task, arg, run->threads, why);
    *complete = done == count;
    return st;
}

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

static void say_failure(struct run *run, size_t i, const struct ha_merge_cell *cell)
{
    struct ha_merge_point at = *point_of(run, i);
    struct ha_merge_result *row = row_of(run, i);
    char id[HA_ID_MAX];
    if (run->failures++ >= FAILURES_SHOWN) return;
    at.axes = ha_merge_axes_of(&cell->task, cell->bad.against ? cell->bad.row : SIZE_MAX);
    ha_point_print(&ha_suite_lse_merge, &at, id, sizeof id);
    FILE *out = fmemopen(row->failure, sizeof row->failure, "w");
    if (!out) return;
    ha_merge_failure_print(out, run->source[run->of[i]], cell, id, run->config.out_dir);
    fclose(out);
}

static void count_merges(struct ha_merge_result *row, const struct ha_judgement *j)
{
    row->merges = j->rows;
    row->exact = j->exact;
    for (size_t i = 0; i < HA_RATIO_BINS; i++)
        row->bin[i > HA_RATIO_BINS - HA_MERGE_BINS ? i - (HA_RATIO_BINS - HA_MERGE_BINS) : 0] += j->bin[i];
}

/* st, or HA_ERROR where nothing else is wrong but that who is asked died before, when he was looked at. */
static enum ha_status survived(const struct run *run, size_t i, enum ha_status st, struct ha_why *why)
{
    if (st == HA_FAIL || st == HA_ERROR) return st;
    const enum ha_status before = ha_merge_source_survived(run->source[run->of[i]], why);
    return before == HA_OK ? st : before;
}

static void say_outputs(struct run *run, size_t i, uint64_t outputs)
{
    if (outputs) ha_fingerprint_print(outputs, row_of(run, i)->head.outputs);
}

/* complete: all that was to be merged has been; a row that is not has no verdict, unless it is wrong already */
static void enter(struct run *run, size_t i, const struct ha_merge_cell *c, bool complete)
{
    struct ha_merge_result *row = row_of(run, i);
    enum ha_status st = ha_merge_cell_status(c);
    struct ha_why reason = c->why;
    st = survived(run, i, st, &reason);
    /* the bounds came from what is claimed: that must be true */
    if (st == HA_OK) st = ha_merge_source_holds(run->source[run->of[i]], &reason);
    count_merges(row, &c->j);
    row->refused = c->refused;
    row->again = c->again;
    row->varied = c->varied;
    if (c->runs) row->ratio = c->j.ratio;
    if (c->worst_planted < HUGE_VAL) row->planted = c->worst_planted;
    row->sense = c->sense;
    const struct ha_chances chances = ha_merge_sample_sum(&c->sample);
    struct ha_suspect suspect = { .groups = 0 };
    ha_suspect_add(&suspect, &chances, "%s", "");
    ha_suspect_tell(&suspect, &row->head, &row->bias, &row->rms);
    if (st == HA_FAIL && c->bad.against && !reason.text[0]) reason = ha_judgement_say(&c->bad, c->task.shape.dim);
    if (st == HA_WAIVED && !c->waived) ha_why(&reason, HA_WAIVED, "it is asked for flat, packed merges alone");
    if (st == HA_FAIL || st == HA_ERROR) {
        ha_result_set(run->group, i, st, &reason);
        if (c->first_bad != SIZE_MAX) say_failure(run, i, c);
    } else if (!complete) say(run, i, "not all of it was run");
    else if (st == HA_OK) row->head.verdict = HA_PASS;
    else ha_result_set(run->group, i, st, &reason);
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

/* A command gets rows of many cases in one file. */
static bool by_bundles(const struct run *run)
{
    const struct ha_merge_axes *a = &point_of(run, 0)->axes;
    const bool narrow = a->order || a->alias || a->layout || a->head_dim || a->states || a->tokens
                        || a->row != HA_ROW_ANY;
    return run->source[0]->kind == HA_FROM_EXEC && !narrow;
}

static enum ha_status run_bundles(struct run *run, size_t batches, bool *complete, struct ha_why *why)
{
    struct ha_merge_bundles bundles = { .only = &point_of(run, 0)->axes,
                                        .asked = run->asked,
                                        .batches = batches,
                                        .heads_first = run->source[0]->traits.lse_order == HA_LSE_HEADS_TOKENS };
    return run_tasks(run, ha_merge_bundle_task, &bundles, ha_merge_bundles_count(&bundles), complete, why);
}

static struct ha_merge_task listed(void *arg, size_t i) { return ((struct ha_merge_task *)arg)[i]; }

static enum ha_status run_cases(struct run *run, bool *complete, struct ha_why *why)
{
    struct ha_merge_tasks tasks = { 0 };
    enum ha_status st = HA_OK;
    if (by_bundles(run)) return run_bundles(run, 0, complete, why);
    for (size_t i = 0; i < HA_MERGE_CASES && st == HA_OK; i++)
        if (run->asked[i]) st = ha_merge_tasks_of_case(&tasks, i, &point_of(run, 0)->axes, why);
    if (st == HA_OK) st = run_tasks(run, listed, tasks.task, tasks.count, complete, why);
    ha_merge_tasks_free(&tasks);
    return st;
}

/* ---- random merges ----------------------------------------------------------------------------------------------- */

struct random_batches {
    const struct ha_merge_axes *only;
    size_t item[HA_MERGE_RANDOM], items; /* kind x type: those of the group */
    uint64_t first;
};

static struct ha_merge_task random_task(void *arg, size_t i)
{
    const struct random_batches *b = arg;
    return ha_merge_random_task(b->item[i % b->items], b->only, b->first + i / b->items);
}

/* of those that are right so far: what crashes each time never has enough */
static uint64_t fewest_rows(const struct run *run)
{
    uint64_t fewest = UINT64_MAX;
    for (size_t i = 0; i < run->items * run->sources; i++) {
        const struct ha_merge_cell *c = &run->cell[i];
        if (c->runs && c->first_bad == SIZE_MAX && c->j.rows < fewest) fewest = c->j.rows;
    }
    return fewest;
}

/* Rounds of batches until there are enough of every kind and type, or, where a time was given, until it is over. */
static enum ha_status run_random(struct run *run, bool *complete, struct ha_why *why)
{
    struct random_batches b = { .only = &point_of(run, 0)->axes };
    const bool exhaustive = run->config.exhaustive, until_time = exhaustive && run->group->deadline_ns,
               one = ha_merge_axes_whole(b.only);
    const uint64_t enough = exhaustive ? EXHAUSTIVE_ROWS : RANDOM_ROWS;
    const size_t round = one ? 1 : exhaustive ? 256 : 16;
    if (by_bundles(run)) return run_bundles(run, exhaustive ? 64 : 2, complete, why);
    for (size_t i = 0; i < HA_MERGE_RANDOM; i++)
        if (run->asked[i]) b.item[b.items++] = i;
    do {
        HA_TRY(run_tasks(run, random_task, &b, round * b.items, complete, why));
        b.first += round;
    } while (!one && !over(run) && (until_time || fewest_rows(run) < enough));
    *complete = !over(run);
    return HA_OK;
}

/* ---- the gallery: every defect over every case ------------------------------------------------------------------- */

static void enter_defect(struct run *run, size_t i, bool complete)
{
    const struct ha_merge_defect *d = &ha_merge_defects[point_of(run, i)->defect];
    struct ha_merge_result *row = row_of(run, i);
    const struct ha_merge_cell *shown = NULL;
    struct ha_why why;
    bool by_finder = false;
    size_t seen = 0;
    for (size_t k = 0; k < HA_MERGE_CASES; k++) {
        const struct ha_merge_cell *c = &run->cell[k * run->sources + run->of[i]];
        row->merges += c->j.rows;
        if (ha_merge_cell_status(c) != HA_FAIL) continue;
        const bool finder = !strcmp(ha_merge_cases[k].name, d->finder);
        if (finder || !seen) shown = c;
        by_finder |= finder;
        seen++;
    }
    if (shown) {
        const struct ha_why said = shown->bad.against ? ha_judgement_say(&shown->bad, shown->task.shape.dim)
                                                      : shown->why;
        snprintf(row->found_by, sizeof row->found_by, "%s", shown->task.c->name);
        snprintf(row->showed, sizeof row->showed, "%.95s", said.text);
        row->also = seen - 1;
    }
    if (by_finder) row->head.verdict = HA_PASS;
    else if (!complete) say(run, i, "not all of it was run");
    else
        ha_result_set(
            run->group, i,
            ha_why(&why, HA_FAIL, seen ? "found, but not by the case that is there for it" : "NOT FOUND by any case"),
            &why);
}

/* ---- merges ------------------------------------------------------------------------------------------------------ */

static enum ha_status check_merges(struct run *run, struct ha_why *why)
{
    bool complete = false;
    if (!run->sources) return HA_OK;
    HA_TRY((run->part == HA_PART_RANDOM ? run_random : run_cases)(run, &complete, why));
    for (size_t i = 0; i < run->group->count; i++) {
        if (run->of[i] == SIZE_MAX) continue;
        if (run->part == HA_PART_GALLERY) {
            enter_defect(run, i, complete);
            continue;
        }
        const struct ha_merge_cell *c = &run->cell[item_of(run, i) * run->sources + run->of[i]];
        /* random merges that go on for as long as they may, and those of one batch, are complete once they have begun
         */
        const bool begun = run->config.exhaustive || ha_merge_axes_whole(&point_of(run, i)->axes);
        const bool enough = run->part == HA_PART_RANDOM && (c->j.rows >= RANDOM_ROWS || (begun && c->runs));
        /* how many are merged before the time is over is another number each time */
        const bool counted = complete && !(run->config.exhaustive && run->group->deadline_ns);
        enter(run, i, c, complete || enough);
        if (counted) say_outputs(run, i, c->j.outputs);
    }
    return HA_OK;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static enum ha_status attend(struct run *run, size_t i, struct ha_why *why)
{
    struct ha_merge_source *source = run->source[run->of[i]];
    struct ha_merge_result *row = row_of(run, i);
    struct ha_attention_subject subject = { source->name, source->kernels, source->api, source->device, NULL };
    struct ha_attention_result got = { 0 };
    struct ha_subject plugin = { 0 };
    HA_TRY(ha_merge_source_patience(source, why));
    if (source->kind == HA_FROM_DEVICE) subject.eps = &source->eps;
    if (source->kind == HA_FROM_PLUGIN) {
        HA_TRY(ha_merge_source_open(source, &plugin, why));
        subject.api = ha_plugin_attend(&plugin);
    }
    const uint64_t begin_ns = ha_now_ns();
    const enum ha_status st = !subject.kernels && !subject.api
                                  ? ha_why(why, HA_WAIVED, "it offers no attend")
                                  : ha_attention_check(&subject, point_of(run, i)->problem, point_of(run, i)->axes.seed,
                                                       &point_of(run, i)->shape, &got, why);
    if (st == HA_ERROR) source->lost_ns += ha_now_ns() - begin_ns;
    row->merges = got.rows;
    if (got.rows) row->ratio = got.ratio;
    row->sense = got.sense;
    ha_suspect_tell(&got.suspect, &row->head, &row->bias, &row->rms);
    say_outputs(run, i, got.outputs);
    ha_subject_close(&plugin);
    return survived(run, i, st, why);
}

static enum ha_status check_attention(struct run *run, struct ha_why *why)
{
    for (size_t i = 0; i < run->group->count; i++) {
        struct ha_why reason = { "" };
        if (run->of[i] == SIZE_MAX) continue;
        draw(run, i, run->group->count);
        if (over(run)) {
            say(run, i, "not run");
            continue;
        }
        const enum ha_status st = attend(run, i, &reason);
        ha_result_set(run->group, i, st, &reason);
        if (st == HA_OK) row_of(run, i)->head.verdict = HA_PASS;
    }
    return HA_OK;
}

/* ---- a file ------------------------------------------------------------------------------------------------------ */

static enum ha_status check_replay(struct run *run, struct ha_why *why)
{
    struct ha_merge_result *row = row_of(run, 0);
    struct ha_merge_shape shape;
    struct ha_judgement j;
    const enum ha_status st = ha_replay_judge(point_of(run, 0)->replay, &shape, &j, why);
    if (st == HA_ERROR) return st;
    count_merges(row, &j);
    row->ratio = j.ratio;
    say_outputs(run, 0, j.outputs);
    snprintf(row->subject, sizeof row->subject, "file");
    snprintf(row->showed, sizeof row->showed, "%zu states x %zu tokens x %zu heads x %zu, %s, o %s, %s", shape.states,
             shape.tokens, shape.heads, shape.dim, ha_form_name(shape.form), ha_dtype_name(shape.dtype),
             ha_order_name(shape.order));
    if (st == HA_FAIL) *why = ha_judgement_say(&j, shape.dim);
    else row->head.verdict = HA_PASS;
    return st;
}

static enum ha_status check(void *arg, struct ha_group *group, struct ha_why *why)
{
    struct run *run = arg;
    run->group = group;
    return run->part == HA_PART_REPLAY      ? check_replay(run, why)
           : run->part == HA_PART_ATTENTION ? check_attention(run, why)
                                            : check_merges(run, why);
}

/* the gallery */
static void print_defects(FILE *out)
{
    for (size_t i = 0; i < HA_MERGE_DEFECTS; i++) {
        const struct ha_merge_defect *d = &ha_merge_defects[i];
        fprintf(out, "%-22s %s\n%22s found by %s%s%s\n", d->name, d->does, "", d->finder, d->seen[0] ? "; seen: " : "",
                d->seen);
    }
}
static const struct ha_list defects = { "defects", print_defects };

const struct ha_suite ha_suite_lse_merge = {
    .name = "lse_merge",
    .doc = "is a merge of attention states exact? ours, or yours (docs/merging.md)",
    .key = ha_merge_key,
    .keys = HA_MERGE_KEYS,
    .class_key = "case",
    .field = ha_merge_field,
    .fields = HA_MERGE_FIELDS,
    .file = { "lse_merge.csv" },
    .point_bytes = sizeof(struct ha_merge_point),
    .row_bytes = sizeof(struct ha_merge_result),
    .list = &defects,
    .lists = 1,
    .options = " exhaustive ",
    .forks = true,
    .uses = ha_merge_uses,
    .settle = ha_merge_settle,
    .cost = ha_merge_cost,
    .look = ha_merge_look,
    .together = ha_merge_together,
    .begin = begin,
    .open = open_group,
    .check = check,
    .close = close_group,
    .end = end,
    .print = ha_merge_print,
    .conclude = ha_merge_conclude,
};
