/* The gallery of devices: a plugin that does one thing wrong after another (plugin.c, defects.def). Each must be seen
 * by what `check` runs, and the plugin itself must pass. */

#include "harness/api/suite.h"
#include "harness/base/clock.h"
#include "harness/base/operands.h"
#include "harness/base/sanitizer.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "harness/engine/group.h"
#include "harness/engine/machine.h"
#include "harness/engine/point.h"
#include "harness/report/row.h"
#include "suites/defects/fault.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const struct ha_suite ha_suite_defects;

static const struct defect {
    const char *name, *of, *what, *where;
} defects[] = {
#define OPERATION(name, class, op, what)         { #name, #class, what, "op=" #op },
#define FAULT(name, class, op, fault)            { #name, #class, fault, "op=" #op },
#define ATTENTION(name, class, where, what, ...) { #name, #class, what, where },
#define CLAIM(name, where, what, field, ...)     { #name, "claims", what, where },
#define PLANT(name, what, field, ...)
#include "suites/defects/defects.def"
};
/* Behind the named ones so many are drawn from the seed of the run, each in every call. */
enum { DEFECTS = sizeof defects / sizeof *defects, DRAWS = 60, CONTROL = 0 };
static uint64_t first_draw = 1;

struct point {
    uint64_t drawn; /* 0: the named one, else a seed */
    size_t defect;
    char device[256];
    uint64_t random;
    size_t others;
};
enum { DRAWN, NAMED, OTHERS = 5 }; /* keys */

/* What is planted: of a drawn one the texts lie in the room. */
struct planted {
    struct defect of;
    char name[40], what[HA_FAULT_TEXT], where[64];
};
static const char *defect_word(size_t i)
{
    static char drawn[DRAWS][16];
    if (i < DEFECTS) return defects[i].name;
    if (i >= DEFECTS + DRAWS) return NULL;
    snprintf(drawn[i - DEFECTS], sizeof *drawn, "drawn_%zu", i - DEFECTS + 1);
    return drawn[i - DEFECTS];
}

static uint64_t seed_of(const struct point *p)
{
    return p->drawn ? p->drawn : p->defect >= DEFECTS ? first_draw + p->defect - DEFECTS : 0;
}
static const struct defect *planted_of(const struct point *p, struct planted *room)
{
    const uint64_t seed = seed_of(p);
    if (!seed) return &defects[p->defect];
    struct ha_fault fault = ha_fault_draw(seed);
    if (!p->drawn) fault.whens = 0;
    if (p->drawn) snprintf(room->name, sizeof room->name, "drawn:%llu", (unsigned long long)seed);
    else snprintf(room->name, sizeof room->name, "%s", defect_word(p->defect));
    snprintf(room->where, sizeof room->where, "suite=device,%s", fault.op->row);
    ha_fault_text(&fault, room->what);
    room->of = (struct defect){ room->name, ha_fault_class(&fault), room->what, room->where };
    return &room->of;
}
static bool is_control(const struct point *p) { return !p->drawn && p->defect == CONTROL; }
/* By what a defect was seen. */
enum { CLAIMS, AN_OPERATION, A_CASE, AT_RANDOM, ROUTES };
static const char *const routes[ROUTES] = { "claims", "operation", "case", "random" };

struct row {
    struct ha_result head;
    char what[HA_FAULT_TEXT], caught_by[16], seen_in[HA_ID_MAX], seen_as[512];
    double tried;
};

static void print_class(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    const struct point *p = point;
    snprintf(out, HA_VALUE_MAX, "%s", seed_of(p) ? "drawn" : defects[p->defect].of);
}

HA_WORDS(yes_word, "yes", "no")
#define AT(member) .offset = offsetof(struct point, member)
static const struct ha_key keys[] = {
    { "drawn", "0", "0: the one that `defect` names; else the seed that one is drawn from", HA_KEY_NUMBER, AT(drawn),
      .max = UINT64_MAX, .column = true },
    { "defect", "*", "what is planted: `habench list defects`; drawn_1 to drawn_60: drawn from --seed", HA_KEY_WORD,
      AT(defect), .word = defect_word, .always = true, .column = true },
    { "class", "", "what kind of defect it is", HA_KEY_FACT, .print = print_class, .column = true },
    { "device", "host", "what it is planted in: a name, or the path of a plugin", HA_KEY_NAME, AT(device),
      .max = sizeof((struct point *)0)->device, .device = true, .column = true },
    { "random", "0", "seconds of random cases, where none of `check` sees it", HA_KEY_NUMBER, AT(random),
      .max = 86400 },
    { "others", "yes", "of a drawn one: the rows of the suite device that are no row of its operation, too",
      HA_KEY_WORD, AT(others), .word = yes_word },
};

