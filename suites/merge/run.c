#include "suites/merge/run.h"

#include "harness/base/clock.h"
#include "harness/base/stop.h"
#include "harness/base/try.h"
#include "harness/base/why.h"
#include "suites/merge/attention_run.h"
#include "suites/merge/bundle.h"
#include "suites/merge/failure.h"
#include "suites/merge/plugin.h"
#include "suites/merge/replay.h"
#include "suites/merge/report.h"
#include "suites/merge/sources.h"
#include "harness/base/registry.h"
#include "harness/report/env.h"
#include "harness/report/junit.h"
#include "harness/report/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ITEMS_RANDOM = HA_MERGE_KINDS * HA_DTYPE_COUNT, IDS_MAX = 256, FAILURES_SHOWN = 20, STATES_GALLERY = 7 };
#define FAILURES_DIR "lse_merge.failures" /* without -o */
static const uint64_t RANDOM_ROWS = 20000, EXHAUSTIVE_ROWS = 10000000;

struct merge_run {
    const struct ha_merge_options *options;
    const struct ha_merge_suite *suite;
    struct ha_merge_id only[IDS_MAX];
    size_t ids;
    struct ha_merge_sources by;
    size_t threads;
    bool plain, everything; /* no id and no filter; and no stranger */
    struct ha_merge_results results;
    struct ha_progress progress;
    const char *part;
    uint64_t begin_ns;
};

/* ---- parts ------------------------------------------------------------------------------- */

static void draw(void *arg, size_t done, size_t of)
{
    struct merge_run *run = arg;
    run->progress.cases = of;
    run->progress.done = done;
    ha_progress_case(&run->progress, run->part);
}

static struct ha_merge_cell *new_cells(size_t count)
{
    struct ha_merge_cell *cell = malloc(count * sizeof *cell);
    if (cell) ha_merge_cells_clear(cell, count);
    return cell;
}

static struct ha_merge_job job_of(struct merge_run *run, size_t items, struct ha_merge_cell *cell)
{
    return (struct ha_merge_job){ .suite = run->suite,
                                  .source = run->by.source,
                                  .sources = run->by.count,
                                  .items = items,
                                  .cell = cell,
                                  .progress = draw,
                                  .arg = run,
                                  .deadline_ns = run->options->max_time_ns ? run->begin_ns + run->options->max_time_ns
                                                                           : 0 };
}

static bool over(const struct merge_run *run)
{
    return ha_stop || (run->options->max_time_ns && ha_now_ns() - run->begin_ns >= run->options->max_time_ns);
}

static struct ha_merge_task listed(void *arg, size_t i) { return ((struct ha_merge_task *)arg)[i]; }

static enum ha_status run_cases(struct merge_run *run, struct ha_merge_cell *cell, struct ha_why *why)
{
    struct ha_merge_tasks tasks = { 0 };
    struct ha_merge_job job = job_of(run, run->suite->cases_count, cell);
    size_t done = 0;
    enum ha_status st = HA_OK;
    run->part = "cases";
    job.done = &done;
    for (size_t i = 0; i < run->ids && st == HA_OK; i++)
        st = ha_merge_tasks_of_cases(&tasks, run->suite, &run->only[i], run->options->seed, why);
    if (st == HA_OK) st = ha_merge_job_run(&job, tasks.count, listed, tasks.task, run->threads, why);
    /* a case of which a part was not run has no verdict, unless it is wrong already */
    for (size_t i = done; i < tasks.count && st == HA_OK; i++)
        for (size_t s = 0; s < run->by.count; s++) {
            struct ha_merge_cell *c = &cell[tasks.task[i].item * run->by.count + s];
            if (ha_merge_cell_status(c) == HA_OK) ha_merge_cells_clear(c, 1);
        }
    ha_merge_tasks_free(&tasks);
    return st;
}

struct random_batches {
    const struct merge_run *run;
    uint64_t first;
};

/* the id that speaks of random rows, if there are several */
static const struct ha_merge_id *random_id(const struct merge_run *run)
{
    for (size_t k = 0; k < run->ids; k++)
        if (!strcmp(run->only[k].what, "random")) return &run->only[k];
    return &run->only[0];
}

