#include "suites/kernels/tables.h"

#include "harness/engine/point.h"
#include "harness/report/verdict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CELL = 40 };

static const struct ha_cpu_point *point(const struct ha_entry *e) { return e->point; }
static const struct ha_cpu_row *row(const struct ha_entry *e) { return e->row; }

/* ---- cells ------------------------------------------------------------------------------------------------------- */

/* at least three significant digits, and not 1e+02 */
static void number(char out[CELL], double x)
{
    snprintf(out, CELL, "%.*f", x < 0.0995 ? 4 : x < 0.995 ? 3 : x < 9.95 ? 2 : x < 99.5 ? 1 : 0, x);
}
static void share(char out[CELL], double x) { snprintf(out, CELL, "%.3f", x); }
static void fine_share(char out[CELL], double x) { snprintf(out, CELL, "%.4f", x); }
static void percent(char out[CELL], double x) { snprintf(out, CELL, "%.0f%%", 100 * x); }

static void verdict(const struct ha_entry *e, char out[CELL])
{
    snprintf(out, CELL, "%s", ha_verdict_shown(e->row ? row(e)->head.verdict : HA_NOT_RUN));
}
static void interval(const struct ha_entry *e, char out[CELL])
{
    const struct ha_cpu_result *r = &row(e)->of;
    const char *mark = strcmp(row(e)->disturbed, "yes") ? " " : "~";
    if (!isnan(r->ratio.lo)) snprintf(out, CELL, "%.3f-%.3f%s", r->ratio.lo, r->ratio.hi, mark);
}
static void scale(const struct ha_entry *e, char out[CELL])
{
    const struct ha_cpu_result *r = &row(e)->of;
    if (!isnan(r->scale) && r->threads > 1) snprintf(out, CELL, "%.2f %s", r->scale, ha_cpu_ceiling_state(r));
}
static void samples(const struct ha_entry *e, char out[CELL])
{
    if (row(e)->head.samples > 0) snprintf(out, CELL, "%.0f+%.0f", row(e)->head.samples, row(e)->of.retried);
}
static void key_ns(const struct ha_entry *e, char out[CELL])
{
    const struct ha_cpu_point *p = point(e);
    const double keys = (double)p->ctx * (double)p->batch * (double)p->kv_heads,
                 ns = row(e)->of.part_ns[HA_CPU_WHOLE].median;
    if ((p->kernel == HA_KERNEL_PACK || p->kernel == HA_KERNEL_APPEND_KEY) && !isnan(ns)) number(out, ns / keys);
}
static void whole(const struct ha_entry *e, char out[CELL])
{
    const struct ha_cpu_result *r = &row(e)->of;
    if (!isnan(r->whole_over_dense.median)) number(out, r->part_ns[HA_CPU_WHOLE].median / 1e3);
}

struct column {
    const char *name;
    void (*cell)(const struct ha_entry *e, char out[CELL]); /* or: */
    void (*print)(char out[CELL], double x);
    size_t offset; /* of a double of the result */
    double unit;
};
#define CELL_OF(name, cell)    \
    {                          \
        name, cell, NULL, 0, 0 \
    }
#define DOUBLE(name, print, member, unit)                               \
    {                                                                   \
        name, NULL, print, offsetof(struct ha_cpu_result, member), unit \
    }
