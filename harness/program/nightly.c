#define _GNU_SOURCE /* asprintf */
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
#include "harness/engine/fair.h"
#include "harness/measure/paired.h"
#include "harness/program/commands.h"
#include "harness/program/night.h"
#include "harness/program/night_causes.h"
#include "harness/program/night_good.h"
#include "harness/program/night_rows.h"
#include "harness/tune/file.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A night: steps that are commands of this program, each with its folder, then what they came to. */

enum { ROUNDS = 3, AGAIN = 10, PROCESSES = 5, NAME = 64, PART = 40 };
static const uint64_t hour_ns = UINT64_C(3600000000000), second_ns = UINT64_C(1000000000);

struct night {
    const struct ha_options *o;
    const char *against; /* NULL: it is the first night */
    char *suite;         /* that is measured: a name or a path */
    const char *plan;    /* what steps that attend on the CPU are told of theirs; NULL: each finds the same */
    char chosen[4096];
    uint64_t end_ns, seed;
    uint64_t until_ns; /* of the step at hand, of all devices: share */
    struct ha_night_log log;
    struct ha_night_watch watch; /* of the steps that measure */
    bool wrong, missing, unfit;  /* what steps came to */
    bool cut;                    /* the time was over before all was run */
    bool slower;                 /* in turns with the last good build */
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

static size_t devices(const struct night *n) { return n->o->devices_count ? n->o->devices_count : 1; }

/* So many tenths of what is left when a step begins, shared by the devices that it is still to run on. */
static uint64_t share(struct night *n, size_t device, uint64_t tenths)
{
    const uint64_t now = ha_now_ns();
    if (!device) n->until_ns = now + left(n) / 10 * tenths;
    return (n->until_ns > now ? n->until_ns - now : 0) / (devices(n) - device);
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

static bool measure_step(struct night *n, const char *name, const struct ha_words *c, uint64_t limit_ns, int *code)
{
    ha_night_watch_begin(&n->watch);
    const bool ran = run_step(n, name, c, limit_ns + 120 * second_ns, code);
    ha_night_watch_end(&n->watch);
    return ran;
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

/* What doctor has found unfit, by the lines "unfit    CHECK   FOUND" that it has printed. */
static void note_unfit(struct night *n, const char *name)
{
    static const char unfit[] = "unfit    ";
    char path[4096], line[512], all[1024] = "";
    struct ha_why why;
    FILE *f = ha_file_path(path, n->o->out_dir, name, ".txt", &why) == HA_OK ? fopen(path, "re") : NULL;
    for (size_t used = 0; f && fgets(line, sizeof line, f) && used < sizeof all;) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, unfit, strlen(unfit)) != 0 || strlen(line) <= 29) continue;
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", used ? "; " : "", line + 29);
    }
    if (f) fclose(f);
    ha_night_log_note(&n->log, "%s: not fit to be measured: %s; what mends it is in %s/%s.txt", name, all,
                      n->o->out_dir, name);
}

static void doctor(struct night *n, const char *name, size_t device)
{
    struct ha_words c = { .word = { "doctor" }, .words = 1 };
    int code = 0;
    add_device(&c, n, device);
    const bool ran = run_step(n, name, &c, meter_limit(n), &code);
    n->unfit = n->unfit || code == HA_EXIT_ENVIRONMENT;
    n->missing = n->missing || !ran || (code && code != HA_EXIT_ENVIRONMENT);
    if (code == HA_EXIT_ENVIRONMENT) note_unfit(n, name);
}

static void probe(struct night *n, const char *name, size_t device)
{
    struct ha_words c = { .word = { "probe" }, .words = 1 };
    int code = 0;
    if (left(n) < 120 * second_ns) {
        if (!device) ha_night_log_note(&n->log, "no probe: it takes half a minute, and the night has less than two");
        return;
    }
    add_device(&c, n, device);
    ha_words_add_folder(&c, n->o->out_dir, name);
    const bool ran = run_step(n, name, &c, meter_limit(n), &code);
    take_code(n, name, code, ran);
}

/* Two fifths of what is left, at most. */
static void check(struct night *n, const char *name, size_t device)
{
    struct ha_words c = { .word = { "check", "smoke", "lse_merge", "device", "-q" }, .words = 5 };
    const uint64_t limit = share(n, device, 4);
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
    const uint64_t limit = share(n, device, n->against ? 7 : 10);
    int code = 0;
    add_device(&c, n, device);
    add_plan(&c, n);
    ha_words_add_number(&c, "--processes", n->o->processes ? n->o->processes : PROCESSES, "");
    ha_words_add_number(&c, "--shuffle", n->seed, "");
    ha_words_add_number(&c, "--max-time", limit / 1000000 + 1, "ms");
    ha_words_add_folder(&c, n->o->out_dir, name);
    const bool ran = measure_step(n, name, &c, limit, &code);
    take_code(n, name, code == HA_EXIT_MISSING ? HA_EXIT_OK : code, ran);
}