static bool uses(const void *point, size_t key)
{
    const bool is_drawn = ((const struct point *)point)->drawn;
    return key == NAMED ? !is_drawn : key != OTHERS || is_drawn;
}

#define IN(member) HA_IN(struct row, member)
static const struct ha_field fields[] = {
    { "what", "", HA_FIELD_TEXT, IN(what), 1, "what is wrong" },
    { "caught_by", "", HA_FIELD_TEXT, IN(caught_by), 1,
      "claims: they are refused, or untrue; operation: a row of the suite device; case: another case of check; "
      "random" },
    { "seen_in", "", HA_FIELD_TEXT, IN(seen_in), 1, "the case that failed; the plugin itself passes it" },
    { "seen_as", "", HA_FIELD_TEXT, IN(seen_as), 1, "how it failed" },
    { "tried", "", HA_FIELD_NUMBER, IN(tried), 1, "cases that were run, the one that failed included" },
};

/* ---- the cases of `check`, over the plugin ----------------------------------------------------------------------- */

struct run {
    char plugin[HA_PLUGIN_PATH_MAX];
    struct ha_plan plan; /* what `check` runs */
    bool *sound;         /* [plan.entries] the plugin with nothing planted passes */
    bool *tried;         /* [plan.entries] with what is planted now */
};

static void no_line(void *arg, size_t file, const void *row) {}
static void no_trace(void *arg, const char *events, size_t bytes) {}
static void no_progress(void *arg, size_t done, size_t of, const char *what) {}

/* The plugin with one defect, open, and the suites that have begun on it. */
enum { SUITES = 16 };
struct stand {
    struct ha_machine *machine;
    struct {
        const struct ha_suite *suite;
        void *run;
    } of[SUITES];
    size_t suites;
};

static void stand_end(struct stand *s)
{
    while (s->suites) {
        s->suites--;
        if (s->of[s->suites].run) s->of[s->suites].suite->end(s->of[s->suites].run);
    }
    ha_machine_destroy(s->machine);
    s->machine = NULL;
}

/* HA_FAIL: the plugin is refused, and why says what it claims. */
static enum ha_status stand_begin(struct stand *s, const struct run *r, const struct point *p, const char *defect,
                                  struct ha_why *why)
{
    char base[HA_PLUGIN_PATH_MAX] = "";
    const struct ha_device_api *api;
    struct ha_device *device;
    *s = (struct stand){ .suites = 0 };
    if (strcmp(p->device, "host") != 0) HA_TRY(ha_plugin_find(p->device, base, why));
    void *const library = dlopen(r->plugin,
                                 RTLD_NOW | RTLD_LOCAL); /* what is no library at all is not refused for a defect */
    if (!library) return ha_why(why, HA_ERROR, "%s", dlerror());
    dlclose(library);
    setenv("HA_DEFECT", defect, 1);
    setenv("HA_DEFECT_OF", base, 1);
    HA_TRY(ha_machine_create(&s->machine, NULL, why));
    const enum ha_status status = ha_machine_device(s->machine, r->plugin, NULL, &api, &device, why);
    return status == HA_ERROR ? HA_FAIL : status;
}

/* *run: what this suite began with on the stand */
static enum ha_status stand_suite(struct stand *s, const struct ha_suite *suite, void **run, struct ha_why *why)
{
    const struct ha_suite_config config = { .machine = s->machine,
                                            .engine = { NULL, no_line, no_trace, no_progress },
                                            .seed = 1 };
    const struct ha_results none = { .entries = 0 };
    size_t i = 0;
    while (i < s->suites && s->of[i].suite != suite) i++;
    if (i == SUITES) return ha_why(why, HA_ERROR, "more than %d suites", SUITES);
    if (i == s->suites) {
        s->of[s->suites++].suite = suite;
        HA_TRY(suite->begin(&s->of[i].run, &config, &none, why));
    }
    *run = s->of[i].run;
    return HA_OK;
}

