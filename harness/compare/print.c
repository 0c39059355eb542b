#include "harness/compare/print.h"

#include "harness/base/file.h"
#include "harness/base/json_line.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/compare/again.h"
#include "harness/compare/sides.h"
#include "harness/report/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_MOST = 10, WORD = HA_AMOUNT, NIGHTS_ENOUGH = 5 };

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

const char *ha_amount(char out[HA_AMOUNT], double x, const char *unit)
{
    static const struct {
        const char *unit, *shown;
        double least, scale;
    } scales[] = {
        { "ns", "s", 1e9, 1e9 },          { "ns", "ms", 1e6, 1e6 },    { "ns", "us", 1e3, 1e3 },
        { "bytes", "GB", 1e9, 1e9 },      { "bytes", "MB", 1e6, 1e6 }, { "bytes", "kB", 1e3, 1e3 },
        { "10^9 bytes/s", "GB/s", 0, 1 },
    };
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        if (!strcmp(unit, scales[i].unit) && fabs(x) >= scales[i].least) {
            snprintf(out, HA_AMOUNT, "%.4g %s", x / scales[i].scale, scales[i].shown);
            return out;
        }
    snprintf(out, HA_AMOUNT, *unit ? "%.4g %.40s" : "%.4g", x, unit);
    return out;
}

/* Of a shift, in which above zero is worse, how much larger the figure itself is: of rates it is smaller. */
static double percent(const struct ha_recorded_figure *f, double shift)
{
    return 100 * expm1(f->better == HA_MORE ? -shift : shift);
}

/* Of a share: points. */
static bool by_points(const struct ha_recorded_figure *f) { return !*f->unit; }

static const char *moved(char out[WORD], const struct ha_change *c)
{
    const struct ha_shift *s = &c->shift;
    const double a = percent(c->figure, s->lo), b = percent(c->figure, s->hi);
    if (by_points(c->figure)) snprintf(out, WORD, "%+.1f points", 100 * (c->median - c->base_median));
    else snprintf(out, WORD, "%+.1f%% (%.1f to %.1f)", percent(c->figure, s->size), fmin(a, b), fmax(a, b));
    return out;
}

static const char *noticed(char out[WORD], double shift)
{
    if (isinf(shift)) snprintf(out, WORD, "-");
    else snprintf(out, WORD, "%.1f%%", 100 * expm1(shift));
    return out;
}

/* ---- a change in words ------------------------------------------------------------------------------------------- */

static void put_part(FILE *out, const struct ha_change *c, const struct ha_shift *s, const char *than)
{
    const struct ha_recorded_figure *f = ha_record_figure(c->now, c->part->figure);
    const double sign = c->kind == HA_CHANGE_BETTER ? -1 : 1; /* how these shifts have been turned */
    fprintf(out, "%s %+.1f%%%s", c->part->name, f ? percent(f, sign * s->size) : (double)NAN, than);
}

static void put_cause(FILE *out, const struct ha_change *c)
{
    static const char *const with_part[] = { [HA_CAUSE_NONE] = "",
                                             [HA_CAUSE_MACHINE] = ", which is enough for it",
                                             [HA_CAUSE_CODE] = ", which is the lesser part of it",
                                             [HA_CAUSE_SOFTWARE] = ", which is the lesser part of it",
                                             [HA_CAUSE_BOTH] = "",
                                             [HA_CAUSE_UNDECIDED] = ", which does not say whether it is enough" },
                             *const without[] = { [HA_CAUSE_NONE] = "",
                                                  [HA_CAUSE_MACHINE] = "the build is the same, and no part that is "
                                                                       "read moved with it",
                                                  [HA_CAUSE_CODE] = "no part of the machine moved with it",
                                                  [HA_CAUSE_SOFTWARE] = "no part of the machine moved with it, and the "
                                                                        "build is the same",
                                                  [HA_CAUSE_BOTH] = "",
                                                  [HA_CAUSE_UNDECIDED] = "what the machine could do beside it does not "
                                                                         "say" };
    const double more = (c->kind == HA_CHANGE_BETTER ? -1 : 1) * c->rest.size;
    if (c->part) put_part(out, c, &c->part_shift, with_part[c->cause]);
    else fputs(strcmp(c->now->id, HA_MACHINE_CASE) ? without[c->cause] : "the machine itself", out);
    if (c->cause == HA_CAUSE_BOTH || (c->cause == HA_CAUSE_MACHINE && c->part && c->rest.lo > HA_SHIFT_LEAST))
        fprintf(out, ", and %+.1f%% more than that", 100 * expm1(more));
    if (*c->suspects && c->cause >= HA_CAUSE_SOFTWARE) fprintf(out, "; changed besides: %s", c->suspects);
}