static const struct {
    const char *name;
    void (*run)(struct night *n, const char *name, size_t device);
} steps[] = { { "doctor", doctor }, { "probe", probe }, { "check", check }, { "run", run } };

/* ---- what was run ------------------------------------------------------------------------------------------------ */

/* The cases of the plan that have no row, how evenly the others ran, and what their rows lack. */
static enum ha_status look_at_rows(struct night *n, struct ha_why *why)
{
    const size_t wanted = n->o->processes ? n->o->processes : PROCESSES;
    size_t *ran = calloc(wanted + 1, sizeof *ran), cases = 0, size;
    char *text = NULL;
    FILE *line = ran ? open_memstream(&text, &size) : NULL;
    enum ha_status status = line ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
    for (size_t d = 0; d < devices(n) && status == HA_OK; d++) {
        struct ha_options one = *n->o;
        struct ha_plan plan = { 0 };
        one.command = HA_CMD_RUN;
        one.device = n->o->devices[d];
        status = ha_program_plan(&plan, &one, &n->suite, 1, false, why);
        if (status == HA_OK && ha_night_rows_count(&n->log, &n->now, &plan, wanted, ran)) n->missing = true;
        cases += plan.entries;
        ha_plan_free(&plan);
    }
    if (line && ran[wanted] < cases) {
        ha_fair_print(line, ran, wanted);
        n->cut = !ha_stop;
    }
    if (line) fclose(line);
    if (text && *text) ha_night_log_note(&n->log, "%s", text);
    free(text);
    free(ran);
    if (ha_night_rows_lost(&n->log, &n->now)) n->missing = true;
    return status;
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
            ha_night_log_note(&n->log, "the time was over before what is suspicious was run again");
            n->cut = true;
            return HA_OK;
        }
        snprintf(name, sizeof name, "again-%" PRIu64, round);
        const uint64_t limit = left(n);
        add_plan(&c, n);
        ha_words_add_number(&c, "--processes", AGAIN, "");
        ha_words_add_number(&c, "--shuffle", n->seed + round, "");
        ha_words_add_number(&c, "--max-time", limit / 1000000 + 1, "ms");
        ha_words_add_folder(&c, n->o->out_dir, name);
        const bool ran = measure_step(n, name, &c, limit, &code);
        const bool good = take_code(n, name, code == HA_EXIT_MISSING ? HA_EXIT_OK : code, ran);
        HA_TRY(look(n, why));
        if (!good) return HA_OK;
    }
    return HA_OK;
}

/* ---- where the machine is never quiet ---------------------------------------------------------------------------- */

/* The first line of what a step said. */
static void note_first_line(struct night *n, const char *name, const char *before)
{
    char path[4096], line[512] = "";
    struct ha_why why;
    if (ha_file_path(path, n->o->out_dir, name, ".txt", &why) == HA_OK) ha_text_line(path, "", line, sizeof line);
    ha_night_log_note(&n->log, "%s: %s", before, line);
}

/* Of a case that was measured it could not be told whether it is slower. */
static bool is_untold(const struct ha_change *c)
{
    return c->now && !strcmp(c->now->mode, "run") && strcmp(c->now->id, HA_MACHINE_CASE) != 0
           && (c->kind == HA_CHANGE_DISTURBED || c->kind == HA_CHANGE_SUSPICIOUS);
}

static bool has_word(const struct ha_words *c, const char *word)
{
    for (size_t i = 0; i < c->words; i++)
        if (!strcmp(c->word[i], word)) return true;
    return false;
}

static void add_untold(struct ha_words *c, const struct ha_comparison *of)
{
    for (size_t i = 0; i < of->count && c->words + 1 < HA_STEP_WORDS; i++) {
        const struct ha_change *const k = &of->change[i];
        if (is_untold(k) && !has_word(c, k->now->id)) ha_words_add(c, k->now->id);
    }
}

/* The cases that both builds ran in turns: one that takes as long as before there shows no change of the code. */
static void excuse(struct night *n, const struct ha_words *ran)
{
    for (size_t i = 0; i < n->result.count; i++) {
        struct ha_change *const k = &n->result.change[i];
        if (is_untold(k) && has_word(ran, k->now->id)) k->kind = HA_CHANGE_UNCLEAR;
    }
    n->unfit = false;
}

