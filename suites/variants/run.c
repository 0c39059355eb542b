#include "suites/variants/run.h"

#include "harness/base/clock.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"
#include "suites/variants/bench.h"
#include "suites/variants/case.h"
#include "harness/measure/ceilings.h"
#include "suites/variants/check.h"
#include "suites/variants/dump.h"
#include "harness/report/env.h"
#include "suites/variants/fill.h"
#include "harness/report/junit.h"
#include "suites/variants/known.h"
#include "suites/variants/memory.h"
#include "harness/report/progress.h"
#include "harness/report/record.h"
#include "harness/base/registry.h"
#include "suites/variants/session.h"
#include "harness/report/table.h"
#include "harness/report/perfetto.h"
#include "harness/base/try.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHECKED_STEPS_BENCH = 2 };
static const uint64_t time_cap_ns = 4000000000, time_cap_smoke_ns = 500000000;

struct ha_run {
    struct ha_run_options options;
    struct ha_machine *machine;
    struct ha_env env;
    struct ha_ceilings ceilings;
    char probed[sizeof((struct ha_case *)0)->device]; /* the device that the ceilings and the info belong to, "" if none
                                                       */
    const struct ha_device_api *api;
    struct ha_device_info info;
    struct ha_record *record;
    struct ha_perfetto *trace;
    struct ha_progress progress;
    uint64_t begin_ns;
    struct ha_row *rows;
    size_t count, capacity;
    struct ha_totals before; /* cases that a resumed folder held already */
    struct ha_known known;
    char run_id[64];
    struct ha_why broken; /* why nothing more can be written, or "" */
    /* the case at hand */
    struct ha_row row;
    struct ha_dump *dump;
};

/* ---- open and close ------------------------------------------------------------------------ */

static enum ha_status open_files(struct ha_run *r, struct ha_why *why)
{
    char path[4096];

    if (!r->options.out_dir) return HA_OK;
    HA_TRY(ha_record_open(&r->record, r->options.out_dir, r->options.resume, why));
    HA_TRY(ha_env_write(r->options.out_dir, &r->env, NULL, NULL, NULL, why));
    if (!r->options.bench) return HA_OK;
    snprintf(path, sizeof path, "%s/trace.json", r->options.out_dir);
    return ha_perfetto_open(&r->trace, path, why);
}

enum ha_status ha_run_open(struct ha_run **run, const struct ha_run_options *options, struct ha_why *why)
{
    struct ha_run *r = calloc(1, sizeof *r);

    if (!r) return ha_why(why, HA_ERROR, "no memory");
    r->options = *options;
    r->begin_ns = ha_now_ns();
    ha_env_read(&r->env);
    if (options->isa) snprintf(r->env.isa, sizeof r->env.isa, "%s", options->isa);
    snprintf(r->run_id, sizeof r->run_id, "%s.%ld", r->env.date, (long)getpid());
    enum ha_status status = ha_machine_create(&r->machine, why);
    if (status == HA_OK) status = open_files(r, why);
    if (status == HA_OK) {
        ha_progress_start(&r->progress, options->progress, options->cases);
        *run = r;
        return HA_OK;
    }
    ha_perfetto_close(r->trace, NULL);
    ha_record_close(r->record, NULL);
    ha_machine_destroy(r->machine);
    free(r);
    return status;
}

static enum ha_status write_last(struct ha_run *r, struct ha_why *why)
{
    if (!r->options.out_dir) return HA_OK;
    HA_TRY(ha_env_write(r->options.out_dir, &r->env, r->api, &r->info,
                        *r->probed && r->options.bench ? &r->ceilings : NULL, why));
    return ha_junit_write(r->options.out_dir, r->rows, r->count, r->options.bench, why);
}

enum ha_status ha_run_close(struct ha_run *r, struct ha_why *why)
{
    struct ha_totals totals = ha_table_totals(r->rows, r->count), *before = &r->before;
    struct ha_why later = { "" };

    ha_progress_end(&r->progress);
    enum ha_status status = *r->broken.text ? ha_why(why, HA_ERROR, "%s", r->broken.text) : write_last(r, why);
    enum ha_status closed = ha_perfetto_close(r->trace, &later);
    if (ha_record_close(r->record, &later) != HA_OK) closed = HA_ERROR;
    if (status == HA_OK && closed != HA_OK) status = ha_why(why, closed, "%s", later.text);
    ha_table_print(stdout, r->rows, r->count, r->options.bench);
    if (before->passed + before->failed + before->waived)
        printf("\ndone before, in %s: %zu passed, %zu failed, %zu waived\n", r->options.out_dir, before->passed,
               before->failed, before->waived);
    totals.passed += before->passed;
    totals.failed += before->failed;
    totals.waived += before->waived;
    putchar('\n');
    ha_env_print(stdout, &r->env, *r->probed ? r->api : NULL, &r->info,
                 *r->probed && r->options.bench ? &r->ceilings : NULL);
    ha_table_print_totals(stdout, &totals);
    if (fflush(stdout) != 0 && status == HA_OK) status = ha_why(why, HA_ERROR, "cannot write to the standard output");
    ha_machine_destroy(r->machine);
    free(r->rows);
    ha_known_free(&r->known);
    free(r);
    return status;
}

