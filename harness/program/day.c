#include "harness/program/day.h"

#include "harness/base/clock.h"
#include "harness/base/file.h"
#include "harness/base/registry.h"
#include "harness/base/stop.h"
#include "harness/base/text.h"
#include "harness/base/version.h"
#include "harness/base/why.h"
#include "harness/compare/compare.h"
#include "harness/engine/suite_file.h"
#include "harness/program/commands.h"
#include "harness/program/night.h"
#include "harness/tune/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A day: the steps of a file, in its order, each in a process with its limit, whatever the others come to. */

enum { PATH_BYTES = 4096, LEAST_S = 1, LATE_S = 30 };
static const uint64_t second_ns = UINT64_C(1000000000);

struct day {
    const struct ha_options *o;
    struct ha_day_steps steps;
    struct ha_night_log log;
    const char *device;
    char path[HA_SUITE_PATH_MAX]; /* of the file of steps */
    char program[PATH_BYTES], tree[PATH_BYTES];
    uint64_t begin_ns;
    enum ha_exit exit;
};

/* ---- what a step came to ----------------------------------------------------------------------------------------- */

/* By its exit code: it is complete where the same command would say the same, and need not be run on another day. */
static const struct verdict {
    int code;
    const char *word;
    enum ha_exit is;
    bool complete;
} verdicts[] = {
    { HA_EXIT_OK, "passed", HA_EXIT_OK, true },
    { HA_EXIT_WRONG, "wrong", HA_EXIT_WRONG, true },
    { HA_EXIT_REGRESSION, "slower", HA_EXIT_REGRESSION, true },
    { HA_EXIT_MISSING, "not all ran", HA_EXIT_MISSING, false },
    { HA_EXIT_ENVIRONMENT, "not fit to judge", HA_EXIT_ENVIRONMENT, false },
    { HA_EXIT_WAIVED, "waived", HA_EXIT_OK, false },
    { -1, "not run", HA_EXIT_MISSING, false },
};
enum { NOT_RUN = -1 };

static struct verdict verdict_of(int code)
{
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++)
        if (verdicts[i].code == code) return verdicts[i];
    return (struct verdict){ code, code < 128 ? "failed" : "killed", HA_EXIT_MISSING, false };
}

/* The step of this name in night.json, or NULL. */
static json_t *said_of(const struct day *d, const char *name)
{
    json_t *each;
    size_t i;
    json_array_foreach(json_object_get(d->log.said, "steps"), i, each)
    {
        const char *is = json_string_value(json_object_get(each, "name"));
        if (is && !strcmp(is, name)) return each;
    }
    return NULL;
}

static int code_of(const json_t *said)
{
    const json_t *code = json_object_get(said, "exit");
    return json_is_integer(code) ? (int)json_integer_value(code) : NOT_RUN;
}

/* The last line that a step printed, which says why it was waived; else "". */
static void last_line(const struct day *d, const char *name, char line[160])
{
    char path[4096], next[160];
    *line = 0;
    snprintf(path, sizeof path, "%.3900s/%.100s.txt", d->log.folder, name);
    FILE *in = fopen(path, "re");
    while (in && fgets(next, sizeof next, in)) {
        next[strcspn(next, "\n")] = 0;
        if (*next) strcpy(line, ha_text_clean(next));
    }
    if (in) fclose(in);
}

