#include "suites/merge/check.h"

#include "harness/base/clock.h"
#include "harness/base/registry.h"
#include "harness/base/stop.h"
#include "harness/base/try.h"
#include "harness/base/why.h"
#include "harness/engine/point.h"
#include "harness/report/verdict.h"
#include "suites/merge/attention.h"
#include "suites/merge/bundle.h"
#include "suites/merge/by.h"
#include "suites/merge/failure.h"
#include "suites/merge/plugin.h"
#include "suites/merge/replay.h"
#include "suites/merge/result.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ITEMS_RANDOM = HA_MERGE_KINDS * HA_DTYPE_COUNT, FAILURES_SHOWN = 20, STATES_GALLERY = 7 };
#define FAILURES_DIR "lse_merge.failures" /* without a folder of the run */
static const uint64_t RANDOM_ROWS = 20000, EXHAUSTIVE_ROWS = 10000000;
static const struct ha_merge_suite *const suite = &ha_merge_suite;

struct run {
    struct ha_suite_config config;
    struct ha_merge_party party;
    struct ha_pool *pool; /* NULL until the first group that is no stranger's */
    size_t failures;      /* printed */
    /* of the group at hand */
    const char *part;
    struct ha_group *group;
    struct ha_merge_source *source; /* those of its points that can be asked */
    size_t sources, *of;            /* [count] of source; SIZE_MAX: that point has its verdict */
    struct ha_pool *threads;        /* NULL: the group runs on one */
};

static const struct ha_merge_point *point_of(const struct run *run, size_t i) { return run->group->point[i]; }
static struct ha_merge_result *row_of(const struct run *run, size_t i) { return run->group->row[i]; }

enum ha_status ha_merge_begin(void **out, const struct ha_suite_config *config, const struct ha_results *before,
                              struct ha_why *why)
{
    struct run *run = *out = calloc(1, sizeof *run);
    (void)before;
    if (!run) return ha_why(why, HA_ERROR, "out of memory");
    run->config = *config;
    run->party.config = &run->config;
    return HA_OK;
}

void ha_merge_end(void *arg)
{
    struct run *run = arg;
    if (!run) return;
    if (run->pool) ha_pool_destroy(run->pool);
    ha_merge_party_free(&run->party);
    free(run);
}

/* ---- the group --------------------------------------------------------------------------------------------------- */

static void not_run(const struct run *run, size_t i, const char *why)
{
    snprintf(row_of(run, i)->head.reason, sizeof row_of(run, i)->head.reason, "%s", why);
}

/* One that cannot be opened is an error once; its other points are not run. */
static void refuse(const struct run *run, size_t i, bool *said, enum ha_status status, const struct ha_why *why)
{
    if (status == HA_ERROR && *said) not_run(run, i, why->text);
    else ha_result_set(run->group, i, status, why);
    *said |= status == HA_ERROR;
}

/* What each point's `by` stands for, once; a point whose subject cannot be asked gets its verdict here. */
static enum ha_status gather_sources(struct run *run, struct ha_why *why)
{
    const size_t count = run->group->count;
    size_t *member = malloc(count * sizeof *member);
    enum ha_status st = member ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < count && st == HA_OK; i++) {
        struct ha_why reason = { "" };
        const enum ha_status found = ha_merge_party_find(&run->party, point_of(run, i)->by, &member[i], &reason);
        if (member[i] == run->party.count) st = ha_why(why, HA_ERROR, "%s", reason.text);
        else if (found != HA_OK) refuse(run, i, &run->party.member[member[i]].said, found, &reason);
        if (found != HA_OK) continue;
        size_t s = 0;
        while (s < i && (run->of[s] == SIZE_MAX || member[s] != member[i])) s++;
        run->of[i] = s < i ? run->of[s] : run->sources++;
        struct ha_merge_source *source = &run->source[run->of[i]];
        *source = run->party.member[member[i]].source;
        snprintf(row_of(run, i)->subject, sizeof row_of(run, i)->subject, "%s", source->name);
    }
    for (size_t i = 0; i < count && st == HA_OK; i++) /* once the party grows no more */
        if (run->of[i] != SIZE_MAX) run->source[run->of[i]].lost_ns = &run->party.member[member[i]].lost_ns;
    free(member);
    return st;
}

