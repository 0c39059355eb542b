#include "harness/program/commands.h"
#include "harness/program/together.h"

#include "harness/base/program.h"
#include "harness/base/registry.h"
#include "harness/base/why.h"
#include "harness/engine/loop.h"
#include "harness/engine/plugin.h"
#include "harness/engine/point.h"
#include "harness/measure/paired.h"
#include "harness/tune/file.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- before anything runs ---------------------------------------------------------------------------------------- */

/* last: the device looked for last. Neighbours mostly name the same one: it is asked for once. */
static enum ha_status look(const struct ha_plan_entry *e, char last[HA_VALUE_MAX], struct ha_why *why)
{
    char value[HA_VALUE_MAX];
    for (size_t k = 0; k < e->suite->keys; k++) {
        if (!e->suite->key[k].device || !ha_point_uses(e->suite, e->point, k)) continue;
        ha_point_value(e->point, &e->suite->key[k], value);
        if (!*value || !strcmp(value, last)) continue;
        HA_TRY(ha_device_look(value, why));
        memcpy(last, value, HA_VALUE_MAX);
    }
    return e->suite->look ? e->suite->look(e->point, why) : HA_OK;
}

/* Said once, not once a case: are the devices and the files there that points name? As ha_suite.look, but for a file
 * that is damaged: its cases alone are not run. */
enum ha_exit ha_program_look(const struct ha_plan *plan, struct ha_why *why)
{
    char last[HA_VALUE_MAX] = "";
    for (size_t i = 0; i < plan->entries; i++) {
        const enum ha_status status = look(&plan->entry[i], last, why);
        if (status != HA_OK && status != HA_FAIL) return ha_look_exit(ha_plan_blame(plan, i, status, why));
        if (status == HA_FAIL && !(plan->entry[i].damaged = strdup(why->text)))
            return ha_look_exit(ha_why(why, HA_ERROR, "out of memory"));
    }
    return HA_EXIT_OK;
}

/* ---- the plan and the run ---------------------------------------------------------------------------------------- */

/* Does a suite of the plan heed this option, or have a key that it sets, if it is one of those that set a key? */
static bool is_heeded(const struct ha_plan *plan, const char *option, bool sets_key)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", option);
    for (size_t i = 0; i < plan->entries; i++) {
        const struct ha_suite *s = plan->entry[i].suite;
        if (i && s == plan->entry[i - 1].suite) continue;
        if (s->options && strstr(s->options, word)) return true;
        for (size_t k = 0; sets_key && k < s->keys; k++)
            if (s->key[k].options ? strstr(s->key[k].options, word) != NULL : !strcmp(s->key[k].name, option))
                return true;
    }
    return false;
}

enum { GIVEN = 6 };

/* What sets a key of every point; a random one has a seed of its own. */
static void give(struct ha_override given[GIVEN], const struct ha_options *o)
{
    const struct ha_override all[GIVEN] = {
        { "device", o->device },   { "isa", o->isa },   { "seed", o->random_ns ? NULL : o->seed },
        { "threads", o->threads }, { "team", o->team }, { "exec", o->exec ? "exec" : NULL },
    };
    memcpy(given, all, sizeof all);
}

static enum ha_status check_heeded(const struct ha_plan *plan, const struct ha_options *o,
                                   const struct ha_override given[GIVEN], struct ha_why *why)
{
    const struct ha_override heeded[] = { { "exhaustive", o->exhaustive ? "" : NULL },
                                          { "order", o->order ? "" : NULL },
                                          { "faults", o->faults },
                                          { "dump", o->dump_dir } };
    for (size_t i = 0; i < GIVEN + sizeof heeded / sizeof *heeded; i++) {
        const struct ha_override *g = i < GIVEN ? &given[i] : &heeded[i - GIVEN];
        if (g->value && !is_heeded(plan, g->option, i < GIVEN))
            return ha_why(why, HA_ERROR, "--%s means nothing to these cases", g->option);
    }
    return HA_OK;
}

enum ha_status ha_program_plan(struct ha_plan *plan, const struct ha_options *o, char *const *words, size_t count,
                               bool small, struct ha_why *why)
{
    struct ha_override given[GIVEN];
    const struct ha_plan_options how = { .words = words,
                                         .words_count = count,
                                         .filter = o->filter,
                                         .override = given,
                                         .overrides = GIVEN,
                                         .small = small,
                                         .measured = o->command == HA_CMD_RUN };
    give(given, o);
    HA_TRY(ha_plan_make(plan, &how, why));
    return check_heeded(plan, o, given, why);
}

/* The first points of a random run, of the suites that are named, or of all of which points can be drawn. */
static enum ha_status draw(struct ha_random *r, const struct ha_options *o, struct ha_why *why)
{
    static struct ha_override given[GIVEN];
    static char *names[HA_NAMES_MAX];
    size_t count = 0;
    give(given, o);
    for (size_t i = 0; i < ha_suites_count && count < HA_NAMES_MAX; i++) {
        size_t drawn = 0;
        for (size_t k = 0; k < ha_suites_all[i]->keys; k++) drawn += ha_suites_all[i]->key[k].draw != NULL;
        if (drawn) names[count++] = (char *)(uintptr_t)ha_suites_all[i]->name;
    }
    r->from = (struct ha_plan_options){ .words = o->words_count ? o->words : names,
                                        .words_count = o->words_count ? o->words_count : count,
                                        .filter = o->filter,
                                        .override = given,
                                        .overrides = GIVEN };
    r->time_ns = o->random_ns;
    r->draw.seed = o->seed ? strtoull(o->seed, NULL, 10) : 1;
    HA_TRY(ha_plan_draw(r->plan, &r->from, &r->draw, HA_DRAWN_AT_ONCE, why));
    return check_heeded(r->plan, o, given, why);
}