static struct ha_merge_task random_task(void *arg, size_t i)
{
    const struct random_batches *b = arg;
    const size_t item = i % ITEMS_RANDOM;
    return ha_merge_random_task(b->run->suite, item / HA_DTYPE_COUNT, (enum ha_dtype)(item % HA_DTYPE_COUNT),
                                random_id(b->run), b->run->options->seed, b->first + i / ITEMS_RANDOM);
}

static bool skip_random(void *arg, const struct ha_merge_task *t, size_t source)
{
    (void)source;
    return !ha_merge_random_fits(t->item / HA_DTYPE_COUNT, t->shape.dtype, random_id(arg));
}

/* of those that are right so far: what crashes each time never has enough */
static uint64_t fewest_rows(const struct merge_run *run, const struct ha_merge_cell *cell)
{
    uint64_t fewest = UINT64_MAX;
    for (size_t i = 0; i < ITEMS_RANDOM * run->by.count; i++)
        if (cell[i].runs && cell[i].first_bad == SIZE_MAX && cell[i].j.rows < fewest) fewest = cell[i].j.rows;
    return fewest;
}

/* Rounds of batches until there are enough of every form and type, or, where a time was given, until it is over. */
static enum ha_status run_random(struct merge_run *run, struct ha_merge_cell *cell, struct ha_why *why)
{
    struct ha_merge_job job = job_of(run, ITEMS_RANDOM, cell);
    const uint64_t enough = run->options->exhaustive ? EXHAUSTIVE_ROWS : RANDOM_ROWS;
    const bool until_time = run->options->exhaustive && run->options->max_time_ns,
               one = random_id(run)->set >> HA_KEY_SEED & 1u;
    struct random_batches batches = { run, 0 };
    const size_t round = run->options->exhaustive ? 256 : 16;
    run->part = "random merges";
    job.skip = skip_random;
    do {
        HA_TRY(ha_merge_job_run(&job, one ? ITEMS_RANDOM : round * ITEMS_RANDOM, random_task, &batches, run->threads,
                                why));
        batches.first += round;
    } while (!one && !over(run) && (until_time || fewest_rows(run, cell) < enough));
    return HA_OK;
}

/* Many states only where the case asks for them, or is there to find the defect. */
static bool skip_states(void *arg, const struct ha_merge_task *t, size_t defect)
{
    const struct merge_run *run = arg;
    const size_t least = t->c->states_min > STATES_GALLERY ? t->c->states_min : STATES_GALLERY;
    return t->shape.states > least && strcmp(t->c->name, run->suite->defects[defect].finder) != 0;
}

/* Every defect over every case. */
static enum ha_status run_gallery(struct merge_run *run, struct ha_merge_source *defect, struct ha_merge_cell *cell,
                                  struct ha_why *why)
{
    struct ha_merge_tasks tasks = { 0 };
    struct ha_merge_job job = job_of(run, run->suite->cases_count, cell);
    job.source = defect;
    job.sources = run->suite->defects_count;
    job.stop_at_first = true;
    job.skip = skip_states;
    run->part = "known defects";
    ha_merge_sources_defects(run->suite, defect);
    enum ha_status st = ha_merge_tasks_of_cases(&tasks, run->suite, &run->only[0], run->options->seed, why);
    if (st == HA_OK) st = ha_merge_job_run(&job, tasks.count, listed, tasks.task, run->threads, why);
    ha_merge_tasks_free(&tasks);
    return st;
}

/* ---- what is said ------------------------------------------------------------------------ */

static void print_title(const struct merge_run *run)
{
    printf("lse_merge: is a merge of attention states exact? seed %llu, by", (unsigned long long)run->options->seed);
    for (size_t s = 0; s < run->by.count; s++) printf("%s %s", s ? "," : "", run->by.source[s].name);
    printf("\nnumbers: the worst err/bound over all elements; 1 is the derived bound (docs/merging.md)\n\n");
}