static void print_step(FILE *out, const struct day *d, const char *name, const char *besides)
{
    const json_t *said = said_of(d, name);
    const int code = code_of(said);
    const char *word = verdict_of(code).word;
    char reason[160] = "";
    if (code == HA_EXIT_WAIVED) last_line(d, name, reason);
    if (!said) fprintf(out, "%-16s %s\n", name, word);
    else
        fprintf(out, "%-16s %-16s %6.0f s  %s/%s.txt%s%s%s\n", name, word,
                json_real_value(json_object_get(said, "seconds")), d->log.folder, name, besides, *reason ? ": " : "",
                reason);
    fflush(out);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static uint64_t limit_of(const struct day *d, const struct ha_day_step *s)
{
    const uint64_t spent = ha_now_ns() - d->begin_ns, all = d->o->max_time_ns;
    const uint64_t left = !all ? s->limit_ns : spent < all ? all - spent : 0;
    return left < s->limit_ns ? left : s->limit_ns;
}

/* The words of the step, which are cut out of text, and what the command takes behind them. */
static void add_words(struct ha_words *w, const struct day *d, const struct ha_day_step *s, char *text,
                      uint64_t limit_ns)
{
    char *rest = text;
    for (char *word; (word = strtok_r(rest, ha_blanks, &rest));) ha_words_add(w, word);
    const struct ha_day_command *c = ha_day_command_named(w->word[0]);
    ha_words_add(w, "--device");
    ha_words_add(w, d->device);
    if (c->folder) ha_words_add_folder(w, d->o->out_dir ? d->o->out_dir : "DIR", s->name);
    if (!c->resumes) return;
    if (d->o->plan) {
        ha_words_add(w, "--plan");
        ha_words_add(w, d->o->plan);
    }
    ha_words_add_number(w, "--max-time", limit_ns / 1000000 + 1, "ms");
    ha_words_add(w, "-q");
    if (d->o->resume) ha_words_add(w, "--resume");
}

static void run_step(struct day *d, const struct ha_day_step *s, uint64_t limit_ns)
{
    char text[16384], home[4][PATH_BYTES + 16];
    struct ha_words words = { 0 };
    int code;
    const char *env[] = { home[0], home[1], home[2], d->o->plan ? home[3] : s->env, d->o->plan ? s->env : NULL, NULL };
    snprintf(home[0], sizeof home[0], "HABENCH=%s", d->program);
    snprintf(home[1], sizeof home[1], "DEVICE=%.4000s", d->device);
    snprintf(home[2], sizeof home[2], "TREE=%s", d->tree);
    if (d->o->plan) snprintf(home[3], sizeof home[3], "HABENCH_PLAN=%.4000s", d->o->plan);
    snprintf(text, sizeof text, "%s", s->habench ? s->habench : s->shell);
    if (s->habench) add_words(&words, d, s, text, limit_ns);
    else ha_words_add(&words, text);
    /* a command ends by itself at its --max-time: it is not to be ended while it writes what it has */
    const struct ha_night_step step = { .word = words.word,
                                        .words = words.words,
                                        .shell = s->shell != NULL,
                                        .env = env,
                                        .name = s->name,
                                        .limit_ns = limit_ns + (s->habench ? LATE_S * second_ns : 0) };
    ha_night_log_run(&d->log, &step, &code);
}

/* What is said of it in night.json makes room for what is said now. */
static void forget(struct day *d, const char *name)
{
    json_t *steps = json_object_get(d->log.said, "steps");
    for (size_t i = json_array_size(steps); i-- > 0;)
        if (json_array_get(steps, i) == said_of(d, name)) json_array_remove(steps, i);
}

static void take_step(struct day *d, const struct ha_day_step *s)
{
    const json_t *before = said_of(d, s->name);
    if (before && verdict_of(code_of(before)).complete) {
        print_step(stdout, d, s->name, ", earlier");
        return;
    }
    const uint64_t limit_ns = limit_of(d, s);
    if (limit_ns >= LEAST_S * second_ns && !ha_stop) {
        forget(d, s->name);
        run_step(d, s, limit_ns);
    }
    print_step(stdout, d, s->name, "");
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void settle(struct day *d)
{
    size_t judged = 0;
    d->exit = ha_stop ? HA_EXIT_MISSING : HA_EXIT_OK;
    for (size_t i = 0; i < d->steps.count; i++) {
        const struct verdict v = verdict_of(code_of(said_of(d, d->steps.of[i].name)));
        judged += v.code != HA_EXIT_WAIVED;
        d->exit = ha_night_worse(d->exit, v.is);
    }
    if (!judged) d->exit = ha_night_worse(d->exit, HA_EXIT_MISSING); /* all waived: nothing was looked at */
}

static const char *word(const struct day *d) { return verdict_of((int)d->exit).word; }

/* One line: the verdict, and how many steps have which. */
static void print_verdict(FILE *out, const struct day *d)
{
    fprintf(out, "%s: %s on %s, build %s:", word(d), json_string_value(json_object_get(d->log.said, "day")), d->device,
            ha_version());
    const char *between = " ";
    size_t others = d->steps.count;
    for (size_t v = 0; v < sizeof verdicts / sizeof *verdicts; v++) {
        size_t n = 0;
        for (size_t i = 0; i < d->steps.count; i++) n += code_of(said_of(d, d->steps.of[i].name)) == verdicts[v].code;
        if (n) fprintf(out, "%s%zu %s", between, n, verdicts[v].word);
        if (n) between = ", ";
        others -= n;
    }
    if (others) fprintf(out, "%s%zu failed or killed", between, others);
    fprintf(out, "; %s/report.txt\n", d->log.folder);
}

static enum ha_status write_report(const struct day *d, struct ha_why *why)
{
    struct ha_whole_file out;
    HA_TRY(ha_whole_file_open(&out, d->log.folder, "report.txt", why));
    print_verdict(out.file, d);
    for (size_t i = 0; i < d->steps.count; i++) print_step(out.file, d, d->steps.of[i].name, "");
    fputs(d->log.notes ? d->log.notes : "", out.file);
    return ha_whole_file_close(&out, why);
}

static enum ha_status write_end(struct day *d, struct ha_why *why)
{
    json_t *said = d->log.said;
    json_object_set_new(said, "verdict", json_string(word(d)));
    json_object_set_new(said, "exit", json_integer((json_int_t)d->exit));
    json_object_set_new(said, "folder", ha_json_text(d->log.folder));
    json_object_set_new(said, "notes", json_string(d->log.notes ? d->log.notes : ""));
    HA_TRY(ha_night_log_write(&d->log, why));
    return write_report(d, why);
}

/* ---- before anything runs ---------------------------------------------------------------------------------------- */

bool ha_day_asked(const struct ha_options *o)
{
    char path[HA_SUITE_PATH_MAX];
    struct ha_why why;
    return o->words_count == 1 && !strchr(o->words[0], ':') && ha_suite_find(o->words[0], path, &why) == HA_OK
           && ha_suite_has_steps(path);
}

/* Options that steps choose for themselves, or that no step heeds. */
static enum ha_status check_options(const struct ha_options *o, struct ha_why *why)
{
    const struct {
        const char *name;
        bool given;
    } each[] = { { "filter", o->filter },
                 { "seed", o->seed },
                 { "threads", o->threads },
                 { "team", o->team },
                 { "isa", o->isa },
                 { "without", o->without },
                 { "dump", o->dump_dir },
                 { "case-time", o->case_time_ns },
                 { "processes", o->processes },
                 { "shuffle", o->shuffle },
                 { "together", o->together },
                 { "replay", o->replay },
                 { "exec", o->exec },
                 { "faults", o->faults },
                 { "random", o->random_ns },
                 { "exhaustive", o->exhaustive },
                 { "order", o->order },
                 { "format", o->json },
                 { "mutants", o->mutants } };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if (each[i].given) return ha_why(why, HA_ERROR, "--%s means nothing to %s", each[i].name, o->words[0]);
    if (o->out_dir || o->dry_run) return HA_OK;
    return ha_why(why, HA_ERROR, "where to? -o DIR, the folder of this day");
}

/* Where suites/ and scripts/ are: above the last "suites" of the file's path, or else the file's own folder. */
static enum ha_status find_tree(struct day *d, struct ha_why *why)
{
    char *real = realpath(d->path, NULL), *cut = NULL;
    if (!real) return ha_why(why, HA_ERROR, "%.400s: out of memory, or gone", d->path);
    for (char *at = real; (at = strstr(at, "/suites/")); at++) cut = at;
    *(cut ? cut : strrchr(real, '/')) = 0;
    snprintf(d->tree, sizeof d->tree, "%s", real);
    free(real);
    const ssize_t n = readlink("/proc/self/exe", d->program, sizeof d->program - 1);
    d->program[n > 0 ? n : 0] = 0;
    return n > 0 ? HA_OK : ha_why(why, HA_ERROR, "where this program is cannot be told: /proc is not mounted");
}

/* What was said before, if it is of the same day. */
static enum ha_status go_on(struct day *d, const char *path, struct ha_why *why)
{
    static const char *const same[] = { "build", "day", "device" };
    json_error_t error;
    json_t *old = json_load_file(path, 0, &error), *steps = json_object_get(old, "steps");
    enum ha_status status = HA_OK;
    if (!json_is_array(steps))
        status = ha_why(why, HA_ERROR, "-o %s: cannot go on there: night.json is damaged", d->o->out_dir);
    for (size_t i = 0; i < sizeof same / sizeof *same && status == HA_OK; i++) {
        const char *was = json_string_value(json_object_get(old, same[i])),
                   *is = json_string_value(json_object_get(d->log.said, same[i]));
        if (!was || strcmp(was, is) != 0)
            status = ha_why(why, HA_ERROR, "-o %s: cannot go on there: %s: there '%.100s', here '%.100s'",
                            d->o->out_dir, same[i], was ? was : "", is);
    }
    if (status == HA_OK) json_object_set(d->log.said, "steps", steps);
    json_decref(old);
    return status;
}

static enum ha_exit take_folder(struct day *d, struct ha_why *why)
{
    char path[PATH_BYTES];
    if (ha_night_log_begin(&d->log, d->o->out_dir, d->o->quiet, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    json_object_set_new(d->log.said, "day", ha_json_text(d->o->words[0]));
    json_object_set_new(d->log.said, "device", ha_json_text(d->device));
    if (ha_file_path(path, d->o->out_dir, "night.json", "", why) != HA_OK) return HA_EXIT_USAGE;
    if (d->o->resume && access(path, F_OK) == 0) return go_on(d, path, why) == HA_OK ? HA_EXIT_OK : HA_EXIT_USAGE;
    return ha_night_take_folder(d->o->out_dir, "a day", why);
}

static enum ha_exit look_before(struct day *d, struct ha_why *why)
{
    if (check_options(d->o, why) != HA_OK || ha_suite_find(d->o->words[0], d->path, why) != HA_OK
        || ha_day_read(&d->steps, d->path, why) != HA_OK || find_tree(d, why) != HA_OK)
        return HA_EXIT_USAGE;
    d->device = d->o->device ? d->o->device : *d->steps.device ? d->steps.device : ha_devices_all[0]->name;
    if (d->o->dry_run) return HA_EXIT_OK;
    if (d->o->plan && ha_tune_find(d->o->plan, false, why) != HA_OK) return HA_EXIT_USAGE;
    const enum ha_exit there = ha_look_for_device(d->device, why);
    return there == HA_EXIT_OK ? take_folder(d, why) : there;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static void print_commands(const struct day *d)
{
    for (size_t i = 0; i < d->steps.count; i++) {
        const struct ha_day_step *s = &d->steps.of[i];
        char text[16384];
        struct ha_words words = { 0 };
        snprintf(text, sizeof text, "%s", s->habench ? s->habench : s->shell);
        printf("%s: %s%s%s", s->name, s->env ? s->env : "", s->env ? " " : "", s->habench ? "habench" : "sh -c");
        if (s->habench) add_words(&words, d, s, text, limit_of(d, s));
        else ha_words_add(&words, text);
        for (size_t w = 0; w < words.words; w++) {
            putchar(' ');
            ha_text_quote(stdout, words.word[w]);
        }
        putchar('\n');
    }
}

/* false: the folder cannot be written any more, and there is no use in going on */
static bool run_steps(struct day *d, struct ha_why *why)
{
    for (size_t i = 0; i < d->steps.count; i++) {
        take_step(d, &d->steps.of[i]);
        if (ha_night_log_write(&d->log, why) != HA_OK) return false;
    }
    return true;
}

static enum ha_exit spend(struct day *d, struct ha_why *why)
{
    struct ha_why again;
    bool written = ha_night_log_write(&d->log, why) == HA_OK && run_steps(d, why);
    if (ha_stop) ha_night_log_note(&d->log, "ended by a signal: what was run is kept; --resume goes on");
    settle(d);
    written = write_end(d, written ? why : &again) == HA_OK && written;
    if (!written) {
        d->exit = ha_night_worse(d->exit, HA_EXIT_ENVIRONMENT);
        ha_why(why, HA_ERROR, "%s; mend that, and go on with --resume", why->text);
    }
    fputs(d->log.notes ? d->log.notes : "", stdout);
    print_verdict(stdout, d);
    return d->exit;
}

enum ha_exit ha_command_day(const struct ha_options *o, struct ha_why *why)
{
    static struct day d;
    d = (struct day){ .o = o, .begin_ns = ha_now_ns() };
    enum ha_exit code = look_before(&d, why);
    if (code == HA_EXIT_OK) {
        if (o->dry_run) print_commands(&d);
        else code = spend(&d, why);
    }
    ha_day_free(&d.steps);
    ha_night_log_free(&d.log);
    return code;
}