/* What a resumed run must have in common, on the heap, "isa=c exec=CMD"; NULL: no memory. */
static char *options_of(const struct ha_options *o)
{
    const struct {
        const char *name, *value;
    } each[] = {
        { "device", o->device }, { "isa", o->isa },   { "without", o->without },
        { "team", o->team },     { "exec", o->exec }, { "order", o->order ? "yes" : NULL },
        { "faults", o->faults },
    };
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    const char *blank = "";
    for (size_t i = 0; out && i < sizeof each / sizeof *each; i++) {
        if (!each[i].value) continue;
        fprintf(out, "%s%s=%s", blank, each[i].name, each[i].value);
        blank = " ";
    }
    if (out) fclose(out);
    return text;
}

static enum ha_exit run_plan(const struct ha_plan *plan, const struct ha_options *o, struct ha_random *random,
                             struct ha_together *together, struct ha_why *why)
{
    char *options = options_of(o);
    const uint64_t faults = o->faults ? strtoull(o->faults, NULL, 10) : 0;
    const uint64_t shuffle = o->shuffle ? strtoull(o->shuffle, NULL, 10) : 0;
    const struct ha_run_options how = {
        .measure = o->command == HA_CMD_RUN,
        .out_dir = o->out_dir,
        .resume = o->resume,
        .named = o->out_dir && !o->fleet && !o->together,
        .json = o->json,
        .quiet = o->quiet,
        .max_time_ns = o->max_time_ns,
        .case_time_ns = o->case_time_ns,
        .processes = o->processes,
        .seed = o->seed ? strtoull(o->seed, NULL, 10) : 1,
        .dump_dir = o->dump_dir,
        .exec = o->exec,
        .exhaustive = o->exhaustive,
        .random = o->random_ns ? random : NULL,
        .order = o->order,
        .faults = o->faults ? &faults : NULL,
        .shuffle = o->shuffle ? &shuffle : NULL,
        .options = options,
    };
    const enum ha_exit code = together ? ha_together_run(together, plan, &how, why) : ha_run(plan, &how, why);
    free(options);
    return code;
}

/* Does a suite of the plan attend on the CPU? */
static bool attends(const struct ha_plan *plan)
{
    for (size_t i = 0; i < plan->entries; i++)
        if (plan->entry[i].suite->attends) return true;
    return false;
}

static bool has(char path[4096], const char *folder, const char *file)
{
    const int n = snprintf(path, 4096, "%s/%s", folder, file);
    return n > 0 && n < 4096 && access(path, F_OK) == 0;
}

/* The plan of the CPU kernels. A run that goes on has the one that it began with, of several records the first. */
static enum ha_exit find_tuning(const struct ha_plan *plan, const struct ha_options *o, struct ha_why *why)
{
    char first[4096], own[4096];
    const char *asked = o->plan;
    const bool goes_on = !asked && o->resume && o->out_dir;
    if (goes_on && has(first, o->out_dir, o->together ? "alone" : ".") && has(own, first, "env.json"))
        asked = has(own, first, HA_PLAN_FILE) ? own : "constants";
    /* what a rehearsal would choose means nothing */
    const bool quick = o->command == HA_CMD_RUN && attends(plan) && ha_measure_share(2) == 2;
    return ha_tune_find(asked, quick, why) == HA_OK ? HA_EXIT_OK : HA_EXIT_USAGE;
}

/* Its CPU kernels are chosen while no other rank of this host measures. */
static enum ha_exit run_planned(const struct ha_plan *plan, const struct ha_options *o, struct ha_random *random,
                                struct ha_why *why)
{
    struct ha_together *together = NULL;
    enum ha_exit code = ha_program_look(plan, why);
    if (code == HA_EXIT_OK && o->together) code = ha_together_open(&together, o, why);
    if (code == HA_EXIT_OK) {
        ha_together_await(together);
        code = find_tuning(plan, o, why);
        ha_together_done(together);
    }
    if (code == HA_EXIT_OK) code = run_plan(plan, o, random, together, why);
    ha_together_close(together);
    return code;
}

enum ha_exit ha_command_run(const struct ha_options *o, struct ha_why *why)
{
    static char check[] = "check", mutants[] = "mutants", defects[] = "defects", cheats[] = "cheats";
    char replay[4200], *galleries[] = { mutants, defects, cheats },
                       *instead = o->replay        ? replay
                                  : o->words_count ? NULL
                                                   : check;
    struct ha_plan plan = { 0 };
    if (o->command == HA_CMD_RUN && ha_day_asked(o)) return ha_command_day(o, why);
    if (o->replay) snprintf(replay, sizeof replay, "lse_merge:replay=%s", o->replay);
    enum ha_exit code = HA_EXIT_USAGE;
    const bool small = o->command == HA_CMD_CHECK && !o->dry_run;
    if (o->out_dir) signal(SIGPIPE, SIG_IGN); /* the folder is to be complete, whoever reads the table */
    struct ha_random random = { .plan = &plan };
    const enum ha_status planned = o->random_ns ? draw(&random, o, why)
                                   : o->mutants ? ha_program_plan(&plan, o, galleries, 3, small, why)
                                                : ha_program_plan(&plan, o, instead ? &instead : o->words,
                                                                  instead ? 1 : o->words_count, small, why);
    if (planned == HA_OK) {
        code = HA_EXIT_OK;
        for (size_t i = 0; o->dry_run && i < plan.entries; i++) puts(plan.entry[i].id);
        if (!o->dry_run) code = run_planned(&plan, o, &random, why);
    }
    ha_plan_free(&plan);
    return code;
}