static void put_figure(FILE *out, const struct ha_change *c)
{
    char was[WORD], is[WORD], by[WORD];
    fprintf(out, "%s %s: %s -> %s, %s; %zu and %zu processes", c->now->id, c->figure->name,
            ha_amount(was, c->base_median, c->figure->unit), ha_amount(is, c->median, c->figure->unit), moved(by, c),
            c->base_processes, c->processes);
    if (c->by_speeds)
        fprintf(out,
                "; of the base's two speeds %zu of %zu were at the slow one, now %zu of %zu: by chance once in %.2g",
                c->shift.slow[0], c->base_processes, c->shift.slow[1], c->processes,
                1 / (c->kind == HA_CHANGE_WORSE ? c->shift.p : c->shift.p_better));
    if (c->cause == HA_CAUSE_NONE) return;
    fputs("; ", out);
    put_cause(out, c);
}

/* A figure of the answer: what it was, and the farthest from that. */
static void put_result(FILE *out, const struct ha_change *c)
{
    char was[WORD], is[WORD];
    const struct ha_result_change *r = &c->result;
    const char *const unit = c->figure->unit;
    if (!strcmp(ha_amount(was, r->base, unit), ha_amount(is, r->now, unit))) {
        snprintf(was, sizeof was, "%.9g", r->base);
        snprintf(is, sizeof is, *unit ? "%.9g %.40s" : "%.9g", r->now, unit);
    }
    fprintf(out, "%s %s: %s -> %s in %zu of %zu processes; %s", c->now->id, c->figure->name, was, is, r->outside,
            c->processes, r->exact ? "of one build it repeats to the digit" : "more than rounding explains");
}

static void put_gone(FILE *out, const struct ha_change *c, const struct ha_recorded_case *of)
{
    fputs(of->id, out);
    if (c->cases) fprintf(out, " and %zu more cases", c->cases - 1);
    if (c->cases && *of->suite) fprintf(out, " of %s", of->suite);
    fprintf(out, " (%s): ", of->mode);
    if (!c->base_processes)
        fprintf(out, "%s figures and no row: a file of the record is damaged", c->cases ? "they have" : "it has");
    else if (c->cases) fputs("they have no row now", out);
    else fprintf(out, "it has no row now; %zu before", c->base_processes);
}

static void put_lost(FILE *out, const struct ha_change *c, const char *id)
{
    fprintf(out, "%s %s: it has ", id, c->base_figure->name);
    if (c->values) fprintf(out, "a value in %zu of %zu processes, and had one in each", c->values, c->processes);
    else fputs("no value now", out);
    if (c->lost > 1) fprintf(out, ", nor have %zu more figures of this case%s", c->lost - 1, c->values ? " all" : "");
}