/* Cases that were disturbed, or stay suspicious, beside the last good build, if that is another. */
static void run_in_turns(struct night *n)
{
    struct ha_words c = { .word = { "compare", "--run" }, .words = 2 };
    char good[4096], version[128], self[4096] = "", before[256];
    int code = 0;
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (devices(n) > 1 || n->result.other_machine || left(n) < 60 * second_ns || length <= 0
        || !ha_night_good(n->o->against, good, version))
        return;
    ha_words_add(&c, good);
    ha_words_add(&c, self);
    ha_words_add(&c, "-q");
    ha_words_add_number(&c, "--max-time", left(n) / 1000000 + 1, "ms");
    ha_words_add_folder(&c, n->o->out_dir, "turns");
    ha_words_add(&c, "--");
    add_plan(&c, n);
    const size_t none = c.words;
    add_untold(&c, &n->result);
    if (c.words == none) return;
    const bool ran = run_step(n, "turns", &c, left(n) + 120 * second_ns, &code);
    snprintf(before, sizeof before, "in turns with the last good build, %s", version);
    if (ran) note_first_line(n, "turns", before);
    n->slower = code == HA_EXIT_REGRESSION;
    n->wrong = n->wrong || code == HA_EXIT_WRONG;
    if (ran && code == HA_EXIT_OK) excuse(n, &c);
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

/* What it came to: from here on the same everywhere. */
static void settle(struct night *n)
{
    n->exit = n->wrong                ? HA_EXIT_WRONG
              : n->slower             ? HA_EXIT_REGRESSION
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

/* On top of the notes: what disturbed it, or what else would help. */
static void note_causes(struct night *n)
{
    struct ha_night_log top = { .folder = n->log.folder, .said = n->log.said };
    char *all = NULL;
    size_t of_base = 0;
    const bool disturbed = ha_night_causes_note(&top, &n->watch);
    for (size_t i = 0; n->compared && i < n->result.count; i++) {
        const struct ha_change *c = &n->result.change[i];
        of_base += c->kind == HA_CHANGE_DISTURBED && 2 * c->disturbed <= c->processes;
    }
    if (of_base)
        ha_night_log_note(&top, "of %zu cases the base was disturbed, not this night: keep other nights as a base",
                          of_base);
    if (n->cut && !disturbed) ha_night_log_note(&top, "the time was over before all was run: --max-time gives it more");
    if (!top.notes) return;
    if (asprintf(&all, "%s%s", top.notes, n->log.notes ? n->log.notes : "") < 0) all = NULL;
    free(top.notes);
    if (!all) return;
    free(n->log.notes);
    n->log.notes = all;
}

static void end_night(struct night *n, struct ha_why *why)
{
    struct ha_why again;
    note_causes(n);
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
    const bool planned = ha_program_plan(&plan, &one, &n->suite, 1, false, why) == HA_OK;
    const enum ha_exit looked = planned ? ha_program_look(&plan, why) : HA_EXIT_USAGE;
    ha_plan_free(&plan);
    if (looked != HA_EXIT_OK) return looked;
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
        for (size_t d = 0; d < devices(n) && !ha_stop; d++) {
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
    if (status == HA_OK && n->compared && written) status = run_again(n, &unread);
    if (status == HA_OK && n->compared && written && n->against && !ha_stop) run_in_turns(n);
    if (look_at_rows(n, &unplanned) != HA_OK)
        ha_night_log_note(&n->log, "%s", unplanned.text); /* also where nothing has a row */
    if (status != HA_OK) {
        ha_night_log_note(&n->log, "%s", unread.text);
        n->missing = true;
        drop(n);
    }
    end_night(n, why);
    if (n->exit == HA_EXIT_OK && n->o->against && ha_night_good_keep(n->o->against, why) != HA_OK)
        fprintf(stderr, "habench: %s: the last good build is not kept\n", why->text);
    return HA_OK;
}

enum ha_exit ha_command_nightly(const struct ha_options *o, struct ha_why *why)
{
    static char measured_suite[] = "nightly";
    struct night n = { .o = o,
                       .suite = o->words_count ? o->words[0] : measured_suite,
                       .against = o->against,
                       .watch = { .root = "" },
                       .seed = o->shuffle ? strtoull(o->shuffle, NULL, 10) : (uint64_t)time(NULL) };
    n.end_ns = ha_now_ns() + (o->max_time_ns ? o->max_time_ns : hour_ns);
    enum ha_exit code = look_before(&n, why);
    if (code == HA_EXIT_OK) {
        code = spend(&n, why) == HA_OK ? n.exit : HA_EXIT_ENVIRONMENT;
    }
    drop(&n);
    ha_record_free(&n.base);
    ha_night_log_free(&n.log);
    return code;
}
