#include "suites/link/run.h"

#include "harness/base/clock.h"
#include "harness/base/stop.h"
#include "harness/base/try.h"
#include "harness/base/why.h"
#include "harness/base/words.h"
#include "suites/link/measure.h"
#include "suites/link/report.h"
#include "harness/engine/plugin.h"
#include "harness/base/registry.h"
#include "harness/report/env.h"
#include "harness/report/progress.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GROUP_CAP_NS = 600000000 };

struct link_run {
    const struct ha_link_options *options;
    const struct ha_device_api *api;
    struct ha_device *device;
    struct ha_kernels kernels; /* an open device points here */
    struct ha_link_limits limits;
    struct ha_link_bench bench;
    struct ha_link_results results;
    struct ha_link_origin origin;
    struct ha_ceilings ceilings;
    struct ha_env env;
    struct ha_csv *csv;
    struct ha_progress progress;
    size_t groups, groups_done, piece_bytes;
    bool scattered, cut; /* cut: --max-time was over */
    uint64_t begin_ns;
};

/* ---- what is to be run ---------------------------------------------------------------------------- */

/* "link", or "link:" and terms */
static const char *terms_of(const char *word)
{
    const char *colon = strchr(word, ':');
    return colon ? colon + 1 : "";
}

static enum ha_status check_words(const struct ha_link_options *o, struct ha_why *why)
{
    for (size_t i = 0; i < o->words_count; i++) HA_TRY(ha_link_terms_check(terms_of(o->words[i]), false, why));
    if (!o->filter) return HA_OK;
    const enum ha_status status = ha_link_terms_check(o->filter, true, why);
    return status == HA_OK ? HA_OK : ha_why_prefix(why, status, "-f");
}

static bool wanted(const struct ha_link_options *o, const struct ha_link_point *p)
{
    bool named = false;
    for (size_t i = 0; i < o->words_count && !named; i++) named = ha_link_terms_fit(terms_of(o->words[i]), p);
    return named && (!o->filter || ha_link_terms_fit(o->filter, p));
}

/* Groups one after the other. What goes down overwrites the sources, so what goes up is first. */
static enum ha_status choose(struct ha_link_results *r, const struct ha_link_options *o, struct ha_why *why)
{
    const size_t most = 2 * HA_LINK_PIECES * ha_link_methods_count;
    HA_TRY(check_words(o, why));
    r->result = calloc(most, sizeof *r->result);
    if (!r->result) return ha_why(why, HA_ERROR, "link: out of memory");
    for (int dir = HA_H2D; dir <= HA_D2H; dir++)
        for (int scattered = 0; scattered < 2; scattered++)
            for (size_t piece = 0; piece < HA_LINK_PIECES; piece++)
                for (size_t m = 0; m < ha_link_methods_count; m++) {
                    const struct ha_link_point p = { &ha_link_methods[m], ha_link_piece_sizes[piece], scattered };
                    if ((int)p.method->dir == dir && wanted(o, &p)) r->result[r->count++].point = p;
                }
    if (r->count) return HA_OK;
    if (!o->filter)
        return ha_why(why, HA_ERROR,
                      "link: no figure is all that the words say; `habench list cases link` prints what there is");
    return ha_why(why, HA_ERROR, "-f %.200s: none of the figures fits; `habench list cases link` prints what there is",
                  o->filter);
}

static bool same_group(const struct ha_link_point *a, const struct ha_link_point *b)
{
    return a->method->dir == b->method->dir && a->scattered == b->scattered && a->piece_bytes == b->piece_bytes;
}

static size_t group_end(const struct ha_link_results *r, size_t first)
{
    size_t end = first;
    while (end < r->count && same_group(&r->result[first].point, &r->result[end].point)) end++;
    return end;
}

/* ---- the device ------------------------------------------------------------------------------------- */

