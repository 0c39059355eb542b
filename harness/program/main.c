#include "harness/base/clock.h"
#include "harness/base/why.h"
#include "suites/variants/case.h"
#include "suites/kernels/run.h"
#include "suites/link/run.h"
#include "harness/program/list.h"
#include "suites/merge/run.h"
#include "harness/program/options.h"
#include "harness/program/preflight.h"
#include "harness/program/probe.h"
#include "suites/variants/run.h"
#include "harness/program/select.h"
#include "harness/program/signals.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tally {
    size_t verdict[HA_VERDICT_ERROR + 1], not_run;
};

static enum ha_exit verdict_code(const struct tally *t)
{
    if (t->verdict[HA_VERDICT_FAIL]) return HA_EXIT_WRONG;
    if (t->verdict[HA_VERDICT_ERROR]) return HA_EXIT_ENVIRONMENT;
    if (t->not_run) return HA_EXIT_MISSING;
    return t->verdict[HA_PASS] ? HA_EXIT_OK : HA_EXIT_WAIVED;
}

static void run_cases(const struct ha_options *o, const struct ha_case_list *list, struct ha_run *run, struct tally *t)
{
    const uint64_t begin_ns = ha_now_ns();
    for (size_t i = 0; i < list->count; i++) {
        if (ha_stop || (o->max_time_ns && ha_now_ns() - begin_ns >= o->max_time_ns)) {
            t->not_run = list->count - i;
            return;
        }
        struct ha_why why = { "" };
        const enum ha_verdict v = ha_run_case(run, &list->cases[i], &why);
        if (ha_stop && v == HA_VERDICT_WAIVED) { /* stopped in the middle: it has no row */
            t->not_run = list->count - i;
            return;
        }
        t->verdict[v]++;
        if (v != HA_VERDICT_FAIL && v != HA_VERDICT_ERROR) continue;
        char id[HA_CASE_ID_MAX]; /* at once; the reason stands under the table */
        ha_case_print(&list->cases[i], id);
        fprintf(stderr, "%s: %s\n", v == HA_VERDICT_FAIL ? "fail" : "error", id);
    }
}

