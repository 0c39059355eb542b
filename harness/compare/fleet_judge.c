#include "harness/compare/fleet_parts.h"

#include "harness/base/array.h"
#include "harness/base/why.h"
#include "harness/compare/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Half of the chance of a false name is that of sums of figures, half that of single ones. */
static const double alpha_each = HA_FLEET_ALPHA / 2;
/* Of the figures of machines that are named, so many may be called that are right (Benjamini & Bogomolov, JRSS B 76,
 * 2014). */
static const double alpha_within = 0.05;
static const double z_nine_of_ten = 1.282;
/* A part that is nearly as far out as the farthest, and stands before it, is what the other one is for. */
static const double as_far = 0.8;

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "out of memory"); }

/* A list of numbers that grows. */
struct numbers {
    double *x;
    size_t count, room;
};

static bool add(struct numbers *n, double x)
{
    if (!ha_array_room(&n->x, &n->room, n->count + 1, sizeof *n->x)) return false;
    n->x[n->count++] = x;
    return true;
}

/* ---- tails ------------------------------------------------------------------------------------------------------- */

static const double certain_enough = 1; /* standard errors */

/* The tail of all values together. So many of them say it farther out than a few do; and farther out yet it may be
 * longer than where it is looked at. */
static double shared_tail(struct numbers *all)
{
    enum { MANY = 2000, VERY_MANY = 20000 };
    const bool many = all->count >= MANY;
    const double part = !many ? 0.05 : all->count < VERY_MANY ? 0.02 : 0.005;
    return (many ? 1.5 : 1.25) * ha_spread_heavy(all->x, all->count, part, many ? -1 : -0.5);
}

static void add_above(struct numbers *n, const struct ha_spread *s, double by)
{
    const double above = by / s->sd;
    if (above > 0 && above < s->gap) add(n, above);
}

/* Of few machines it is assumed, of more what all figures have together, of many each has its own where it is longer
 * beyond chance. */
static double tail_of(const struct ha_spread *s, double shared, double own)
{
    if (s->count < HA_SPREAD_SHARED) return HA_SPREAD_HEAVY;
    return s->count < HA_SPREAD_TAILS ? shared : fmax(shared, own);
}

/* All tracks of a group have the tails of all together, or their own where these are longer beyond chance. A sum of
 * figures has two sides that are alike: both tell. Those of suites are much the same as that of all. */
static void tails_of_tracks(struct ha_fleet_group *g)
{
    struct numbers all = { 0 };
    for (size_t k = 0; k < g->tracks; k++)
        for (size_t i = 0; i < g->count && !g->track[k].suite; i++)
            add_above(&all, &g->track[k].at, fabs(g->track[k].x[i] - g->track[k].at.middle));
    const double shared = shared_tail(&all);
    for (size_t k = 0; k < g->tracks; k++) {
        struct ha_spread *s = &g->track[k].at;
        all.count = 0;
        for (size_t i = 0; i < g->count; i++) add_above(&all, s, g->track[k].x[i] - s->middle);
        s->heavy = tail_of(s, shared, ha_spread_heavy(all.x, all.count, 0.05, certain_enough));
    }
    free(all.x);
}

/* The same of columns; of each as many machines as tell a tail. */
static enum ha_status tails_of_columns(const struct ha_fleet *f, struct ha_fleet_group *g, struct ha_why *why)
{
    enum { TOLD_BY = 4000, SHARED_BY = 400000 };
    struct numbers *own = calloc(g->columns + 1, sizeof *own), all = { 0 };
    if (!own) return no_memory(why);
    const size_t step = 1 + g->count / TOLD_BY, sparse = 1 + g->columns * (g->count / step) / SHARED_BY;
    for (size_t i = 0, k = 0; i < g->count; i += step) {
        const struct ha_fleet_machine *m = &f->machine[g->machine[i]];
        for (size_t v = 0; v < m->values; v++) {
            const size_t column = g->column_of[m->value[v].figure];
            const struct ha_spread *s = &g->column[column].at;
            add_above(&own[column], s, m->value[v].x - s->middle);
            if (k++ % sparse == 0) add_above(&all, s, m->value[v].x - s->middle);
        }
    }
    const double shared = shared_tail(&all);
    for (size_t k = 0; k < g->columns; k++) {
        struct ha_fleet_column *c = &g->column[k];
        c->at.heavy = c->best.heavy = tail_of(&c->at, shared,
                                              ha_spread_heavy(own[k].x, own[k].count, 0.05, certain_enough));
        free(own[k].x);
    }
    free(own);
    free(all.x);
    return HA_OK;
}