static void random_name(size_t item, char *out, size_t size)
{
    const struct ha_merge_kind *k = &ha_merge_kinds[item / HA_DTYPE_COUNT];
    snprintf(out, size, "random,form=%s,dtype=%s,order=%s,alias=%s", ha_form_name(k->form),
             ha_dtype_name((enum ha_dtype)(item % HA_DTYPE_COUNT)), ha_order_name(k->order),
             k->in_place ? "first" : "none");
}

/* Verdicts of cells [items][sources] into the results. */
static enum ha_status enter(struct merge_run *run, const char *part, const struct ha_merge_cell *cell, size_t items,
                            struct ha_why *why)
{
    for (size_t i = 0; i < items; i++)
        for (size_t s = 0; s < run->by.count; s++) {
            const struct ha_merge_cell *c = &cell[i * run->by.count + s];
            const bool random = items == ITEMS_RANDOM && !strcmp(part, "random");
            char item[128], reason[sizeof c->why.text + 512];
            if (!c->runs && !c->waived) continue;
            if (random) random_name(i, item, sizeof item);
            else snprintf(item, sizeof item, "%s", run->suite->cases[i].name);
            const enum ha_status st = ha_merge_cell_status(c);
            snprintf(reason, sizeof reason, "%s", c->why.text);
            if (st == HA_FAIL && c->bad.against && !reason[0])
                ha_judgement_say(&c->bad, c->task.shape.dim, reason, sizeof reason);
            HA_TRY(
                ha_merge_results_add(&run->results, part, item, run->by.source[s].name, st, c->j.ratio, reason, why));
        }
    return HA_OK;
}

static size_t print_failures(const struct merge_run *run, const struct ha_merge_cell *cell, size_t items, size_t shown)
{
    for (size_t i = 0; i < items * run->by.count; i++) {
        const enum ha_status st = ha_merge_cell_status(&cell[i]);
        if (st != HA_FAIL && st != HA_ERROR) continue;
        if (shown++ == 0) printf("\n");
        if (!run->options->out_dir) mkdir(FAILURES_DIR, 0777); /* where that fails the file says so */
        if (shown <= FAILURES_SHOWN)
            ha_merge_failure_print(stdout, run->suite, &run->by.source[i % run->by.count], &cell[i],
                                   run->options->out_dir ? run->options->out_dir : FAILURES_DIR);
    }
    return shown;
}

/* The bound bites if half of it would not hold. */
static enum ha_status print_sharpness(struct merge_run *run, const struct ha_merge_cell *cell, struct ha_why *why)
{
    uint64_t rows = 0, half = 0;
    double worst = 0;
    for (size_t i = 0; i < ITEMS_RANDOM * run->by.count; i++) {
        rows += cell[i].j.rows;
        half += cell[i].j.bin[HA_RATIO_BINS - 1];
        worst = fmax(worst, cell[i].j.ratio);
    }
    printf("half the bound would fail %llu of these %llu merges (worst err/bound %.3f)\n\n", (unsigned long long)half,
           (unsigned long long)rows, worst);
    return ha_merge_results_add(&run->results, "bound", "half_the_bound_is_violated", "all", half ? HA_OK : HA_FAIL,
                                worst, "no merge came above half of its bound: is it too loose?", why);
}

static enum ha_status print_gallery(struct merge_run *run, const struct ha_merge_source *defect,
                                    const struct ha_merge_cell *cell, struct ha_why *why)
{
    const struct ha_merge_view view = { run->suite, defect, run->suite->defects_count, cell };
    ha_merge_print_gallery(stdout, &view);
    for (size_t d = 0; d < run->suite->defects_count; d++) {
        bool by_finder;
        const size_t seen = ha_merge_gallery_count(&view, d, &by_finder);
        HA_TRY(ha_merge_results_add(
            &run->results, "defect", defect[d].name, "c", by_finder ? HA_OK : HA_FAIL, (double)NAN,
            seen ? "found, but not by the case that is there for it" : "NOT FOUND by any case", why));
    }
    printf("\n");
    return HA_OK;
}

