#include "suites/kernels/run.h"

#include "harness/base/clock.h"
#include "harness/base/placement.h"
#include "harness/base/stop.h"
#include "harness/base/try.h"
#include "harness/base/why.h"
#include "harness/engine/suite_find.h"
#include "harness/base/words.h"
#include "suites/kernels/goals.h"
#include "suites/kernels/measure.h"
#include "suites/kernels/report.h"
#include "harness/base/registry.h"
#include "harness/report/env.h"
#include "harness/report/progress.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { POINT_CAP_NS = 700000000, SMALL_CTX = 777, SMALL_BATCH = 2, SMALL_Q_LEN = 9 };

struct cpu_run {
    const struct ha_cpu_options *options;
    struct ha_cpu_plan plan;
    struct ha_cpu_store store;
    struct ha_cpu_teams teams;
    struct ha_kernels best, kernels; /* kernels: of the point that runs */
    struct ha_env env;
    struct ha_csv *csv;
    struct ha_progress progress;
    uint64_t begin_ns;
    size_t done;
    bool cut; /* --max-time was over */
};

/* ---- what is to be run ---------------------------------------------------------------------------- */

static enum ha_status add_suite(struct cpu_run *run, const char *word, struct ha_why *why)
{
    char path[4096];
    HA_TRY(ha_suite_find(word, path, why));
    return ha_cpu_plan_read(path, &run->plan, why);
}

static enum ha_status add_point(struct cpu_run *run, const char *terms, struct ha_why *why)
{
    struct ha_cpu_point point;
    HA_TRY(ha_cpu_point_parse(terms, &point, why));
    return ha_cpu_plan_add(&run->plan, &point, why);
}

/* The file's points become small ones where nothing is timed; what an id names is checked as it is. */
static void shrink(struct ha_cpu_point *p)
{
    if (ha_cpu_key_used(p, HA_CPU_CTX) && p->ctx > SMALL_CTX) p->ctx = SMALL_CTX;
    if (p->batch > SMALL_BATCH) p->batch = SMALL_BATCH;
    if (p->q_len > SMALL_Q_LEN) p->q_len = SMALL_Q_LEN;
}

static enum ha_status add_words(struct cpu_run *run, struct ha_why *why)
{
    const struct ha_cpu_options *o = run->options;
    for (size_t i = 0; i < o->words_count; i++) {
        static const char prefix[] = "cpu_kernels:";
        const bool is_point = !strncmp(o->words[i], prefix, strlen(prefix));
        if (is_point) HA_TRY(add_point(run, o->words[i] + strlen(prefix), why));
        else HA_TRY(add_suite(run, o->words[i], why));
        for (size_t s = 0; !is_point && !o->measure && !o->dry_run && s < run->plan.sections; s++)
            for (size_t p = 0; p < run->plan.section[s].count; p++) shrink(&run->plan.section[s].point[p]);
    }
    return HA_OK;
}

static bool keep(const void *arg, struct ha_cpu_point *point)
{
    const struct ha_cpu_options *o = arg;
    struct ha_why why;
    if (o->isa) ha_cpu_point_set(point, HA_CPU_ISA, o->isa, &why);
    if (o->threads) ha_cpu_point_set(point, HA_CPU_THREADS, o->threads, &why);
    return !o->filter || ha_cpu_filter_fits(o->filter, point);
}

static enum ha_status check_value(enum ha_cpu_key key, const char *value, struct ha_why *why)
{
    struct ha_cpu_point any;
    ha_cpu_point_default(&any);
    const enum ha_status status = value ? ha_cpu_point_set(&any, key, value, why) : HA_OK;
    return status == HA_OK ? status : ha_why_prefix(why, status, "--%s", ha_cpu_key_name(key));
}

static enum ha_status choose(struct cpu_run *run, struct ha_why *why)
{
    const struct ha_cpu_options *o = run->options;
    HA_TRY(check_value(HA_CPU_ISA, o->isa, why));
    HA_TRY(check_value(HA_CPU_THREADS, o->threads, why));
    if (o->filter && ha_cpu_filter_check(o->filter, why) != HA_OK) return ha_why_prefix(why, HA_ERROR, "-f");
    HA_TRY(add_words(run, why));
    HA_TRY(ha_cpu_plan_close(&run->plan, keep, o, why));
    return run->plan.results ? HA_OK
                             : ha_why(why, HA_ERROR, "-f %.200s: none of the points fits", o->filter ? o->filter : "");
}

/* ---- files ---------------------------------------------------------------------------------------- */

static enum ha_status open_files(struct cpu_run *run, struct ha_why *why)
{
    const char *folder = run->options->out_dir;
    char path[4096];
    ha_env_read(&run->env);
    if (!folder) return HA_OK;
    if (mkdir(folder, 0777) && errno != EEXIST) return ha_why(why, HA_ERROR, "-o %.300s: %s", folder, strerror(errno));
    if (snprintf(path, sizeof path, "%s/cpu_kernels.csv", folder) >= (int)sizeof path)
        return ha_why(why, HA_ERROR, "-o %.200s: the path is too long", folder);
    HA_TRY(ha_env_write(folder, &run->env, NULL, NULL, NULL, why));
    HA_TRY(ha_csv_open(&run->csv, path, why));
    return ha_cpu_csv_header(run->csv, why);
}

