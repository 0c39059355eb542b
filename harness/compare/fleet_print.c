#include "harness/compare/fleet_print.h"

#include "harness/base/array.h"
#include "harness/base/text.h"
#include "harness/compare/fleet_parts.h"
#include "harness/compare/print.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FAR 1.4 /* a logarithm: what would take more than a factor of four is not said to be noticed */
enum { LINES_MOST = 10, ROWS_MOST = 40, SHORT = 200 };

static const char *plural(size_t n) { return n == 1 ? "" : "s"; }

/* ---- a distance in words ----------------------------------------------------------------------------------------- */

/* by: how much worse, as a logarithm. Of a rate it is below, of a time above. */
static void put_distance(FILE *out, bool rate, const char *unit, double by)
{
    if (!*unit) fprintf(out, "%.1f points worse than", 100 * by);
    else if (rate) fprintf(out, "%.1f%% %s", -100 * expm1(-by), by < 0 ? "above" : "below");
    else fprintf(out, "%.1f%% %s", 100 * fabs(expm1(by)), by < 0 ? "below" : "above");
}

static bool part_is_time(const struct ha_part_of_machine *p) { return strstr(p->figure, "_ns"); }

static void put_track(FILE *out, const struct ha_fleet_machine *m)
{
    char name[200];
    const struct ha_fleet_track *t = m->track;
    fprintf(out, "%s ", ha_fleet_track_name(t, name));
    if (t->part) put_distance(out, !part_is_time(t->part), " ", m->by);
    else fprintf(out, "%.1f%% worse than", 100 * expm1(m->by));
}

static void put_column(FILE *out, const struct ha_fleet *f, const struct ha_fleet_machine *m)
{
    const struct ha_fleet_figure *figure = f->figure[m->column->figure];
    fprintf(out, "%s of %s ", figure->part ? figure->part->name : figure->name, figure->case_id);
    put_distance(out, figure->better == HA_MORE, figure->unit, m->by);
}

/* Other devices of one host: how many there are, and how many of these fit. */
static void put_neighbours(FILE *out, const struct ha_fleet *f, const struct ha_fleet_machine *m)
{
    size_t others = 0, fit = 0;
    if (!strcmp(m->host, m->name)) return;
    for (size_t i = 0; i < f->count; i++) {
        if (&f->machine[i] == m || strcmp(f->machine[i].host, m->host) != 0) continue;
        others++;
        fit += f->machine[i].state == HA_FLEET_FITS;
    }
    if (others)
        fprintf(out, "; of the %zu other%s of %s %zu fit%s", others, plural(others), m->host, fit, fit == 1 ? "s" : "");
}

static void put_standing_out(FILE *out, const struct ha_fleet *f, const struct ha_fleet_machine *m)
{
    const struct ha_fleet_group *g = &f->group[m->group];
    if (m->track) put_track(out, m);
    else put_column(out, f, m);
    fprintf(out, " the median of %zu (%.1f sigma)", m->track ? m->track->at.count : m->column->machines, m->sigmas);
    const size_t follow = m->figures && !m->track ? m->figures - 1 : m->figures;
    if (follow) fprintf(out, ", %zu figure%s follow%s it", follow, plural(follow), follow == 1 ? "s" : "");
    if (*g->kinds) fprintf(out, " (of the group of %zu)", g->count);
    put_neighbours(out, f, m);
}

static const char *next(const char **separator)
{
    const char *now = *separator;
    *separator = "; ";
    return now;
}

/* Of two or three the ratios are known, and not what they are worth. */
static void put_too_few(FILE *out, const struct ha_fleet_group *g, const struct ha_fleet_machine *m,
                        const char *separator)
{
    fprintf(out, "%sone of %zu machine%s of its kind: too few to stand out", separator, g->count, plural(g->count));
    for (size_t k = 0; k < g->tracks && g->count > 1; k++)
        if (!g->track[k].part && !g->track[k].suite && !isnan(g->track[k].x[m->place]))
            fprintf(out, "; all times and rates %.1f%% %s than their median",
                    100 * fabs(expm1(g->track[k].x[m->place])), g->track[k].x[m->place] < 0 ? "better" : "worse");
}

