#include "harness/engine/summary.h"

#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/report/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PROCESSES_MAX = 4096, SAID_MAX = 40 };

/* ---- rows -------------------------------------------------------------------------------------------------------- */

void ha_summary_free(struct ha_summary *s)
{
    for (size_t i = 0; i < s->sections; i++) free(s->section[i].entry);
    free(s->section);
    free(s->entry);
    s->section = NULL;
    s->entry = NULL;
    s->sections = 0;
}

/* The first time in ns, else the first figure of any kind. */
static double first_figure(const struct ha_suite *suite, const void *row)
{
    double first = (double)NAN;
    for (size_t f = suite->fields; f-- > 0;)
        if (ha_field_figure(&suite->field[f], row)) first = ha_field_value(&suite->field[f], row);
    for (size_t f = 0; f < suite->fields; f++) {
        const struct ha_field *field = &suite->field[f];
        if (field->unit && !strcmp(field->unit, "ns") && ha_field_figure(field, row)) return ha_field_value(field, row);
    }
    return first;
}

/* the row that stands for a case, NULL: none */
static const void *row_of(const struct ha_summary *s, const struct ha_plan_entry *e)
{
    const void *row[PROCESSES_MAX];
    size_t count = 0;
    for (size_t p = 0; p < PROCESSES_MAX; p++) {
        const struct ha_folder_entry *found = ha_folder_find(s->folder, e->id, p);
        if (!found) break;
        if (ha_result_in(found->row)->verdict != HA_PASS) return found->row;
        row[count++] = found->row;
    }
    for (size_t i = 0; i < count; i++) {
        const double x = first_figure(e->suite, row[i]);
        size_t below = 0;
        for (size_t j = 0; j < count; j++) {
            const double y = first_figure(e->suite, row[j]);
            below += y < x || (j < i && !(y > x));
        }
        if (below == (count - 1) / 2) return row[i];
    }
    return count ? row[0] : NULL;
}

struct ha_results ha_summary_results(struct ha_summary *s, const struct ha_suite *suite)
{
    const struct ha_plan *plan = s->plan;
    ha_summary_free(s);
    s->entry = calloc(plan->entries + 1, sizeof *s->entry);
    s->section = calloc(plan->sections + 1, sizeof *s->section);
    size_t *place = calloc(plan->entries + 1, sizeof *place), entries = 0;
    for (size_t i = 0; s->entry && place && i < plan->entries; i++) {
        const struct ha_plan_entry *e = &plan->entry[i];
        if (e->suite != suite) continue;
        place[i] = entries;
        s->entry[entries++] = (struct ha_entry){ e->point, row_of(s, e), e->id };
    }
    for (size_t i = 0; s->section && place && i < plan->sections; i++) {
        const struct ha_plan_section *from = &plan->section[i];
        if (from->suite != suite || !from->of.count) continue;
        struct ha_section *to = &s->section[s->sections];
        *to = from->of;
        to->entry = calloc(from->of.count, sizeof *to->entry);
        if (!to->entry) break;
        for (size_t k = 0; k < from->of.count; k++) to->entry[k] = place[from->of.entry[k]];
        s->sections++;
    }
    free(place);
    return (struct ha_results){ s->entry, entries, s->section, s->sections, s->measured };
}

/* ---- tables and reasons ------------------------------------------------------------------------------------------ */

static bool same_reason(const struct ha_entry *a, const struct ha_entry *b)
{
    return b->row && ha_result_in(a->row)->verdict == ha_result_in(b->row)->verdict
           && !strcmp(ha_result_in(a->row)->reason, ha_result_in(b->row)->reason);
}

