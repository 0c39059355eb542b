#include "harness/compare/history.h"

#include "harness/base/array.h"
#include "harness/base/stats.h"
#include "harness/base/why.h"
#include "harness/compare/change_points.h"
#include "harness/compare/facts.h"
#include "harness/compare/sides.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "out of memory"); }

/* ---- which figures ----------------------------------------------------------------------------------------------- */

/* "KEY=VALUE", whole, among those of the id */
static bool has_setting(const char *id, const char *setting, size_t n)
{
    for (const char *p = id + strcspn(id, ":"); *p;) {
        const size_t length = strcspn(++p, ",");
        if (length == n && !memcmp(p, setting, n)) return true;
        p += length;
    }
    return false;
}

static bool fits(const char *id, const char *filter)
{
    for (const char *p = filter; *(p += strspn(p, ","));) {
        char term[512];
        const size_t n = strcspn(p, ",");
        if (n >= sizeof term) return false;
        memcpy(term, p, n);
        term[n] = 0;
        p += n;
        char *equals = strchr(term, '=');
        const bool negated = equals > term && equals[-1] == '!';
        if (negated) memmove(equals - 1, equals, strlen(equals) + 1);
        if (equals ? has_setting(id, term, strlen(term)) == negated : !strstr(id, term)) return false;
    }
    return true;
}

/* The figures of a case that are curves: NULL behind the last of them. */
static const struct ha_recorded_figure *next_figure(const struct ha_recorded_case *c,
                                                    const struct ha_recorded_figure *last, const char *name)
{
    const bool machine = !strcmp(c->id, HA_MACHINE_CASE);
    if (last && (name || !machine)) return NULL;
    for (size_t i = last ? (size_t)(last - c->figure) + 1 : 0; i < c->figures; i++) {
        const struct ha_recorded_figure *f = &c->figure[i];
        const bool by_itself = !strcmp(c->mode, "run") && ha_figure_is_speed(f)
                               && (machine || !ha_figure_beside(f->name));
        if (f->count && (name ? !strcmp(f->name, name) : by_itself)) return f;
    }
    return NULL;
}

/* Says why there is no curve. */
static enum ha_status nothing(const struct ha_record *r, const char *filter, const char *figure, struct ha_why *why)
{
    enum { NAMES = 64 };
    const char *name[NAMES + 1] = { NULL };
    size_t names = 0, cases = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (filter && !fits(r->cases[i]->id, filter)) continue;
        cases++;
        for (size_t k = 0; k < r->cases[i]->figures && names < NAMES; k++) {
            size_t known = 0;
            while (known < names && strcmp(name[known], r->cases[i]->figure[k].name) != 0) known++;
            if (known == names) name[names++] = r->cases[i]->figure[k].name;
        }
    }
    if (!cases)
        return ha_why(why, HA_ERROR, "%.200s: none of its %zu cases fits '%.200s'; the first is %.200s", r->path,
                      r->count, filter, r->cases[0]->id);
    if (!names) return ha_why(why, HA_ERROR, "%.200s: these cases have no figures", r->path);
    if (figure) return ha_unknown(why, "figure", figure, name);
    return ha_why(why, HA_ERROR, "%.200s: these cases have no time and no rate; name a figure: --figure %s", r->path,
                  name[0]);
}

/* ---- curves ------------------------------------------------------------------------------------------------------ */

/* Each night is of the machine of the first one that is not known to be another. */
static enum ha_status find_machines(struct ha_history *h, struct ha_why *why)
{
    const struct ha_record *r = h->record;
    size_t *first = malloc((r->nights + 1) * sizeof *first);
    h->machine = calloc(r->nights + 1, sizeof *h->machine);
    for (size_t i = 0; first && h->machine && i < r->nights; i++) {
        const char *fact;
        size_t m = 0;
        while (m < h->machines && !ha_night_same_machine(&r->night[first[m]], &r->night[i], &fact)) m++;
        if (m == h->machines) first[h->machines++] = i;
        h->machine[i] = m;
    }
    const bool done = first && h->machine;
    free(first);
    return done ? HA_OK : no_memory(why);
}

static void take_night(struct ha_curve *c, size_t night, const double *values, size_t count)
{
    struct ha_curve_night *n = &c->night[c->count++];
    *n = (struct ha_curve_night){ .night = night, .processes = count, .value = ha_median(values, count) };
    ha_median_interval(values, count, &n->lo, &n->hi);
}

/* A curve of the nights that were on this machine; none where there are none. */
static enum ha_status add_curve(struct ha_history *h, const struct ha_recorded_case *of,
                                const struct ha_recorded_figure *f, size_t machine, double *values, struct ha_why *why)
{
    struct ha_curve c = { of, f, machine, malloc((h->record->nights + 1) * sizeof *c.night), 0, 0, 0, (double)NAN };
    if (!c.night || !ha_array_room(&h->curve, &h->room, h->count + 1, sizeof *h->curve)) {
        free(c.night);
        return no_memory(why);
    }
    for (size_t i = 0, end; i < f->count; i = end) {
        for (end = i; end < f->count && f->at[end].night == f->at[i].night; end++) values[end - i] = f->at[end].value;
        if (h->machine[f->at[i].night] == machine) take_night(&c, f->at[i].night, values, end - i);
    }
    for (size_t i = 0; i < c.count; i++) values[i] = c.night[i].value;
    c.median = ha_median(values, c.count);
    struct ha_curve_night *fitted = c.count ? realloc(c.night, c.count * sizeof *c.night) : NULL;
    if (fitted) c.night = fitted; /* of many machines each has few */
    if (c.count) h->curve[h->count++] = c;
    else free(c.night);
    return HA_OK;
}