/* ---- what a case leaves behind ------------------------------------------------------------- */

/* A full disk ends the run: what is there stays, and --resume goes on from it. */
static enum ha_status write_row(struct ha_run *r, enum ha_file file, const struct ha_row *row, struct ha_why *why)
{
    struct ha_why reason = { "" };

    if (!r->record || ha_record_row(r->record, file, row, &reason) == HA_OK) return HA_OK;
    ha_why(&r->broken, HA_ERROR, "%s; the rows so far are kept: make room and go on with --resume", reason.text);
    return ha_why(why, HA_ERROR, "%s", r->broken.text);
}

static enum ha_status keep_row(struct ha_run *r, struct ha_why *why)
{
    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 64;
        struct ha_row *grown = realloc(r->rows, capacity * sizeof *grown);
        if (!grown) return ha_why(why, HA_ERROR, "no memory for results");
        r->rows = grown;
        r->capacity = capacity;
    }
    r->rows[r->count++] = r->row;
    HA_TRY(write_row(r, HA_FILE_SUMMARY, &r->row, why));
    return write_row(r, HA_FILE_CASES, &r->row, why);
}

static void layer_done(void *arg, size_t step, size_t layer, const struct ha_accuracy *a)
{
    struct ha_run *r = arg;
    struct ha_row row = r->row;
    struct ha_why ignored; /* kept in broken, which is looked at after the case */

    row.step = (double)step;
    row.layer = (double)layer;
    ha_fill_accuracy(&row, a);
    write_row(r, HA_FILE_ACCURACY, &row, &ignored);
}

static enum ha_status sample(void *arg, const struct ha_sample *s, struct ha_why *why)
{
    struct ha_run *r = arg;
    struct ha_row row = r->row;

    snprintf(row.role, sizeof row.role, "%s", s->role);
    row.block = (double)s->block;
    row.iter = (double)s->iter;
    row.step_ns = s->step_ns;
    row.context_switches = s->context_switches;
    row.page_faults = s->page_faults;
    return write_row(r, HA_FILE_SAMPLES, &row, why);
}

/* ---- a case ---------------------------------------------------------------------------------- */

/* Where the device cannot hold all of K and V there is nothing to set the case beside. */
static bool can_hold_all(const struct ha_session *s, const struct ha_variant *full)
{
    const struct ha_shape *shape = &s->workload->shape;
    struct ha_device_info info;

    s->api->info(s->device, &info);
    return !(full->unsupported && full->unsupported(shape, NULL, s->api))
           && ha_memory_check(shape, true, info.compute_threads > 0, true, ha_memory_available(),
                              info.memory_free_bytes, NULL)
                  == HA_OK;
}

/* --max-time bounds the run, so the last case may not use its own time up. */
static uint64_t time_cap(const struct ha_run *r)
{
    uint64_t cap = r->options.suite && !strcmp(r->options.suite, "smoke") ? time_cap_smoke_ns : time_cap_ns;
    uint64_t used = ha_now_ns() - r->begin_ns, left = r->options.max_time_ns > used ? r->options.max_time_ns - used : 0;

    return r->options.max_time_ns && left < cap ? left : cap;
}

static enum ha_status measure(struct ha_run *r, struct ha_session *s, const struct ha_check *check, struct ha_why *why)
{
    const struct ha_variant *full = ha_variant_find("resident");
    struct ha_case full_case;
    double full_ns = ha_known_step(&r->known, &r->row, "resident");
    struct ha_bench b = { .session = s, .check = check, .sample = sample, .arg = r, .time_cap_ns = time_cap(r) };

    if (full && isnan(full_ns) && full != s->variant && can_hold_all(s, full)) {
        ha_case_defaults(&full_case, full);
        b.full = full;
        b.full_param = full_case.param;
    }
    b.full_ns = full_ns;
    enum ha_status status = ha_bench_run(&b, why);
    if (status == HA_OK) {
        if (s->variant == full) b.full_ns = b.step_ns;
        ha_fill_bench(&r->row, &b, check, &r->ceilings, ha_known_slowest_arm(&r->known, &r->row, &b.usage));
        ha_known_add(&r->known, &r->row, s->variant->name, s->variant->family, b.step_ns);
        if (b.full) ha_known_add(&r->known, &r->row, b.full->name, b.full->family, b.full_ns);
        if (r->trace && ha_perfetto_case(r->trace, r->row.case_id, b.timeline, b.traced, why) != HA_OK) {
            status = HA_ERROR;
            ha_why(&r->broken, HA_ERROR, "%s; the rows so far are kept: make room and go on with --resume", why->text);
        }
    }
    ha_bench_free(&b);
    return status;
}

static enum ha_status check_and_measure(struct ha_run *r, struct ha_session *s, struct ha_why *why)
{
    struct ha_check check = { .session = s,
                              .id = r->row.case_id,
                              .layer_done = layer_done,
                              .arg = r,
                              .dump = r->dump,
                              .steps = r->options.bench ? CHECKED_STEPS_BENCH : 0,
                              .keep_expected = r->options.bench };
    enum ha_status status = ha_check_run(&check, why);