static enum ha_status close_files(struct cpu_run *run, struct ha_why *why)
{
    if (!run->options->out_dir) return HA_OK;
    struct ha_csv *csv = run->csv;
    run->csv = NULL;
    HA_TRY(ha_csv_close(csv, why));
    return ha_cpu_junit(run->options->out_dir, &run->plan, why);
}

/* ---- points ------------------------------------------------------------------------------------------ */

static const char *isa_of(const struct ha_cpu_point *p) { return p->isa ? ha_kernels_all[p->isa - 1]->name : NULL; }

static enum ha_status resolve(struct cpu_run *run, const struct ha_cpu_point *p, struct ha_cpu_result *r,
                              struct ha_why *why)
{
    if (run->options->kernels) run->kernels = *run->options->kernels;
    else HA_TRY(ha_kernels_resolve(isa_of(p), &run->kernels, why));
    snprintf(r->isa, sizeof r->isa, "%s", run->kernels.name);
    r->cpu_bit = run->kernels.cpu_bit;
    return HA_OK;
}

static void place(const struct ha_cpu_work *w, struct ha_cpu_result *r)
{
    struct ha_placement p;
    if (!w->kv) return;
    ha_placement_read(&p, w->kv, w->turns * w->units * w->unit_bytes);
    r->huge_share = p.huge;
    r->node_share = p.node[0];
    for (size_t i = 1; i < HA_PLACEMENT_NODES; i++) r->node_share = fmax(r->node_share, p.node[i]);
}

static enum ha_status check_and_measure(struct cpu_run *run, struct ha_cpu_work *w, struct ha_cpu_team *team,
                                        uint64_t cap_ns, struct ha_cpu_result *r, struct ha_why *why)
{
    r->bytes = w->bytes;
    r->flop = w->flop;
    HA_TRY(ha_cpu_work_check(w, &r->err_over_bound, why));
    r->state = HA_CPU_CHECKED;
    if (!run->options->measure) return HA_OK;
    place(w, r);
    HA_TRY(ha_cpu_team_ready(team, run->options->kernels ? &run->kernels : &run->best, why));
    return ha_cpu_measure(w, team, cap_ns, 0, r, why);
}

static enum ha_status run_point(struct cpu_run *run, struct ha_cpu_result *r, uint64_t cap_ns, struct ha_why *why)
{
    struct ha_cpu_work work;
    struct ha_cpu_team *team;
    HA_TRY(resolve(run, &r->point, r, why));
    HA_TRY(ha_cpu_teams_get(&run->teams, r->point.threads, &team, why));
    r->threads = (double)ha_pool_threads(team->pool);
    HA_TRY(ha_cpu_work_open(&work, &r->point, &run->kernels, team->pool, &run->store, run->options->seed, why));
    const enum ha_status status = check_and_measure(run, &work, team, cap_ns, r, why);
    ha_cpu_work_close(&work);
    return status;
}

static void note(struct ha_cpu_result *r, enum ha_status status, const struct ha_why *why)
{
    char id[HA_CPU_ID_MAX];
    if (status == HA_OK) return;
    r->state = status == HA_FAIL ? HA_CPU_FAILED : status == HA_WAIVED ? HA_CPU_WAIVED : HA_CPU_ERROR;
    memcpy(r->reason, why->text, sizeof r->reason);
    if (status == HA_WAIVED) return;
    ha_cpu_point_print(&r->point, id); /* at once; the reason stands under the table */
    fprintf(stderr, "%s: %s\n", ha_cpu_state_name(r->state), id);
}

/* What --max-time leaves is shared by the points to come, and half of it is for checking. */
static uint64_t cap(const struct cpu_run *run, uint64_t left_ns)
{
    const uint64_t most = run->options->cap_ns ? run->options->cap_ns : POINT_CAP_NS,
                   share = left_ns / (run->plan.results - run->done) / 2;
    return run->options->max_time_ns && share < most ? share : most;
}

static enum ha_status run_points(struct cpu_run *run, struct ha_why *why)
{
    const uint64_t most = run->options->max_time_ns;
    ha_progress_start(&run->progress, run->options->progress, run->plan.results);
    for (; run->done < run->plan.results; run->done++) {
        struct ha_cpu_result *r = &run->plan.result[run->done];
        const uint64_t used = ha_now_ns() - run->begin_ns;
        struct ha_why because = { "" };
        char id[HA_CPU_ID_MAX];
        run->cut = most && used >= most;
        if (run->cut || ha_stop) return HA_OK;
        ha_cpu_point_print(&r->point, id);
        ha_progress_case(&run->progress, id);
        const enum ha_status status = run_point(run, r, cap(run, most - used), &because);
        if (ha_stop && status == HA_WAIVED) { /* in the middle: it has no row */
            r->state = HA_CPU_NOT_RUN;
            return HA_OK;
        }
        note(r, status, &because);
        ha_progress_done(&run->progress);
        if (run->csv) HA_TRY(ha_cpu_csv_row(run->csv, r, run->options->seed, why));
    }
    return HA_OK;
}

