#include "harness/compare/fleet_shift.h"

#include "harness/base/stats.h"
#include "harness/base/why.h"
#include "harness/compare/shift.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double median_to_mean = 1.253; /* a median's error over a mean's, of a normal */
static const double z_nine_of_ten = 1.282;

/* What is being found: a row for each machine that is in both, a column for each figure. */
struct work {
    const struct ha_fleet_machine **before;
    size_t *to; /* [figures before] the number that the figure has now; SIZE_MAX: none */
    double *x, *column, *p, *room;
};

static int by_name(const void *name, const void *machine)
{
    return strcmp(name, ((const struct ha_fleet_machine *)machine)->name);
}

static const struct ha_fleet_machine *same_machine(const struct ha_fleet *f, const char *name)
{
    const struct ha_fleet_machine *m = f->count ? bsearch(name, f->machine, f->count, sizeof *m, by_name) : NULL;
    return m && m->record ? m : NULL;
}

/* Values of one machine that it has both times: x is NaN, and then the difference, by the number of now. */
static void differences(const struct work *w, const struct ha_fleet *now, const struct ha_fleet_machine *before,
                        const struct ha_fleet_machine *m)
{
    for (size_t i = 0; i < now->figures; i++) w->x[i] = (double)NAN;
    for (size_t i = 0; i < before->values; i++) {
        const size_t to = w->to[before->value[i].figure];
        if (to != SIZE_MAX) w->x[to] = -before->value[i].x;
    }
    for (size_t i = 0; i < m->values; i++) w->x[m->value[i].figure] += m->value[i].x;
    for (size_t i = 0, k = 0; i < now->figures; i++) { /* of figures that it had, and has no more */
        while (k < m->values && m->value[k].figure < i) k++;
        if (k == m->values || m->value[k].figure != i) w->x[i] = (double)NAN;
    }
}

static void shift_of_machine(struct ha_fleet_shift *s, const struct work *w, size_t i)
{
    size_t n = 0;
    differences(w, s->now, w->before[i], s->machine[i].machine);
    for (size_t k = 0; k < s->now->figures; k++) {
        const struct ha_fleet_figure *f = s->now->figure[k];
        if (!isnan(w->x[k]) && f->speed && !f->part) w->room[n++] = w->x[k];
    }
    s->machine[i].by = n ? ha_median(w->room, n) : (double)NAN;
}

static void judge_machines(struct ha_fleet_shift *s, const struct work *w)
{
    size_t n = 0, small = 0;
    for (size_t i = 0; i < s->machines; i++)
        if (!isnan(s->machine[i].by)) w->column[n++] = s->machine[i].by;
    s->by = ha_median(w->column, n);
    ha_median_interval(w->column, n, &s->lo, &s->hi);
    struct ha_spread spread = ha_spread_find(w->column, n, w->room);
    spread.heavy = HA_SPREAD_HEAVY;
    for (size_t i = 0; i < s->machines; i++) {
        struct ha_fleet_moved *m = &s->machine[i];
        m->sigmas = (m->by - s->by) / spread.sd;
        m->p = m->by - s->by > HA_SHIFT_LEAST ? ha_spread_chance(&spread, m->by - s->by) : 1;
        if (m->p < HA_FLEET_ALPHA) w->p[small++] = m->p;
    }
    const double threshold = ha_spread_threshold(w->p, small, (double)s->machines, HA_FLEET_ALPHA);
    for (size_t i = 0; i < s->machines; i++) s->machine[i].called = s->machine[i].p <= threshold;
    s->least = spread.count < HA_SPREAD_LEAST
                   ? (double)INFINITY
                   : fmax(HA_SHIFT_LEAST, ha_spread_distance(&spread, HA_FLEET_ALPHA / (double)s->machines))
                         + z_nine_of_ten * spread.sd;
}

static void judge_figure(struct ha_fleet_figure_moved *f, const double *x, size_t n, double *work)
{
    f->machines = n;
    f->by = ha_median(x, n);
    ha_median_interval(x, n, &f->lo, &f->hi);
    const struct ha_spread spread = ha_spread_find(x, n, work);
    if (n < HA_SPREAD_LEAST) return;
    const double error = median_to_mean * spread.sd / sqrt((double)n);
    f->p = f->by > HA_SHIFT_LEAST ? ha_t_tail((f->by - HA_SHIFT_LEAST) / error, (double)n - 1) : 1;
}

