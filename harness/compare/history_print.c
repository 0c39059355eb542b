#include "harness/compare/history_print.h"

#include "harness/base/json_line.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/compare/facts.h"
#include "harness/compare/history_sight.h"
#include "harness/compare/print.h"
#include "harness/compare/sides.h"
#include "harness/report/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = HA_AMOUNT, LINES_MOST = 40, INTERVAL_LEAST = 6 };
/* A bar: columns on each side of its middle, and what the last one stands for, at least and at most. */
enum { HALF = 10 };
static const double bar_least = 0.05, bar_most = 0.5;

/* ---- words ------------------------------------------------------------------------------------------------------- */

static const char *word(const struct ha_curve *c, const struct ha_curve_night *n)
{
    const bool more = n->after > n->before;
    if (c->figure->better == HA_NEITHER) return more ? "more" : "less";
    const bool worse = more == (c->figure->better == HA_LESS);
    return ha_figure_is_speed(c->figure) ? (worse ? "slower" : "faster") : (worse ? "worse" : "better");
}

/* By how much; of a share in points. */
static const char *moved(char out[WORD], const struct ha_curve *c, double before, double after)
{
    char amount[WORD];
    if (!*c->figure->unit) snprintf(out, WORD, "%+.1f points", 100 * (after - before));
    else if (before != 0) snprintf(out, WORD, "%+.1f%%", 100 * (after / before - 1));
    else snprintf(out, WORD, "+%.60s", ha_amount(amount, after, c->figure->unit));
    return out;
}

/* To the minute; a night that does not say when it was has its name. */
static const char *date_of(char out[WORD], const struct ha_night *n)
{
    snprintf(out, WORD, *n->date ? "%.16s" : "%.40s", *n->date ? n->date : n->name);
    return ha_text_clean(out); /* what is cut may end within a character */
}

static const char *build_of(char out[WORD], const struct ha_night *n)
{
    snprintf(out, WORD, "%.12s", *n->build ? n->build : "-");
    return ha_text_clean(out);
}

static void print_name(FILE *out, const struct ha_curve *c, size_t machines)
{
    fprintf(out, "%s %s", c->of->id, c->figure->name);
    if (strcmp(c->of->mode, "run") != 0) fprintf(out, " (%s)", c->of->mode);
    if (machines > 1) fprintf(out, ", machine %zu", c->machine + 1);
}

/* ---- what has changed -------------------------------------------------------------------------------------------- */

/* The last change of a curve. A drift is a row of changes that came by and by, in one direction: it begins at the first
 * of them. */
struct last_change {
    const struct ha_curve *curve;
    size_t first, last, others; /* the same of a step; changes before it */
};

static struct last_change last_change(const struct ha_curve *c)
{
    struct last_change l = { .curve = c };
    size_t seen = 0;
    for (size_t i = 0; i < c->count; i++) {
        const struct ha_curve_night *n = &c->night[i], *before = &c->night[l.last];
        if (!n->change) continue;
        const bool goes_on = seen && n->gradual && before->gradual
                             && (n->after > n->before) == (before->after > before->before);
        if (!goes_on) {
            l.first = i;
            l.others = seen;
        }
        l.last = i;
        seen++;
    }
    return l;
}

static int newest_first(const void *a, const void *b)
{
    const struct last_change *x = a, *y = b;
    const size_t i = x->curve->night[x->last].night, k = y->curve->night[y->last].night;
    if (i != k) return i > k ? -1 : 1;
    return (x->curve > y->curve) - (x->curve < y->curve);
}

/* What the machine itself did in the nights around it. */
static void print_machine_beside(FILE *out, const struct ha_history *h, const struct ha_curve *c, size_t night)
{
    enum { NEAR = 2 };
    for (size_t i = 0; i < h->count; i++) {
        const struct ha_curve *m = &h->curve[i];
        if (m == c || m->machine != c->machine || strcmp(m->of->id, HA_MACHINE_CASE) != 0) continue;
        for (size_t k = 0; k < m->count; k++) {
            const struct ha_curve_night *n = &m->night[k];
            char by[WORD];
            if (!n->change || n->night + NEAR < night || n->night > night + NEAR) continue;
            fprintf(out, "; there the machine changed, too: %s %s", m->figure->name, moved(by, m, n->before, n->after));
        }
    }
}