static void put_words(FILE *out, const struct ha_change *c)
{
    const struct ha_recorded_case *of = c->now ? c->now : c->base;
    if (c->result.outside) put_result(out, c);
    else if (c->figure) put_figure(out, c);
    else if (c->kind == HA_CHANGE_OTHER_BITS)
        fprintf(out, "%s (%s): the bits of its outputs are %s in %zu of %zu processes, and %s in %s, with the same %s",
                of->id, of->mode, c->bits.digest, c->bits.others, c->processes, c->bits.want,
                c->bits.of_base ? "all of the base" : "the first of them", "machine, build, plan and input");
    else if (c->kind == HA_CHANGE_DISTURBED) {
        const bool of_base = 2 * c->disturbed <= c->processes;
        fprintf(out, "%s (%s): something else used the cores in %zu of %s %zu processes", of->id, of->mode,
                of_base ? c->base_disturbed : c->disturbed, of_base ? "the base's" : "its",
                of_base ? c->base_processes : c->processes);
    } else if (c->lost) put_lost(out, c, of->id);
    else if (c->kind == HA_CHANGE_GONE) put_gone(out, c, of);
    else
        fprintf(out, "%s (%s): %s%s", of->id, of->mode, of->reason,
                c->base_verdict == c->now->verdict ? "; as in the base" : "");
    if (*c->follows) fprintf(out, "; with it %s", c->follows);
}

void ha_change_line(FILE *out, const struct ha_change *c)
{
    char words[WORD];
    const char *cause = ha_cause_word(c->cause);
    snprintf(words, sizeof words, "%s%s%s", ha_change_word(c), *cause ? ", " : "", cause);
    fprintf(out, "%-18s ", words);
    put_words(out, c);
}