/* Figure by figure; rows are made again for each block of figures, so that no table of all is needed. */
static void judge_figures(struct ha_fleet_shift *s, const struct work *w, double *block)
{
    enum { BLOCK = 64 };
    size_t small = 0;
    for (size_t from = 0; from < s->now->figures; from += BLOCK) {
        const size_t end = from + BLOCK < s->now->figures ? from + BLOCK : s->now->figures;
        for (size_t i = 0; i < s->machines; i++) {
            differences(w, s->now, w->before[i], s->machine[i].machine);
            for (size_t k = from; k < end; k++) block[(k - from) * s->machines + i] = w->x[k];
        }
        for (size_t k = from; k < end; k++) {
            size_t n = 0;
            for (size_t i = 0; i < s->machines; i++)
                if (!isnan(block[(k - from) * s->machines + i])) w->column[n++] = block[(k - from) * s->machines + i];
            if (!n) continue;
            struct ha_fleet_figure_moved *f = &s->figure[s->figures++];
            *f = (struct ha_fleet_figure_moved){ .figure = s->now->figure[k], .p = 1 };
            judge_figure(f, w->column, n, w->room);
        }
    }
    for (size_t i = 0; i < s->figures; i++)
        if (s->figure[i].p < HA_FLEET_ALPHA) w->p[small++] = s->figure[i].p;
    const double threshold = ha_spread_threshold(w->p, small, (double)s->figures, HA_FLEET_ALPHA);
    for (size_t i = 0; i < s->figures; i++) s->figure[i].called = s->figure[i].p <= threshold;
}

static int farthest_machine(const void *a, const void *b)
{
    const struct ha_fleet_moved *x = a, *y = b;
    if (isnan(x->by) || isnan(y->by)) return isnan(x->by) - isnan(y->by);
    return (x->by < y->by) - (x->by > y->by);
}

static int farthest_figure(const void *a, const void *b)
{
    const struct ha_fleet_figure_moved *x = a, *y = b;
    return (x->by < y->by) - (x->by > y->by);
}

static enum ha_status find(struct ha_fleet_shift *s, struct work *w, struct ha_why *why)
{
    const size_t most = s->now->count + s->now->figures + 2;
    double *block = malloc(64 * (s->now->count + 1) * sizeof *block);
    w->before = malloc((s->now->count + 1) * sizeof *w->before);
    w->to = malloc((s->before->figures + 1) * sizeof *w->to);
    w->x = malloc((s->now->figures + 1) * sizeof *w->x);
    w->column = malloc(most * sizeof *w->column);
    w->p = malloc(most * sizeof *w->p);
    w->room = malloc(2 * most * sizeof *w->room);
    s->machine = calloc(s->now->count + 1, sizeof *s->machine);
    s->figure = malloc((s->now->figures + 1) * sizeof *s->figure);
    const bool room = block && w->before && w->to && w->x && w->column && w->p && w->room && s->machine && s->figure;
    for (size_t i = 0; room && i < s->before->figures; i++) w->to[i] = ha_fleet_find(s->now, s->before->figure[i]);
    for (size_t i = 0; room && i < s->now->count; i++) {
        const struct ha_fleet_machine *m = &s->now->machine[i], *b = same_machine(s->before, m->name);
        s->added += m->record && !b;
        if (!m->record || !b) continue;
        w->before[s->machines] = b;
        s->machine[s->machines++].machine = m;
    }
    for (size_t i = 0; i < s->before->count; i++)
        s->gone += s->before->machine[i].record && !same_machine(s->now, s->before->machine[i].name);
    if (room && s->machines) {
        for (size_t i = 0; i < s->machines; i++) shift_of_machine(s, w, i);
        judge_machines(s, w);
        judge_figures(s, w, block);
        qsort(s->machine, s->machines, sizeof *s->machine, farthest_machine);
        qsort(s->figure, s->figures, sizeof *s->figure, farthest_figure);
    }
    free(block);
    if (!room) return ha_why(why, HA_ERROR, "out of memory");
    if (s->machines) return HA_OK;
    return ha_why(why, HA_ERROR, "%s and %s: no machine is in both", s->before->path, s->now->path);
}

enum ha_status ha_fleet_shift(struct ha_fleet_shift *s, const struct ha_fleet *before, const struct ha_fleet *now,
                              struct ha_why *why)
{
    struct work w = { 0 };
    *s = (struct ha_fleet_shift){
        .before = before, .now = now, .by = (double)NAN, .lo = (double)NAN, .hi = (double)NAN, .least = (double)INFINITY
    };
    const enum ha_status status = find(s, &w, why);
    free(w.before);
    free(w.to);
    free(w.x);
    free(w.column);
    free(w.p);
    free(w.room);
    return status;
}

void ha_fleet_shift_free(struct ha_fleet_shift *s)
{
    free(s->machine);
    free(s->figure);
    *s = (struct ha_fleet_shift){ 0 };
}

enum ha_exit ha_fleet_shift_exit(const struct ha_fleet_shift *s)
{
    bool worse = s->lo > HA_SHIFT_LEAST;
    for (size_t i = 0; i < s->machines; i++) worse |= s->machine[i].called;
    for (size_t i = 0; i < s->figures; i++) worse |= s->figure[i].called;
    return worse ? HA_EXIT_REGRESSION : s->gone ? HA_EXIT_MISSING : HA_EXIT_OK;
}