static enum ha_status run_attention(struct merge_run *run, struct ha_why *why)
{
    struct ha_attention_subject subject[HA_SOURCES_MAX];
    struct ha_subject plugin = { 0 };
    size_t count = 0;
    run->part = "attention";
    for (size_t s = 0; s < run->by.count && !run->by.stranger; s++) {
        const struct ha_merge_source *x = &run->by.source[s];
        subject[count++] = (struct ha_attention_subject){ x->name, x->api ? NULL : &run->by.kernels[s], x->api,
                                                          x->device };
    }
    if (run->by.stranger && !run->options->exec) {
        HA_TRY(ha_merge_source_open(&run->by.source[0], &plugin, why));
        const struct ha_device_api *api = ha_plugin_attend(&plugin);
        if (api) subject[count++] = (struct ha_attention_subject){ run->by.source[0].name, NULL, api, NULL };
    }
    const struct ha_attention_run how = { subject, count, run->options->seed, draw, run };
    const enum ha_status st = count ? ha_attention_run(&how, &run->results, why) : HA_OK;
    ha_subject_close(&plugin);
    return st;
}

/* ---- replay ------------------------------------------------------------------------------ */

static enum ha_exit replay(const char *path, struct ha_why *why)
{
    struct ha_merge_shape shape;
    struct ha_judgement j = { 0 };
    char said[512];
    const enum ha_status st = ha_replay_judge(path, &shape, &j, why);
    const struct ha_totals totals = { .passed = st == HA_OK, .failed = st == HA_FAIL, .errors = st == HA_ERROR };
    if (st == HA_ERROR) printf("ERROR %s\n", why->text);
    else {
        printf("%s: %zu states x %zu tokens x %zu heads x %zu, %s, o %s, %s\n", path, shape.states, shape.tokens,
               shape.heads, shape.dim, ha_form_name(shape.form), ha_dtype_name(shape.dtype),
               ha_order_name(shape.order));
        ha_judgement_say(&j, shape.dim, said, sizeof said);
        printf("%s: %llu merges, %llu exact, worst %s\n", st == HA_OK ? "pass" : "FAIL", (unsigned long long)j.rows,
               (unsigned long long)j.exact, j.against ? said : "err/bound 0");
        if (st == HA_FAIL) ha_why(why, HA_FAIL, "%s", said);
    }
    ha_table_print_totals(stdout, &totals);
    return st == HA_OK ? HA_EXIT_OK : st == HA_FAIL ? HA_EXIT_WRONG : HA_EXIT_ENVIRONMENT;
}

/* ---- the run ----------------------------------------------------------------------------- */

static enum ha_status parse(struct merge_run *run, struct ha_why *why)
{
    const struct ha_merge_options *o = run->options;
    char word[512];
    if (o->words_count > IDS_MAX) return ha_why(why, HA_ERROR, "more than %d ids", (int)IDS_MAX);
    for (size_t i = 0; i < o->words_count; i++) {
        const char *colon = strchr(o->words[i], ':');
        if (o->filter) snprintf(word, sizeof word, "%s%s%s", o->words[i], colon ? "," : ":", o->filter);
        else snprintf(word, sizeof word, "%s", o->words[i]);
        HA_TRY(ha_merge_id_parse(word, &run->only[run->ids], why));
        struct ha_merge_id *id = &run->only[run->ids++];
        run->plain &= !id->set && !id->what[0] && !id->by[0];
        bool known = !id->what[0] || !strcmp(id->what, "random");
        for (size_t k = 0; k < run->suite->cases_count; k++) known |= !strcmp(id->what, run->suite->cases[k].name);
        if (!known)
            return ha_why(why, HA_ERROR,
                          "case=%s: there is none of this name; `habench list cases lse_merge` shows them", id->what);
    }
    return HA_OK;
}

static bool asks_for(const struct merge_run *run, bool random)
{
    for (size_t i = 0; i < run->ids; i++)
        if (!run->only[i].what[0] || (!strcmp(run->only[i].what, "random")) == random) return true;
    return false;
}