static int by_noticed(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* From where on changes of times and rates would have been noticed: of half of them, and of nine of ten. */
static bool sight(const struct ha_comparison *c, double *half, double *most)
{
    double *x = malloc((c->count + 1) * sizeof *x);
    size_t n = 0;
    for (size_t i = 0; x && i < c->count; i++) {
        const struct ha_change *k = &c->change[i];
        if (k->figure && ha_figure_is_speed(k->figure) && !isnan(k->shift.p)) x[n++] = k->shift.noticed;
    }
    if (n) qsort(x, n, sizeof *x, by_noticed);
    *half = n ? x[n / 2] : (double)NAN;
    *most = n ? x[n * 9 / 10] : (double)NAN;
    free(x);
    return n > 0;
}

void ha_verdict_line(FILE *out, const struct ha_comparison *c)
{
    const size_t loud = ha_comparison_loud(c), added = ha_comparison_of(c, HA_CHANGE_ADDED);
    double half, most;
    char a[WORD], b[WORD];
    if (!c->base->nights) {
        fprintf(out, "%s: %zu cases, and nothing to compare them with", ha_comparison_word(c), c->now->count);
        return;
    }
    fprintf(out, "%s: ", ha_comparison_word(c));
    for (size_t i = 0; i < c->environments && c->environment[i].lost; i++)
        fprintf(out, "%s %s -> %s, ", c->environment[i].name, c->environment[i].base, c->environment[i].now);
    fprintf(out, "%zu change%s ", loud, loud == 1 ? "" : "s");
    if (c->other_machine) fputs("beside another machine", out);
    else
        fprintf(out, "in %zu figures beside %zu night%s of the base", c->compared, c->base_nights,
                c->base_nights == 1 ? "" : "s");
    if (added) fprintf(out, "; %zu case%s new, of which nothing can be said", added, added == 1 ? " is" : "s are");
    if (c->other_machine) return;
    if (!sight(c, &half, &most)) return;
    if (ha_comparison_blind(c)) fputs("; so few processes say nothing: run both with --processes 10", out);
    else if (isinf(half)) fputs("; with so few processes half of the times would have shown no change", out);
    else
        fprintf(out, "; of times and rates half would have been noticed from %s on, nine of ten from %s",
                noticed(a, half), noticed(b, most));
}

/* ---- for a reader ------------------------------------------------------------------------------------------------ */

static void print_environment(FILE *out, const struct ha_comparison *c)
{
    for (size_t i = 0; i < c->environments; i++) {
        const struct ha_environment_change *e = &c->environment[i];
        fprintf(out, "%-18s %s: %s -> %s\n", e->lost ? "hardware lost" : ha_fact_word(e->kind), e->name,
                e->base ? e->base : "(not said)", e->now ? e->now : "(not said)");
    }
}

/* Each kind from the worst to the best, its first lines. */
static void print_lines(FILE *out, const struct ha_comparison *c)
{
    for (int k = HA_CHANGES; k--;) {
        size_t lines = 0;
        const enum ha_change_kind kind = (enum ha_change_kind)k;
        for (size_t i = 0; i < c->count; i++) {
            if (c->change[i].kind != kind || !ha_change_loud(&c->change[i]) || lines++ >= LINES_MOST) continue;
            ha_change_line(out, &c->change[i]);
            putc('\n', out);
        }
        if (lines > LINES_MOST) fprintf(out, "and %zu more of these\n", lines - LINES_MOST);
    }
}

/* What decides a suspicion. */
static void print_again(FILE *out, const struct ha_comparison *c)
{
    struct ha_again again;
    struct ha_why why;
    if (ha_comparison_again(&again, c, &why) == HA_OK && again.count) {
        fputs("\nto decide what is suspicious, run it in more processes, and compare these with the base:\n"
              "  habench run",
              out);
        for (size_t i = 0; i < again.count; i++) {
            putc(' ', out);
            ha_text_quote(out, again.of[i]->id);
        }
        fprintf(out, " --processes %d -o again\n  habench compare ", HA_SHIFT_PROCESSES);
        ha_text_quote(out, c->base->path);
        fputs(" again\n", out);
    }
    free(again.of);
}

static void print_row(FILE *out, const struct ha_change *k)
{
    char was[WORD], is[WORD], by[WORD], from[WORD];
    const bool known = !isnan(k->shift.p);
    fprintf(out, "%-14s %12s %12s  %-24s %8s  %s %s\n", ha_change_word(k),
            ha_amount(was, k->base_median, k->figure->unit), ha_amount(is, k->median, k->figure->unit),
            known ? moved(by, k) : "-", known ? noticed(from, k->shift.noticed) : "-", k->now->id, k->figure->name);
}

/* The figure that stands for a case in the table: its first time or rate. */
static bool first_of_case(const struct ha_comparison *c, size_t i)
{
    const struct ha_change *k = &c->change[i];
    if (!k->figure || !ha_figure_is_speed(k->figure)) return false;
    for (size_t j = i; j-- && c->change[j].now == k->now;)
        if (c->change[j].figure && ha_figure_is_speed(c->change[j].figure)) return false;
    return true;
}

static void print_rows(FILE *out, const struct ha_comparison *c)
{
    bool any = false;
    for (size_t i = 0; i < c->count; i++) {
        if (!first_of_case(c, i)) continue;
        if (!any)
            fprintf(out, "\n%-14s %12s %12s  %-24s %8s  case and figure\n", "", "base", "now", "change (95%)",
                    "noticed");
        any = true;
        print_row(out, &c->change[i]);
    }
}

/* Of how many of its processes the times were left out. */
static void print_disturbed(FILE *out, const struct ha_record *r, const char *side)
{
    size_t disturbed = 0, all = 0;
    for (size_t i = 0; i < r->count; i++) {
        disturbed += r->cases[i]->disturbances;
        all += strcmp(r->cases[i]->id, HA_MACHINE_CASE) ? r->cases[i]->processes : 0;
    }
    if (disturbed)
        fprintf(out, "%s: the times of %zu of %zu rows left out: something else used the cores\n", side, disturbed,
                all);
}

static void print_base(FILE *out, const struct ha_comparison *c)
{
    const struct ha_night *a = &c->base->night[c->base->nights - 1];
    fprintf(out, "base  %s: %zu night%s, the last %s, build %s\n", c->base->path, c->base_nights,
            c->base_nights == 1 ? "" : "s", *a->date ? a->date : "without a date", *a->build ? a->build : "unknown");
}

static void print_sides(FILE *out, const struct ha_comparison *c)
{
    const struct ha_night *b = &c->now->night[c->now->nights - 1];
    if (c->base->nights) print_base(out, c);
    fprintf(out, "now   %s: %s, build %s\n", c->now->path, *b->date ? b->date : "without a date",
            *b->build ? b->build : "unknown");
    if (c->left_out)
        fprintf(out, "%zu night%s of the base left out: of another machine\n", c->left_out,
                c->left_out == 1 ? "" : "s");
    if (c->other_machine)
        fprintf(out, "two machines (%s): their times are set side by side, and none is a change\n", c->differs);
    if (c->base_nights < NIGHTS_ENOUGH && c->compared)
        fprintf(out, "a base of %zu night%s: false alarms are held down from %d on (docs/compare.md)\n", c->base_nights,
                c->base_nights == 1 ? "" : "s", NIGHTS_ENOUGH);
    print_disturbed(out, c->base, "base");
    print_disturbed(out, c->now, "now");
    if (c->base->nights) fputs(c->base->notes, out);
    fputs(c->now->notes, out);
}

void ha_compare_print_table(FILE *out, const struct ha_comparison *c)
{
    print_environment(out, c);
    print_lines(out, c);
    print_again(out, c);
    putc('\n', out);
    print_sides(out, c);
    if (c->compared)
        fprintf(out, "spread from night to night %.1f%%%s\n", 100 * c->nights,
                c->assumed ? ", assumed: the base does not say" : "");
    print_rows(out, c);
    putc('\n', out);
    ha_verdict_line(out, c);
    putc('\n', out);
}

/* ---- for a program ----------------------------------------------------------------------------------------------- */

static void put_record(FILE *out, const struct ha_record *r, const char *side, size_t index)
{
    const struct ha_night *n = &r->night[r->nights - 1];
    json_t *row = json_object();
    ha_json_set_text(row, "row", "record");
    ha_json_set_count(row, "index", index);
    ha_json_set_text(row, "side", side);
    ha_json_set_text(row, "name", n->name);
    ha_json_set_text(row, "path", r->path);
    ha_json_set_text(row, "date_utc", n->date);
    ha_json_set_text(row, "build", n->build);
    ha_json_set_count(row, "nights", r->nights);
    ha_json_set_count(row, "cases", r->count);
    for (int v = HA_PASS; v < HA_VERDICTS; v++)
        ha_json_set_count(row, ha_verdict_name((enum ha_verdict)v), n->verdicts[v]);
    json_t *facts = json_object();
    for (size_t i = 0; i < n->facts; i++) ha_json_set_text(facts, n->fact[i].name, n->fact[i].value);
    json_object_set_new(row, "facts", facts);
    ha_json_set_text(row, "notes", r->notes);
    ha_json_put_line(out, row);
}

/* The text of a printing function, to be freed; NULL: no memory */
static char *line_of(const struct ha_change *change, const struct ha_comparison *verdict)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f) return NULL;
    if (change) put_words(f, change);
    else ha_verdict_line(f, verdict);
    fclose(f);
    return text;
}