/* HA_FAIL: the case failed, or could not be judged, and `why` has its reason. */
static enum ha_status try_case(struct stand *s, const struct ha_plan *plan, size_t entry, struct ha_why *why)
{
    const struct ha_suite *suite = plan->entry[entry].suite;
    struct ha_group_rows g;
    void *run = NULL;
    HA_TRY(stand_suite(s, suite, &run, why));
    enum ha_status status = ha_group_make(&g, plan, &entry, 1, why);
    if (status == HA_OK) {
        ha_group_run(&g, suite, run, false);
        const struct ha_result *result = ha_result_in(g.row[0]);
        if (result->verdict == HA_VERDICT_FAIL || result->verdict == HA_VERDICT_ERROR)
            status = ha_why(why, HA_FAIL, "%s", result->reason);
    }
    ha_group_free(&g);
    return status == HA_OK && ha_stop ? ha_why(why, HA_WAIVED, "stopped") : status;
}

/* ---- a defect ---------------------------------------------------------------------------------------------------- */

static void note(struct row *row, const char *by, const struct ha_plan_entry *e, const struct ha_why *reason)
{
    snprintf(row->caught_by, sizeof row->caught_by, "%s", by);
    snprintf(row->seen_in, sizeof row->seen_in, "%s", e ? e->id : "");
    memcpy(row->seen_as, reason->text, sizeof row->seen_as);
}

/* A case that the plugin does not pass with nothing planted shows nothing of a defect. HA_ERROR: it is such a one. */
static enum ha_status ask_sound(const struct run *r, const struct point *p, const struct ha_plan *plan, size_t entry,
                                struct ha_why *why)
{
    struct stand s;
    enum ha_status status = stand_begin(&s, r, p, defects[CONTROL].name, why);
    if (status == HA_OK) status = try_case(&s, plan, entry, why);
    stand_end(&s);
    if (status != HA_FAIL) return status;
    return ha_why_prefix(why, HA_ERROR, "'%.200s' does not pass without it", plan->entry[entry].id);
}

/* The cases that fit, or all of them, as far as they were not tried. HA_FAIL: the row says which one saw it. */
static enum ha_status try_cases(struct run *r, struct stand *s, const struct point *p, struct ha_filter *filter,
                                struct row *row, struct ha_why *why)
{
    for (size_t i = 0; i < r->plan.entries; i++) {
        const struct ha_plan_entry *e = &r->plan.entry[i];
        struct ha_why reason = { "" };
        if (r->tried[i] || (filter && !ha_filter_fits(filter, e->suite, e->point, e->id))) continue;
        r->tried[i] = true;
        row->tried += 1;
        const enum ha_status status = try_case(s, &r->plan, i, &reason);
        const bool untrue = strstr(reason.text, "claims too little"); /* as was measured when it was opened */
        if (status == HA_FAIL) note(row, routes[untrue ? CLAIMS : e->suite->head ? A_CASE : AN_OPERATION], e, &reason);
        if (status == HA_FAIL && !r->sound[i] && !is_control(p)) {
            stand_end(s); /* one plugin is open at a time */
            HA_TRY(ask_sound(r, p, &r->plan, i, why));
            r->sound[i] = true;
        }
        if (status != HA_OK) return status == HA_FAIL ? HA_FAIL : ha_why(why, status, "%s", reason.text);
    }
    return HA_OK;
}