static enum ha_status find_device(struct link_run *run, struct ha_why *why)
{
    const char *name = run->options->device ? run->options->device : ha_devices_all[0]->name;
    char path[HA_PLUGIN_PATH_MAX];
    run->api = run->options->api;
    for (size_t i = 0; i < ha_devices_count && !run->api; i++)
        if (!strcmp(ha_devices_all[i]->name, name)) run->api = ha_devices_all[i];
    if (!run->api) {
        HA_TRY(ha_plugin_find(name, path, why));
        HA_TRY(ha_plugin_load(path, &run->api, why));
    }
    if (ha_plugin_merges_only(run->api))
        return ha_why(why, HA_WAIVED, "device %s is a library of kernels, without memory and streams", name);
    return HA_OK;
}

static enum ha_status open_device(struct link_run *run, struct ha_why *why)
{
    HA_TRY(run->api->open(&run->device, &(struct ha_device_config){ .kernels = &run->kernels }, why));
    return ha_link_bench_open(&run->bench, run->api, run->device, &run->limits, why);
}

static void close_device(struct link_run *run)
{
    if (run->bench.api) ha_link_bench_close(&run->bench);
    if (run->device) run->api->close(run->device);
    run->device = NULL;
}

static enum ha_status lay(struct link_run *run, struct ha_why *why)
{
    return ha_link_bench_lay(&run->bench, run->piece_bytes, run->scattered, run->options->seed, why);
}

static enum ha_status reopen(void *arg, struct ha_why *why)
{
    struct link_run *run = arg;
    close_device(run);
    HA_TRY(open_device(run, why));
    return lay(run, why);
}

static size_t power_of_two(size_t least)
{
    size_t n = 1;
    while (n < least) n *= 2;
    return n;
}

/* What is read in turn is in no cache when all of it is larger; the kinds of memory take turns besides. */
static size_t source_here(void)
{
    const size_t least = (size_t)256 << 20, most = (size_t)1 << 30;
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const size_t source = power_of_two(cache > 0 ? (size_t)cache : 0);
    return source < least ? least : source < most ? source : most;
}

static struct ha_link_limits limits_here(const struct ha_link_options *o)
{
    struct ha_link_limits l = o->limits;
    if (!l.move_bytes) l.move_bytes = (size_t)(o->measure ? 32 : 16) << 20;
    if (!l.pieces) l.pieces = o->measure ? 32768 : 4096;
    if (!l.source_bytes) l.source_bytes = o->measure ? source_here() : (size_t)64 << 20;
    return l;
}

static enum ha_status measure_ceilings(struct link_run *run, struct ha_why *why)
{
    struct ha_kernels best; /* whatever the link is held to */
    HA_TRY(ha_kernels_resolve(NULL, &best, why));
    return ha_ceilings_measure(&run->ceilings, run->api, run->device, &best, true, why);
}

static enum ha_status prepare(struct link_run *run, struct ha_why *why)
{
    const struct ha_link_options *o = run->options;
    HA_TRY(ha_kernels_resolve(o->isa, &run->kernels, why));
    HA_TRY(find_device(run, why));
    run->limits = limits_here(o);
    run->ceilings = (struct ha_ceilings){ 0 };
    for (size_t i = 0; i < HA_CEILINGS; i++) run->ceilings.of[i].hi = run->ceilings.of[i].median = (double)NAN;
    HA_TRY(run->api->open(&run->device, &(struct ha_device_config){ .kernels = &run->kernels }, why));
    if (o->ceilings) run->ceilings = *o->ceilings;
    else if (o->measure) HA_TRY(measure_ceilings(run, why));
    HA_TRY(ha_link_bench_open(&run->bench, run->api, run->device, &run->limits, why));
    run->results.link = strcmp(run->api->kind, "host") && strcmp(run->api->kind, "emulated")
                        && strcmp(run->api->kind, "null");
    run->results.ceiling[HA_H2D] = run->ceilings.of[HA_CEIL_H2D].hi;
    run->results.ceiling[HA_D2H] = run->ceilings.of[HA_CEIL_D2H].hi;
    run->results.cores = run->bench.cores;
    run->origin = (struct ha_link_origin){ .api = run->api, .source_bytes = run->limits.source_bytes, .seed = o->seed };
    run->api->info(run->device, &run->origin.info);
    ha_env_read(&run->env);
    snprintf(run->env.isa, sizeof run->env.isa, "%s", run->kernels.name);
    return HA_OK;
}

