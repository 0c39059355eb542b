#include "harness/base/array.h"
#include "harness/base/clock.h"
#include "harness/base/csv.h"
#include "harness/base/file.h"
#include "harness/base/json_line.h"
#include "harness/base/rng.h"
#include "harness/base/stats.h"
#include "harness/base/stop.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/compare/print.h"
#include "harness/compare/turns.h"
#include "harness/program/commands.h"
#include "harness/program/night.h"
#include "harness/program/spawned.h"
#include "harness/report/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* compare --run: blocks in which each side runs a case once, in a fresh process, in an order that is drawn. */

enum { OLD, NEW, SIDES };
static const char *const side_names[SIDES] = { "old", "new" };
static const double false_calls = 0.01; /* chance of any, over all cases */
static const uint64_t usual_ns = UINT64_C(1200000000000);

struct side {
    const char *word, *program, *device, *plan; /* device, plan: NULL, or what it is */
    char folder[4096], version[128];
};

/* What a process said of the case. */
struct outcome {
    enum ha_verdict verdict;
    double value; /* of its first time or rate, or of its fastest passes */
    char unit[32], id[HA_ID_MAX];
    char said[HA_SPAWNED_LINE];
};

/* What became of a case; the worse, the later. */
enum end { SAME, FASTER, UNDECIDED, NOT_JUDGED, SLOWER, CRASHED, WRONG, ENDS };
static const struct {
    const char *word;
    enum ha_exit exit;
} ends[ENDS] = {
    [SAME] = { "same", HA_EXIT_OK },
    [FASTER] = { "faster", HA_EXIT_OK },
    [UNDECIDED] = { "undecided", HA_EXIT_MISSING },
    [NOT_JUDGED] = { "not judged", HA_EXIT_MISSING },
    [SLOWER] = { "slower", HA_EXIT_REGRESSION },
    [CRASHED] = { "crashed", HA_EXIT_WRONG },
    [WRONG] = { "wrong", HA_EXIT_WRONG },
};

struct tried {
    char *id;
    size_t blocks;       /* begun */
    uint64_t longest_ns; /* block */
    enum end end;
    char unit[32]; /* of what was measured */
    struct ha_turns turns;
    struct outcome last[SIDES];
};

struct turns {
    const struct ha_options *o;
    struct ha_options run; /* of the words behind -- */
    char **option;         /* [options] of them */
    size_t options;
    struct side side[SIDES];
    char own[4096];      /* this program */
    struct tried *tried; /* [count] */
    size_t count, room;
    uint64_t seed, drawn, end_ns;
};

/* Four cases of a night, of one family each. */
static const char *const usual[] = { "resident:dataset=sinks,ctx=4096,dtype=f16",
                                     "cpu:dataset=sinks,ctx=4096,dtype=f16",
                                     "hgca:dataset=sinks,ctx=4096,dtype=f16,blk_num=16",
                                     "quest:dataset=sinks,ctx=4096,dtype=f16" };

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* argp puts options first. */
static enum ha_status read_words(struct turns *t, char **argv, struct ha_why *why)
{
    static char program[] = "habench", run[] = "run";
    const size_t given = t->o->words_count - SIDES, usuals = sizeof usual / sizeof *usual;
    size_t n = 0;
    argv[n++] = program;
    argv[n++] = run;
    for (size_t i = 0; i < (given ? given : usuals); i++)
        argv[n++] = given ? t->o->words[SIDES + i] : (char *)(uintptr_t)usual[i];
    argv[n] = NULL;
    ha_options_parse((int)n, argv, &t->run);
    t->option = argv + 2;
    t->options = (size_t)(t->run.words - t->option);
    const struct ha_options *r = &t->run;
    if (r->out_dir || r->resume || r->processes || r->json || r->dry_run || r->together || r->fleet || r->shuffle)
        return ha_why(why, HA_ERROR,
                      "what stands behind -- chooses and sets cases; leave -o, --resume, --processes, "
                      "--shuffle, --format, --dry-run, --together and --fleet out");
    return HA_OK;
}

static bool ends_with(const char *word, const char *end)
{
    const size_t n = strlen(word), m = strlen(end);
    return n > m && !strcmp(word + n - m, end);
}

