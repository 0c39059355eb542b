#define _GNU_SOURCE /* asprintf */

#include "harness/base/array.h"
#include "harness/base/clock.h"
#include "harness/base/registry.h"
#include "harness/base/stop.h"
#include "harness/base/text.h"
#include "harness/base/version.h"
#include "harness/base/why.h"
#include "harness/compare/again.h"
#include "harness/compare/print.h"
#include "harness/program/commands.h"
#include "harness/program/night_step.h"
#include "harness/report/whole_file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A night: steps that are commands of this program, each with its folder, then what they came to. */

enum { SCHEMA = 1, ROUNDS = 3, AGAIN = 10, PROCESSES = 5, NAME = 64, PART = 40, LISTED = 10 };
static const uint64_t hour_ns = UINT64_C(3600000000000), second_ns = UINT64_C(1000000000);

struct night {
    const struct ha_options *o;
    const char *against; /* NULL: it is the first night */
    uint64_t begin_ns, end_ns, seed;
    json_t *said;               /* night.json */
    bool wrong, missing, unfit; /* what steps came to */
    char *notes;                /* lines: what did not fit, what could not be run; NULL: none */
    /* against a base, once it has been compared */
    struct ha_record base, now;
    struct ha_comparison result;
    bool read, compared;
    enum ha_exit exit; /* settle */
};