enum ha_status ha_merge_open(void *arg, struct ha_group *group, struct ha_why *why)
{
    struct run *run = arg;
    const enum ha_merge_part part = ha_merge_part(group->point[0]);
    run->group = group;
    run->source = calloc(group->count, sizeof *run->source);
    run->of = malloc(group->count * sizeof *run->of);
    if (!run->source || !run->of) return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < group->count; i++) run->of[i] = SIZE_MAX;
    if (part == HA_PART_REPLAY) return HA_OK;
    if (part != HA_PART_GALLERY) HA_TRY(gather_sources(run, why));
    else
        for (size_t i = 0; i < group->count; i++, run->sources++)
            run->source[run->of[i] = i] = ha_merge_source_defect(&suite->defects[point_of(run, i)->defect]);
    bool strange = part == HA_PART_ATTENTION; /* which has threads of its own */
    for (size_t s = 0; s < run->sources; s++) strange |= ha_merge_source_is_strange(&run->source[s]);
    if (!strange && !run->pool) HA_TRY(ha_pool_create(&run->pool, HA_TEAM_DEFAULT, 0, why));
    run->threads = strange ? NULL : run->pool;
    return HA_OK;
}

void ha_merge_close(void *arg, struct ha_group *group)
{
    struct run *run = arg;
    (void)group;
    free(run->source);
    free(run->of);
    run->source = NULL;
    run->of = NULL;
    run->sources = 0;
}

static void draw(void *arg, size_t done, size_t of)
{
    const struct run *run = arg;
    if (run->config.engine.progress) run->config.engine.progress(run->config.engine.arg, done, of, run->part);
}

static bool over(const struct run *run)
{
    return ha_stop || (run->group->deadline_ns && ha_now_ns() >= run->group->deadline_ns);
}

static enum ha_status new_cells(struct ha_merge_cell **cell, size_t count, struct ha_why *why)
{
    *cell = malloc(count * sizeof **cell);
    if (!*cell) return ha_why(why, HA_ERROR, "out of memory");
    ha_merge_cells_clear(*cell, count);
    return HA_OK;
}

static struct ha_merge_job job_of(struct run *run, size_t items, struct ha_merge_cell *cell)
{
    return (struct ha_merge_job){ .suite = suite,
                                  .source = run->source,
                                  .sources = run->sources,
                                  .items = items,
                                  .cell = cell,
                                  .progress = draw,
                                  .arg = run,
                                  .deadline_ns = run->group->deadline_ns };
}

static struct ha_merge_task listed(void *arg, size_t i) { return ((struct ha_merge_task *)arg)[i]; }

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

static void say_failure(struct run *run, const struct ha_merge_point *p, const struct ha_merge_source *source,
                        const struct ha_merge_cell *cell, struct ha_merge_result *row)
{
    struct ha_merge_point at = *p;
    char id[HA_ID_MAX];
    if (run->failures++ >= FAILURES_SHOWN) return;
    at.axes = ha_merge_axes_of(&cell->task, cell->bad.against ? cell->bad.row : SIZE_MAX);
    ha_point_print(&ha_suite_lse_merge, &at, id, sizeof id);
    if (!run->config.out_dir) mkdir(FAILURES_DIR, 0777); /* where that fails the file says so */
    FILE *out = fmemopen(row->failure, sizeof row->failure, "w");
    if (!out) return;
    ha_merge_failure_print(out, suite, source, cell, id, run->config.out_dir ? run->config.out_dir : FAILURES_DIR);
    fclose(out);
}

static void count_bins(struct ha_merge_result *row, const struct ha_judgement *j)
{
    for (size_t i = 0; i < HA_RATIO_BINS; i++)
        row->bin[i > HA_RATIO_BINS - HA_MERGE_BINS ? i - (HA_RATIO_BINS - HA_MERGE_BINS) : 0] += j->bin[i];
}

/* complete: all that was to be merged has been; a row that is not has no verdict, unless it is wrong already */
static void enter(struct run *run, size_t i, const struct ha_merge_cell *c, bool complete)
{
    struct ha_merge_result *row = row_of(run, i);
    const enum ha_status st = ha_merge_cell_status(c);
    struct ha_why reason = c->why;
    row->merges = c->j.rows;
    row->exact = c->j.exact;
    row->refused = c->refused;
    if (c->runs) row->ratio = c->j.ratio;
    if (c->worst_planted < HUGE_VAL) row->planted = c->worst_planted;
    count_bins(row, &c->j);
    if (st == HA_FAIL && c->bad.against && !reason.text[0])
        ha_judgement_say(&c->bad, c->task.shape.dim, reason.text, sizeof reason.text);
    if (st == HA_WAIVED && !c->waived) ha_why(&reason, HA_WAIVED, "it is asked for flat, packed merges alone");
    if (st == HA_FAIL || st == HA_ERROR) {
        ha_result_set(run->group, i, st, &reason);
        say_failure(run, point_of(run, i), &run->source[run->of[i]], c, row);
    } else if (!complete) not_run(run, i, "not all of it was run");
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
    return run->sources && run->source[0].kind == HA_FROM_EXEC && !narrow;
}