static enum ha_status read_side(struct turns *t, struct side *s, const char *name, struct ha_why *why)
{
    s->program = t->own;
    if (ends_with(s->word, ".so")) s->device = s->word;
    else if (ends_with(s->word, ".csv") || !strcmp(s->word, "constants")) s->plan = s->word;
    else s->program = s->word;
    if (strchr(s->word, '/') == NULL && s->program == s->word)
        return ha_why(why, HA_ERROR, "%s: no path; a program is named as ./%s, a device ends in .so, a plan in .csv",
                      s->word, s->word);
    if (strcmp(s->word, "constants") != 0 && access(s->word, s->program == s->word ? X_OK : R_OK) != 0)
        return ha_why(why, HA_ERROR, "%s: there is no such %s", s->word,
                      s->device ? "device"
                      : s->plan ? "plan"
                                : "program");
    if (!s->plan && !t->run.plan) s->plan = "constants"; /* a choice of each process would be another each time */
    return ha_file_path(s->folder, t->o->out_dir, name, "", why);
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

/* What it writes to stdout, from the beginning; NULL: it was interrupted, or is no program. */
static FILE *spawn(const struct ha_words *w, int *code, char last[HA_SPAWNED_LINE], struct ha_why *why)
{
    FILE *out = tmpfile();
    if (!out) return ha_why(why, HA_ERROR, "no temporary file"), NULL;
    if (ha_spawned_run((char *const *)(uintptr_t)w->word, fileno(out), code, last, why) != HA_OK) {
        fclose(out);
        return NULL;
    }
    rewind(out);
    return out;
}

static void begin_words(struct ha_words *w, const struct turns *t, const struct side *s)
{
    *w = (struct ha_words){ .word = { s->program, "run" }, .words = 2 };
    for (size_t i = 0; i < t->options; i++) ha_words_add(w, t->option[i]);
}

static enum ha_status read_version(struct side *s, struct ha_why *why)
{
    const struct ha_words w = { .word = { s->program, "--version" }, .words = 2 };
    char last[HA_SPAWNED_LINE];
    int code;
    FILE *out = spawn(&w, &code, last, why);
    if (!out) return HA_ERROR;
    const bool said = code == 0 && fgets(s->version, sizeof s->version, out) && !strncmp(s->version, "habench ", 8);
    fclose(out);
    s->version[strcspn(s->version, "\n")] = 0;
    return said ? HA_OK : ha_why(why, HA_ERROR, "%s is no habench: `--version` does not say so", s->word);
}

/* An array of ids that ends with NULL, on the heap. */
static char **list(const struct turns *t, const struct side *s, struct ha_why *why)
{
    struct ha_words w;
    char last[HA_SPAWNED_LINE], **ids = NULL, *line = NULL;
    int code;
    size_t count = 0, room = 0, size = 0;
    begin_words(&w, t, s);
    for (size_t i = 0; i < t->run.words_count; i++) ha_words_add(&w, t->run.words[i]);
    ha_words_add(&w, "--dry-run");
    FILE *out = spawn(&w, &code, last, why);
    if (!out) return NULL;
    while (ha_array_room(&ids, &room, count + 2, sizeof *ids) && getline(&line, &size, out) > 0) {
        line[strcspn(line, "\n")] = 0;
        ids[count++] = strdup(line);
    }
    if (ids) ids[count] = NULL;
    free(line);
    fclose(out);
    if (code == 0 && count) return ids;
    for (size_t i = 0; i < count; i++) free(ids[i]);
    free(ids);
    return ha_why(why, HA_ERROR, "%s: %s", s->word, *last ? last : "it has no such case"), NULL;
}

static const char *text_of(const json_t *row, const char *name)
{
    const char *text = json_string_value(json_object_get(row, name));
    return text ? text : "";
}

static void take_row(struct outcome *to, const json_t *row)
{
    const char *unit = text_of(row, "unit");
    if (!strcmp(text_of(row, "row"), "case")) {
        to->verdict = ha_verdict_of(text_of(row, "verdict"));
        snprintf(to->id, sizeof to->id, "%s", text_of(row, "case_id"));
        snprintf(to->said, sizeof to->said, "%.*s", (int)sizeof to->said - 1, text_of(row, "reason"));
    } else if (isnan(to->value) && (!strcmp(unit, "ns") || strstr(unit, "/s"))) {
        to->value = json_number_value(json_object_get(row, "value"));
        snprintf(to->unit, sizeof to->unit, "%.*s", (int)sizeof to->unit - 1, unit);
    }
}

static void read_rows(struct outcome *to, FILE *out)
{
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, out) > 0) {
        json_t *row = json_loads(line, 0, NULL);
        take_row(to, row);
        json_decref(row);
    }
    free(line);
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* The passes of a process, from samples.csv. */
struct passes {
    const struct outcome *of;
    char process[24];
    double *ns; /* [count] */
    size_t count, room, at[4];
    bool begun;
};