/* ---- files -------------------------------------------------------------------------------------------- */

static enum ha_status open_files(struct link_run *run, struct ha_why *why)
{
    const char *folder = run->options->out_dir;
    char path[4096];
    if (!folder) return HA_OK;
    if (mkdir(folder, 0777) && errno != EEXIST) return ha_why(why, HA_ERROR, "-o %.300s: %s", folder, strerror(errno));
    if (snprintf(path, sizeof path, "%s/link.csv", folder) >= (int)sizeof path)
        return ha_why(why, HA_ERROR, "-o %.200s: the path is too long", folder);
    HA_TRY(ha_env_write(folder, &run->env, run->api, &run->origin.info, run->options->measure ? &run->ceilings : NULL,
                        why));
    HA_TRY(ha_csv_open(&run->csv, path, why));
    return ha_link_csv_header(run->csv, why);
}

static enum ha_status write_rows(struct link_run *run, size_t first, size_t end, struct ha_why *why)
{
    for (size_t i = first; run->csv && i < end; i++)
        if (run->results.result[i].state != HA_LINK_NOT_RUN)
            HA_TRY(ha_link_csv_row(run->csv, &run->results, &run->results.result[i], &run->origin, why));
    return HA_OK;
}

static enum ha_status close_files(struct link_run *run, struct ha_why *why)
{
    if (!run->options->out_dir) return HA_OK;
    struct ha_csv *csv = run->csv;
    run->csv = NULL;
    HA_TRY(ha_csv_close(csv, why));
    return ha_link_junit(run->options->out_dir, &run->results, why);
}

/* ---- all groups ------------------------------------------------------------------------------------------ */

/* What --max-time leaves is shared by the groups to come, and half of it is for checking. */
static uint64_t cap(const struct link_run *run, uint64_t left_ns)
{
    const uint64_t share = left_ns / (run->groups - run->groups_done) / 2;
    return run->options->max_time_ns && share < GROUP_CAP_NS ? share : GROUP_CAP_NS;
}

static enum ha_status run_group(struct link_run *run, size_t first, size_t end, uint64_t left_ns, struct ha_why *why)
{
    struct ha_link_result *r = &run->results.result[first];
    const enum ha_direction dir = r->point.method->dir;
    struct ha_link_group group = {
        .bench = &run->bench,
        .result = r,
        .count = end - first,
        .ceiling_GBps = run->results.link ? run->results.ceiling[dir] : (double)NAN,
        .measure = run->options->measure,
        .checked = strcmp(run->api->kind, "null") != 0,
        .cap_ns = cap(run, left_ns),
        .reopen = reopen,
        .arg = run,
    };
    char id[HA_LINK_ID_MAX];
    ha_link_id_print(&r->point, id);
    ha_progress_case(&run->progress, id);
    run->piece_bytes = r->point.piece_bytes;
    run->scattered = r->point.scattered;
    HA_TRY(lay(run, why));
    const enum ha_status status = ha_link_group_run(&group, why);
    ha_progress_done(&run->progress);
    for (size_t i = 0; i < group.count; i++) {
        if (r[i].state != HA_LINK_FAILED && r[i].state != HA_LINK_ERROR) continue;
        ha_link_id_print(&r[i].point, id);
        fprintf(stderr, "%s: %s\n", ha_link_state_name(r[i].state), id);
    }
    struct ha_why rows = { "" };
    const enum ha_status written = write_rows(run, first, end, &rows);
    return status == HA_OK && written != HA_OK ? ha_why(why, written, "%s", rows.text) : status;
}

static enum ha_status run_groups(struct link_run *run, struct ha_why *why)
{
    const uint64_t most = run->options->max_time_ns;
    for (size_t first = 0; first < run->results.count; first = group_end(&run->results, first)) run->groups++;
    ha_progress_start(&run->progress, run->options->progress, run->groups);
    for (size_t first = 0, end; first < run->results.count; first = end, run->groups_done++) {
        const uint64_t used = ha_now_ns() - run->begin_ns;
        end = group_end(&run->results, first);
        run->cut = most && used >= most;
        if (run->cut || ha_stop) break;
        const enum ha_status status = run_group(run, first, end, most ? most - used : 0, why);
        if (status != HA_OK) return status == HA_WAIVED ? HA_OK : status;
    }
    return HA_OK;
}

