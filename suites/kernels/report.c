#include "suites/kernels/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CELL = 40 };

/* ---- columns ------------------------------------------------------------------------------------------ */

/* at least three significant digits, and not 1e+02 */
static void number(char out[CELL], double x)
{
    if (isnan(x)) *out = 0;
    else snprintf(out, CELL, "%.*f", x < 0.0995 ? 4 : x < 0.995 ? 3 : x < 9.95 ? 2 : x < 99.5 ? 1 : 0, x);
}
static void share(char out[CELL], double x)
{
    if (isnan(x)) *out = 0;
    else snprintf(out, CELL, "%.3f", x);
}
static void percent(char out[CELL], double x)
{
    if (isnan(x)) *out = 0;
    else snprintf(out, CELL, "%.0f%%", 100 * x);
}
static void micro(char out[CELL], const struct ha_cpu_result *r, size_t part)
{
    number(out, r->part_ns[part].median / 1e3);
}

static void ms(const struct ha_cpu_result *r, char out[CELL]) { number(out, r->part_ns[HA_CPU_WHOLE].median / 1e6); }
static void rate(const struct ha_cpu_result *r, char out[CELL]) { number(out, r->GBps); }
static void ratio(const struct ha_cpu_result *r, char out[CELL]) { share(out, r->ratio.median); }
static void interval(const struct ha_cpu_result *r, char out[CELL])
{
    *out = 0;
    if (!isnan(r->ratio.lo)) snprintf(out, CELL, "%.3f-%.3f%s", r->ratio.lo, r->ratio.hi, r->disturbed ? "~" : " ");
}
static void floor_share(const struct ha_cpu_result *r, char out[CELL]) { share(out, r->floor.median); }
static void error(const struct ha_cpu_result *r, char out[CELL])
{
    *out = 0;
    if (!isnan(r->err_over_bound)) snprintf(out, CELL, "%.4f", r->err_over_bound);
}
static void ceiling(const struct ha_cpu_result *r, char out[CELL]) { number(out, r->ceiling_GBps); }
static void scale(const struct ha_cpu_result *r, char out[CELL])
{
    *out = 0;
    if (!isnan(r->scale) && r->threads > 1) snprintf(out, CELL, "%.2f %s", r->scale, ha_cpu_ceiling_state(r));
}
static void huge(const struct ha_cpu_result *r, char out[CELL]) { percent(out, r->huge_share); }
static void node(const struct ha_cpu_result *r, char out[CELL]) { percent(out, r->node_share); }
static void wake(const struct ha_cpu_result *r, char out[CELL]) { number(out, r->wake_ns / 1e3); }
static void samples(const struct ha_cpu_result *r, char out[CELL])
{
    *out = 0;
    if (r->samples > 0) snprintf(out, CELL, "%.0f+%.0f", r->samples, r->retried);
}
static void key_ns(const struct ha_cpu_result *r, char out[CELL])
{
    *out = 0;
    if (r->point.kernel == HA_KERNEL_PACK || r->point.kernel == HA_KERNEL_APPEND_KEY)
        number(out, r->part_ns[HA_CPU_WHOLE].median / ha_cpu_keys_moved(&r->point));
}
static void whole(const struct ha_cpu_result *r, char out[CELL])
{
    *out = 0;
    if (!isnan(r->whole_over_dense.median)) micro(out, r, HA_CPU_WHOLE);
}
static void scores(const struct ha_cpu_result *r, char out[CELL]) { micro(out, r, HA_CPU_SCORES); }
static void choice(const struct ha_cpu_result *r, char out[CELL]) { micro(out, r, HA_CPU_CHOICE); }
static void chosen(const struct ha_cpu_result *r, char out[CELL]) { micro(out, r, HA_CPU_CHOSEN); }
static void dense(const struct ha_cpu_result *r, char out[CELL]) { micro(out, r, HA_CPU_DENSE); }
static void over_dense(const struct ha_cpu_result *r, char out[CELL]) { share(out, r->whole_over_dense.median); }
static void choice_share(const struct ha_cpu_result *r, char out[CELL]) { share(out, r->choice_share.median); }
static void verdict(const struct ha_cpu_result *r, char out[CELL])
{
    const bool wrong = r->state == HA_CPU_FAILED || r->state == HA_CPU_ERROR;
    snprintf(out, CELL, "%s", !wrong ? ha_cpu_state_name(r->state) : r->state == HA_CPU_FAILED ? "FAIL" : "ERROR");
}

