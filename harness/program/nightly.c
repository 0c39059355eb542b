#include "harness/base/array.h"
#include "harness/base/clock.h"
#include "harness/base/file.h"
#include "harness/base/registry.h"
#include "harness/base/stop.h"
#include "harness/base/text.h"
#include "harness/base/version.h"
#include "harness/base/why.h"
#include "harness/compare/again.h"
#include "harness/compare/print.h"
#include "harness/measure/paired.h"
#include "harness/program/commands.h"
#include "harness/program/night.h"
#include "harness/tune/file.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A night: steps that are commands of this program, each with its folder, then what they came to. */

enum { ROUNDS = 3, AGAIN = 10, PROCESSES = 5, NAME = 64, PART = 40, LISTED = 10 };
static const uint64_t hour_ns = UINT64_C(3600000000000), second_ns = UINT64_C(1000000000);

struct night {
    const struct ha_options *o;
    const char *against; /* NULL: it is the first night */
    char *suite;         /* that is measured: a name or a path */
    const char *plan;    /* what steps that attend on the CPU are told of theirs; NULL: each finds the same */
    char chosen[4096];
    uint64_t begin_ns, end_ns, seed;
    struct ha_night_log log;
    bool wrong, missing, unfit; /* what steps came to */
    /* against a base, once it has been compared */
    struct ha_record base, now;
    struct ha_comparison result;
    bool read, compared;
    enum ha_exit exit; /* settle */
};

static uint64_t left(const struct night *n)
{
    const uint64_t now = ha_now_ns();
    return now < n->end_ns ? n->end_ns - now : 0;
}