static void print_change(FILE *out, const struct ha_history *h, const struct last_change *l)
{
    const struct ha_curve *c = l->curve;
    const struct ha_curve_night *first = &c->night[l->first], *last = &c->night[l->last];
    const struct ha_night *night = &h->record->night[first->night];
    char by[WORD], was[WORD], is[WORD], date[WORD], build[WORD];
    fprintf(out, "%-16s  %-6s %s %s, %s -> %s, build %s: ", date_of(date, night), word(c, last),
            moved(by, c, first->before, last->after), last->gradual ? "by and by around here" : "since here",
            ha_amount(was, first->before, c->figure->unit), ha_amount(is, last->after, c->figure->unit),
            build_of(build, night));
    print_name(out, c, h->machines);
    if (strcmp(c->of->id, HA_MACHINE_CASE) != 0) print_machine_beside(out, h, c, first->night);
    if (l->others) fprintf(out, "; %zu change%s before", l->others, l->others == 1 ? "" : "s");
    putc('\n', out);
}

static enum ha_status print_changes(FILE *out, const struct ha_history *h, struct ha_why *why)
{
    struct last_change *l = malloc((h->count + 1) * sizeof *l);
    size_t n = 0;
    if (!l) return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < h->count; i++)
        if (h->curve[i].changes) l[n++] = last_change(&h->curve[i]);
    qsort(l, n, sizeof *l, newest_first);
    for (size_t i = 0; i < n && i < LINES_MOST; i++) print_change(out, h, &l[i]);
    if (n > LINES_MOST) fprintf(out, "and %zu more, which are marked below\n", n - LINES_MOST);
    free(l);
    return HA_OK;
}

/* ---- what it is a history of ------------------------------------------------------------------------------------- */

static size_t changed(const struct ha_history *h)
{
    size_t n = 0;
    for (size_t i = 0; i < h->count; i++) n += h->curve[i].changes > 0;
    return n;
}

static size_t longest(const struct ha_history *h)
{
    size_t most = 0;
    for (size_t i = 0; i < h->count; i++)
        if (h->curve[i].count > most) most = h->curve[i].count;
    return most;
}

/* Of shares in points, as the first figure is one. */
static const char *size_of(char out[WORD], const struct ha_history *h, double size)
{
    const bool share = !*h->curve[0].figure->unit;
    snprintf(out, WORD, share ? "%.1f points" : "%.1f%%", 100 * expm1(size));
    return out;
}

static void summary_line(FILE *out, const struct ha_history *h, const struct ha_history_sight *sight, size_t sights)
{
    const struct ha_record *r = h->record;
    const size_t n = changed(h), most = longest(h);
    char first[WORD], last[WORD];
    fprintf(out, "%zu of %zu figure%s changed in %zu night%s, %s", n, h->count, h->count == 1 ? "" : "s", r->nights,
            r->nights == 1 ? "" : "s", date_of(first, &r->night[0]));
    if (r->nights > 1) fprintf(out, " to %s", date_of(last, &r->night[r->nights - 1]));
    fputs("; ", out);
    if (!sights) fputs("so few show no change, nor how nights differ", out);
    else if (sight[0].nights <= most) {
        fputs("a change is seen, in 8 of 10 cases,", out);
        for (size_t i = 0; i < sights; i++)
            fprintf(out, "%s from its night %zu on where it is %s or more", i ? "," : "", sight[i].age,
                    size_of(first, h, sight[i].size));
    } else {
        fputs("so few show no change;", out);
        for (size_t i = 0; i < sights; i++)
            fprintf(out, "%s at %zu nights one of %s or more that is %zu nights old is seen%s", i ? "," : "",
                    sight[i].nights, size_of(first, h, sight[i].size), sight[i].age, i ? "" : " in 8 of 10 cases");
        fputs("; fewer figures (-f) need fewer nights", out);
    }
}