/* Other cases than those of `check`, drawn from its suites, for a while. HA_FAIL as above. */
static enum ha_status try_random(struct run *r, struct stand *s, const struct point *p, struct row *row,
                                 struct ha_why *why)
{
    const uint64_t begin_ns = ha_now_ns(), time_ns = p->random * UINT64_C(1000000000);
    const struct ha_override device = { "device", r->plugin };
    char *words[SUITES];
    struct ha_plan_options from = { .words = words, .override = &device, .overrides = 1 };
    struct ha_draw draw = { .seed = 1 };
    for (size_t i = 0; i < r->plan.entries; i++) {
        const struct ha_suite *suite = r->plan.entry[i].suite;
        bool drawn = false, known = false;
        for (size_t k = 0; k < suite->keys; k++) drawn |= suite->key[k].draw != NULL;
        for (size_t w = 0; w < from.words_count; w++) known |= !strcmp(words[w], suite->name);
        if (drawn && !known && from.words_count < SUITES) words[from.words_count++] = (char *)(uintptr_t)suite->name;
    }
    enum ha_status status = HA_OK;
    while (status == HA_OK && ha_now_ns() - begin_ns < time_ns) {
        struct ha_plan plan = { 0 };
        status = ha_plan_draw(&plan, &from, &draw, HA_DRAWN_AT_ONCE, why);
        for (size_t i = 0; i < plan.entries && status == HA_OK && ha_now_ns() - begin_ns < time_ns; i++) {
            struct ha_why reason = { "" };
            row->tried += 1;
            status = try_case(s, &plan, i, &reason);
            if (status != HA_FAIL) continue;
            note(row, routes[AT_RANDOM], &plan.entry[i], &reason);
            if (is_control(p)) continue;
            stand_end(s);
            const enum ha_status sound = ask_sound(r, p, &plan, i, why);
            if (sound != HA_OK) status = sound;
        }
        ha_plan_free(&plan);
    }
    return status;
}

/* HA_FAIL: it was seen. */
static enum ha_status hunt(struct run *r, struct stand *s, const struct point *p, struct row *row, struct ha_why *why)
{
    struct planted room;
    const struct defect *d = planted_of(p, &room);
    struct ha_why reason = { "" };
    enum ha_status status = stand_begin(s, r, p, seed_of(p) ? d->what : d->name, &reason);
    if (status == HA_FAIL) note(row, routes[CLAIMS], NULL, &reason);
    if (status != HA_OK) return status == HA_FAIL ? HA_FAIL : ha_why(why, status, "%s", reason.text);
    struct ha_filter *filter = NULL;
    /* the control: every operation, and the first case of each section */
    for (size_t i = 0; i < r->plan.entries; i++)
        r->tried[i] = (is_control(p) || seed_of(p)) && r->plan.entry[i].suite->head; /* a drawn one: operations alone */
    for (size_t i = 0; i < r->plan.sections && !seed_of(p); i++)
        if (r->plan.section[i].of.count) r->tried[r->plan.section[i].of.entry[0]] = false;
    if (*d->where && !is_control(p)) {
        HA_TRY(ha_filter_create(&filter, d->where, why));
        status = try_cases(r, s, p, filter, row, why);
        ha_filter_destroy(filter);
    }
    if (status == HA_OK && !p->others) status = try_cases(r, s, p, NULL, row, why);
    return status == HA_OK && p->random ? try_random(r, s, p, row, why) : status;
}

/* ---- the suite --------------------------------------------------------------------------------------------------- */

static enum ha_status begin(void **out, const struct ha_suite_config *config, const struct ha_results *before,
                            struct ha_why *why)
{
    static char check[] = "check";
    char *word = check, folder[HA_PLUGIN_PATH_MAX];
    struct run *r = *out = calloc(1, sizeof *r);
    if (!r) return ha_why(why, HA_ERROR, "out of memory");
    first_draw = config->seed * DRAWS + 1;
    const char *const name = "defects.so";
    for (size_t i = 0; ha_plugin_folder(i, folder); i++)
        if (snprintf(r->plugin, sizeof r->plugin, "%s/%s", folder, name) < (int)sizeof r->plugin
            && access(r->plugin, R_OK) == 0)
            break;
        else *r->plugin = 0;
    if (!*r->plugin) return HA_OK; /* each row says so */
    const struct ha_override device = { "device", r->plugin };
    HA_TRY(ha_plan_make(&r->plan,
                        &(struct ha_plan_options){
                            .words = &word, .words_count = 1, .override = &device, .overrides = 1, .small = true },
                        why));
    r->sound = calloc(r->plan.entries, sizeof *r->sound);
    r->tried = calloc(r->plan.entries, sizeof *r->tried);
    return r->sound && r->tried ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
}

static void end(void *run)
{
    struct run *r = run;
    ha_plan_free(&r->plan);
    free(r->sound);
    free(r->tried);
    free(r);
}