static const struct column figures[] = {
    CELL_OF("verdict", verdict),
    DOUBLE("err/bound", fine_share, err_over_bound, 1),
    DOUBLE("ms", number, part_ns[HA_CPU_WHOLE].median, 1e6),
    DOUBLE("GB/s", number, GBps, 1),
    DOUBLE("ratio", share, ratio.median, 1),
    CELL_OF("interval ", interval),
    DOUBLE("floor", share, floor.median, 1),
    DOUBLE("ceiling", number, ceiling_GBps, 1),
    CELL_OF("scale", scale),
    DOUBLE("huge", percent, huge_share, 1),
    DOUBLE("node", percent, node_share, 1),
    DOUBLE("wake us", number, wake_ns, 1e3),
    CELL_OF("samples", samples),
    CELL_OF("ns/key", key_ns),
};
/* of a sparse step: a table of its own */
static const struct column parts[] = {
    DOUBLE("scores us", number, part_ns[HA_CPU_SCORES].median, 1e3),
    DOUBLE("top-k us", number, part_ns[HA_CPU_CHOICE].median, 1e3),
    DOUBLE("attend us", number, part_ns[HA_CPU_CHOSEN].median, 1e3),
    CELL_OF("whole us", whole),
    DOUBLE("dense us", number, part_ns[HA_CPU_DENSE].median, 1e3),
    DOUBLE("whole/dense", share, whole_over_dense.median, 1),
    DOUBLE("top-k/whole", share, choice_share.median, 1),
};
enum { FIGURES = sizeof figures / sizeof *figures, PARTS = sizeof parts / sizeof *parts };

static void cell(const struct column *c, const struct ha_entry *e, char out[CELL])
{
    double x = (double)NAN;
    *out = 0;
    if (c->cell && (e->row || c->cell == verdict)) c->cell(e, out);
    else if (e->row && !c->cell) memcpy(&x, (const char *)&row(e)->of + c->offset, sizeof x);
    if (!isnan(x)) c->print(out, x / c->unit);
}