/* ---- chances ----------------------------------------------------------------------------------------------------- */

/* A machine of which fewer than five processes say it may not be named by one figure. */
static struct ha_fleet_cell cell_of(const struct ha_fleet_group *g, const struct ha_fleet_value *v)
{
    const struct ha_fleet_column *c = &g->column[g->column_of[v->figure]];
    struct ha_fleet_cell cell = { .column = c, .by = v->x - c->at.middle, .p = 1 };
    const double best = v->best - c->best.middle;
    cell.sigmas = cell.by / c->at.sd;
    if (!g->judged || !(cell.by > HA_SHIFT_LEAST) || !(best > HA_SHIFT_LEAST)) return cell;
    cell.p = fmax(ha_spread_chance(&c->at, cell.by), ha_spread_chance(&c->best, best));
    return cell;
}

struct ha_fleet_cell ha_fleet_cell(const struct ha_fleet *f, const struct ha_fleet_machine *m, size_t value)
{
    struct ha_fleet_cell cell = cell_of(&f->group[m->group], &m->value[value]);
    cell.called = cell.p <= m->threshold;
    return cell;
}

static double chance_of_track(const struct ha_fleet_group *g, const struct ha_fleet_track *t, size_t place)
{
    const double by = t->x[place] - t->at.middle;
    return g->judged && by > HA_SHIFT_LEAST ? ha_spread_chance(&t->at, by) : 1;
}

/* From which sums, and from which single figures, a machine is named. */
static enum ha_status find_thresholds(struct ha_fleet *f, double *of_tracks, struct ha_why *why)
{
    struct numbers tracks = { 0 }, cells = { 0 };
    bool room = true;
    for (size_t i = 0; i < f->groups; i++) {
        const struct ha_fleet_group *g = &f->group[i];
        f->sums += g->judged ? g->tracks * g->count : 0;
        for (size_t k = 0; k < g->count && g->judged; k++) {
            const struct ha_fleet_machine *m = &f->machine[g->machine[k]];
            for (size_t t = 0; t < g->tracks; t++) {
                const double p = chance_of_track(g, &g->track[t], k);
                if (p <= alpha_each) room &= add(&tracks, p);
            }
            f->cells += m->values;
            for (size_t v = 0; v < m->values; v++) {
                const double p = m->value[v].processes < HA_FLEET_PROCESSES ? 1 : cell_of(g, &m->value[v]).p;
                if (p <= alpha_each) room &= add(&cells, p);
            }
        }
    }
    *of_tracks = ha_spread_threshold(tracks.x, tracks.count, (double)f->sums, alpha_each);
    f->named_p = ha_spread_threshold(cells.x, cells.count, (double)f->cells, alpha_each);
    free(tracks.x);
    free(cells.x);
    return room ? HA_OK : no_memory(why);
}

/* ---- machines ---------------------------------------------------------------------------------------------------- */

/* The first part that is about as far out as the farthest one; where there is none all times, then a suite. p: up to
 * this chance a track counts. */
static void choose_track(const struct ha_fleet_group *g, struct ha_fleet_machine *m, double p)
{
    double most = 0;
    m->track = NULL;
    for (size_t k = 0; k < g->tracks; k++)
        if (g->track[k].part && chance_of_track(g, &g->track[k], m->place) <= p)
            most = fmax(most, g->track[k].x[m->place] - g->track[k].at.middle);
    for (size_t k = 0; k < g->tracks && !m->track; k++) {
        const struct ha_fleet_track *t = &g->track[k];
        const double by = t->x[m->place] - t->at.middle;
        if (chance_of_track(g, t, m->place) > p || (t->part && by < as_far * most)) continue;
        m->track = t;
        m->by = by;
        m->sigmas = by / t->at.sd;
    }
}

/* The chance of the figure that is farthest out, of those that may name it. */
static double look_at_figures(const struct ha_fleet_group *g, struct ha_fleet_machine *m)
{
    double least = 1, least_of_any = 1;
    for (size_t v = 0; v < m->values; v++) {
        const struct ha_fleet_cell cell = cell_of(g, &m->value[v]);
        if (m->value[v].processes >= HA_FLEET_PROCESSES) least = fmin(least, cell.p);
        if (cell.p >= least_of_any) continue;
        least_of_any = cell.p;
        m->column = cell.column;
        m->by = cell.by;
        m->sigmas = cell.sigmas;
    }
    return least;
}