static enum ha_status sections(struct merge_run *run, struct ha_merge_cell *cases, struct ha_merge_cell *random,
                               struct ha_merge_cell *gallery, struct ha_merge_source *defect, struct ha_why *why)
{
    const struct ha_merge_view of_cases = { run->suite, run->by.source, run->by.count, cases },
                               of_random = { run->suite, run->by.source, run->by.count, random };
    bool bundled = run->options->exec != NULL;
    size_t shown = 0;
    print_title(run);
    /* one that says more than form and type is run as it is */
    for (size_t i = 0; i < run->ids; i++) bundled &= !(run->only[i].set & ~(1u << HA_KEY_FORM | 1u << HA_KEY_DTYPE));
    if (bundled) {
        const struct ha_merge_job job = job_of(run, run->suite->cases_count, cases);
        run->part = "cases";
        for (size_t i = 0; i < run->ids; i++)
            HA_TRY(ha_merge_bundle_run(&job, random, &run->only[i], run->options->exhaustive ? 64 : 2,
                                       run->options->seed, why));
    }
    if (asks_for(run, false)) {
        if (!bundled) HA_TRY(run_cases(run, cases, why));
        ha_merge_print_cases(stdout, &of_cases);
        printf("\n");
        fflush(stdout);
        HA_TRY(enter(run, "case", cases, run->suite->cases_count, why));
    }
    if (run->everything && !over(run)) {
        HA_TRY(run_gallery(run, defect, gallery, why));
        if (!over(run)) HA_TRY(print_gallery(run, defect, gallery, why));
        fflush(stdout);
    }
    if (run->plain && !over(run)) HA_TRY(run_attention(run, why));
    /* last, because it can go on for hours */
    if (asks_for(run, true) && !over(run)) {
        if (!bundled) HA_TRY(run_random(run, random, why));
        ha_merge_print_random(stdout, &of_random);
        ha_merge_print_spread(stdout, &of_random);
        HA_TRY(enter(run, "random", random, ITEMS_RANDOM, why));
        if (run->everything) HA_TRY(print_sharpness(run, random, why));
        else printf("\n");
        fflush(stdout);
    }
    ha_progress_end(&run->progress);
    shown = print_failures(run, cases, run->suite->cases_count, 0);
    shown = print_failures(run, random, ITEMS_RANDOM, shown);
    if (shown > FAILURES_SHOWN) printf("and %zu more\n", shown - FAILURES_SHOWN);
    if (shown) printf("\n");
    return HA_OK;
}

static enum ha_exit finish(struct merge_run *run, struct ha_why *why)
{
    const struct ha_totals *t = &run->results.totals;
    const bool cut = over(run) && !(run->options->exhaustive && run->options->max_time_ns);
    enum ha_status st = HA_OK;
    struct ha_device_info info = { 0 };
    struct ha_env env;
    ha_env_read(&env);
    if (run->by.api) run->by.api->info(run->by.device, &info);
    if (run->options->out_dir) {
        st = ha_junit_write(run->options->out_dir, run->results.row, run->results.count, false, why);
        if (st == HA_OK)
            st = ha_env_write(run->options->out_dir, &env, run->by.api, run->by.api ? &info : NULL, NULL, why);
    }
    ha_env_print(stdout, &env, run->by.api, &info, NULL);
    printf("%.1f s\n", (double)(ha_now_ns() - run->begin_ns) / 1e9);
    ha_table_print_totals(stdout, t);
    if (st != HA_OK) return HA_EXIT_ENVIRONMENT;
    if (!run->results.count && !cut) {
        ha_why(why, HA_ERROR,
               "no case allows what the id says; `habench check lse_merge --dry-run` prints what there is");
        return HA_EXIT_USAGE;
    }
    if (t->failed) ha_why(why, HA_FAIL, "%zu of %zu are wrong", t->failed, run->results.count);
    else if (t->errors) ha_why(why, HA_ERROR, "%zu of %zu could not be judged", t->errors, run->results.count);
    else if (cut)
        ha_why(why, HA_ERROR, "%s: what is above is right, the rest was not run",
               ha_stop ? "interrupted" : "--max-time is over");
    else if (!t->passed) ha_why(why, HA_WAIVED, "everything was waived");
    return t->failed   ? HA_EXIT_WRONG
           : t->errors ? HA_EXIT_ENVIRONMENT
           : cut       ? HA_EXIT_MISSING
           : t->passed ? HA_EXIT_OK
                       : HA_EXIT_WAIVED;
}