static enum ha_status take_sample(void *arg, size_t line, char **fields, size_t count)
{
    static const char *const column[] = { "case_id", "process", "role", "step_ns" };
    struct passes *p = arg;
    for (size_t c = 0; c < 4 && !p->begun; c++) {
        p->at[c] = 0;
        while (p->at[c] < count && strcmp(fields[p->at[c]], column[c]) != 0) p->at[c]++;
        if (p->at[c] == count) return HA_FAIL;
    }
    const bool header = !p->begun;
    p->begun = true;
    for (size_t c = 0; c < 4; c++)
        if (p->at[c] >= count) return HA_OK; /* a row that is being written */
    const bool is = !strcmp(fields[p->at[0]], p->of->id) && !strcmp(fields[p->at[1]], p->process)
                    && !strcmp(fields[p->at[2]], "measure");
    double ns;
    if (header || !is || !ha_csv_number_parse(fields[p->at[3]], &ns)) return HA_OK;
    if (!ha_array_room(&p->ns, &p->room, p->count + 1, sizeof *p->ns)) return HA_FAIL;
    p->ns[p->count++] = ns;
    return HA_OK;
}

/* Of many passes the fastest twentieth counts: what others do on the cores it meets least. */
static void take_fastest(struct outcome *to, const struct side *s, size_t process)
{
    enum { MANY = 20 };
    static const double fastest = 0.05;
    char path[4200];
    struct ha_why nothing;
    struct passes p = { .of = to };
    snprintf(path, sizeof path, "%.4090s/samples.csv", s->folder);
    snprintf(p.process, sizeof p.process, "%zu", process);
    if (!strcmp(to->unit, "ns") && access(path, R_OK) == 0 && ha_csv_read(path, take_sample, &p, &nothing) == HA_OK
        && p.count >= MANY)
        to->value = ha_quantile(p.ns, p.count, fastest);
    free(p.ns);
}

/* A process of the case. HA_ERROR: it was interrupted. */
static enum ha_status take_turn(const struct turns *t, struct tried *c, size_t side, struct ha_why *why)
{
    struct outcome *to = &c->last[side];
    const struct side *s = &t->side[side];
    struct ha_words w;
    char last[HA_SPAWNED_LINE];
    int code;
    begin_words(&w, t, s);
    const char *const more[] = { c->id,      "-q",
                                 "--format", "json",
                                 "--resume", s->plan ? "--plan" : NULL,
                                 s->plan,    s->device ? "--device" : NULL,
                                 s->device };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (more[i]) ha_words_add(&w, more[i]);
    ha_words_add_number(&w, "--processes", c->blocks, "");
    ha_words_add(&w, "-o");
    ha_words_add(&w, s->folder);
    *to = (struct outcome){ .verdict = HA_NOT_RUN, .value = (double)NAN };
    FILE *out = spawn(&w, &code, last, why);
    if (!out) return HA_ERROR;
    read_rows(to, out);
    fclose(out);
    take_fastest(to, s, c->blocks - 1);
    if (to->verdict == HA_NOT_RUN) snprintf(to->said, sizeof to->said, "exit code %d: %.400s", code, last);
    return HA_OK;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static bool measured(const struct outcome *o) { return ha_passed(o->verdict) && o->value > 0 && isfinite(o->value); }

/* Of rates the time of one. */
static double time_of(const struct outcome *o) { return strcmp(o->unit, "ns") ? 1 / o->value : o->value; }

static enum end end_of(const struct tried *c)
{
    static const enum end of[] = {
        [HA_TURNS_UNDECIDED] = UNDECIDED, [HA_TURNS_SAME] = SAME, [HA_TURNS_FASTER] = FASTER, [HA_TURNS_SLOWER] = SLOWER
    };
    const struct outcome *old = &c->last[OLD], *now = &c->last[NEW];
    if (old->verdict == HA_VERDICT_FAIL || now->verdict == HA_VERDICT_FAIL) return WRONG;
    if (measured(old) && (now->verdict == HA_NOT_RUN || now->verdict == HA_VERDICT_ERROR)) return CRASHED;
    if (!measured(old) || !measured(now)) return NOT_JUDGED;
    return of[ha_turns_decided(&c->turns)];
}

static enum ha_status take_block(struct turns *t, struct tried *c, struct ha_why *why)
{
    const uint64_t begin = ha_now_ns();
    const size_t first = (size_t)ha_rng_below(t->seed, 1, t->drawn++, SIDES);
    c->blocks++;
    for (size_t i = 0; i < SIDES; i++) HA_TRY(take_turn(t, c, (first + i) % SIDES, why));
    if (ha_now_ns() - begin > c->longest_ns) c->longest_ns = ha_now_ns() - begin;
    const bool both = measured(&c->last[OLD]) && measured(&c->last[NEW]);
    if (both) memcpy(c->unit, c->last[OLD].unit, sizeof c->unit);
    if (both) HA_TRY(ha_turns_add(&c->turns, time_of(&c->last[OLD]), time_of(&c->last[NEW]), why));
    c->end = end_of(c);
    if (!t->o->quiet && c->end != UNDECIDED) {
        fprintf(stderr, "%s after %zu blocks: %s\n", ends[c->end].word, c->blocks, c->id);
    }
    return HA_OK;
}

static void shuffle(struct turns *t, size_t *order)
{
    for (size_t i = t->count; i > 1; i--) {
        const size_t k = (size_t)ha_rng_below(t->seed, 2, t->drawn++, i), at = order[i - 1];
        order[i - 1] = order[k];
        order[k] = at;
    }
}

/* Until all cases are decided, or there is no time for another block. HA_ERROR: it was interrupted. */
static enum ha_status run_all(struct turns *t, struct ha_why *why)
{
    size_t *order = malloc(t->count * sizeof *order), taken = 1;
    enum ha_status status = order ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < t->count && order; i++) order[i] = i;
    while (taken && status == HA_OK) {
        taken = 0;
        shuffle(t, order);
        for (size_t i = 0; i < t->count && status == HA_OK; i++) {
            struct tried *c = &t->tried[order[i]];
            if (c->end != UNDECIDED || ha_now_ns() + c->longest_ns > t->end_ns) continue;
            status = take_block(t, c, why);
            taken++;
        }
    }
    free(order);
    return status;
}

