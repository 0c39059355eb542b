#include "harness/compare/sides.h"

#include "harness/base/why.h"
#include "harness/compare/results.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool ha_figure_is_speed(const struct ha_recorded_figure *f) { return !strcmp(f->unit, "ns") || strstr(f->unit, "/s"); }

bool ha_figure_beside(const char *name)
{
    for (const struct ha_part_of_machine *p = ha_parts_of_machine; p->figure; p++)
        if (!strcmp(p->figure, name)) return true;
    return false;
}

/* The same as another figure of the case in other words. */
static bool is_said_twice(const struct ha_recorded_case *of, const char *name)
{
    const bool twice = !strcmp(name, "layer_ns") || !strcmp(name, "tokens_per_s");
    return twice && ha_record_figure(of, "step_ns");
}

bool ha_figure_tested(const struct ha_recorded_case *of, const struct ha_recorded_figure *f, bool ratios)
{
    if (f->better == HA_NEITHER || !f->count || strcmp(of->mode, "run") != 0) return false; /* a check times nothing */
    if ((ratios && *f->unit) || ha_is_result(f->name) || is_said_twice(of, f->name)) return false;
    /* that of the machine itself is compared once, not with each case */
    return !ha_figure_beside(f->name) || !strcmp(of->id, HA_MACHINE_CASE);
}

/* Shares and ratios by points rather than by their ratio: twice as much of one thousandth is nothing. So with 1 added,
 * as to what may be nothing at all. NaN: it has no logarithm. */
static bool may_be_zero(const struct ha_recorded_figure *f)
{
    return !*f->unit || !strcmp(f->unit, "ns") || !strcmp(f->unit, "bytes");
}

static double logarithm(const struct ha_recorded_figure *f, double value)
{
    const double x = may_be_zero(f) && value >= 0 ? log1p(value) : value > 0 ? log(value) : (double)NAN;
    return f->better == HA_MORE ? -x : x;
}

double ha_figure_logarithm(const struct ha_recorded_figure *f, double value) { return logarithm(f, value); }

double ha_figure_of_logarithm(const struct ha_recorded_figure *f, double x)
{
    const double y = f->better == HA_MORE ? -x : x;
    return may_be_zero(f) ? expm1(y) : exp(y);
}

static bool room(struct ha_side *s, size_t count)
{
    *s = (struct ha_side){ malloc((count + 1) * sizeof *s->x), malloc((count + 1) * sizeof *s->night), 0, 0 };
    return s->x && s->night;
}

static void count_nights(struct ha_side *s)
{
    for (size_t i = 0; i < s->count; i++) s->nights += !i || s->night[i] != s->night[i - 1];
}

enum ha_status ha_side_make(struct ha_side *s, const struct ha_recorded_figure *f, const bool *counts,
                            struct ha_why *why)
{
    if (!room(s, f->count)) return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < f->count; i++) {
        if (counts && !counts[f->at[i].night]) continue;
        s->night[s->count] = f->at[i].night;
        /* a rate of zero, where all stands still, is the least there is */
        s->x[s->count] = logarithm(f, f->at[i].value == 0 ? DBL_MIN : f->at[i].value);
        if (isnan(s->x[s->count++])) {
            s->count = 0;
            break;
        }
    }
    count_nights(s);
    return HA_OK;
}

enum ha_status ha_side_over(struct ha_side *s, const struct ha_recorded_figure *f,
                            const struct ha_recorded_figure *over, const bool *counts, struct ha_why *why)
{
    if (!room(s, f->count)) return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0, j = 0; i < f->count; i++) {
        const struct ha_observation *at = &f->at[i];
        if (counts && !counts[at->night]) continue;
        /* both are in the order in which they were read, or nearly */
        for (size_t looked = 0; looked < over->count && over->at[j % over->count].process != at->process; looked++) j++;
        const struct ha_observation *beside = over->count ? &over->at[j % over->count] : NULL;
        if (!beside || beside->process != at->process) continue;
        const double x = logarithm(f, at->value) - logarithm(over, beside->value);
        if (isnan(x)) continue;
        s->night[s->count] = at->night;
        s->x[s->count++] = x;
    }
    count_nights(s);
    return HA_OK;
}

void ha_side_free(struct ha_side *s)
{
    free(s->x);
    free(s->night);
    *s = (struct ha_side){ 0 };
}

size_t ha_values_of(const struct ha_recorded_figure *f, const bool *counts, double **values)
{
    size_t n = 0;
    *values = malloc((f->count + 1) * sizeof **values);
    for (size_t i = 0; *values && i < f->count; i++)
        if (!counts || counts[f->at[i].night]) (*values)[n++] = f->at[i].value;
    return n;
}