static enum ha_status check(void *run, struct ha_group *g, struct ha_why *why)
{
    struct run *r = run;
    const struct point *p = g->point[0];
    struct planted room;
    const struct defect *d = planted_of(p, &room);
    struct row *row = g->row[0];
    struct stand s = { .suites = 0 };
    snprintf(row->what, sizeof row->what, "%s", d->what);
    row->tried = 0;
    if (!*r->plugin) return ha_why(why, HA_WAIVED, "defects.so is not beside the program; `ninja` builds it");
    if (HA_TSAN) return ha_why(why, HA_WAIVED, "ThreadSanitizer ends a run in which what is planted happens");
    const enum ha_status status = hunt(r, &s, p, row, why);
    stand_end(&s);
    if (status != HA_OK && status != HA_FAIL)
        return status == HA_ERROR ? ha_why_prefix(why, HA_FAIL, "not to be judged") : status;
    const bool seen = status == HA_FAIL;
    g->right[0] = seen == !is_control(p);
    if (g->right[0]) return HA_OK;
    return seen
               ? ha_why(why, HA_FAIL, "with nothing planted '%.200s' does not pass: %.200s", row->seen_in, row->seen_as)
               : ha_why(why, HA_FAIL, "SURVIVED: %.0f cases pass with it", row->tried);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* How many of a class were caught by what, of those that are named or drawn; class NULL: of all. */
static void print_sum(FILE *out, const struct ha_results *results, const char *class, bool drawn)
{
    size_t of[ROUTES] = { 0 }, all = 0, caught = 0;
    for (size_t i = 0; i < results->entries; i++) {
        const struct row *row = results->entry[i].row;
        const struct point *p = results->entry[i].point;
        struct planted room;
        if (!row || is_control(p)) continue;
        if (class && (!seed_of(p) == drawn || strcmp(planted_of(p, &room)->of, class) != 0)) continue;
        all++;
        for (size_t k = 0; k < ROUTES; k++) of[k] += row->head.verdict == HA_PASS && !strcmp(row->caught_by, routes[k]);
    }
    for (size_t k = 0; k < ROUTES; k++) caught += of[k];
    if (!all) return;
    fprintf(out, "%-12s %7zu %7zu", class ? class : "all", all, caught);
    for (size_t k = 0; k < ROUTES; k++) fprintf(out, " %9zu", of[k]);
    putc('\n', out);
}

static void print(FILE *out, const struct ha_results *results)
{
    const char *last = "";
    putc('\n', out);
    for (size_t i = 0; i < results->entries; i++) {
        const struct point *p = results->entry[i].point;
        const struct row *row = results->entry[i].row;
        if (!row) continue;
        const bool control = is_control(p);
        struct planted room;
        ha_planted_print(out, &row->head, planted_of(p, &room)->name, row->what, control ? "passes" : row->caught_by,
                         control ? "FAILS" : "ALIVE", row->seen_in, row->seen_as);
    }
    fprintf(out, "\n%-12s %7s %7s", "class", "planted", "caught");
    for (size_t k = 0; k < ROUTES; k++) fprintf(out, " %9s", routes[k]);
    putc('\n', out);
    for (size_t i = 1; i < DEFECTS; i++) {
        if (strcmp(defects[i].of, last) != 0) print_sum(out, results, defects[i].of, false);
        last = defects[i].of;
    }
    for (size_t i = 0; ha_fault_classes[i]; i++) print_sum(out, results, ha_fault_classes[i], true);
    print_sum(out, results, NULL, false);
}

static void print_defects(FILE *out)
{
    for (size_t i = 1; i < DEFECTS; i++) {
        const struct defect *d = &defects[i];
        fprintf(out, "%-22s %s: %s\n", d->name, d->of, d->what);
    }
    fprintf(out, "%-22s drawn: an operation, a condition and an effect from --seed (docs/gallery.md)\n",
            "drawn_1 to drawn_60");
}
static const struct ha_list lists[] = { { "defects", print_defects } };

const struct ha_suite ha_suite_defects = {
    .name = "defects",
    .doc = "devices that do one thing wrong, each of which `check` must see",
    .key = keys,
    .keys = sizeof keys / sizeof *keys,
    .class_key = "defect",
    .field = fields,
    .fields = sizeof fields / sizeof *fields,
    .file = { "defects.csv" },
    .uses = uses,
    .point_bytes = sizeof(struct point),
    .row_bytes = sizeof(struct row),
    .list = lists,
    .lists = 1,
    .begin = begin,
    .check = check,
    .end = end,
    .print = print,
};