static enum ha_status dry_run(const struct merge_run *run, struct ha_why *why)
{
    struct ha_merge_tasks tasks = { 0 };
    char id[HA_MERGE_ID_MAX];
    enum ha_status st = HA_OK;
    for (size_t i = 0; i < run->ids && st == HA_OK; i++)
        st = ha_merge_tasks_of_cases(&tasks, run->suite, &run->only[i], run->options->seed, why);
    for (size_t i = 0; i < tasks.count; i++) {
        ha_merge_task_print(&tasks.task[i], "", SIZE_MAX, id);
        puts(id);
    }
    ha_merge_tasks_free(&tasks);
    return st;
}

static enum ha_exit run_all(struct merge_run *run, struct ha_why *why)
{
    struct ha_merge_cell *cases = new_cells(run->suite->cases_count * (run->by.count + 1));
    struct ha_merge_cell *random = new_cells(ITEMS_RANDOM * (run->by.count + 1));
    struct ha_merge_cell *gallery = new_cells(run->suite->cases_count * (run->suite->defects_count + 1));
    struct ha_merge_source *defect = calloc(run->suite->defects_count + 1, sizeof *defect);
    enum ha_status st = cases && random && gallery && defect ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
    ha_progress_start(&run->progress, run->options->progress, 1);
    if (st == HA_OK) st = sections(run, cases, random, gallery, defect, why);
    ha_progress_end(&run->progress);
    free(cases);
    free(random);
    free(gallery);
    free(defect);
    return st == HA_OK ? finish(run, why) : HA_EXIT_ENVIRONMENT;
}

enum ha_exit ha_merge_run(const struct ha_merge_options *options, struct ha_why *why)
{
    if (options->replay) return replay(options->replay, why);
    struct merge_run *run = calloc(1, sizeof *run);
    if (!run) {
        ha_why(why, HA_ERROR, "out of memory");
        return HA_EXIT_ENVIRONMENT;
    }
    *run = (struct merge_run){ .options = options, .suite = &ha_merge_suite, .plain = true, .begin_ns = ha_now_ns() };
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    enum ha_exit code = parse(run, why) == HA_OK ? HA_EXIT_OK : HA_EXIT_USAGE;
    if (code == HA_EXIT_OK && options->dry_run) code = dry_run(run, why) == HA_OK ? HA_EXIT_OK : HA_EXIT_ENVIRONMENT;
    else if (code == HA_EXIT_OK) {
        enum ha_status st = HA_OK;
        if (options->out_dir && mkdir(options->out_dir, 0777) != 0 && access(options->out_dir, W_OK) != 0)
            st = ha_why(why, HA_ERROR, "-o %s: cannot be made or written", options->out_dir);
        if (st == HA_OK)
            st = ha_merge_sources_open(&run->by, options, run->suite, run->only, run->ids, &run->results, why);
        run->everything = run->plain && !run->by.stranger;
        run->threads = run->by.stranger || cores < 1 ? 1 : (size_t)cores;
        code = st == HA_OK ? run_all(run, why) : st == HA_WAIVED ? HA_EXIT_WAIVED : HA_EXIT_ENVIRONMENT;
        ha_merge_sources_close(&run->by);
    }
    ha_merge_results_free(&run->results);
    free(run);
    return code;
}

/* ---- lists ------------------------------------------------------------------------------- */

void ha_merge_list_cases(void)
{
    for (size_t i = 0; i < ha_merge_suite.cases_count; i++) {
        const struct ha_merge_case *c = &ha_merge_suite.cases[i];
        printf("%2u  lse_merge:case=%-24s %s\n", c->number, c->name, c->why);
    }
}

void ha_merge_list_defects(void)
{
    for (size_t i = 0; i < ha_merge_suite.defects_count; i++) {
        const struct ha_merge_defect *d = &ha_merge_suite.defects[i];
        printf("%-22s %s\n%22s found by %s%s%s\n", d->name, d->does, "", d->finder, d->seen[0] ? "; seen: " : "",
               d->seen);
    }
}