void ha_fleet_machine_line(FILE *out, const struct ha_fleet *f, const struct ha_fleet_machine *m)
{
    const char *separator = "";
    if (m->failed || m->errors || *m->said) fprintf(out, "%s%s", next(&separator), m->said);
    if (m->failed > 1) fprintf(out, ", and %zu more", m->failed - 1);
    if (m->errors && m->failed) fprintf(out, "%s%zu case%s not judged", next(&separator), m->errors, plural(m->errors));
    else if (m->errors > 1) fprintf(out, ", and %zu more", m->errors - 1);
    if (m->disagrees)
        fprintf(out, "%sthe outputs of %zu case%s are not those of the others", next(&separator), m->disagrees,
                plural(m->disagrees));
    if (m->track || m->column) {
        fputs(next(&separator), out);
        put_standing_out(out, f, m);
    }
    if (m->lacks) fprintf(out, "%slacks %zu case%s that others have", next(&separator), m->lacks, plural(m->lacks));
    if (m->record && m->cases_count && 2 * m->disturbed > m->cases_count)
        fprintf(out, "%ssomething else used the cores in %zu of %zu cases", next(&separator), m->disturbed,
                m->cases_count);
    if (m->state == HA_FLEET_TOO_FEW) put_too_few(out, &f->group[m->group], m, next(&separator));
    if (!*separator) fputs("as the others", out);
}

void ha_fleet_disagreement_line(FILE *out, const struct ha_fleet *f, const struct ha_fleet_disagreement *d)
{
    const struct ha_fleet_case *of = &f->of[d->of];
    fprintf(out, "outputs of %s (%s)%s%s: ", of->id, of->mode, *of->plan ? ", plan " : "", of->plan);
    if (d->known)
        fprintf(out, "%zu machine%s agree%s on %016llx, %zu %s not", d->agree, plural(d->agree),
                d->agree == 1 ? "s" : "", (unsigned long long)d->most, d->others, d->others == 1 ? "does" : "do");
    else if (d->agree + d->others == 2) fputs("two machines disagree, and two cannot say who is right", out);
    else if (d->agree + d->others == 1) fputs("its own processes disagree", out);
    else fprintf(out, "%zu machines disagree, and no half of them agrees", d->agree + d->others);
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* From where on half of the single figures of the largest group would have named a machine. */
static double sight(const struct ha_fleet_group *g)
{
    double *x = malloc((g->columns + 1) * sizeof *x);
    size_t n = 0;
    for (size_t i = 0; x && i < g->columns; i++)
        if (g->column[i].at.count >= HA_SPREAD_LEAST) x[n++] = g->column[i].least;
    if (n) qsort(x, n, sizeof *x, by_size);
    const double half = n ? x[n / 2] : (double)INFINITY;
    free(x);
    return half;
}

static void put_sight(FILE *out, const struct ha_fleet *f)
{
    if (!f->groups) return;
    const struct ha_fleet_group *g = &f->group[0];
    char name[200];
    const char *separator = "; one machine would have stood out by ";
    if (!g->judged) {
        fprintf(out, "; too few machines of one kind to stand out: it takes %d", HA_SPREAD_LEAST);
        return;
    }
    for (size_t k = 0; k < g->tracks; k++) {
        if (g->track[k].suite || g->track[k].least > FAR) continue;
        fprintf(out, "%s%s from %.1f%% on", separator, ha_fleet_track_name(&g->track[k], name),
                100 * expm1(g->track[k].least));
        separator = ", ";
    }
    const double half = sight(g);
    if (half < FAR) fprintf(out, "%sa single figure, half of them, from %.1f%% on", separator, 100 * expm1(half));
}

void ha_fleet_verdict_line(FILE *out, const struct ha_fleet *f)
{
    size_t of[HA_FLEET_STATES] = { 0 };
    fprintf(out, "%s: %zu machine%s in %zu group%s", ha_fleet_word(f), f->count, plural(f->count), f->groups,
            plural(f->groups));
    for (size_t i = 0; i < f->count; i++) of[f->machine[i].state]++;
    for (int s = HA_FLEET_STATES; s-- > HA_FLEET_FITS + 1;)
        if (of[s]) fprintf(out, ", %zu %s", of[s], ha_fleet_state_of((enum ha_fleet_state)s, of[s]));
    if (f->never_began) fprintf(out, ", %zu rank%s never began", f->never_began, plural(f->never_began));
    for (size_t i = 0; i < f->groups; i++)
        if (*f->group[i].kinds && strstr(f->group[i].kinds, "slower")) fprintf(out, "; %s", f->group[i].kinds);
    put_sight(out, f);
}

char *ha_fleet_line(const struct ha_fleet *f, const struct ha_fleet_machine *m, const struct ha_fleet_disagreement *d)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out) return NULL;
    if (m) ha_fleet_machine_line(out, f, m);
    else if (d) ha_fleet_disagreement_line(out, f, d);
    else ha_fleet_verdict_line(out, f);
    fclose(out);
    return text;
}