static enum ha_status bundle_cases(struct run *run, struct ha_merge_cell *cell, bool *complete, struct ha_why *why)
{
    bool *asked = calloc(suite->cases_count, sizeof *asked);
    const struct ha_merge_job job = job_of(run, suite->cases_count, cell);
    const struct ha_merge_bundles bundles = { .only = &point_of(run, 0)->axes, .asked = asked };
    if (!asked) return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < run->group->count; i++) asked[point_of(run, i)->item] = true;
    const enum ha_status st = ha_merge_bundles_run(&job, &bundles, why);
    *complete = !over(run);
    free(asked);
    return st;
}

static enum ha_status run_cases(struct run *run, struct ha_merge_cell *cell, bool *complete, struct ha_why *why)
{
    struct ha_merge_tasks tasks = { 0 };
    struct ha_merge_job job = job_of(run, suite->cases_count, cell);
    size_t done = 0;
    enum ha_status st = HA_OK;
    for (size_t i = 0; i < run->group->count && st == HA_OK; i++)
        if (!i || point_of(run, i)->item != point_of(run, i - 1)->item)
            st = ha_merge_tasks_of_case(&tasks, suite, point_of(run, i)->item, &point_of(run, i)->axes, why);
    job.done = &done;
    if (st == HA_OK) st = ha_merge_job_run(&job, tasks.count, listed, tasks.task, run->threads, why);
    *complete = done == tasks.count;
    ha_merge_tasks_free(&tasks);
    return st;
}

static enum ha_status check_cases(struct run *run, struct ha_why *why)
{
    struct ha_merge_cell *cell;
    bool complete = false;
    run->part = ha_merge_item_name(point_of(run, 0));
    if (!run->sources) return HA_OK;
    HA_TRY(new_cells(&cell, suite->cases_count * run->sources, why));
    const enum ha_status st = (by_bundles(run) ? bundle_cases : run_cases)(run, cell, &complete, why);
    for (size_t i = 0; i < run->group->count && st == HA_OK; i++)
        if (run->of[i] != SIZE_MAX) enter(run, i, &cell[point_of(run, i)->item * run->sources + run->of[i]], complete);
    free(cell);
    return st;
}

/* ---- random merges ----------------------------------------------------------------------------------------------- */

struct random_batches {
    const struct ha_merge_axes *only;
    size_t item[ITEMS_RANDOM], items; /* kind x type: those of the group */
    uint64_t first;
};

static size_t random_item(const struct ha_merge_point *p) { return p->kind * HA_DTYPE_COUNT + p->axes.dtype - 1; }

static struct ha_merge_task random_task(void *arg, size_t i)
{
    const struct random_batches *b = arg;
    const size_t item = b->item[i % b->items];
    return ha_merge_random_task(suite, item / HA_DTYPE_COUNT, (enum ha_dtype)(item % HA_DTYPE_COUNT), b->only,
                                b->first + i / b->items);
}

/* of those that are right so far: what crashes each time never has enough */
static uint64_t fewest_rows(const struct ha_merge_cell *cell, size_t count)
{
    uint64_t fewest = UINT64_MAX;
    for (size_t i = 0; i < count; i++)
        if (cell[i].runs && cell[i].first_bad == SIZE_MAX && cell[i].j.rows < fewest) fewest = cell[i].j.rows;
    return fewest;
}