/* Where the nights of each machine begin. */
static void print_machines(FILE *out, const struct ha_history *h)
{
    for (size_t m = 1; m < h->machines; m++) {
        const struct ha_night *nights = h->record->night;
        const char *fact = "", *was, *is;
        char date[WORD];
        size_t first = 0, i = 0;
        while (h->machine[i] != m) i++;
        while (h->machine[first] != 0) first++;
        ha_night_same_machine(&nights[first], &nights[i], &fact);
        was = ha_night_fact(&nights[first], fact);
        is = ha_night_fact(&nights[i], fact);
        fprintf(out, "machine %zu from %s on, another one than machine 1 (%s: %s -> %s): a curve of its own\n", m + 1,
                date_of(date, &nights[i]), fact, was ? was : "-", is ? is : "-");
    }
}

/* ---- a curve ----------------------------------------------------------------------------------------------------- */

/* What the end of a bar stands for: of the value, or of a share in points, relative to the median. */
static double away(const struct ha_curve *c, double value)
{
    if (!*c->figure->unit) return value - c->median;
    return c->median != 0 ? value / c->median - 1 : value != 0 ? bar_most : 0;
}

static double bar_end(const struct ha_curve *c)
{
    double most = bar_least;
    for (size_t i = 0; i < c->count; i++) most = fmax(most, fabs(away(c, c->night[i].value)));
    return fmin(most, bar_most);
}

static void print_bar(FILE *out, const struct ha_curve *c, const struct ha_curve_night *n, double end)
{
    char bar[2 * HALF + 2];
    const double at = away(c, n->value) / end * HALF;
    memset(bar, ' ', sizeof bar - 1);
    bar[2 * HALF + 1] = 0;
    bar[HALF] = '|';
    if (at > HALF + 0.5) bar[2 * HALF] = '>';
    else if (at < -HALF - 0.5) bar[0] = '<';
    else bar[(int)lround(HALF + at)] = '*';
    fputs(bar, out);
}

static void print_night(FILE *out, const struct ha_history *h, const struct ha_curve *c, size_t i, double end)
{
    const struct ha_curve_night *n = &c->night[i];
    const struct ha_night *night = &h->record->night[n->night];
    char value[WORD], lo[WORD], hi[WORD], interval[2 * WORD + 8], by[WORD], date[WORD], build[WORD];
    snprintf(interval, sizeof interval, "%s to %s%s", ha_amount(lo, n->lo, c->figure->unit),
             ha_amount(hi, n->hi, c->figure->unit), n->processes < INTERVAL_LEAST ? "~" : "");
    fprintf(out, "%-16s  %-12s %14s  %-30s %4zu  ", date_of(date, night), build_of(build, night),
            ha_amount(value, n->value, c->figure->unit), n->processes > 1 ? interval : "-", n->processes);
    print_bar(out, c, n, end);
    if (n->change)
        fprintf(out, "  %s %s", moved(by, c, n->before, n->after), n->gradual ? "by and by around here" : "since here");
    putc('\n', out);
}

static void print_curve(FILE *out, const struct ha_history *h, const struct ha_curve *c)
{
    char middle[WORD], edge[WORD];
    const double end = bar_end(c);
    putc('\n', out);
    print_name(out, c, h->machines);
    fprintf(out, ": %zu night%s, median %s\n", c->count, c->count == 1 ? "" : "s",
            ha_amount(middle, c->median, c->figure->unit));
    snprintf(edge, sizeof edge, *c->figure->unit ? "%.0f%%" : "%.0f pt", 100 * end);
    fprintf(out, "%-16s  %-12s %14s  %-30s %4s  -%-*s+%s\n", "", "build", "median", "95% (~ range)", "n",
            2 * HALF - (int)strlen(edge) - 1, edge, edge);
    for (size_t i = 0; i < c->count; i++) print_night(out, h, c, i, end);
}