    ha_fill_check(&r->row, &check, ha_session_checked(s));
    if (status == HA_OK && r->options.bench) status = measure(r, s, &check, why);
    ha_check_free(&check);
    return status;
}

static enum ha_status probe_once(struct ha_run *r, const struct ha_session *s, struct ha_why *why)
{
    if (!strcmp(r->probed, r->row.device)) return HA_OK;
    r->api = s->api;
    r->info = s->info;
    if (r->options.bench) {
        struct ha_kernels best; /* whatever the case is held to */
        HA_TRY(ha_kernels_resolve(NULL, &best, why));
        HA_TRY(ha_ceilings_measure(&r->ceilings, s->api, s->device, &best, true, why));
    }
    snprintf(r->probed, sizeof r->probed, "%s", r->row.device);
    return HA_OK;
}

static enum ha_status run(struct ha_run *r, const struct ha_case *c, struct ha_why *why)
{
    const struct ha_variant *variant = ha_variant_find(c->variant);
    struct ha_session s;

    if (!variant) return ha_why(why, HA_ERROR, "variant '%s': there is none of this name", c->variant);
    ha_fill_variant(&r->row, c, variant);
    HA_TRY(ha_session_open(&s, r->machine, c, variant, r->options.isa, r->options.mutant, why));
    ha_fill_session(&r->row, &s, ha_pool_threads(s.pool));
    enum ha_status status = probe_once(r, &s, why);
    if (status == HA_OK && r->options.dump_dir && ha_session_checked(&s)) status = ha_dump_create(&r->dump, why);
    if (status == HA_OK) {
        status = check_and_measure(r, &s, why);
        struct ha_why dumped;
        if (r->dump && status != HA_WAIVED
            && ha_dump_write(r->dump, r->options.dump_dir, r->row.case_id, &s.workload->shape, &dumped) != HA_OK
            && status == HA_OK)
            status = ha_why(why, HA_ERROR, "%s", dumped.text);
    }
    ha_dump_destroy(r->dump);
    r->dump = NULL;
    ha_session_close(&s);
    return status;
}

static enum ha_verdict verdict_of(enum ha_status status)
{
    return status == HA_OK       ? HA_PASS
           : status == HA_FAIL   ? HA_VERDICT_FAIL
           : status == HA_WAIVED ? HA_VERDICT_WAIVED
                                 : HA_VERDICT_ERROR;
}

/* A case that could not be judged is tried again. */
static bool done_before(struct ha_run *r, enum ha_verdict *verdict)
{
    const char *text = r->record ? ha_record_verdict(r->record, r->row.case_id) : "";
    const struct {
        const char *text;
        enum ha_verdict verdict;
        size_t *count;
    } done[] = { { "pass", HA_PASS, &r->before.passed },
                 { "fail", HA_VERDICT_FAIL, &r->before.failed },
                 { "waived", HA_VERDICT_WAIVED, &r->before.waived } };

    for (size_t i = 0; i < sizeof done / sizeof *done; i++)
        if (!strcmp(text, done[i].text)) {
            (*done[i].count)++;
            *verdict = done[i].verdict;
            return true;
        }
    return false;
}

enum ha_verdict ha_run_case(struct ha_run *r, const struct ha_case *c, struct ha_why *why)
{
    static const char *const name[] = { "pass", "fail", "waived", "error" };
    enum ha_verdict verdict;
    enum ha_status status;

    why->text[0] = 0;
    if (*r->broken.text) return verdict_of(ha_why(why, HA_ERROR, "%s", r->broken.text));
    ha_row_clear(&r->row);
    snprintf(r->row.run_id, sizeof r->row.run_id, "%s", r->run_id);
    snprintf(r->row.suite, sizeof r->row.suite, "%s", r->options.suite ? r->options.suite : "");
    snprintf(r->row.host_mem, sizeof r->row.host_mem, "%s", r->env.huge_pages);
    if (r->env.numa_node >= 0) r->row.numa_node = r->env.numa_node;
    r->row.process = r->record ? ha_record_process(r->record) : 0;
    ha_case_print(c, r->row.case_id);
    ha_fill_case(&r->row, c);
    ha_progress_case(&r->progress, r->row.case_id);
    if (done_before(r, &verdict)) {
        ha_progress_done(&r->progress);
        ha_why(why, HA_OK, "the same as before, see %s/cases.csv", r->options.out_dir);
        return verdict;
    }
    status = run(r, c, why);
    ha_progress_done(&r->progress);
    if (ha_stop && status != HA_OK && status != HA_FAIL)
        return verdict_of(ha_why(why, HA_WAIVED, "stopped")); /* no row: it has no result */
    if (*r->broken.text) return verdict_of(ha_why(why, HA_ERROR, "%s", r->broken.text));
    snprintf(r->row.verdict, sizeof r->row.verdict, "%s", name[verdict_of(status)]);
    if (status != HA_OK) snprintf(r->row.reason, sizeof r->row.reason, "%s", why->text);
    if (keep_row(r, why) != HA_OK) status = HA_ERROR;
    return verdict_of(status);
}