/* Rounds of batches until there are enough of every kind and type, or, where a time was given, until it is over. */
static enum ha_status ask_random(struct run *run, struct ha_merge_cell *cell, struct random_batches *b,
                                 struct ha_why *why)
{
    const struct ha_merge_job job = job_of(run, ITEMS_RANDOM, cell);
    const bool exhaustive = run->config.exhaustive, until_time = exhaustive && run->group->deadline_ns,
               one = ha_merge_axes_whole(b->only);
    const uint64_t enough = exhaustive ? EXHAUSTIVE_ROWS : RANDOM_ROWS;
    const size_t round = one ? 1 : exhaustive ? 256 : 16;
    do {
        HA_TRY(ha_merge_job_run(&job, round * b->items, random_task, b, run->threads, why));
        b->first += round;
    } while (!one && !over(run) && (until_time || fewest_rows(cell, ITEMS_RANDOM * run->sources) < enough));
    return HA_OK;
}

static enum ha_status check_random(struct run *run, struct ha_why *why)
{
    struct random_batches b = { .only = &point_of(run, 0)->axes };
    struct ha_merge_axes only = *b.only;
    struct ha_merge_cell *cell;
    enum ha_status st = HA_OK;
    bool asked[ITEMS_RANDOM] = { false };
    run->part = "random merges";
    if (!run->sources) return HA_OK;
    HA_TRY(new_cells(&cell, ITEMS_RANDOM * run->sources, why));
    for (size_t i = 0; i < run->group->count; i++) asked[random_item(point_of(run, i))] = true;
    for (size_t i = 0; i < ITEMS_RANDOM; i++)
        if (asked[i]) b.item[b.items++] = i;
    if (by_bundles(run)) {
        const struct ha_merge_job job = job_of(run, suite->cases_count, NULL);
        if (b.items > 1) only.dtype = 0;
        else only.form = 1 + (uint64_t)ha_merge_kinds[point_of(run, 0)->kind].form;
        st = ha_merge_bundles_run(
            &job,
            &(struct ha_merge_bundles){ .only = &only, .batches = run->config.exhaustive ? 64 : 2, .random = cell },
            why);
    } else st = ask_random(run, cell, &b, why);
    /* those that go on for as long as they may, and those of one batch, are complete once they have begun */
    const bool begun = run->config.exhaustive || ha_merge_axes_whole(b.only), complete = !over(run);
    for (size_t i = 0; i < run->group->count && st == HA_OK; i++) {
        if (run->of[i] == SIZE_MAX) continue;
        const struct ha_merge_cell *c = &cell[random_item(point_of(run, i)) * run->sources + run->of[i]];
        enter(run, i, c, complete || c->j.rows >= RANDOM_ROWS || (begun && c->runs));
    }
    free(cell);
    return st;
}

/* ---- the gallery: every defect over every case ------------------------------------------------------------------- */

/* Many states only where the case asks for them, or is there to find the defect. */
static bool skip_states(void *arg, const struct ha_merge_task *t, size_t source)
{
    const struct run *run = arg;
    const size_t least = t->c->states_min > STATES_GALLERY ? t->c->states_min : STATES_GALLERY;
    return t->shape.states > least && strcmp(t->c->name, suite->defects[point_of(run, source)->defect].finder) != 0;
}

/* cell: [cases][sources], from this defect's on */
static void enter_defect(struct run *run, size_t i, const struct ha_merge_cell *cell, bool complete)
{
    const struct ha_merge_defect *d = &suite->defects[point_of(run, i)->defect];
    struct ha_merge_result *row = row_of(run, i);
    const struct ha_merge_cell *shown = NULL;
    struct ha_why why;
    bool by_finder = false;
    size_t seen = 0;
    for (size_t k = 0; k < suite->cases_count; k++) {
        const struct ha_merge_cell *c = &cell[k * run->sources];
        row->merges += c->j.rows;
        if (ha_merge_cell_status(c) != HA_FAIL) continue;
        const bool finder = !strcmp(suite->cases[k].name, d->finder);
        if (finder || !seen) shown = c;
        by_finder |= finder;
        seen++;
    }
    snprintf(row->subject, sizeof row->subject, "%s", d->name);
    if (shown) {
        char said[512];
        ha_judgement_say(&shown->bad, shown->task.shape.dim, said, sizeof said);
        snprintf(row->found_by, sizeof row->found_by, "%s", shown->task.c->name);
        snprintf(row->showed, sizeof row->showed, "%.95s", shown->bad.against ? said : shown->why.text);
        row->also = seen - 1;
    }
    if (by_finder) row->head.verdict = HA_PASS;
    else if (!complete) not_run(run, i, "not all of it was run");
    else
        ha_result_set(
            run->group, i,
            ha_why(&why, HA_FAIL, seen ? "found, but not by the case that is there for it" : "NOT FOUND by any case"),
            &why);
}