static enum ha_status add_curves(struct ha_history *h, const char *filter, const char *figure, struct ha_why *why)
{
    const struct ha_record *r = h->record;
    for (size_t i = 0; i < r->count; i++) {
        const struct ha_recorded_case *c = r->cases[i];
        if (filter && !fits(c->id, filter)) continue;
        for (const struct ha_recorded_figure *f = NULL; (f = next_figure(c, f, figure));) {
            double *values = malloc(f->count * sizeof *values);
            enum ha_status status = values ? HA_OK : no_memory(why);
            for (size_t m = 0; m < h->machines && status == HA_OK; m++) status = add_curve(h, c, f, m, values, why);
            free(values);
            HA_TRY(status);
        }
    }
    return h->count ? HA_OK : nothing(r, filter, figure, why);
}

/* ---- change points ----------------------------------------------------------------------------------------------- */

/* The nights whose value has a logarithm: x[], and which of the curve's they are. */
static size_t logarithms(const struct ha_curve *c, double *x, size_t *at)
{
    size_t n = 0;
    for (size_t i = 0; i < c->count; i++) {
        x[n] = ha_figure_logarithm(c->figure, c->night[i].value);
        at[n] = i;
        n += isfinite(x[n]) ? 1 : 0;
    }
    return n;
}

static double level_of(const struct ha_curve *c, size_t from, size_t to, double *work)
{
    for (size_t i = from; i < to; i++) work[i - from] = c->night[i].value;
    return ha_median(work, to - from);
}

static void mark(struct ha_curve *c, const struct ha_change_point *point, size_t points, const size_t *at, double *work)
{
    c->changes = points;
    for (size_t k = 0; k < points; k++) {
        const size_t from = k ? at[point[k - 1].at] : 0, here = at[point[k].at];
        const size_t to = k + 1 < points ? at[point[k + 1].at] : c->count;
        struct ha_curve_night *n = &c->night[here];
        n->change = true;
        n->gradual = point[k].gradual;
        n->before = level_of(c, from, here, work);
        n->after = level_of(c, here, to, work);
    }
}

/* x, at, point: room for all nights */
static enum ha_status find_changes(struct ha_history *h, double *x, size_t *at, struct ha_change_point *point,
                                   struct ha_why *why)
{
    double *p = malloc((h->count + 1) * sizeof *p);
    size_t fewest = 2 * HA_CHANGE_NIGHTS; /* fewer could show no change even alone, and are no test */
    while (!ha_change_points_age(fewest, HA_HISTORY_ALPHA)) fewest++;
    enum ha_status status = p ? HA_OK : no_memory(why);
    for (size_t i = 0; i < h->count && status == HA_OK; i++) {
        const size_t n = logarithms(&h->curve[i], x, at);
        if (n < fewest) continue;
        status = ha_change_points_chance(&p[h->tested], x, n, why);
        if (status == HA_OK) h->curve[i].p = p[h->tested++];
    }
    const double most = status == HA_OK ? ha_shift_threshold(p, h->tested, HA_HISTORY_ALPHA) : -1;
    size_t called = 0;
    for (size_t i = 0; i < h->tested && status == HA_OK; i++) called += p[i] <= most;
    free(p);
    h->level = HA_HISTORY_ALPHA * (double)(called ? called : 1) / (double)(h->tested ? h->tested : 1);
    for (size_t i = 0; i < h->count && status == HA_OK; i++) {
        struct ha_curve *c = &h->curve[i];
        size_t points;
        if (!(c->p <= most)) continue;
        const size_t n = logarithms(c, x, at);
        status = ha_change_points_find(point, &points, x, n, h->level, why);
        if (status == HA_OK) mark(c, point, points, at, x);
    }
    return status;
}

enum ha_status ha_history_make(struct ha_history *h, const struct ha_record *record, const char *filter,
                               const char *figure, struct ha_why *why)
{
    const size_t room = record->nights + 1;
    *h = (struct ha_history){ .record = record };
    HA_TRY(find_machines(h, why));
    HA_TRY(add_curves(h, filter, figure, why));
    double *x = malloc(room * sizeof *x);
    size_t *at = malloc(room * sizeof *at);
    struct ha_change_point *point = malloc(room * sizeof *point);
    const enum ha_status status = x && at && point ? find_changes(h, x, at, point, why) : no_memory(why);
    free(x);
    free(at);
    free(point);
    return status;
}

void ha_history_free(struct ha_history *h)
{
    for (size_t i = 0; i < h->count; i++) free(h->curve[i].night);
    free(h->curve);
    free(h->machine);
    *h = (struct ha_history){ 0 };
}