static void set_figure(json_t *row, const struct ha_change *c)
{
    const struct ha_shift *s = &c->shift;
    const double sign = c->figure->better == HA_MORE ? -1 : 1;
    ha_json_set_text(row, "figure", c->figure->name);
    ha_json_set_text(row, "unit", c->figure->unit);
    ha_json_set_text(row, "better", ha_better_name(c->figure->better));
    ha_json_set_number(row, "base", c->base_median);
    ha_json_set_number(row, "base_lo", c->base_lo);
    ha_json_set_number(row, "base_hi", c->base_hi);
    ha_json_set_number(row, "value", c->median);
    ha_json_set_number(row, "value_lo", c->lo);
    ha_json_set_number(row, "value_hi", c->hi);
    if (isnan(s->p)) return;
    ha_json_set_number(row, "ratio", exp(sign * s->size));
    ha_json_set_number(row, "lo", fmin(exp(sign * s->lo), exp(sign * s->hi)));
    ha_json_set_number(row, "hi", fmax(exp(sign * s->lo), exp(sign * s->hi)));
    ha_json_set_number(row, "p", s->p);
    ha_json_set_number(row, "least", exp(s->noticed));
    if (s->speeds.two) json_object_set_new(row, "slow_speed", json_real(exp(s->speeds.apart)));
}