static enum ha_status check_gallery(struct run *run, struct ha_why *why)
{
    const struct ha_merge_axes any = { .seed = point_of(run, 0)->axes.seed, .row = HA_ROW_ANY };
    struct ha_merge_tasks tasks = { 0 };
    struct ha_merge_cell *cell;
    size_t done = 0;
    enum ha_status st = HA_OK;
    run->part = "known defects";
    HA_TRY(new_cells(&cell, suite->cases_count * run->sources, why));
    struct ha_merge_job job = job_of(run, suite->cases_count, cell);
    job.stop_at_first = true;
    job.skip = skip_states;
    job.done = &done;
    for (size_t i = 0; i < suite->cases_count && st == HA_OK; i++)
        st = ha_merge_tasks_of_case(&tasks, suite, i, &any, why);
    if (st == HA_OK) st = ha_merge_job_run(&job, tasks.count, listed, tasks.task, run->threads, why);
    for (size_t i = 0; i < run->group->count && st == HA_OK; i++) enter_defect(run, i, &cell[i], done == tasks.count);
    ha_merge_tasks_free(&tasks);
    free(cell);
    return st;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static enum ha_status attend(struct run *run, size_t i, struct ha_why *why)
{
    struct ha_merge_source *source = &run->source[run->of[i]];
    struct ha_merge_result *row = row_of(run, i);
    struct ha_attention_subject subject = { source->name, source->kernels, source->api, source->device };
    struct ha_attention_result got = { 0 };
    struct ha_subject plugin = { 0 };
    if (ha_merge_lost_ns(source) > ha_merge_patience_ns)
        return ha_why(why, HA_ERROR, "given up: it has not answered for %.0f s in all",
                      (double)ha_merge_lost_ns(source) / 1e9);
    if (source->kind == HA_FROM_PLUGIN) {
        HA_TRY(ha_merge_source_open(source, &plugin, why));
        subject.api = ha_plugin_attend(&plugin);
    }
    const uint64_t begin_ns = ha_now_ns();
    const enum ha_status st = !subject.kernels && !subject.api
                                  ? ha_why(why, HA_WAIVED, "it offers no attend")
                                  : ha_attention_check(&subject, point_of(run, i)->problem, point_of(run, i)->axes.seed,
                                                       &got, why);
    if (st == HA_ERROR) *source->lost_ns += ha_now_ns() - begin_ns;
    row->merges = got.rows;
    if (got.rows) row->ratio = got.ratio;
    ha_subject_close(&plugin);
    return st;
}

static enum ha_status check_attention(struct run *run, struct ha_why *why)
{
    (void)why;
    run->part = ha_attention_cases[point_of(run, 0)->problem].name;
    for (size_t i = 0; i < run->group->count; i++) {
        struct ha_why reason = { "" };
        if (run->of[i] == SIZE_MAX) continue;
        draw(run, i, run->group->count);
        if (over(run)) {
            not_run(run, i, "not run");
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
    const char *path = point_of(run, 0)->replay;
    const enum ha_status st = ha_replay_judge(path, &shape, &j, why);
    if (st == HA_ERROR) return st;
    row->merges = j.rows;
    row->exact = j.exact;
    row->ratio = j.ratio;
    count_bins(row, &j);
    snprintf(row->subject, sizeof row->subject, "file");
    snprintf(row->showed, sizeof row->showed, "%zu states x %zu tokens x %zu heads x %zu, %s, o %s, %s", shape.states,
             shape.tokens, shape.heads, shape.dim, ha_form_name(shape.form), ha_dtype_name(shape.dtype),
             ha_order_name(shape.order));
    if (st == HA_FAIL) ha_judgement_say(&j, shape.dim, why->text, sizeof why->text);
    else row->head.verdict = HA_PASS;
    return st;
}

enum ha_status ha_merge_check(void *arg, struct ha_group *group, struct ha_why *why)
{
    static enum ha_status (*const check[HA_MERGE_PARTS])(struct run *, struct ha_why *) = {
        [HA_PART_CASES] = check_cases,         [HA_PART_RANDOM] = check_random, [HA_PART_GALLERY] = check_gallery,
        [HA_PART_ATTENTION] = check_attention, [HA_PART_REPLAY] = check_replay,
    };
    struct run *run = arg;
    run->group = group;
    return check[ha_merge_part(group->point[0])](run, why);
}