/* ---- what differs ------------------------------------------------------------------------------------------------ */

static bool add_value(struct ha_fleet_difference *d, const char *value, const char *machine)
{
    size_t k = 0;
    while (k < d->values && d->value[k].value != value) k++; /* texts are kept once */
    if (k == d->values) {
        if (!ha_array_room(&d->value, &d->room, k + 1, sizeof *d->value)) return false;
        d->value[d->values++] = (struct ha_fleet_value_of_fact){ .value = value };
    }
    if (d->value[k].count < 5) d->value[k].machine[d->value[k].count] = machine;
    d->value[k].count++;
    return true;
}

static int by_count(const void *a, const void *b)
{
    const struct ha_fleet_value_of_fact *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return strcmp(x->value, y->value);
}

static int rank_of(const char *name)
{
    static const char *const first[] = { "driver_version", "bios", "microcode", "kernel", "libc", "governor" };
    const int count = sizeof first / sizeof *first;
    for (int i = 0; i < count; i++)
        if (strstr(name, first[i])) return i;
    return count;
}

static int by_rank(const void *a, const void *b)
{
    const struct ha_fleet_difference *x = a, *y = b;
    const int order = rank_of(x->name) - rank_of(y->name);
    return order ? order : strcmp(x->name, y->name);
}

struct ha_fleet_difference *ha_fleet_differences(const struct ha_fleet *f, const struct ha_fleet_group *g,
                                                 size_t *count)
{
    enum { VALUES_MOST = 50 }; /* what is another one on each machine is no difference to be looked at */
    struct ha_fleet_difference *all = calloc(f->facts + 1, sizeof *all);
    *count = 0;
    for (size_t i = 0; i < f->facts && all; i++) {
        struct ha_fleet_difference d = { .name = f->fact[i] };
        for (size_t k = 0; k < g->count && d.values <= VALUES_MOST; k++)
            if (!add_value(&d, ha_fleet_fact_of(&f->machine[g->machine[k]], i), f->machine[g->machine[k]].name)) break;
        if (d.values > 1) {
            qsort(d.value, d.values, sizeof *d.value, by_count);
            all[(*count)++] = d;
        } else free(d.value);
    }
    if (*count) qsort(all, *count, sizeof *all, by_rank);
    return all;
}

void ha_fleet_differences_free(struct ha_fleet_difference *d, size_t count)
{
    for (size_t i = 0; i < count; i++) free(d[i].value);
    free(d);
}