static void set_cause(json_t *row, const struct ha_change *c)
{
    const double sign = c->kind == HA_CHANGE_BETTER ? -1 : 1;
    ha_json_set_text(row, "by", ha_cause_word(c->cause));
    if (!c->part) return;
    ha_json_set_text(row, "part", c->part->name);
    ha_json_set_number(row, "part_ratio", exp(sign * c->part_shift.size)); /* above 1: slower */
    ha_json_set_number(row, "part_lo", exp(sign * c->part_shift.lo));
    ha_json_set_number(row, "part_hi", exp(sign * c->part_shift.hi));
    ha_json_set_number(row, "rest_ratio", exp(sign * c->rest.size));
}

static void put_change(FILE *out, const struct ha_change *c, size_t index)
{
    const struct ha_recorded_case *of = c->now ? c->now : c->base;
    json_t *row = json_object();
    char *line = line_of(c, NULL);
    ha_json_set_text(row, "row", "change");
    ha_json_set_count(row, "new", index);
    ha_json_set_text(row, "case_id", of->id);
    ha_json_set_text(row, "mode", of->mode);
    ha_json_set_text(row, "suite", of->suite);
    ha_json_set_text(row, "change", ha_change_word(c));
    json_object_set_new(row, "loud", json_boolean(ha_change_loud(c)));
    ha_json_set_count(row, "base_processes", c->base_processes);
    ha_json_set_count(row, "new_processes", c->processes);
    ha_json_set_count(row, "base_disturbed", c->base_disturbed);
    ha_json_set_count(row, "new_disturbed", c->disturbed);
    if (c->figure) set_figure(row, c);
    if (c->result.outside) ha_json_set_count(row, "other_processes", c->result.outside);
    if (*c->follows) ha_json_set_text(row, "follows", c->follows);
    if (c->lost) ha_json_set_text(row, "figure", c->base_figure->name);
    if (c->cases) ha_json_set_count(row, "cases", c->cases);
    if (c->bits.others) {
        ha_json_set_text(row, "outputs", c->bits.digest);
        ha_json_set_text(row, "outputs_wanted", c->bits.want);
        ha_json_set_count(row, "other_processes", c->bits.others);
    }
    set_cause(row, c);
    ha_json_set_text(row, "line", line);
    ha_json_put_line(out, row);
    free(line);
}

void ha_compare_print_json(FILE *out, const struct ha_comparison *c, size_t index)
{
    if (index == 1 && c->base->nights) put_record(out, c->base, "base", 0);
    put_record(out, c->now, "new", index);
    for (size_t i = 0; i < c->environments; i++) {
        json_t *row = json_object();
        ha_json_set_text(row, "row", "environment");
        ha_json_set_text(row, "name", c->environment[i].name);
        ha_json_set_text(row, "base", c->environment[i].base);
        ha_json_set_text(row, "new", c->environment[i].now);
        ha_json_set_text(row, "kind", ha_fact_word(c->environment[i].kind));
        json_object_set_new(row, "lost", json_boolean(c->environment[i].lost));
        ha_json_put_line(out, row);
    }
    for (size_t i = 0; i < c->count; i++) put_change(out, &c->change[i], index);
    json_t *row = json_object();
    char *line = line_of(NULL, c);
    ha_json_set_text(row, "row", "verdict");
    ha_json_set_count(row, "new", index);
    ha_json_set_count(row, "exit", (size_t)ha_comparison_exit(c));
    ha_json_set_text(row, "verdict", ha_comparison_word(c));
    ha_json_set_count(row, "changed", ha_comparison_loud(c));
    ha_json_set_count(row, "compared", c->compared);
    ha_json_set_number(row, "nights_spread", c->nights);
    ha_json_set_text(row, "line", line);
    ha_json_put_line(out, row);
    free(line);
}