static void print_wrong(FILE *out, const struct ha_results *r, const struct ha_suite *suite, const struct ha_summary *s)
{
    const bool measured = s->measured && suite->measure;
    size_t wrong = 0;
    for (size_t i = 0; i < r->entries; i++) {
        const struct ha_entry *e = &r->entry[i];
        const enum ha_verdict v = e->row ? ha_result_in(e->row)->verdict : HA_NOT_RUN;
        if (v != HA_VERDICT_FAIL && v != HA_VERDICT_ERROR) continue;
        if (++wrong > SAID_MAX) continue;
        fprintf(out, "\n%s: ", ha_verdict_name(v));
        ha_text_print(out, e->id);
        fputs("\n    ", out);
        ha_text_print(out, ha_result_in(e->row)->reason);
        fprintf(out, "\n    habench %s ", measured ? "run" : "check");
        ha_text_quote(out, e->id);
        if (s->exec && ha_folder_asks_command(suite, e->id)) {
            fputs(" --exec ", out);
            ha_text_quote(out, s->exec);
        }
        fputc('\n', out);
    }
    if (wrong > SAID_MAX) fprintf(out, "\nand %zu more\n", wrong - SAID_MAX);
}

/* First of all: they pass, so that nothing else says so. */
static void print_suspects(FILE *out, const struct ha_summary *s)
{
    size_t suspects = 0;
    for (size_t i = 0; i < s->plan->entries; i++) {
        const struct ha_plan_entry *e = &s->plan->entry[i];
        const void *row = row_of(s, e);
        if (!row || ha_result_in(row)->verdict != HA_SUSPECT || ++suspects > SAID_MAX) continue;
        fputs("\nSUSPECT: ", out);
        ha_text_print(out, e->id);
        fputs("\n    ", out);
        ha_text_print(out, ha_result_in(row)->reason);
        fputc('\n', out);
    }
    if (suspects > SAID_MAX) fprintf(out, "\nand %zu more are suspect\n", suspects - SAID_MAX);
}

/* Reasons that go for several cases are said once; of random cases most are forgotten by now. */
static void print_skipped(FILE *out, const struct ha_results *r, const struct ha_suite *suite, bool counted)
{
    for (size_t i = 0; i < r->entries; i++) {
        const struct ha_entry *e = &r->entry[i];
        const enum ha_verdict v = e->row ? ha_result_in(e->row)->verdict : HA_NOT_RUN;
        size_t before = 0, count = 0;
        if (v != HA_VERDICT_WAIVED && v != HA_UNCHECKED) continue;
        if (v == HA_VERDICT_WAIVED && counted && r->measured && suite->says_waived) continue;
        while (before < i && !same_reason(e, &r->entry[before])) before++;
        if (before < i) continue;
        for (size_t j = i; j < r->entries; j++) count += same_reason(e, &r->entry[j]);
        fprintf(out, "\n%s: ", ha_verdict_name(v));
        if (counted) fprintf(out, "%zu x ", count);
        ha_text_print(out, ha_result_in(e->row)->reason);
        fputc('\n', out);
    }
}

/* A section of which nothing could be run is not left to be found among the reasons of single cases. */
static void print_impossible(FILE *out, const struct ha_summary *s)
{
    for (size_t i = 0; i < s->plan->sections; i++) {
        const struct ha_section *of = &s->plan->section[i].of;
        const void *row = NULL;
        size_t waived = 0;
        for (; waived < of->count; waived++) {
            row = row_of(s, &s->plan->entry[of->entry[waived]]);
            if (!row || ha_result_in(row)->verdict != HA_VERDICT_WAIVED) break;
        }
        if (!*of->name || !waived || waived < of->count) continue;
        fprintf(out, "\nsection %s: no case is possible: ", of->name);
        ha_text_print(out, ha_result_in(row)->reason);
        fputc('\n', out);
    }
}

/* of all suites: a file may be read by cases of several */
static void print_damaged(FILE *out, const struct ha_plan *plan)
{
    for (size_t i = 0; i < plan->entries; i++) {
        const char *reason = plan->entry[i].damaged;
        size_t before = 0, count = 0;
        while (before < i && !(reason && plan->entry[before].damaged && !strcmp(reason, plan->entry[before].damaged)))
            before++;
        if (!reason || before < i) continue;
        for (size_t j = i; j < plan->entries; j++)
            count += plan->entry[j].damaged && !strcmp(reason, plan->entry[j].damaged);
        fprintf(out, "\nnot run: %zu x ", count);
        ha_text_print(out, reason);
        fputc('\n', out);
    }
}