enum ha_status ha_history_print_table(FILE *out, const struct ha_history *h, struct ha_why *why)
{
    struct ha_history_sight sight[HA_SIGHTS];
    size_t sights;
    HA_TRY(ha_history_look(sight, &sights, h, why));
    summary_line(out, h, sight, sights);
    putc('\n', out);
    HA_TRY(print_changes(out, h, why));
    print_machines(out, h);
    fputs(h->record->notes, out);
    for (size_t i = 0; i < h->count; i++) print_curve(out, h, &h->curve[i]);
    return HA_OK;
}

/* ---- for a program ----------------------------------------------------------------------------------------------- */

static void put_night(FILE *out, const struct ha_history *h, const struct ha_curve *c, const struct ha_curve_night *n)
{
    const struct ha_night *night = &h->record->night[n->night];
    json_t *row = json_object();
    ha_json_set_text(row, "row", "history");
    ha_json_set_text(row, "case_id", c->of->id);
    ha_json_set_text(row, "mode", c->of->mode);
    ha_json_set_text(row, "figure", c->figure->name);
    ha_json_set_text(row, "unit", c->figure->unit);
    ha_json_set_text(row, "better", ha_better_name(c->figure->better));
    ha_json_set_count(row, "machine", c->machine + 1);
    ha_json_set_text(row, "night", night->name);
    ha_json_set_text(row, "date_utc", night->date);
    ha_json_set_text(row, "build", night->build);
    ha_json_set_number(row, "value", n->value);
    ha_json_set_number(row, "lo", n->lo);
    ha_json_set_number(row, "hi", n->hi);
    ha_json_set_count(row, "processes", n->processes);
    json_object_set_new(row, "change", json_boolean(n->change));
    if (n->change) {
        json_object_set_new(row, "gradual", json_boolean(n->gradual));
        ha_json_set_number(row, "before", n->before);
        ha_json_set_number(row, "after", n->after);
        ha_json_set_number(row, "ratio", n->before != 0 ? n->after / n->before : (double)NAN);
    }
    ha_json_put_line(out, row);
}

enum ha_status ha_history_print_json(FILE *out, const struct ha_history *h, struct ha_why *why)
{
    char *line = NULL;
    size_t size, sights;
    struct ha_history_sight sight[HA_SIGHTS];
    HA_TRY(ha_history_look(sight, &sights, h, why));
    FILE *f = open_memstream(&line, &size);
    if (!f) return ha_why(why, HA_ERROR, "out of memory");
    summary_line(f, h, sight, sights);
    fclose(f);
    for (size_t i = 0; i < h->count; i++)
        for (size_t k = 0; k < h->curve[i].count; k++) put_night(out, h, &h->curve[i], &h->curve[i].night[k]);
    json_t *row = json_object();
    ha_json_set_text(row, "row", "histories");
    ha_json_set_count(row, "nights", h->record->nights);
    ha_json_set_count(row, "machines", h->machines);
    ha_json_set_count(row, "figures", h->count);
    ha_json_set_count(row, "changed", changed(h));
    ha_json_set_count(row, "age", sights && sight[0].nights <= longest(h) ? sight[0].age : 0);
    json_t *seen = json_array();
    for (size_t i = 0; i < sights; i++)
        json_array_append_new(seen, json_pack("{s:I, s:I, s:f}", "nights", (json_int_t)sight[i].nights, "age",
                                              (json_int_t)sight[i].age, "size", expm1(sight[i].size)));
    json_object_set_new(row, "seen", seen);
    ha_json_set_text(row, "notes", h->record->notes);
    ha_json_set_text(row, "line", line);
    ha_json_put_line(out, row);
    free(line);
    return HA_OK;
}
