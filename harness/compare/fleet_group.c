#include "harness/compare/fleet_parts.h"

#include "harness/base/array.h"
#include "harness/base/why.h"
#include "harness/compare/facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "out of memory"); }

/* ---- machines of one kind ---------------------------------------------------------------------------------------- */

const char *ha_fleet_fact_of(const struct ha_fleet_machine *m, size_t fact)
{
    return fact < m->facts ? m->fact[fact] : "";
}

static bool same_kind(const struct ha_fleet *f, const struct ha_fleet_machine *a, const struct ha_fleet_machine *b)
{
    for (size_t i = 0; i < f->facts; i++) {
        const char *x = ha_fleet_fact_of(a, i), *y = ha_fleet_fact_of(b, i); /* kept once each */
        if (x != y && f->fact_of_kind[i] && ha_fact_change(f->fact[i], x, y) != HA_FACT_SAME) return false;
    }
    return true;
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

static bool room_for(struct ha_fleet_room *r, size_t n, size_t figures)
{
    *r = (struct ha_fleet_room){ .x = malloc((n + 1) * sizeof *r->x),
                                 .best = malloc((n + 1) * sizeof *r->best),
                                 .work = malloc(2 * (n + figures + 1) * sizeof *r->work),
                                 .next = calloc(n + 1, sizeof *r->next) };
    return r->x && r->best && r->work && r->next;
}

static void room_free(struct ha_fleet_room *r)
{
    free(r->x);
    free(r->best);
    free(r->work);
    free(r->next);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void quantiles(double out[7], const double *x, size_t n, double *work)
{
    static const double at[7] = { 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99 };
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (!isnan(x[i])) work[count++] = x[i];
    qsort(work, count, sizeof *work, by_size);
    for (size_t k = 0; k < 7; k++) {
        const double place = at[k] * (double)(count - 1);
        const size_t i = (size_t)place;
        out[k] = i + 1 < count ? work[i] + (place - (double)i) * (work[i + 1] - work[i]) : work[i];
    }
}

/* Each machine's values stand by figure: one walk over all machines takes them figure by figure. */
static enum ha_status find_columns(const struct ha_fleet *f, struct ha_fleet_group *g, struct ha_fleet_room *r,
                                   struct ha_why *why)
{
    size_t room = 0;
    g->column_of = malloc((f->figures + 1) * sizeof *g->column_of);
    if (!g->column_of) return no_memory(why);
    for (size_t figure = 0; figure < f->figures; figure++) {
        size_t machines = 0;
        for (size_t i = 0; i < g->count; i++) {
            const struct ha_fleet_machine *m = &f->machine[g->machine[i]];
            const struct ha_fleet_value *v = &m->value[r->next[i]];
            const bool has = r->next[i] < m->values && v->figure == figure;
            r->x[i] = has ? v->x : (double)NAN;
            r->best[i] = has ? v->best : (double)NAN;
            r->next[i] += has;
            machines += has;
        }
        g->column_of[figure] = machines ? g->columns : SIZE_MAX;
        if (!machines) continue;
        if (!ha_array_room(&g->column, &room, g->columns + 1, sizeof *g->column)) return no_memory(why);
        struct ha_fleet_column *c = &g->column[g->columns++];
        *c = (struct ha_fleet_column){ .figure = (uint32_t)figure, .machines = machines, .least = (double)INFINITY };
        quantiles(c->quantile, r->x, g->count, r->work);
        c->at = ha_spread_find(r->x, g->count, r->work);
        c->best = ha_spread_find(r->best, g->count, r->work);
    }
    return HA_OK;
}

/* ---- tracks ------------------------------------------------------------------------------------------------------ */

enum { TRACK_COLUMNS = 4 }; /* a sum of fewer figures is none */

static bool of_track(const struct ha_fleet_track *t, const struct ha_fleet_figure *f)
{
    if (t->part || f->part) return t->part == f->part;
    return f->speed && (!t->suite || t->suite == f->suite); /* texts are kept once */
}

static size_t columns_of(const struct ha_fleet *f, const struct ha_fleet_group *g, const struct ha_fleet_track *t)
{
    size_t n = 0;
    for (size_t i = 0; i < g->columns; i++) n += of_track(t, f->figure[g->column[i].figure]);
    return n;
}

static bool add_track(const struct ha_fleet *f, struct ha_fleet_group *g, size_t *room,
                      const struct ha_part_of_machine *part, const char *suite)
{
    struct ha_fleet_track t = { .part = part, .suite = suite, .least = (double)INFINITY };
    t.columns = columns_of(f, g, &t);
    if (t.columns < TRACK_COLUMNS) return true;
    t.x = malloc((g->count + 1) * sizeof *t.x);
    if (!t.x || !ha_array_room(&g->track, room, g->tracks + 1, sizeof *g->track)) {
        free(t.x);
        return false;
    }
    g->track[g->tracks++] = t;
    return true;
}

static bool has_suite(const struct ha_fleet_group *g, const char *suite)
{
    for (size_t i = 0; i < g->tracks; i++)
        if (g->track[i].suite == suite) return true;
    return false;
}

/* Parts in their order, all, suites. */
static enum ha_status list_tracks(const struct ha_fleet *f, struct ha_fleet_group *g, struct ha_why *why)
{
    size_t room = 0;
    for (const struct ha_part_of_machine *p = ha_parts_of_machine; p->figure; p++)
        if (!add_track(f, g, &room, p, NULL)) return no_memory(why);
    if (!add_track(f, g, &room, NULL, NULL)) return no_memory(why);
    for (size_t i = 0; i < g->columns; i++) {
        const struct ha_fleet_figure *figure = f->figure[g->column[i].figure];
        if (figure->part || !figure->speed || has_suite(g, figure->suite)) continue;
        if (!add_track(f, g, &room, NULL, figure->suite)) return no_memory(why);
    }
    return HA_OK;
}

/* How far a machine is from the middles of the figures of a track: the median of all. */
static double sum_of(const struct ha_fleet *f, const struct ha_fleet_group *g, const struct ha_fleet_machine *m,
                     const struct ha_fleet_track *t, double *work)
{
    size_t n = 0;
    for (size_t i = 0; i < m->values; i++) {
        const struct ha_fleet_column *c = &g->column[g->column_of[m->value[i].figure]];
        if (of_track(t, f->figure[c->figure])) work[n++] = m->value[i].x - c->at.middle;
    }
    if (n < TRACK_COLUMNS || 2 * n < t->columns) return (double)NAN;
    qsort(work, n, sizeof *work, by_size);
    return (work[(n - 1) / 2] + work[n / 2]) / 2;
}

static enum ha_status find_tracks(const struct ha_fleet *f, struct ha_fleet_group *g, struct ha_fleet_room *r,
                                  struct ha_why *why)
{
    HA_TRY(list_tracks(f, g, why));
    for (size_t k = 0; k < g->tracks; k++) {
        struct ha_fleet_track *t = &g->track[k];
        for (size_t i = 0; i < g->count; i++) t->x[i] = sum_of(f, g, &f->machine[g->machine[i]], t, r->work);
        t->at = ha_spread_find(t->x, g->count, r->work);
    }
    return HA_OK;
}

/* ---- two kinds --------------------------------------------------------------------------------------------------- */

/* Two kinds are apart by so much, and so many times the spread of either; a tenth of the machines are of the fewer, or
 * three. */
static const double kinds_apart = 0.03, kinds_spreads = 4;
enum { KIND_LEAST = 3 };

static double median_of(const double *x, size_t n) { return (x[(n - 1) / 2] + x[n / 2]) / 2; }

/* Where a track has two kinds of machines; infinity: it has one. */
static double cut_of(const struct ha_fleet_track *t, size_t count, struct ha_fleet_room *r, double *apart)
{
    size_t n = 0, at = 0;
    for (size_t i = 0; i < count; i++)
        if (!isnan(t->x[i])) r->x[n++] = t->x[i];
    qsort(r->x, n, sizeof *r->x, by_size);
    const size_t least = n / 10 > KIND_LEAST ? n / 10 : KIND_LEAST;
    for (size_t i = least; i + least <= n; i++)
        if (!at || r->x[i] - r->x[i - 1] > r->x[at] - r->x[at - 1]) at = i;
    if (!at) return (double)INFINITY;
    const double gap = r->x[at] - r->x[at - 1];
    const struct ha_spread a = ha_spread_find(r->x, at, r->work), b = ha_spread_find(r->x + at, n - at, r->work);
    double wide = 0;
    if (a.count >= HA_SPREAD_LEAST) wide = a.sd;
    if (b.count >= HA_SPREAD_LEAST) wide = fmax(wide, b.sd);
    *apart = median_of(r->x + at, n - at) - median_of(r->x, at);
    return gap > kinds_apart && gap > kinds_spreads * wide ? r->x[at] - gap / 2 : (double)INFINITY;
}

const char *ha_fleet_track_name(const struct ha_fleet_track *t, char out[200])
{
    if (t->part) return t->part->name;
    if (!t->suite) return "all times and rates";
    snprintf(out, 200, "times and rates of %.150s", t->suite);
    return out;
}

static void group_free(struct ha_fleet_group *g)
{
    for (size_t k = 0; k < g->tracks; k++) free(g->track[k].x);
    free(g->machine);
    free(g->column);
    free(g->column_of);
    free(g->track);
}

static enum ha_status add_group(struct ha_fleet *f, size_t *machine, size_t count, const char *kinds, int depth,
                                struct ha_why *why);

/* The faster and the slower ones, each a group of its own. */
static enum ha_status split(struct ha_fleet *f, const struct ha_fleet_group *g, const struct ha_fleet_track *t,
                            double cut, double apart, int depth, struct ha_why *why)
{
    for (int slower = 0; slower < 2; slower++) {
        size_t n = 0, *machine = malloc((g->count + 1) * sizeof *machine);
        char kinds[sizeof g->kinds], name[200];
        if (!machine) return no_memory(why);
        for (size_t i = 0; i < g->count; i++)
            if ((t->x[i] > cut) == slower) machine[n++] = g->machine[i];
        snprintf(kinds, sizeof kinds, "two kinds, %.90s %.1f%% apart: these are the %s %zu of %zu",
                 ha_fleet_track_name(t, name), 100 * expm1(apart), slower ? "slower" : "faster", n, g->count);
        HA_TRY(add_group(f, machine, n, kinds, depth + 1, why));
    }
    return HA_OK;
}

/* Takes the machines. */
static enum ha_status add_group(struct ha_fleet *f, size_t *machine, size_t count, const char *kinds, int depth,
                                struct ha_why *why)
{
    enum { DEPTH_MOST = 3 };
    struct ha_fleet_group g = { .machine = machine, .count = count };
    struct ha_fleet_room r;
    snprintf(g.kinds, sizeof g.kinds, "%s", kinds);
    enum ha_status status = room_for(&r, count, f->figures) ? HA_OK : no_memory(why);
    if (status == HA_OK) status = find_columns(f, &g, &r, why);
    if (status == HA_OK) status = find_tracks(f, &g, &r, why);
    double cut = (double)INFINITY, apart = 0;
    size_t k = 0;
    for (; status == HA_OK && depth < DEPTH_MOST && k < g.tracks; k++)
        if (isfinite(cut = cut_of(&g.track[k], count, &r, &apart))) break;
    room_free(&r);
    if (status == HA_OK && isfinite(cut)) status = split(f, &g, &g.track[k], cut, apart, depth, why);
    else if (status == HA_OK) {
        g.judged = count >= HA_SPREAD_LEAST;
        for (size_t i = 0; i < count; i++) {
            f->machine[machine[i]].group = f->groups;
            f->machine[machine[i]].place = i;
        }
        if (!ha_array_room(&f->group, &f->groups_room, f->groups + 1, sizeof *f->group)) status = no_memory(why);
        else {
            f->group[f->groups++] = g;
            return HA_OK;
        }
    }
    group_free(&g);
    return status;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static bool is_device_name(const char *fact)
{
    const size_t n = strlen(fact);
    return !strncmp(fact, "device ", 7) && n > 6 && !strcmp(fact + n - 6, ": name");
}

/* "AMD EPYC 7B13, 64 cores, NVIDIA H100" */
static void name_group(const struct ha_fleet *f, struct ha_fleet_group *g)
{
    const struct ha_fleet_machine *m = &f->machine[g->machine[0]];
    const char *cpu = "", *cores = "";
    for (size_t i = 0; i < f->facts; i++) {
        if (!strcmp(f->fact[i], "cpu")) cpu = ha_fleet_fact_of(m, i);
        if (!strcmp(f->fact[i], "cores")) cores = ha_fleet_fact_of(m, i);
    }
    size_t n = (size_t)snprintf(g->name, sizeof g->name, "%.70s%s%.12s%s", *cpu ? cpu : "unknown CPU",
                                *cores ? ", " : "", cores, *cores ? " cores" : "");
    for (size_t i = 0; i < f->facts && n < sizeof g->name; i++)
        if (is_device_name(f->fact[i]) && *ha_fleet_fact_of(m, i))
            n += (size_t)snprintf(g->name + n, sizeof g->name - n, ", %.60s", ha_fleet_fact_of(m, i));
}

static int by_count(const void *a, const void *b)
{
    const struct ha_fleet_group *x = a, *y = b;
    return (x->count < y->count) - (x->count > y->count);
}

enum ha_status ha_fleet_group(struct ha_fleet *f, struct ha_why *why)
{
    for (size_t i = 0; i < f->count; i++) f->machine[i].alike = SIZE_MAX;
    for (size_t i = 0; i < f->count; i++) {
        if (!f->machine[i].record || f->machine[i].alike != SIZE_MAX) continue;
        size_t n = 0, *machine = malloc((f->count - i) * sizeof *machine);
        if (!machine) return no_memory(why);
        for (size_t k = i; k < f->count; k++) {
            struct ha_fleet_machine *m = &f->machine[k];
            if (!m->record || m->alike != SIZE_MAX || !same_kind(f, &f->machine[i], m)) continue;
            m->alike = i;
            machine[n++] = k;
        }
        HA_TRY(add_group(f, machine, n, "", 0, why));
    }
    if (f->groups) qsort(f->group, f->groups, sizeof *f->group, by_count);
    for (size_t i = 0; i < f->groups; i++) {
        name_group(f, &f->group[i]);
        for (size_t k = 0; k < f->group[i].count; k++) f->machine[f->group[i].machine[k]].group = i;
    }
    return HA_OK;
}