bool ha_summary_print(FILE *out, struct ha_summary *s, struct ha_why *why)
{
    bool right = true;
    print_suspects(out, s);
    for (size_t i = 0; i < s->plan->entries; i++) {
        const struct ha_suite *suite = s->plan->entry[i].suite;
        bool before = false;
        for (size_t j = 0; j < i && !before; j++) before = s->plan->entry[j].suite == suite;
        if (before) continue;
        const struct ha_results r = ha_summary_results(s, suite);
        if (suite->print && !s->random) suite->print(out, &r);
        print_wrong(out, &r, suite, s);
        print_skipped(out, &r, suite, !s->random);
        if (suite->conclude && !s->random) right &= suite->conclude(out, &r, why);
    }
    print_impossible(out, s);
    print_damaged(out, s->plan);
    return right;
}

/* ---- figures ------------------------------------------------------------------------------------------------------
 */

/* A time or rate of the case itself: not of the machine beside it, nor of another case. */
static bool is_own_speed(const struct ha_field *f)
{
    return f->unit && (!strcmp(f->unit, "ns") || strstr(f->unit, "/s")) && f->better != HA_NEITHER
           && strncmp(f->name, "beside_", 7) != 0 && strncmp(f->name, "full_", 5) != 0;
}

size_t ha_summary_lost(FILE *out, const struct ha_summary *s)
{
    size_t lost = 0;
    for (size_t i = 0; s->measured && i < s->plan->entries; i++) {
        const struct ha_plan_entry *e = &s->plan->entry[i];
        for (size_t f = 0; f < e->suite->fields; f++) {
            const struct ha_folder_entry *found;
            size_t all = 0, with = 0;
            for (size_t p = 0; p < PROCESSES_MAX && (found = ha_folder_find(s->folder, e->id, p)); p++) {
                if (!ha_passed(ha_result_in(found->row)->verdict)) continue;
                all++;
                with += ha_field_figure(&e->suite->field[f], found->row);
            }
            if (!with || with == all || !is_own_speed(&e->suite->field[f]) || lost++ >= SAID_MAX || !out) continue;
            ha_text_print(out, e->id);
            fprintf(out, " %s: no value in %zu of its %zu processes\n", e->suite->field[f].name, all - with, all);
        }
    }
    return lost;
}

/* ---- totals ------------------------------------------------------------------------------------------------------ */

void ha_summary_print_totals(FILE *out, const struct ha_folder_totals *t, const char *folder)
{
    fprintf(out, "%zu passed, %zu failed, %zu skipped", t->passed, t->failed + t->errors,
            t->waived + t->unchecked + t->not_run);
    if (folder) fputs("; in ", out);
    if (folder) ha_text_print(out, folder);
    fputc('\n', out);
}

enum ha_exit ha_summary_exit(const struct ha_folder_totals *t, bool right, const char *not_run, struct ha_why *why)
{
    const size_t all = t->passed + t->failed + t->errors + t->waived + t->unchecked + t->not_run;
    if (t->failed || !right) {
        ha_why(why, HA_FAIL, "%zu of %zu are wrong", t->failed, all);
        return HA_EXIT_WRONG;
    }
    if (t->errors) {
        ha_why(why, HA_ERROR, "%zu of %zu could not be judged", t->errors, all);
        return HA_EXIT_ENVIRONMENT;
    }
    if (t->not_run) {
        ha_why(why, HA_ERROR, "%.400s: %zu of %zu cases were not run", not_run, t->not_run, all);
        return HA_EXIT_MISSING;
    }
    if (t->passed) return HA_EXIT_OK;
    ha_why(why, HA_WAIVED, t->unchecked ? "nothing was checked" : "everything was waived");
    return HA_EXIT_WAIVED;
}