static enum ha_exit run_list(const struct ha_options *o, const struct ha_case_list *list,
                             const struct ha_run_options *how, struct ha_why *why)
{
    struct ha_run *run = NULL;
    struct tally t = { 0 };
    const enum ha_status st = ha_run_open(&run, how, why);
    if (st != HA_OK) return st == HA_WAIVED ? HA_EXIT_WAIVED : HA_EXIT_ENVIRONMENT;
    run_cases(o, list, run, &t);
    if (ha_run_close(run, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    if (t.not_run || ha_stop)
        ha_why(why, HA_ERROR, "%s: %zu of %zu cases were not run", ha_stop ? "interrupted" : "--max-time is over",
               t.not_run, list->count);
    return verdict_code(&t);
}

/* What the column `suite` says: the name of the one suite that was asked for, or nothing. */
static void suite_name(const struct ha_options *o, char out[64])
{
    const char *word = o->words_count == 1 && !strchr(o->words[0], ':') ? o->words[0] : "";
    const char *slash = strrchr(word, '/');
    snprintf(out, 64, "%s", slash ? slash + 1 : word);
    char *ending = strstr(out, ".suite");
    if (ending) *ending = 0;
}

static enum ha_exit run_words(const struct ha_options *o, struct ha_run_options *how, struct ha_why *why)
{
    struct ha_case_list list = { 0 };
    enum ha_exit code = HA_EXIT_USAGE;
    if (ha_select(o, o->words, o->words_count, &list, why) == HA_OK) {
        how->cases = list.count;
        code = o->dry_run ? HA_EXIT_OK : ha_preflight(o, &list, why);
        if (o->dry_run) ha_case_list_print(&list);
        else if (code == HA_EXIT_OK) code = run_list(o, &list, how, why);
    }
    ha_case_list_free(&list);
    return code;
}

static enum ha_exit run_mutants(const struct ha_options *o, const struct ha_run_options *how, struct ha_why *why)
{
    const struct ha_case_list none = { 0 };
    const enum ha_exit code = ha_preflight(o, &none, why);
    if (code != HA_EXIT_OK) return code;
    switch (ha_mutants_run(how, why)) {
    case HA_OK: return HA_EXIT_OK;
    case HA_FAIL: return HA_EXIT_WRONG;
    case HA_WAIVED: return HA_EXIT_WAIVED;
    default: return HA_EXIT_ENVIRONMENT;
    }
}

static enum ha_status seed_of(const struct ha_options *o, uint64_t *seed, struct ha_why *why)
{
    char *end = NULL;
    *seed = 1;
    if (!o->seed) return HA_OK;
    *seed = strtoull(o->seed, &end, 10);
    return *end || o->seed[0] < '0' || o->seed[0] > '9' ? ha_why(why, HA_ERROR, "--seed %.80s: not a number", o->seed)
                                                        : HA_OK;
}

static enum ha_exit run_link(const struct ha_options *o, struct ha_why *why)
{
    const struct ha_case_list none = { 0 };
    enum ha_exit code = o->dry_run ? HA_EXIT_OK : ha_preflight(o, &none, why);
    if (code == HA_EXIT_OK && o->device && !o->dry_run) code = ha_preflight_device(o->device, why);
    if (code != HA_EXIT_OK) return code;
    struct ha_link_options how = {
        .words = o->words,
        .words_count = o->words_count,
        .filter = o->filter,
        .device = o->device,
        .isa = o->isa,
        .out_dir = o->out_dir,
        .max_time_ns = o->max_time_ns,
        .measure = o->command == HA_CMD_RUN,
        .dry_run = o->dry_run,
        .progress = !o->quiet && isatty(STDERR_FILENO),
    };
    return seed_of(o, &how.seed, why) == HA_OK ? ha_link_run(&how, why) : HA_EXIT_USAGE;
}

static enum ha_exit run_cpu(const struct ha_options *o, struct ha_why *why)
{
    const struct ha_case_list none = { 0 };
    const enum ha_exit code = o->dry_run ? HA_EXIT_OK : ha_preflight(o, &none, why);
    if (code != HA_EXIT_OK) return code;
    struct ha_cpu_options how = {
        .words = o->words,
        .words_count = o->words_count,
        .filter = o->filter,
        .isa = o->isa,
        .threads = o->threads,
        .out_dir = o->out_dir,
        .max_time_ns = o->max_time_ns,
        .measure = o->command == HA_CMD_RUN,
        .dry_run = o->dry_run,
        .progress = !o->quiet && isatty(STDERR_FILENO),
    };
    return seed_of(o, &how.seed, why) == HA_OK ? ha_cpu_run(&how, why) : HA_EXIT_USAGE;
}

static enum ha_exit run_merges(const struct ha_options *o, struct ha_why *why)
{
    const struct ha_case_list none = { 0 };
    const enum ha_exit code = ha_preflight(o, &none, why);
    if (code != HA_EXIT_OK) return code;
    uint64_t seed;
    if (seed_of(o, &seed, why) != HA_OK) return HA_EXIT_USAGE;
    const struct ha_merge_options how = {
        .words = o->words,
        .words_count = o->words_count,
        .filter = o->filter,
        .isa = o->isa,
        .device = o->device,
        .exec = o->exec,
        .replay = o->replay,
        .out_dir = o->out_dir,
        .seed = seed,
        .max_time_ns = o->max_time_ns,
        .exhaustive = o->exhaustive,
        .dry_run = o->dry_run,
        .progress = !o->quiet && isatty(STDERR_FILENO),
    };
    return ha_merge_run(&how, why);
}

static enum ha_exit run(struct ha_options *o, struct ha_why *why)
{
    if (ha_options_merge(o)) return run_merges(o, why);
    if (ha_options_link(o)) return run_link(o, why);
    if (ha_options_cpu(o)) return run_cpu(o, why);
    static char check[] = "check", *check_words[] = { check };
    char suite[64];
    if (!o->words_count && !o->mutants) {
        o->words = check_words;
        o->words_count = 1;
    }
    suite_name(o, suite);
    struct ha_run_options how = {
        .bench = o->command == HA_CMD_RUN,
        .suite = suite,
        .isa = o->isa,
        .out_dir = o->out_dir,
        .dump_dir = o->dump_dir,
        .max_time_ns = o->max_time_ns,
        .resume = o->resume,
        .progress = !o->quiet && isatty(STDERR_FILENO),
    };
    return o->mutants ? run_mutants(o, &how, why) : run_words(o, &how, why);
}

static enum ha_exit probe(const struct ha_options *o, struct ha_why *why)
{
    const struct ha_case_list none = { 0 };
    const enum ha_exit code = ha_preflight(o, &none, why);
    if (code != HA_EXIT_OK) return code;
    switch (ha_probe(o->device ? o->device : "host", o->out_dir, why)) {
    case HA_OK: return HA_EXIT_OK;
    case HA_WAIVED: return HA_EXIT_WAIVED;
    default: return HA_EXIT_ENVIRONMENT;
    }
}

int main(int argc, char **argv)
{
    struct ha_options o;
    struct ha_why why = { "" };
    enum ha_exit code = HA_EXIT_INTERNAL;
    ha_options_parse(argc, argv, &o);
    ha_signals_catch();
    switch (o.command) {
    case HA_CMD_RUN:
    case HA_CMD_CHECK: code = run(&o, &why); break;
    case HA_CMD_LIST: code = ha_list(&o, &why); break;
    case HA_CMD_PROBE: code = probe(&o, &why); break;
    }
    if ((ha_stop || code != HA_EXIT_OK) && why.text[0]) fprintf(stderr, "habench: %s\n", why.text);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "habench: stdout: %s\n", strerror(errno));
        if (code == HA_EXIT_OK) code = HA_EXIT_ENVIRONMENT;
    }
    return ha_stop ? 128 + ha_stop : (int)code;
}