/* ---- what it came to --------------------------------------------------------------------------------------------- */

static size_t count_of(const struct turns *t, enum end end)
{
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++) n += t->tried[i].end == end;
    return n;
}

/* ", slower: 1.05 times as long (1.03 to 1.07) in 3": the middle of these cases, and the ends of their intervals. */
static void print_changed(const struct turns *t, enum end end, const char *before)
{
    double *size = malloc((t->count + 1) * sizeof *size), lo = (double)INFINITY, hi = -lo;
    size_t n = 0;
    for (size_t i = 0; i < t->count && size; i++) {
        struct ha_turns_found f;
        if (t->tried[i].end != end) continue;
        ha_turns_find(&f, &t->tried[i].turns);
        size[n++] = f.size;
        lo = fmin(lo, f.lo);
        hi = fmax(hi, f.hi);
    }
    if (n) printf("%s %.3g times as long (%.3g to %.3g) in %zu", before, exp(ha_median(size, n)), exp(lo), exp(hi), n);
    free(size);
}

static void print_summary(const struct turns *t)
{
    const size_t slower = count_of(t, SLOWER), faster = count_of(t, FASTER);
    fputs(slower + faster ? "NEW takes" : "NEW is called neither slower nor faster in any", stdout);
    print_changed(t, SLOWER, "");
    print_changed(t, FASTER, slower ? ", and" : "");
    printf(" of %zu case%s", t->count, t->count == 1 ? "" : "s");
    for (enum end e = 0; e < ENDS; e++)
        if (e != SLOWER && e != FASTER && count_of(t, e)) printf(", %s %zu", ends[e].word, count_of(t, e));
    puts(ha_stop ? "; interrupted" : "");
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

static void print_sides(const struct turns *t)
{
    const struct side *old = &t->side[OLD], *now = &t->side[NEW];
    for (size_t i = 0; i < SIDES; i++)
        printf("%s  %s (%s), plan %s\n", side_names[i], t->side[i].word, t->side[i].version,
               t->side[i].plan ? t->side[i].plan : t->run.plan);
    if (!strcmp(old->version, now->version) && same_text(old->device, now->device) && same_text(old->plan, now->plan)
        && !ends_with(old->version, "-dirty"))
        puts("both are the same build");
}

static const char *amount(char out[HA_AMOUNT], double time, const char *unit)
{
    return ha_amount(out, strcmp(unit, "ns") ? 1 / time : time, unit);
}

static void print_row(const struct tried *c)
{
    char was[HA_AMOUNT], is[HA_AMOUNT], ratio[64] = "-";
    struct ha_turns_found f;
    ha_turns_find(&f, &c->turns);
    if (c->turns.count) snprintf(ratio, sizeof ratio, "%.3f (%.3f to %.3f)", exp(f.size), exp(f.lo), exp(f.hi));
    printf("%-11s %12s %12s  %-24s %6zu  %s\n", ends[c->end].word, c->turns.count ? amount(was, f.old, c->unit) : "-",
           c->turns.count ? amount(is, f.now, c->unit) : "-", ratio, c->turns.count, c->id);
}

/* Of a case that has ended so, the side that is to blame. */
static void print_reasons(const struct tried *c)
{
    for (size_t i = 0; i < SIDES && (c->end == WRONG || c->end == CRASHED || c->end == NOT_JUDGED); i++) {
        if (measured(&c->last[i])) continue;
        printf("%-11s %s: %s: ", ends[c->end].word, side_names[i], c->id);
        ha_text_print(stdout, c->last[i].said);
        putchar('\n');
    }
}

static enum ha_exit print(const struct turns *t)
{
    enum ha_exit code = HA_EXIT_OK;
    print_summary(t);
    for (size_t i = 0; i < t->count; i++) print_reasons(&t->tried[i]);
    print_sides(t);
    printf("\n%-11s %12s %12s  %-24s %6s  case\n", "", "old", "new", "new/old", "pairs");
    for (size_t i = 0; i < t->count; i++) {
        print_row(&t->tried[i]);
        code = ha_night_worse(code, ends[t->tried[i].end].exit);
    }
    printf("\nall intervals hold together with a chance of %g%%\nwhat each process left: habench compare %s %s\n",
           100 * (1 - false_calls), t->side[OLD].folder, t->side[NEW].folder);
    return code;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static bool has(char *const *ids, const char *id)
{
    for (; ids && *ids; ids++)
        if (!strcmp(*ids, id)) return true;
    return false;
}

static void free_list(char **ids)
{
    for (char **id = ids; ids && *id; id++) free(*id);
    free(ids);
}

/* Those of a that b has not. */
static void say_missing(char *const *a, char *const *b, const char *side)
{
    for (; *a; a++)
        if (!has(b, *a)) fprintf(stderr, "%s has no such case, which is left out: %s\n", side, *a);
}

static enum ha_status add_cases(struct turns *t, char *const *old, char *const *now, struct ha_why *why)
{
    say_missing(now, old, side_names[OLD]);
    say_missing(old, now, side_names[NEW]);
    for (; *now; now++) {
        if (!has(old, *now)) continue;
        if (!ha_array_room(&t->tried, &t->room, t->count + 1, sizeof *t->tried))
            return ha_why(why, HA_ERROR, "out of memory");
        t->tried[t->count++] = (struct tried){ .id = strdup(*now), .end = UNDECIDED };
    }
    for (size_t i = 0; i < t->count; i++) ha_turns_begin(&t->tried[i].turns, false_calls / (double)t->count);
    return t->count ? HA_OK : ha_why(why, HA_ERROR, "old and new have no case in common");
}

/* Before anything is measured. */
static enum ha_status prepare(struct turns *t, char **argv, struct ha_why *why)
{
    const ssize_t n = readlink("/proc/self/exe", t->own, sizeof t->own - 1);
    if (n <= 0) return ha_why(why, HA_ERROR, "this program is not found: /proc/self/exe");
    HA_TRY(read_words(t, argv, why));
    for (size_t i = 0; i < SIDES; i++) {
        t->side[i].word = t->o->words[i];
        HA_TRY(read_side(t, &t->side[i], side_names[i], why));
        HA_TRY(read_version(&t->side[i], why));
    }
    char **old = list(t, &t->side[OLD], why), **now = old ? list(t, &t->side[NEW], why) : NULL;
    const enum ha_status status = now ? add_cases(t, old, now, why) : HA_ERROR;
    free_list(old);
    free_list(now);
    return status;
}

enum ha_exit ha_command_turns(const struct ha_options *o, struct ha_why *why)
{
    struct turns t = { .o = o, .seed = ha_now_ns() };
    char **argv = calloc(o->words_count + sizeof usual / sizeof *usual + 3, sizeof *argv);
    const enum ha_status ready = argv ? prepare(&t, argv, why) : ha_why(why, HA_ERROR, "out of memory");
    enum ha_exit code = ready == HA_OK ? ha_night_take_folder(o->out_dir, "a comparison", why) : HA_EXIT_USAGE;
    if (code == HA_EXIT_OK) {
        t.end_ns = ha_now_ns() + (o->max_time_ns ? o->max_time_ns : usual_ns);
        const enum ha_status status = run_all(&t, why);
        code = print(&t);
        if (status != HA_OK && !ha_stop) code = HA_EXIT_INTERNAL;
    }
    for (size_t i = 0; i < t.count; i++) {
        ha_turns_free(&t.tried[i].turns);
        free(t.tried[i].id);
    }
    free(t.tried);
    free(argv);
    return code;
}