static enum ha_status begin_night(struct night *n, struct ha_why *why)
{
    HA_TRY(ha_night_log_begin(&n->log, n->o->out_dir, n->o->quiet, why));
    json_object_set_new(n->log.said, "shuffle", json_integer((json_int_t)n->seed));
    return ha_night_log_write(&n->log, why);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* Whether it could be run; *code is what it ended with. */
static bool run_step(struct night *n, const char *name, const struct ha_words *c, uint64_t limit_ns, int *code)
{
    const struct ha_night_step step = { .word = c->word, .words = c->words, .name = name, .limit_ns = limit_ns };
    return ha_night_log_run(&n->log, &step, code);
}

/* What an exit code of a run or check says of the night. false: the same command would end so again. */
static bool take_code(struct night *n, const char *name, int code, bool ran)
{
    n->wrong = n->wrong || code == HA_EXIT_WRONG;
    if (ran && (code == HA_EXIT_OK || code == HA_EXIT_WRONG || ha_stop)) return true;
    n->missing = true;
    if (ran) ha_night_log_note(&n->log, "%s: ended with %d; see %s/%s.txt", name, code, n->o->out_dir, name);
    return false;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* run, run-DEVICE, and run-2-DEVICE where another device goes by this name, too */
static const char *step_name(char out[NAME], const char *step, const struct night *n, size_t device)
{
    bool taken = false;
    if (!device) return strcpy(out, step);
    const char *of = last_part(n->o->devices[device]);
    for (size_t d = 1; d < device; d++) taken = taken || !strncmp(last_part(n->o->devices[d]), of, PART);
    if (taken) snprintf(out, NAME, "%s-%zu-%.*s", step, device, PART, of);
    else snprintf(out, NAME, "%s-%.*s", step, PART, of);
    return out;
}

static void add_device(struct ha_words *c, const struct night *n, size_t device)
{
    if (!n->o->devices_count) return;
    ha_words_add(c, "--device");
    ha_words_add(c, n->o->devices[device]);
}

static void add_plan(struct ha_words *c, const struct night *n)
{
    if (!n->plan) return;
    ha_words_add(c, "--plan");
    ha_words_add(c, n->plan);
}

/* Of doctor and probe, which take a minute and not the time that they are given: a device that hangs is not to be
 * waited for much longer than the night is. */
static uint64_t meter_limit(const struct night *n)
{
    const uint64_t least = 60 * second_ns, most = 10 * least, rest = left(n);
    return rest < least ? least : rest > most ? most : rest;
}

static void doctor(struct night *n, const char *name, size_t device)
{
    struct ha_words c = { .word = { "doctor" }, .words = 1 };
    int code = 0;
    add_device(&c, n, device);
    const bool ran = run_step(n, name, &c, meter_limit(n), &code);
    n->unfit = n->unfit || code == HA_EXIT_ENVIRONMENT;
    n->missing = n->missing || !ran || (code && code != HA_EXIT_ENVIRONMENT);
    if (code == HA_EXIT_ENVIRONMENT)
        ha_night_log_note(&n->log, "doctor: not fit to be measured; see %s/%s.txt", n->o->out_dir, name);
}

static void probe(struct night *n, const char *name, size_t device)
{
    struct ha_words c = { .word = { "probe" }, .words = 1 };
    int code = 0;
    add_device(&c, n, device);
    ha_words_add_folder(&c, n->o->out_dir, name);
    const bool ran = run_step(n, name, &c, meter_limit(n), &code);
    take_code(n, name, code, ran);
}

/* Two fifths of the time, at most. */
static void check(struct night *n, const char *name, size_t device)
{
    struct ha_words c = { .word = { "check", "smoke", "lse_merge", "device", "-q" }, .words = 5 };
    const uint64_t most = (n->end_ns - n->begin_ns) / 5 * 2, limit = most < left(n) ? most : left(n);
    int code = 0;
    add_device(&c, n, device);
    add_plan(&c, n);
    ha_words_add_number(&c, "--shuffle", n->seed, "");
    ha_words_add_number(&c, "--max-time", limit / 1000000 + 1, "ms");
    ha_words_add_folder(&c, n->o->out_dir, name);
    const bool ran = run_step(n, name, &c, limit + 120 * second_ns, &code);
    take_code(n, name, code, ran);
}

/* Seven tenths of what is left, the rest being for what is suspicious; what it cuts off is looked for in the record. */
static void run(struct night *n, const char *name, size_t device)
{
    struct ha_words c = { .word = { "run", n->suite, "-q" }, .words = 3 };
    const uint64_t limit = n->against ? left(n) / 10 * 7 : left(n);
    int code = 0;
    add_device(&c, n, device);
    add_plan(&c, n);
    ha_words_add_number(&c, "--processes", n->o->processes ? n->o->processes : PROCESSES, "");
    ha_words_add_number(&c, "--shuffle", n->seed, "");
    ha_words_add_number(&c, "--max-time", limit / 1000000 + 1, "ms");
    ha_words_add_folder(&c, n->o->out_dir, name);
    const bool ran = run_step(n, name, &c, limit + 120 * second_ns, &code);
    take_code(n, name, code == HA_EXIT_MISSING ? HA_EXIT_OK : code, ran);
}

static const struct {
    const char *name;
    void (*run)(struct night *n, const char *name, size_t device);
} steps[] = { { "doctor", doctor }, { "probe", probe }, { "check", check }, { "run", run } };

/* ---- what was run ------------------------------------------------------------------------------------------------ */

static const struct ha_recorded_case *measured(const struct ha_record *r, const char *id)
{
    const struct ha_recorded_case *c = ha_record_case(r, "run", id);
    return c && c->processes ? c : NULL;
}

/* The cases of the plan that have no row, and the fewest processes of those that have. */
static enum ha_status look_for_all(struct night *n, struct ha_why *why)
{
    size_t absent = 0, all = 0, fewest = SIZE_MAX;
    const size_t wanted = n->o->processes ? n->o->processes : PROCESSES;
    for (size_t d = 0; d < (n->o->devices_count ? n->o->devices_count : 1); d++) {
        struct ha_options one = *n->o;
        struct ha_plan plan = { 0 };
        one.command = HA_CMD_RUN;
        one.device = n->o->devices[d];
        enum ha_status status = ha_program_plan(&plan, &one, &n->suite, 1, false, why);
        for (size_t i = 0; i < plan.entries && status == HA_OK; i++) {
            const struct ha_recorded_case *c = measured(&n->now, plan.entry[i].id);
            all++;
            if (!c && absent++ < LISTED) ha_night_log_note(&n->log, "not run: %s", plan.entry[i].id);
            else if (c && c->processes < fewest) fewest = c->processes;
        }
        ha_plan_free(&plan);
        HA_TRY(status);
    }
    if (absent > LISTED) ha_night_log_note(&n->log, "and %zu more of %zu cases were not run", absent - LISTED, all);
    if (fewest < wanted)
        ha_night_log_note(&n->log, "some of %zu cases ran in %zu of %zu processes%s", all, fewest, wanted,
                          ha_stop ? "" : ": the time was over; give it more with --max-time");
    n->missing = n->missing || absent > 0;
    return HA_OK;
}

static void drop(struct night *n)
{
    if (n->compared) ha_comparison_free(&n->result);
    if (n->read) ha_record_free(&n->now);
    n->compared = n->read = false;
}

/* The night as it stands, beside its base, which is empty if it is the first. */
static enum ha_status look(struct night *n, struct ha_why *why)
{
    drop(n);
    n->read = true;
    HA_TRY(ha_record_read(&n->now, n->o->out_dir, why));
    n->compared = true;
    return ha_compare(&n->result, &n->base, &n->now, why);
}

/* ---- what is suspicious is run again ----------------------------------------------------------------------------- */

/* Its cases; their names are of the record. */
static enum ha_status add_suspicious(struct ha_words *c, const struct ha_comparison *of, struct ha_why *why)
{
    struct ha_again again;
    const enum ha_status status = ha_comparison_again(&again, of, why);
    for (size_t i = 0; i < again.count && c->words + 16 < HA_STEP_WORDS; i++) ha_words_add(c, again.of[i]->id);
    free(again.of);
    return status;
}

static enum ha_status run_again(struct night *n, struct ha_why *why)
{
    for (uint64_t round = 1; round <= ROUNDS && !ha_stop; round++) {
        struct ha_words c = { .word = { "run", "-q" }, .words = 2 };
        char name[NAME];
        int code = 0;
        HA_TRY(add_suspicious(&c, &n->result, why));
        if (c.words == 2) return HA_OK;
        if (left(n) < 5 * second_ns) {
            ha_night_log_note(
                &n->log, "the time was over before what is suspicious was run again; give it more with --max-time");
            return HA_OK;
        }
        snprintf(name, sizeof name, "again-%" PRIu64, round);
        const uint64_t limit = left(n);
        add_plan(&c, n);
        ha_words_add_number(&c, "--processes", AGAIN, "");
        ha_words_add_number(&c, "--shuffle", n->seed + round, "");
        ha_words_add_number(&c, "--max-time", limit / 1000000 + 1, "ms");
        ha_words_add_folder(&c, n->o->out_dir, name);
        const bool ran = run_step(n, name, &c, limit + 120 * second_ns, &code);
        const bool good = take_code(n, name, code == HA_EXIT_MISSING ? HA_EXIT_OK : code, ran);
        HA_TRY(look(n, why));
        if (!good) return HA_OK;
    }
    return HA_OK;
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

/* What it came to: from here on the same everywhere. */
static void settle(struct night *n)
{
    n->exit = n->wrong                ? HA_EXIT_WRONG
              : n->missing || ha_stop ? HA_EXIT_MISSING
              : n->unfit              ? HA_EXIT_ENVIRONMENT
                                      : HA_EXIT_OK;
    if (!n->compared) return;
    n->result.besides = n->exit;
    n->exit = ha_comparison_exit(&n->result);
}

static const char *word(const struct night *n)
{
    return n->compared ? ha_comparison_word(&n->result) : ha_night_word(n->exit);
}

static void print(FILE *out, const struct night *n)
{
    fprintf(out, "%s: night of %s, build %s\n", word(n), json_string_value(json_object_get(n->log.said, "date_utc")),
            ha_version());
    fputs(n->log.notes ? n->log.notes : "", out);
    if (n->compared) ha_compare_print_table(out, &n->result);
    if (!n->against) fputs("nothing to compare with: --against FOLDER names earlier nights\n", out);
}

/* The lines of what changed, for who is told. */
static json_t *changes(const struct night *n)
{
    json_t *all = json_array();
    for (size_t i = 0; n->compared && i < n->result.count; i++) {
        char *text = NULL;
        size_t size;
        if (!ha_change_loud(&n->result.change[i])) continue;
        FILE *f = open_memstream(&text, &size);
        if (!f) continue;
        ha_change_line(f, &n->result.change[i]);
        fclose(f);
        json_array_append_new(all, ha_json_text(text));
        free(text);
    }
    return all;
}

static void notify(const struct night *n)
{
    FILE *to = popen(n->o->notify, "w");
    char *text = json_dumps(n->log.said, JSON_COMPACT | JSON_PRESERVE_ORDER);
    const bool told = to && text && fprintf(to, "%s\n", text) > 0;
    const int status = to ? pclose(to) : -1;
    free(text);
    if (!told || status != 0) fprintf(stderr, "habench: --notify: '%s' failed\n", n->o->notify);
}

static enum ha_status write_report(struct night *n, struct ha_why *why)
{
    struct ha_whole_file out;
    char path[4096];
    HA_TRY(ha_whole_file_open(&out, n->o->out_dir, "report.txt", why));
    print(out.file, n);
    HA_TRY(ha_whole_file_close(&out, why));
    HA_TRY(ha_file_path(path, n->o->out_dir, "junit", ".xml", why));
    HA_TRY(ha_compare_junit(path, &n->result, n->compared, n->exit, n->log.notes, why));
    if (!n->compared) return HA_OK;
    HA_TRY(ha_whole_file_open(&out, n->o->out_dir, "compare.jsonl", why));
    ha_compare_print_json(out.file, &n->result, 1);
    return ha_whole_file_close(&out, why);
}

static enum ha_status write_all(struct night *n, struct ha_why *why)
{
    json_object_set_new(n->log.said, "verdict", json_string(word(n)));
    json_object_set_new(n->log.said, "exit", json_integer((json_int_t)n->exit));
    json_object_set_new(n->log.said, "folder", ha_json_text(n->o->out_dir));
    json_object_set_new(n->log.said, "against", n->against ? ha_json_text(n->against) : json_null());
    json_object_set_new(n->log.said, "notes", json_string(n->log.notes ? n->log.notes : ""));
    json_object_set_new(n->log.said, "changes", changes(n));
    HA_TRY(ha_night_log_write(&n->log, why));
    return write_report(n, why);
}

/* A night that cannot be written is not fit to judge, if it is no worse. */
static void cannot_write(struct night *n, const struct ha_why *why)
{
    if (!n->log.notes || !strstr(n->log.notes, why->text))
        ha_night_log_note(&n->log, "%s; mend that, and begin a new night", why->text);
    n->unfit = true;
}

static void end_night(struct night *n, struct ha_why *why)
{
    struct ha_why again;
    if (ha_stop) ha_night_log_note(&n->log, "ended by a signal: what was run is kept");
    settle(n);
    if (write_all(n, why) != HA_OK) {
        cannot_write(n, why);
        settle(n);
        write_all(n, &again); /* what can be written agrees with the rest */
    }
    print(stdout, n);
    fflush(stdout);
    if (n->o->notify) notify(n);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* The folder of the nights, in which this one is to lie, has none yet: then it is the first, and says so. */
static bool is_first(struct night *n, struct ha_why *why)
{
    const size_t length = strlen(n->against);
    if (n->base.nights || strncmp(n->o->out_dir, n->against, length) || n->o->out_dir[length] != '/') return false;
    ha_night_log_note(&n->log, "%s: no earlier night in it", n->against);
    n->against = NULL;
    why->text[0] = 0;
    return true;
}

/* The plan of the CPU kernels, one for all steps. A quick choice is laid in the folder: a step that only checks makes
 * none, and where there is no home the next one that measures would choose anew. */
static enum ha_exit find_plan(struct night *n, struct ha_why *why)
{
    n->plan = n->o->plan;
    if (ha_tune_find(n->plan, ha_measure_share(2) == 2, why) != HA_OK) return HA_EXIT_USAGE;
    const enum ha_exit taken = ha_night_take_folder(n->o->out_dir, "a night", why);
    if (taken != HA_EXIT_OK || strcmp(ha_tuning()->from, "quick") != 0) return taken;
    n->plan = n->chosen;
    return ha_file_path(n->chosen, n->o->out_dir, HA_PLAN_FILE, "", why) == HA_OK
                   && ha_tune_write(ha_tuning(), n->chosen, why) == HA_OK
               ? HA_EXIT_OK
               : HA_EXIT_ENVIRONMENT;
}

/* Before anything runs: the suite, the devices, the base, the plan, the folder. */
static enum ha_exit look_before(struct night *n, struct ha_why *why)
{
    struct ha_options one = *n->o;
    struct ha_plan plan = { 0 };
    one.command = HA_CMD_RUN;
    const enum ha_status planned = ha_program_plan(&plan, &one, &n->suite, 1, false, why);
    ha_plan_free(&plan);
    if (planned != HA_OK) return HA_EXIT_USAGE;
    for (size_t d = 0; d < n->o->devices_count; d++) {
        const enum ha_exit there = ha_look_for_device(n->o->devices[d], why);
        if (there != HA_EXIT_OK) return there;
    }
    if (n->against && ha_record_read(&n->base, n->against, why) != HA_OK && !is_first(n, why)) return HA_EXIT_USAGE;
    return find_plan(n, why);
}

/* false: the folder cannot be written, and there is no use in going on. */
static bool run_steps(struct night *n, struct ha_why *why)
{
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
        for (size_t d = 0; d < (n->o->devices_count ? n->o->devices_count : 1) && !ha_stop; d++) {
            char name[NAME];
            steps[s].run(n, step_name(name, steps[s].name, n, d), d);
            if (ha_night_log_write(&n->log, why) != HA_OK) return false;
        }
    return true;
}

static enum ha_status spend(struct night *n, struct ha_why *why)
{
    HA_TRY(begin_night(n, why));
    const bool written = run_steps(n, why);
    if (!written) cannot_write(n, why);
    struct ha_why unread = { "" }, unplanned = { "" };
    enum ha_status status = look(n, &unread);
    if (look_for_all(n, &unplanned) != HA_OK)
        ha_night_log_note(&n->log, "%s", unplanned.text); /* also where nothing has a row */
    if (status == HA_OK && n->compared && written) status = run_again(n, &unread);
    if (status != HA_OK) {
        ha_night_log_note(&n->log, "%s", unread.text);
        n->missing = true;
        drop(n);
    }
    end_night(n, why);
    return HA_OK;
}

enum ha_exit ha_command_nightly(const struct ha_options *o, struct ha_why *why)
{
    static char measured_suite[] = "nightly";
    struct night n = { .o = o,
                       .suite = o->words_count ? o->words[0] : measured_suite,
                       .against = o->against,
                       .begin_ns = ha_now_ns(),
                       .seed = o->shuffle ? strtoull(o->shuffle, NULL, 10) : (uint64_t)time(NULL) };
    n.end_ns = n.begin_ns + (o->max_time_ns ? o->max_time_ns : hour_ns);
    enum ha_exit code = look_before(&n, why);
    if (code == HA_EXIT_OK) {
        code = spend(&n, why) == HA_OK ? n.exit : HA_EXIT_ENVIRONMENT;
    }
    drop(&n);
    ha_record_free(&n.base);
    ha_night_log_free(&n.log);
    return code;
}