/* ---- the run --------------------------------------------------------------------------------------------- */

static enum ha_exit finish(const struct cpu_run *run, struct ha_why *why)
{
    const struct ha_totals t = ha_cpu_totals(&run->plan);
    const size_t all = run->plan.results, not_run = all - t.passed - t.failed - t.errors - t.waived;
    ha_table_print_totals(stdout, &t);
    if (t.failed) ha_why(why, HA_FAIL, "%zu of %zu points are wrong", t.failed, all);
    else if (t.errors) ha_why(why, HA_ERROR, "%zu of %zu points could not be judged", t.errors, all);
    else if (not_run)
        ha_why(why, HA_ERROR, "%s: %zu of %zu points are missing", ha_stop ? "interrupted" : "--max-time is over",
               not_run, all);
    else if (!t.passed) ha_why(why, HA_WAIVED, "everything was waived: %.300s", run->plan.result[0].reason);
    return t.failed   ? HA_EXIT_WRONG
           : t.errors ? HA_EXIT_ENVIRONMENT
           : not_run  ? HA_EXIT_MISSING
           : t.passed ? HA_EXIT_OK
                      : HA_EXIT_WAIVED;
}

static size_t rotate_bytes(const struct ha_cpu_options *o)
{
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const size_t least = (size_t)256 << 20, caches = cache > 0 ? 4 * (size_t)cache : 0;
    return o->rotate_bytes ? o->rotate_bytes : !o->measure ? 0 : caches > least ? caches : least;
}

static enum ha_status prepare(struct cpu_run *run, struct ha_why *why)
{
    HA_TRY(ha_kernels_resolve(NULL, &run->best, why));
    HA_TRY(ha_cpu_store_open(&run->store, rotate_bytes(run->options), why));
    HA_TRY(ha_cpu_teams_open(&run->teams, why));
    return open_files(run, why);
}

static void print_report(const struct cpu_run *run)
{
    ha_env_print(stdout, &run->env, NULL, NULL, NULL);
    printf("CPU kernels: the best here is %s; %zu core%s; seed %llu\n", run->best.name, run->teams.cores,
           run->teams.cores == 1 ? "" : "s", (unsigned long long)run->options->seed);
    ha_cpu_print_plan(stdout, &run->plan);
    if (run->options->measure) {
        ha_cpu_print_scaling(stdout, &run->plan);
        ha_cpu_print_goals(stdout, &run->plan);
    }
    putchar('\n');
}

static enum ha_exit run_all(struct cpu_run *run, struct ha_why *why)
{
    struct ha_why broken = { "" }, files = { "" };
    if (prepare(run, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    const enum ha_status status = run_points(run, &broken);
    ha_progress_end(&run->progress);
    print_report(run);
    const enum ha_exit code = finish(run, why);
    const enum ha_status closed = close_files(run, &files);
    if (status == HA_OK && closed == HA_OK) return code;
    ha_why(why, HA_ERROR, "%s", status != HA_OK ? broken.text : files.text);
    return code == HA_EXIT_WRONG ? code : HA_EXIT_ENVIRONMENT;
}

static void print_ids(const struct ha_cpu_plan *plan)
{
    for (size_t i = 0; i < plan->results; i++) {
        char id[HA_CPU_ID_MAX];
        ha_cpu_point_print(&plan->result[i].point, id);
        puts(id);
    }
}

enum ha_exit ha_cpu_run(const struct ha_cpu_options *options, struct ha_why *why)
{
    struct cpu_run *run = calloc(1, sizeof *run);
    enum ha_exit code = HA_EXIT_USAGE;
    if (!run) {
        ha_why(why, HA_ERROR, "out of memory");
        return HA_EXIT_ENVIRONMENT;
    }
    run->options = options;
    run->begin_ns = ha_now_ns();
    if (choose(run, why) == HA_OK) {
        code = HA_EXIT_OK;
        if (options->dry_run) print_ids(&run->plan);
        else code = run_all(run, why);
    }
    ha_csv_close(run->csv, NULL);
    ha_cpu_teams_close(&run->teams);
    ha_cpu_store_close(&run->store);
    ha_cpu_plan_free(&run->plan);
    free(run);
    return code;
}

enum ha_exit ha_cpu_list_cases(const struct ha_cpu_options *options, struct ha_why *why)
{
    struct ha_cpu_options dry = *options;
    dry.dry_run = true;
    return ha_cpu_run(&dry, why);
}