static double suspicion(double p, double of) { return fmax(0, -log10(fmax(1e-300, fmin(1, p * of)))); }

/* false: no memory. Of a machine that is named, which of its figures stand out; selected: the share of those named. */
static bool call_figures(const struct ha_fleet_group *g, struct ha_fleet_machine *m, double selected)
{
    struct numbers small = { 0 };
    bool room = true;
    for (size_t v = 0; v < m->values; v++) {
        const double p = cell_of(g, &m->value[v]).p;
        if (p <= alpha_within) room &= add(&small, p);
    }
    m->threshold = ha_spread_threshold(small.x, small.count, (double)m->values, alpha_within * selected);
    for (size_t i = 0; i < small.count; i++) m->figures += small.x[i] <= m->threshold;
    free(small.x);
    return room;
}

static void become(struct ha_fleet_machine *m, enum ha_fleet_state state)
{
    if (state > m->state) m->state = state;
}

static enum ha_status name_machines(struct ha_fleet *f, double of_tracks, struct ha_why *why)
{
    size_t named = 0, judged = 0;
    for (size_t i = 0; i < f->count; i++) {
        struct ha_fleet_machine *m = &f->machine[i];
        if (m->group == SIZE_MAX || !f->group[m->group].judged) continue;
        const struct ha_fleet_group *g = &f->group[m->group];
        double p = 1;
        for (size_t k = 0; k < g->tracks; k++) p = fmin(p, chance_of_track(g, &g->track[k], m->place));
        const double of_figures = look_at_figures(g, m);
        m->suspicion = fmax(suspicion(p, (double)f->sums), suspicion(of_figures, (double)f->cells));
        judged++;
        if (p > of_tracks && of_figures > f->named_p) {
            m->column = NULL;
            continue;
        }
        become(m, HA_FLEET_STANDS_OUT);
        named++;
    }
    const double selected = (double)named / (double)judged;
    for (size_t i = 0; i < f->count && named; i++) {
        struct ha_fleet_machine *m = &f->machine[i];
        if (m->state < HA_FLEET_STANDS_OUT || m->group == SIZE_MAX) continue;
        const struct ha_fleet_group *g = &f->group[m->group];
        const double each = alpha_within * selected / (double)(g->tracks + 1);
        choose_track(g, m, fmax(of_tracks, each));
        if (!call_figures(g, m, selected)) return no_memory(why);
        if (m->track) m->column = NULL;
    }
    return HA_OK;
}

/* ---- what would have been seen ----------------------------------------------------------------------------------- */

/* A shift of one machine that nine of ten times is named: of one figure, or of one sum, and nothing else. */
static double least_of(const struct ha_spread *s, double sd, double tests)
{
    if (s->count < HA_SPREAD_LEAST) return (double)INFINITY;
    return fmax(HA_SHIFT_LEAST, ha_spread_distance(s, alpha_each / tests)) + z_nine_of_ten * sd;
}