static void print_differences(FILE *out, const struct ha_fleet *f, const struct ha_fleet_group *g)
{
    enum { VALUES_SHOWN = 4 };
    size_t count;
    struct ha_fleet_difference *all = ha_fleet_differences(f, g, &count);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "  differs  %s: ", all[i].name);
        for (size_t v = 0; v < all[i].values && v < VALUES_SHOWN; v++) {
            const struct ha_fleet_value_of_fact *value = &all[i].value[v];
            fprintf(out, "%s%s (%zu", v ? ", " : "", *value->value ? value->value : "not said", value->count);
            for (size_t k = 0; v && k < value->count && k < 3; k++)
                fprintf(out, "%s%s", k ? ", " : ": ", value->machine[k]);
            fprintf(out, "%s)", v && value->count > 3 ? ", ..." : "");
        }
        if (all[i].values > VALUES_SHOWN) fprintf(out, ", and %zu more", all[i].values - VALUES_SHOWN);
        putc('\n', out);
    }
    ha_fleet_differences_free(all, count);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* of one state, the most suspicious first */
static void print_state(FILE *out, const struct ha_fleet *f, const size_t *order, enum ha_fleet_state state,
                        size_t most)
{
    size_t lines = 0;
    for (size_t i = 0; i < f->count; i++) {
        const struct ha_fleet_machine *m = &f->machine[order[i]];
        if (m->state != state || lines++ >= most) continue;
        fprintf(out, "%-14s  %s: ", ha_fleet_state_word(state), m->name);
        ha_fleet_machine_line(out, f, m);
        putc('\n', out);
    }
    if (lines > most) fprintf(out, "and %zu more of these\n", lines - most);
}

static void print_machines(FILE *out, const struct ha_fleet *f)
{
    enum { MISSING_MOST = 1000 }; /* who is not there is named, whatever many there are */
    size_t *order = ha_fleet_order(f);
    for (int s = HA_FLEET_DIED; s >= HA_FLEET_MISSING && order; s--)
        print_state(out, f, order, (enum ha_fleet_state)s, MISSING_MOST);
    if (f->never_began)
        fprintf(out, "%-14s  %zu rank%s: there are fewer rank files than ranks\n", "never began", f->never_began,
                plural(f->never_began));
    for (size_t i = 0; i < f->disagreements && i < LINES_MOST; i++) {
        fprintf(out, "%-14s  ", "disagree");
        ha_fleet_disagreement_line(out, f, &f->disagreement[i]);
        putc('\n', out);
    }
    if (f->disagreements > LINES_MOST) fprintf(out, "and %zu more of these\n", f->disagreements - LINES_MOST);
    static const enum ha_fleet_state behind[] = { HA_FLEET_WRONG, HA_FLEET_DISAGREES, HA_FLEET_STANDS_OUT,
                                                  HA_FLEET_DISTURBED, HA_FLEET_TOO_FEW };
    for (size_t i = 0; i < sizeof behind / sizeof *behind && order; i++)
        print_state(out, f, order, behind[i], LINES_MOST);
    free(order);
}

static const char *noticed(char out[HA_AMOUNT], double least)
{
    if (least > FAR) snprintf(out, HA_AMOUNT, "-");
    else snprintf(out, HA_AMOUNT, "%.1f%%", 100 * expm1(least));
    return out;
}

static void print_tracks(FILE *out, const struct ha_fleet_group *g)
{
    char name[200], least[HA_AMOUNT];
    for (size_t k = 0; k < g->tracks && g->judged; k++)
        fprintf(out, "  %-44s spread %5.2f%%  noticed from %s\n", ha_fleet_track_name(&g->track[k], name),
                100 * expm1(g->track[k].at.sd), noticed(least, g->track[k].least));
}