static enum ha_exit finish(const struct link_run *run, struct ha_why *why)
{
    const struct ha_totals t = ha_link_totals(&run->results);
    const size_t not_run = run->results.count - t.passed - t.failed - t.errors - t.waived;
    ha_table_print_totals(stdout, &t);
    if (t.failed) ha_why(why, HA_FAIL, "%zu of %zu move wrong bytes", t.failed, run->results.count);
    else if (t.errors) ha_why(why, HA_ERROR, "%zu of %zu could not be judged", t.errors, run->results.count);
    else if (not_run)
        ha_why(why, HA_ERROR, "%s: %zu of %zu figures are missing", ha_stop ? "interrupted" : "--max-time is over",
               not_run, run->results.count);
    else if (!t.passed) ha_why(why, HA_WAIVED, "everything was waived");
    return t.failed   ? HA_EXIT_WRONG
           : t.errors ? HA_EXIT_ENVIRONMENT
           : not_run  ? HA_EXIT_MISSING
           : t.passed ? HA_EXIT_OK
                      : HA_EXIT_WAIVED;
}

static void print_head(const struct link_run *run)
{
    const struct ha_link_limits *l = &run->limits;
    ha_env_print(stdout, &run->env, run->api, &run->origin.info, NULL);
    if (!run->results.link)
        puts("There is no link here: what is called the device's memory is this host's, and GB/s say how this host "
             "copies, not how a bus does.");
    printf("source %zu MB in each kind of memory, moves of up to %zu MB and %zu pieces, seed %llu, %zu core%s\n",
           l->source_bytes >> 20, l->move_bytes >> 20, l->pieces, (unsigned long long)run->options->seed,
           run->results.cores, run->results.cores == 1 ? "" : "s");
}

static enum ha_exit run_all(struct link_run *run, struct ha_why *why)
{
    enum ha_status status = prepare(run, why);
    if (status == HA_OK) status = open_files(run, why);
    if (status != HA_OK) return status == HA_WAIVED ? HA_EXIT_WAIVED : HA_EXIT_ENVIRONMENT;
    struct ha_why broken = { "" }, files = { "" };
    status = run_groups(run, &broken);
    ha_progress_end(&run->progress);
    print_head(run);
    ha_link_print_results(stdout, &run->results);
    if (run->options->measure) ha_link_print_claims(stdout, &run->results);
    putchar('\n');
    const enum ha_exit code = finish(run, why);
    const enum ha_status closed = close_files(run, &files);
    if (status == HA_OK && closed == HA_OK) return code;
    ha_why(why, HA_ERROR, "%s", status != HA_OK ? broken.text : files.text);
    return code == HA_EXIT_WRONG ? code : HA_EXIT_ENVIRONMENT;
}

static void print_ids(const struct ha_link_results *r)
{
    for (size_t i = 0; i < r->count; i++) {
        char id[HA_LINK_ID_MAX];
        ha_link_id_print(&r->result[i].point, id);
        puts(id);
    }
}

enum ha_exit ha_link_run(const struct ha_link_options *options, struct ha_why *why)
{
    struct link_run *run = calloc(1, sizeof *run);
    enum ha_exit code = HA_EXIT_USAGE;
    if (!run) {
        ha_why(why, HA_ERROR, "link: out of memory");
        return HA_EXIT_ENVIRONMENT;
    }
    run->options = options;
    run->begin_ns = ha_now_ns();
    if (choose(&run->results, options, why) == HA_OK) {
        code = HA_EXIT_OK;
        if (options->dry_run) print_ids(&run->results);
        else code = run_all(run, why);
    }
    ha_csv_close(run->csv, NULL);
    close_device(run);
    free(run->results.result);
    free(run);
    return code;
}

enum ha_exit ha_link_list_cases(const struct ha_link_options *options, struct ha_why *why)
{
    struct ha_link_options dry = *options;
    dry.dry_run = true;
    return ha_link_run(&dry, why);
}