typedef void cell_of(const struct ha_cpu_result *r, char out[CELL]);
struct column {
    const char *name;
    cell_of *cell;
};
static const struct column figures[] = {
    { "verdict", verdict },   { "err/bound", error }, { "ms", ms },
    { "GB/s", rate },         { "ratio", ratio },     { "interval ", interval },
    { "floor", floor_share }, { "ceiling", ceiling }, { "scale", scale },
    { "huge", huge },         { "node", node },       { "wake us", wake },
    { "samples", samples },   { "ns/key", key_ns },
};
/* of a sparse step: a table of its own */
static const struct column parts[] = {
    { "scores us", scores }, { "top-k us", choice },        { "attend us", chosen },         { "whole us", whole },
    { "dense us", dense },   { "whole/dense", over_dense }, { "top-k/whole", choice_share },
};
enum { FIGURES = sizeof figures / sizeof *figures, PARTS = sizeof parts / sizeof *parts };

/* ---- tables ---------------------------------------------------------------------------------------------- */

static void key_cell(const struct ha_cpu_point *p, enum ha_cpu_key key, char out[CELL])
{
    strcpy(out, "-");
    if (ha_cpu_key_used(p, key)) ha_cpu_value_print(p, key, out);
}

static bool varies(const struct ha_cpu_section *s, enum ha_cpu_key key)
{
    char first[CELL], other[CELL];
    for (size_t i = 0; i < s->count; i++) {
        key_cell(&s->point[i], key, i ? other : first);
        if (i && strcmp(first, other)) return true;
    }
    return false;
}

static void print_title(FILE *out, const struct ha_cpu_section *s)
{
    const char *between = " ";
    fprintf(out, "\n[%s]", *s->name ? s->name : "points");
    for (int k = 0; k < HA_CPU_KEYS; k++) {
        char value[CELL];
        key_cell(&s->point[0], (enum ha_cpu_key)k, value);
        if (varies(s, (enum ha_cpu_key)k) || !strcmp(value, "-")) continue;
        fprintf(out, "%s%s=%s", between, ha_cpu_key_name((enum ha_cpu_key)k), value);
        between = ", ";
    }
    putc('\n', out);
}

static const struct ha_cpu_result *result(const struct ha_cpu_plan *plan, const struct ha_cpu_section *s, size_t i)
{
    return &plan->result[s->result[i]];
}

static size_t width_of(const struct ha_cpu_plan *plan, const struct ha_cpu_section *s, const struct column *c)
{
    size_t most = 0;
    char text[CELL];
    for (size_t i = 0; i < s->count; i++) {
        c->cell(result(plan, s, i), text);
        most = strlen(text) > most ? strlen(text) : most;
    }
    return most && most < strlen(c->name) ? strlen(c->name) : most;
}

static size_t key_width(const struct ha_cpu_section *s, enum ha_cpu_key key)
{
    char text[CELL];
    size_t most = strlen(ha_cpu_key_name(key));
    if (!varies(s, key)) return 0;
    for (size_t i = 0; i < s->count; i++) {
        key_cell(&s->point[i], key, text);
        most = strlen(text) > most ? strlen(text) : most;
    }
    return most;
}

/* columns in which no row has anything are left out */
static void print_columns(FILE *out, const struct ha_cpu_plan *plan, const struct ha_cpu_section *s,
                          const struct column *column, size_t count)
{
    size_t width[FIGURES > PARTS ? FIGURES : PARTS], any = 0;
    for (size_t c = 0; c < count; c++) any += width[c] = width_of(plan, s, &column[c]);
    for (size_t row = 0; row <= s->count && any; row++) {
        char text[CELL];
        for (int k = 0; k < HA_CPU_KEYS; k++) {
            const size_t w = key_width(s, (enum ha_cpu_key)k);
            if (!w) continue;
            if (row) key_cell(&s->point[row - 1], (enum ha_cpu_key)k, text);
            fprintf(out, "%-*s  ", (int)w, row ? text : ha_cpu_key_name((enum ha_cpu_key)k));
        }
        for (size_t c = 0; c < count; c++) {
            if (!width[c]) continue;
            if (row) column[c].cell(result(plan, s, row - 1), text);
            fprintf(out, "%*s  ", (int)width[c], row ? text : column[c].name);
        }
        putc('\n', out);
    }
}