/* The first time or rate of each case. */
static void print_columns(FILE *out, const struct ha_fleet *f, const struct ha_fleet_group *g)
{
    size_t rows = 0;
    const struct ha_fleet_figure *last = NULL;
    for (size_t k = 0; k < g->columns; k++) {
        const struct ha_fleet_column *c = &g->column[k];
        const struct ha_fleet_figure *figure = f->figure[c->figure];
        if (!figure->speed || figure->part || (last && last->case_id == figure->case_id)) continue;
        last = figure;
        char median[HA_AMOUNT], least[HA_AMOUNT], spread[HA_AMOUNT];
        if (!rows) fprintf(out, "  %8s %12s %8s %8s  case and figure\n", "machines", "median", "spread", "noticed");
        if (rows++ >= ROWS_MOST) continue;
        if (isnan(c->at.sd)) snprintf(spread, sizeof spread, "-");
        else snprintf(spread, sizeof spread, "%.2f%%", 100 * expm1(c->at.sd));
        fprintf(out, "  %8zu %12s %8s %8s  %s %s\n", c->machines,
                ha_amount(median, ha_fleet_value_of(figure, c->at.middle), figure->unit), spread,
                noticed(least, c->least), figure->case_id, figure->name);
    }
    if (rows > ROWS_MOST) fprintf(out, "  and %zu more (--format json has all)\n", rows - ROWS_MOST);
}

void ha_fleet_print_table(FILE *out, const struct ha_fleet *f)
{
    ha_fleet_verdict_line(out, f);
    putc('\n', out);
    print_machines(out, f);
    for (size_t i = 0; i < f->groups; i++) {
        const struct ha_fleet_group *g = &f->group[i];
        const struct ha_fleet_machine *m = &f->machine[g->machine[0]];
        fprintf(out, "\ngroup %zu: %zu machine%s, %s, build %s\n", i + 1, g->count, plural(g->count), g->name,
                *m->build ? m->build : "unknown");
        if (*g->kinds) fprintf(out, "  %s\n", g->kinds);
        print_differences(out, f, g);
        print_tracks(out, g);
        print_columns(out, f, g);
    }
    if (*f->notes) fprintf(out, "\n%s", f->notes);
}

/* ---- two fleets -------------------------------------------------------------------------------------------------- */

static void put_shift(FILE *out, const struct ha_fleet_shift *s)
{
    fprintf(out, "since %s: %zu machine%s in both, all times and rates %+.1f%% (%.1f to %.1f)", s->before->path,
            s->machines, plural(s->machines), 100 * expm1(s->by), 100 * expm1(s->lo), 100 * expm1(s->hi));
    if (s->gone) fprintf(out, ", %zu gone", s->gone);
    if (s->added) fprintf(out, ", %zu added", s->added);
    if (isfinite(s->least))
        fprintf(out, "; one machine beside the others noticed from %.1f%% on", 100 * expm1(s->least));
    else fprintf(out, "; fewer than %d machines: none is judged beside the others", HA_SPREAD_LEAST);
}

void ha_fleet_shift_print_table(FILE *out, const struct ha_fleet_shift *s)
{
    putc('\n', out);
    put_shift(out, s);
    putc('\n', out);
    for (size_t i = 0; i < s->machines && i < LINES_MOST; i++) {
        const struct ha_fleet_moved *m = &s->machine[i];
        if (isnan(m->by)) continue;
        fprintf(out, "%-14s  %s: %+.1f%%", m->called ? "slower" : "", m->machine->name, 100 * expm1(m->by));
        if (isfinite(m->sigmas)) fprintf(out, ", %+.1f sigma from the others", m->sigmas);
        putc('\n', out);
    }
    for (size_t i = 0; i < s->figures && i < LINES_MOST; i++) {
        const struct ha_fleet_figure_moved *f = &s->figure[i];
        fprintf(out, "%-14s  %s %s: %+.1f%% worse (%.1f to %.1f) on %zu machine%s\n", f->called ? "worse" : "",
                f->figure->case_id, f->figure->part ? f->figure->part->name : f->figure->name, 100 * expm1(f->by),
                100 * expm1(f->lo), 100 * expm1(f->hi), f->machines, plural(f->machines));
    }
}