/* A figure that no machine has by enough processes names nobody, however far out it is. */
static void find_least(struct ha_fleet *f)
{
    for (size_t i = 0; i < f->groups; i++) {
        struct ha_fleet_group *g = &f->group[i];
        for (size_t k = 0; k < g->tracks && g->judged; k++)
            g->track[k].least = least_of(&g->track[k].at, g->track[k].at.sd, (double)f->sums);
        for (size_t k = 0; k < g->columns; k++) g->column[k].least = (double)INFINITY;
        for (size_t k = 0; k < g->count && g->judged; k++) {
            const struct ha_fleet_machine *m = &f->machine[g->machine[k]];
            for (size_t v = 0; v < m->values; v++) {
                struct ha_fleet_column *c = &g->column[g->column_of[m->value[v].figure]];
                if (m->value[v].processes < HA_FLEET_PROCESSES || !isinf(c->least)) continue;
                const struct ha_spread *wider = c->best.sd > c->at.sd ? &c->best : &c->at;
                c->least = least_of(wider, wider->sd, (double)f->cells);
            }
        }
    }
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

/* Cases that half of its group or more have, and it has not. */
static enum ha_status find_lacks(struct ha_fleet *f, struct ha_why *why)
{
    size_t *machines = malloc((f->ofs + 1) * sizeof *machines);
    if (!machines) return no_memory(why);
    for (size_t i = 0; i < f->groups; i++) {
        const struct ha_fleet_group *g = &f->group[i];
        size_t usual = 0;
        memset(machines, 0, (f->ofs + 1) * sizeof *machines);
        for (size_t k = 0; k < g->count; k++) {
            const struct ha_fleet_machine *m = &f->machine[g->machine[k]];
            for (size_t c = 0; c < m->cases_count; c++) machines[m->cases[c]]++;
        }
        for (size_t c = 0; c < f->ofs; c++) usual += machines[c] && 2 * machines[c] >= g->count;
        for (size_t k = 0; k < g->count; k++) {
            struct ha_fleet_machine *m = &f->machine[g->machine[k]];
            m->lacks = usual;
            for (size_t c = 0; c < m->cases_count; c++) m->lacks -= 2 * machines[m->cases[c]] >= g->count;
        }
    }
    free(machines);
    return HA_OK;
}

static void find_states(struct ha_fleet *f)
{
    for (size_t i = 0; i < f->count; i++) {
        struct ha_fleet_machine *m = &f->machine[i];
        if (!m->record) continue;
        if (!f->group[m->group].judged) become(m, HA_FLEET_TOO_FEW);
        if (2 * m->disturbed > m->cases_count) become(m, HA_FLEET_DISTURBED);
        if (m->lacks || m->errors) become(m, HA_FLEET_MISSING);
        if (m->disagrees) become(m, HA_FLEET_DISAGREES);
        if (m->failed) become(m, HA_FLEET_WRONG);
    }
}

enum ha_status ha_fleet_judge(struct ha_fleet *f, struct ha_why *why)
{
    double of_tracks;
    HA_TRY(ha_fleet_group(f, why));
    for (size_t i = 0; i < f->groups; i++) {
        tails_of_tracks(&f->group[i]);
        HA_TRY(tails_of_columns(f, &f->group[i], why));
    }
    HA_TRY(find_thresholds(f, &of_tracks, why));
    HA_TRY(name_machines(f, of_tracks, why));
    find_least(f);
    HA_TRY(ha_fleet_outputs(f, why));
    HA_TRY(find_lacks(f, why));
    find_states(f);
    return HA_OK;
}

/* ---- what all came to -------------------------------------------------------------------------------------------- */

enum ha_exit ha_fleet_exit(const struct ha_fleet *f)
{
    enum ha_exit exit = f->never_began ? HA_EXIT_MISSING : HA_EXIT_OK;
    for (size_t i = 0; i < f->count; i++) {
        const struct ha_fleet_machine *m = &f->machine[i];
        exit = ha_night_worse(exit, ha_fleet_state_exit(m->state));
    }
    return exit;
}

const char *ha_fleet_word(const struct ha_fleet *f)
{
    size_t of[HA_FLEET_STATES] = { 0 };
    for (size_t i = 0; i < f->count; i++) of[f->machine[i].state]++;
    if (of[HA_FLEET_WRONG]) return "wrong";
    if (of[HA_FLEET_DISAGREES]) return "outputs disagree";
    switch (ha_fleet_exit(f)) {
    case HA_EXIT_REGRESSION: return "stands out";
    case HA_EXIT_MISSING: return "missing";
    case HA_EXIT_ENVIRONMENT: return "not fit to say";
    default: return "fits";
    }
}

struct place {
    const struct ha_fleet_machine *m;
    size_t number;
};

static int by_suspicion(const void *a, const void *b)
{
    const struct ha_fleet_machine *x = ((const struct place *)a)->m, *y = ((const struct place *)b)->m;
    if (x->suspicion != y->suspicion) return x->suspicion > y->suspicion ? -1 : 1;
    if (x->sigmas != y->sigmas) return x->sigmas > y->sigmas ? -1 : 1;
    return strcmp(x->name, y->name);
}

size_t *ha_fleet_order(const struct ha_fleet *f)
{
    struct place *place = malloc((f->count + 1) * sizeof *place);
    size_t *order = malloc((f->count + 1) * sizeof *order);
    for (size_t i = 0; i < f->count && place; i++) place[i] = (struct place){ &f->machine[i], i };
    if (place) qsort(place, f->count, sizeof *place, by_suspicion);
    for (size_t i = 0; i < f->count && place && order; i++) order[i] = place[i].number;
    free(place);
    return order;
}