static void key_cell(const struct ha_entry *e, size_t key, char out[CELL])
{
    char value[HA_VALUE_MAX] = "-";
    if (ha_cpu_uses(e->point, key)) ha_point_value(e->point, &ha_cpu_keys[key], value);
    snprintf(out, CELL, "%.39s", value);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

struct part {
    const struct ha_results *all;
    const struct ha_section *of;
};
enum { KEYS = HA_CPU_ALL_KEYS };

static const struct ha_entry *at(const struct part *s, size_t i) { return &s->all->entry[s->of->entry[i]]; }

static bool varies(const struct part *s, size_t key)
{
    char first[CELL], other[CELL];
    for (size_t i = 0; i < s->of->count; i++) {
        key_cell(at(s, i), key, i ? other : first);
        if (i && strcmp(first, other) != 0) return true;
    }
    return false;
}

static void print_title(FILE *out, const struct part *s)
{
    const char *between = " ";
    fprintf(out, "\n[%s]", *s->of->name ? s->of->name : "points");
    for (size_t k = 0; k < KEYS; k++) {
        char value[CELL];
        key_cell(at(s, 0), k, value);
        char usual[HA_VALUE_MAX];
        const struct ha_key *key = &ha_cpu_keys[k];
        const bool standard = !key->always && !strcmp(value, ha_key_standard(at(s, 0)->point, key, usual));
        if (standard || varies(s, k) || !ha_cpu_uses(at(s, 0)->point, k)) continue;
        fprintf(out, "%s%s=%s", between, ha_cpu_keys[k].name, value);
        between = ", ";
    }
    putc('\n', out);
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static size_t width_of(const struct part *s, const struct column *c)
{
    size_t most = 0;
    char text[CELL];
    for (size_t i = 0; i < s->of->count; i++) {
        cell(c, at(s, i), text);
        most = larger(most, strlen(text));
    }
    return most ? larger(most, strlen(c->name)) : 0;
}

static size_t key_width(const struct part *s, size_t key)
{
    char text[CELL];
    size_t most = strlen(ha_cpu_keys[key].name);
    if (!varies(s, key)) return 0;
    for (size_t i = 0; i < s->of->count; i++) {
        key_cell(at(s, i), key, text);
        most = larger(most, strlen(text));
    }
    return most;
}

/* columns in which no row has anything are left out */
static void print_columns(FILE *out, const struct part *s, const struct column *column, size_t count)
{
    size_t width[FIGURES > PARTS ? FIGURES : PARTS], key[KEYS], any = 0;
    for (size_t c = 0; c < count; c++) any += width[c] = width_of(s, &column[c]);
    for (size_t k = 0; k < KEYS; k++) key[k] = key_width(s, k);
    for (size_t line = 0; line <= s->of->count && any; line++) {
        char text[CELL];
        for (size_t k = 0; k < KEYS; k++) {
            if (!key[k]) continue;
            if (line) key_cell(at(s, line - 1), k, text);
            fprintf(out, "%-*s  ", (int)key[k], line ? text : ha_cpu_keys[k].name);
        }
        for (size_t c = 0; c < count; c++) {
            if (!width[c]) continue;
            if (line) cell(&column[c], at(s, line - 1), text);
            fprintf(out, "%*s  ", (int)width[c], line ? text : column[c].name);
        }
        putc('\n', out);
    }
}

static void print_section(FILE *out, const struct part *s)
{
    bool sparse = false;
    print_title(out, s);
    print_columns(out, s, figures, FIGURES);
    for (size_t i = 0; i < s->of->count; i++) {
        const struct ha_entry *e = at(s, i);
        sparse = sparse || (e->row && point(e)->kernel == HA_KERNEL_SPARSE && row(e)->head.samples > 0);
    }
    if (!sparse) return;
    putc('\n', out);
    print_columns(out, s, parts, PARTS);
}

/* ---- scaling ----------------------------------------------------------------------------------------------------- */

/* the same but for the axis */
static bool alike(const struct ha_entry *a, const struct ha_entry *b, size_t axis)
{
    char value[HA_VALUE_MAX];
    struct ha_cpu_point same = *point(a);
    struct ha_why why;
    ha_point_value(b->point, &ha_cpu_keys[axis], value);
    return ha_point_set(&same, &ha_cpu_keys[axis], value, &why) == HA_OK && !memcmp(&same, b->point, sizeof same);
}

static void print_line(FILE *out, const struct part *s, size_t first)
{
    const size_t axis = s->of->axis;
    char value[CELL];
    fprintf(out, "  %-9s", ha_cpu_keys[axis].name);
    for (size_t k = 0; k < KEYS; k++) {
        if (k == axis || !varies(s, k)) continue;
        key_cell(at(s, first), k, value);
        fprintf(out, " %-5s", value);
    }
    for (size_t i = first; i < s->of->count; i++) {
        const struct ha_entry *e = at(s, i);
        if (!alike(at(s, first), e, axis)) continue;
        key_cell(e, axis, value);
        if (!e->row || isnan(row(e)->of.ratio.median)) fprintf(out, "  %7s -    ", value);
        else fprintf(out, "  %7s %.3f", value, row(e)->of.ratio.median);
    }
    putc('\n', out);
}

static void print_scaling(FILE *out, const struct ha_results *all)
{
    const char *title = "\nscaling: share of the read ceiling of the same threads\n";
    for (size_t i = 0; i < all->sections; i++) {
        const struct part s = { all, &all->section[i] };
        for (size_t j = 0; j < s.of->count && s.of->axis != SIZE_MAX; j++) {
            bool begun = false;
            for (size_t k = 0; k < j && !begun; k++) begun = alike(at(&s, k), at(&s, j), s.of->axis);
            if (begun) continue;
            fputs(title, out);
            title = "";
            print_line(out, &s, j);
        }
    }
}

void ha_cpu_print(FILE *out, const struct ha_results *all)
{
    size_t disturbed = 0, timed = 0;
    for (size_t i = 0; i < all->sections; i++)
        if (all->section[i].count) print_section(out, &(struct part){ all, &all->section[i] });
    for (size_t i = 0; i < all->entries; i++) {
        const struct ha_entry *e = &all->entry[i];
        timed += e->row && row(e)->head.samples > 0;
        disturbed += e->row && !strcmp(row(e)->disturbed, "yes");
    }
    if (disturbed)
        fprintf(out,
                "\n~: the machine was disturbed; in %zu of %zu points too few samples kept their cores, and the "
                "others are in the figures.\n",
                disturbed, timed);
    if (all->measured) print_scaling(out, all);
}