static void note(struct night *n, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(struct night *n, const char *format, ...)
{
    char line[4096], *all = NULL;
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (asprintf(&all, "%s%s\n", n->notes ? n->notes : "", ha_text_clean(line)) < 0) return;
    free(n->notes);
    n->notes = all;
}

static uint64_t left(const struct night *n)
{
    const uint64_t now = ha_now_ns();
    return now < n->end_ns ? n->end_ns - now : 0;
}

/* ---- night.json ----------------------------------------------------------------------------------------------------
 */

static enum ha_status write_night(struct night *n, struct ha_why *why)
{
    struct ha_whole_file out;
    HA_TRY(ha_whole_file_open(&out, n->o->out_dir, "night.json", why));
    if (json_dumpf(n->said, out.file, JSON_INDENT(2) | JSON_PRESERVE_ORDER) == 0) putc('\n', out.file);
    return ha_whole_file_close(&out, why);
}

static json_t *texts(const char *const *word, size_t words)
{
    json_t *all = json_array();
    for (size_t i = 0; i < words; i++) json_array_append_new(all, ha_json_text(word[i]));
    return all;
}

static enum ha_status begin_night(struct night *n, struct ha_why *why)
{
    char date[32];
    const time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    n->said = json_pack("{s:i, s:s, s:s, s:I, s:[]}", "schema_version", SCHEMA, "date_utc", date, "build", ha_version(),
                        "shuffle", (json_int_t)n->seed, "steps");
    return n->said ? write_night(n, why) : ha_why(why, HA_ERROR, "out of memory");
}

/* ---- steps
 * ----------------------------------------------------------------------------------------------------------- */

/* The words of a command; numbers are kept here. */
struct command {
    const char *word[HA_STEP_WORDS];
    size_t words, numbers;
    char number[4][32], folder[4096];
};

static void add(struct command *c, const char *word)
{
    if (c->words < HA_STEP_WORDS) c->word[c->words++] = word;
}

static void add_number(struct command *c, const char *option, uint64_t number, const char *unit)
{
    char *text = c->number[c->numbers++];
    snprintf(text, sizeof c->number[0], "%" PRIu64 "%s", number, unit);
    add(c, option);
    add(c, text);
}

static void add_folder(struct command *c, const struct night *n, const char *name)
{
    snprintf(c->folder, sizeof c->folder, "%.3900s/%s", n->o->out_dir, name);
    add(c, "-o");
    add(c, c->folder);
}

/* Whether it could be run; *code is what it ended with. */
static bool run_step(struct night *n, const char *name, const struct command *c, uint64_t limit_ns, int *code)
{
    const struct ha_night_step step = {
        .word = c->word, .words = c->words, .folder = n->o->out_dir, .name = name, .limit_ns = limit_ns
    };
    struct ha_why why = { "" };
    const uint64_t begin = ha_now_ns();
    if (!n->o->quiet) {
        fprintf(stderr, "%s: habench", name);
        for (size_t i = 0; i < c->words; i++) {
            putc(' ', stderr);
            ha_text_quote(stderr, c->word[i]);
        }
        putc('\n', stderr);
    }
    const enum ha_status status = ha_night_step(&step, code, &why);
    json_array_append_new(json_object_get(n->said, "steps"),
                          json_pack("{s:o, s:o, s:i, s:f}", "name", ha_json_text(name), "command",
                                    texts(c->word, c->words), "exit", *code, "seconds",
                                    (double)(ha_now_ns() - begin) / 1e9));
    if (status != HA_OK) note(n, "%s", why.text);
    return status == HA_OK;
}

/* What an exit code of a run or check says of the night. false: the same command would end so again. */
static bool take_code(struct night *n, const char *name, int code, bool ran)
{
    n->wrong = n->wrong || code == HA_EXIT_WRONG;
    if (ran && (code == HA_EXIT_OK || code == HA_EXIT_WRONG || ha_stop)) return true;
    n->missing = true;
    if (ran) note(n, "%s: ended with %d; see %s/%s.txt", name, code, n->o->out_dir, name);
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

static void add_device(struct command *c, const struct night *n, size_t device)
{
    if (!n->o->devices_count) return;
    add(c, "--device");
    add(c, n->o->devices[device]);
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
    struct command c = { .word = { "doctor" }, .words = 1 };
    int code = 0;
    add_device(&c, n, device);
    const bool ran = run_step(n, name, &c, meter_limit(n), &code);
    n->unfit = n->unfit || code == HA_EXIT_ENVIRONMENT;
    n->missing = n->missing || !ran || (code && code != HA_EXIT_ENVIRONMENT);
    if (code == HA_EXIT_ENVIRONMENT) note(n, "doctor: not fit to be measured; see %s/%s.txt", n->o->out_dir, name);
}

static void probe(struct night *n, const char *name, size_t device)
{
    struct command c = { .word = { "probe" }, .words = 1 };
    int code = 0;
    add_device(&c, n, device);
    add_folder(&c, n, name);
    const bool ran = run_step(n, name, &c, meter_limit(n), &code);
    take_code(n, name, code, ran);
}

/* Two fifths of the time, at most. */
static void check(struct night *n, const char *name, size_t device)
{
    struct command c = { .word = { "check", "smoke", "lse_merge", "device", "-q" }, .words = 5 };
    const uint64_t most = (n->end_ns - n->begin_ns) / 5 * 2, limit = most < left(n) ? most : left(n);
    int code = 0;
    add_device(&c, n, device);
    add_number(&c, "--shuffle", n->seed, "");
    add_number(&c, "--max-time", limit / 1000000 + 1, "ms");
    add_folder(&c, n, name);
    const bool ran = run_step(n, name, &c, limit + 120 * second_ns, &code);
    take_code(n, name, code, ran);
}

/* Seven tenths of what is left, the rest being for what is suspicious; what it cuts off is looked for in the record. */
static void run(struct night *n, const char *name, size_t device)
{
    struct command c = { .word = { "run", "nightly", "-q" }, .words = 3 };
    const uint64_t limit = n->against ? left(n) / 10 * 7 : left(n);
    int code = 0;
    add_device(&c, n, device);
    add_number(&c, "--processes", n->o->processes ? n->o->processes : PROCESSES, "");
    add_number(&c, "--shuffle", n->seed, "");
    add_number(&c, "--max-time", limit / 1000000 + 1, "ms");
    add_folder(&c, n, name);
    const bool ran = run_step(n, name, &c, limit + 120 * second_ns, &code);
    take_code(n, name, code == HA_EXIT_MISSING ? HA_EXIT_OK : code, ran);
}

static const struct {
    const char *name;
    void (*run)(struct night *n, const char *name, size_t device);
} steps[] = { { "doctor", doctor }, { "probe", probe }, { "check", check }, { "run", run } };

/* ---- what was run --------------------------------------------------------------------------------------------------
 */

static const struct ha_recorded_case *measured(const struct ha_record *r, const char *id)
{
    const struct ha_recorded_case *c = ha_record_case(r, "run", id);
    return c && c->processes ? c : NULL;
}

/* The cases of the plan that have no row, and the fewest processes of those that have. */
static enum ha_status look_for_all(struct night *n, struct ha_why *why)
{
    char word[] = "nightly", *const words[] = { word };
    size_t absent = 0, all = 0, fewest = SIZE_MAX;
    const size_t wanted = n->o->processes ? n->o->processes : PROCESSES;
    for (size_t d = 0; d < (n->o->devices_count ? n->o->devices_count : 1); d++) {
        struct ha_options one = *n->o;
        struct ha_plan plan = { 0 };
        one.command = HA_CMD_RUN;
        one.device = n->o->devices[d];
        enum ha_status status = ha_program_plan(&plan, &one, words, 1, false, why);
        for (size_t i = 0; i < plan.entries && status == HA_OK; i++) {
            const struct ha_recorded_case *c = measured(&n->now, plan.entry[i].id);
            all++;
            if (!c && absent++ < LISTED) note(n, "not run: %s", plan.entry[i].id);
            else if (c && c->processes < fewest) fewest = c->processes;
        }
        ha_plan_free(&plan);
        HA_TRY(status);
    }
    if (absent > LISTED) note(n, "and %zu more of %zu cases were not run", absent - LISTED, all);
    if (fewest < wanted)
        note(n, "some of %zu cases ran in %zu of %zu processes%s", all, fewest, wanted,
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

/* ---- what is suspicious is run again -------------------------------------------------------------------------------
 */

/* Its cases; their names are of the record. */
static enum ha_status add_suspicious(struct command *c, const struct ha_comparison *of, struct ha_why *why)
{
    struct ha_again again;
    const enum ha_status status = ha_comparison_again(&again, of, why);
    for (size_t i = 0; i < again.count && c->words + 16 < HA_STEP_WORDS; i++) add(c, again.of[i]->id);
    free(again.of);
    return status;
}

static enum ha_status run_again(struct night *n, struct ha_why *why)
{
    for (uint64_t round = 1; round <= ROUNDS && !ha_stop; round++) {
        struct command c = { .word = { "run", "-q" }, .words = 2 };
        char name[NAME];
        int code = 0;
        HA_TRY(add_suspicious(&c, &n->result, why));
        if (c.words == 2) return HA_OK;
        if (left(n) < 5 * second_ns) {
            note(n, "the time was over before what is suspicious was run again; give it more with --max-time");
            return HA_OK;
        }
        snprintf(name, sizeof name, "again-%" PRIu64, round);
        const uint64_t limit = left(n);
        add_number(&c, "--processes", AGAIN, "");
        add_number(&c, "--shuffle", n->seed + round, "");
        add_number(&c, "--max-time", limit / 1000000 + 1, "ms");
        add_folder(&c, n, name);
        const bool ran = run_step(n, name, &c, limit + 120 * second_ns, &code);
        const bool good = take_code(n, name, code == HA_EXIT_MISSING ? HA_EXIT_OK : code, ran);
        HA_TRY(look(n, why));
        if (!good) return HA_OK;
    }
    return HA_OK;
}

/* ---- the verdict ----------------------------------------------------------------------------------------------------
 */

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
    fprintf(out, "%s: night of %s, build %s\n", word(n), json_string_value(json_object_get(n->said, "date_utc")),
            ha_version());
    fputs(n->notes ? n->notes : "", out);
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
        if (!ha_change_loud(n->result.change[i].kind)) continue;
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
    char *text = json_dumps(n->said, JSON_COMPACT | JSON_PRESERVE_ORDER);
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
    HA_TRY(ha_compare_junit(path, &n->result, n->compared, n->exit, n->notes, why));
    if (!n->compared) return HA_OK;
    HA_TRY(ha_whole_file_open(&out, n->o->out_dir, "compare.jsonl", why));
    ha_compare_print_json(out.file, &n->result, 1);
    return ha_whole_file_close(&out, why);
}

static enum ha_status write_all(struct night *n, struct ha_why *why)
{
    json_object_set_new(n->said, "verdict", json_string(word(n)));
    json_object_set_new(n->said, "exit", json_integer((json_int_t)n->exit));
    json_object_set_new(n->said, "folder", ha_json_text(n->o->out_dir));
    json_object_set_new(n->said, "against", n->against ? ha_json_text(n->against) : json_null());
    json_object_set_new(n->said, "notes", json_string(n->notes ? n->notes : ""));
    json_object_set_new(n->said, "changes", changes(n));
    HA_TRY(write_night(n, why));
    return write_report(n, why);
}

/* A night that cannot be written is not fit to judge, if it is no worse. */
static void cannot_write(struct night *n, const struct ha_why *why)
{
    if (!n->notes || !strstr(n->notes, why->text)) note(n, "%s; mend that, and begin a new night", why->text);
    n->unfit = true;
}

static void end_night(struct night *n, struct ha_why *why)
{
    struct ha_why again;
    if (ha_stop) note(n, "ended by a signal: what was run is kept");
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

/* ---- the command ----------------------------------------------------------------------------------------------------
 */

/* The folder of the nights, in which this one is to lie, has none yet: then it is the first, and says so. */
static bool is_first(struct night *n, struct ha_why *why)
{
    const size_t length = strlen(n->against);
    if (n->base.nights || strncmp(n->o->out_dir, n->against, length) || n->o->out_dir[length] != '/') return false;
    note(n, "%s: no earlier night in it", n->against);
    n->against = NULL;
    why->text[0] = 0;
    return true;
}

static enum ha_status make_parent(const char *path, struct ha_why *why)
{
    char parent[4096];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return HA_OK;
    snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
    return ha_file_folder(parent, why);
}

/* An empty folder of its own, with the codes and the words of `habench run -o`. */
static enum ha_exit take_folder(const char *path, struct ha_why *why)
{
    struct dirent **found;
    if (make_parent(path, why) != HA_OK || ha_file_folder(path, why) != HA_OK)
        return ha_why(why, HA_ERROR, "-o %s", why->text), HA_EXIT_ENVIRONMENT;
    const int count = scandir(path, &found, NULL, NULL);
    if (count < 0 && errno == ENOTDIR)
        return ha_why(why, HA_ERROR, "-o %s: it is no folder; give another name", path), HA_EXIT_USAGE;
    if (count < 0)
        return ha_why(why, HA_ERROR, "-o %s: cannot open the folder: %s", path, strerror(errno)), HA_EXIT_ENVIRONMENT;
    for (int i = 0; i < count; i++) free(found[i]);
    free(found);
    if (count <= 2) return HA_EXIT_OK;
    return ha_why(why, HA_ERROR, "-o %s: the folder is not empty; a night has one of its own", path), HA_EXIT_USAGE;
}

/* Before anything runs: the devices, the base, the folder. */
static enum ha_exit look_before(struct night *n, struct ha_why *why)
{
    for (size_t d = 0; d < n->o->devices_count; d++) {
        const enum ha_exit there = ha_look_for_device(n->o->devices[d], why);
        if (there != HA_EXIT_OK) return there;
    }
    if (n->against && ha_record_read(&n->base, n->against, why) != HA_OK && !is_first(n, why)) return HA_EXIT_USAGE;
    return take_folder(n->o->out_dir, why);
}

/* false: the folder cannot be written, and there is no use in going on. */
static bool run_steps(struct night *n, struct ha_why *why)
{
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
        for (size_t d = 0; d < (n->o->devices_count ? n->o->devices_count : 1) && !ha_stop; d++) {
            char name[NAME];
            steps[s].run(n, step_name(name, steps[s].name, n, d), d);
            if (write_night(n, why) != HA_OK) return false;
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
    if (look_for_all(n, &unplanned) != HA_OK) note(n, "%s", unplanned.text); /* also where nothing has a row */
    if (status == HA_OK && n->compared && written) status = run_again(n, &unread);
    if (status != HA_OK) {
        note(n, "%s", unread.text);
        n->missing = true;
        drop(n);
    }
    end_night(n, why);
    return HA_OK;
}

enum ha_exit ha_command_nightly(const struct ha_options *o, struct ha_why *why)
{
    struct night n = { .o = o,
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
    json_decref(n.said);
    free(n.notes);
    return code;
}