static void print_reasons(FILE *out, const struct ha_cpu_plan *plan)
{
    char id[HA_CPU_ID_MAX];
    for (size_t i = 0; i < plan->results; i++) {
        const struct ha_cpu_result *r = &plan->result[i];
        ha_cpu_point_print(&r->point, id);
        if (r->state == HA_CPU_FAILED || r->state == HA_CPU_ERROR)
            fprintf(out, "\n%s: %s\n    %s\n", ha_cpu_state_name(r->state), id, r->reason);
    }
    for (size_t i = 0; i < plan->results; i++) {
        const struct ha_cpu_result *r = &plan->result[i];
        bool said = r->state != HA_CPU_WAIVED;
        for (size_t j = 0; j < i && !said; j++)
            said = plan->result[j].state == HA_CPU_WAIVED && !strcmp(plan->result[j].reason, r->reason);
        ha_cpu_point_print(&r->point, id);
        if (!said) fprintf(out, "\nwaived: %s and those like it\n    %s\n", id, r->reason);
    }
}

void ha_cpu_print_plan(FILE *out, const struct ha_cpu_plan *plan)
{
    for (size_t i = 0; i < plan->sections; i++) {
        const struct ha_cpu_section *s = &plan->section[i];
        if (!s->count) continue;
        print_title(out, s);
        print_columns(out, plan, s, figures, FIGURES);
        size_t sparse = 0;
        for (size_t j = 0; j < s->count; j++)
            sparse += result(plan, s, j)->point.kernel == HA_KERNEL_SPARSE && result(plan, s, j)->samples > 0;
        if (!sparse) continue;
        putc('\n', out);
        print_columns(out, plan, s, parts, PARTS);
    }
    print_reasons(out, plan);
}

/* ---- scaling --------------------------------------------------------------------------------------------- */

/* the same but for the axis */
static bool alike(const struct ha_cpu_point *a, const struct ha_cpu_point *b, enum ha_cpu_key axis)
{
    char value[HA_CPU_VALUE_MAX];
    struct ha_cpu_point same = *a;
    struct ha_why why;
    ha_cpu_value_print(b, axis, value);
    return ha_cpu_point_set(&same, axis, value, &why) == HA_OK && !memcmp(&same, b, sizeof same);
}

static void print_line(FILE *out, const struct ha_cpu_plan *plan, const struct ha_cpu_section *s, size_t first)
{
    char value[CELL];
    fprintf(out, "  %-9s", ha_cpu_key_name(s->axis));
    for (int k = 0; k < HA_CPU_KEYS; k++) {
        if ((enum ha_cpu_key)k == s->axis || !varies(s, (enum ha_cpu_key)k)) continue;
        key_cell(&s->point[first], (enum ha_cpu_key)k, value);
        fprintf(out, " %-5s", value);
    }
    for (size_t i = first; i < s->count; i++) {
        if (!alike(&s->point[first], &s->point[i], s->axis)) continue;
        key_cell(&s->point[i], s->axis, value);
        if (isnan(result(plan, s, i)->ratio.median)) fprintf(out, "  %7s -    ", value);
        else fprintf(out, "  %7s %.3f", value, result(plan, s, i)->ratio.median);
    }
    putc('\n', out);
}

void ha_cpu_print_scaling(FILE *out, const struct ha_cpu_plan *plan)
{
    const char *title = "\nscaling: share of the read ceiling of the same threads\n";
    for (size_t i = 0; i < plan->sections; i++) {
        const struct ha_cpu_section *s = &plan->section[i];
        for (size_t j = 0; j < s->count && s->axis != HA_CPU_KEYS; j++) {
            bool begun = false;
            for (size_t k = 0; k < j && !begun; k++) begun = alike(&s->point[k], &s->point[j], s->axis);
            if (begun) continue;
            fputs(title, out);
            title = "";
            print_line(out, plan, s, j);
        }
    }
}

struct ha_totals ha_cpu_totals(const struct ha_cpu_plan *plan)
{
    struct ha_totals t = { 0 };
    for (size_t i = 0; i < plan->results; i++) {
        const enum ha_cpu_state s = plan->result[i].state;
        t.passed += s == HA_CPU_CHECKED || s == HA_CPU_MEASURED;
        t.failed += s == HA_CPU_FAILED;
        t.errors += s == HA_CPU_ERROR;
        t.waived += s == HA_CPU_WAIVED;
    }
    return t;
}
