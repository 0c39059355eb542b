#include "harness/program/night_rows.h"

#include "harness/compare/sides.h"

#include <string.h>

enum { LISTED = 10 };

/* ---- cases ------------------------------------------------------------------------------------------------------- */

static const struct ha_recorded_case *measured(const struct ha_record *r, const char *id)
{
    const struct ha_recorded_case *c = ha_record_case(r, "run", id);
    return c && c->processes ? c : NULL;
}

static void note_impossible(struct ha_night_log *log, const struct ha_record *now, const struct ha_plan *plan)
{
    for (size_t s = 0; s < plan->sections; s++) {
        const struct ha_section *of = &plan->section[s].of;
        const char *reason = NULL;
        size_t waived = 0;
        for (size_t i = 0; i < of->count; i++) {
            const struct ha_recorded_case *c = measured(now, plan->entry[of->entry[i]].id);
            if (!c || c->verdict != HA_VERDICT_WAIVED) break;
            reason = c->reason;
            waived++;
        }
        if (waived && waived == of->count)
            ha_night_log_note(log, "section %s: no case is possible: %s", *of->name ? of->name : "of ids", reason);
    }
}

size_t ha_night_rows_count(struct ha_night_log *log, const struct ha_record *now, const struct ha_plan *plan,
                           size_t wanted, size_t *ran)
{
    size_t absent = 0;
    for (size_t i = 0; i < plan->entries; i++) {
        const struct ha_recorded_case *c = measured(now, plan->entry[i].id);
        ran[!c ? 0 : c->processes < wanted ? c->processes : wanted]++;
        if (!c && absent++ < LISTED) ha_night_log_note(log, "not run: %s", plan->entry[i].id);
    }
    if (absent > LISTED)
        ha_night_log_note(log, "and %zu more of %zu cases were not run", absent - LISTED, plan->entries);
    note_impossible(log, now, plan);
    return absent;
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

/* Of how many processes a value is missing. The times of those that something else disturbed were left out. */
static size_t missing(const struct ha_recorded_case *c, const struct ha_recorded_figure *f)
{
    const size_t left_out = f->better == HA_NEITHER || !strcmp(f->unit, "bytes") ? 0 : c->disturbances;
    return c->processes - left_out > f->count ? c->processes - left_out - f->count : 0;
}

/* It is relative to another case, which may not have run beside it: what is run again is run alone. */
static bool of_another(const char *figure) { return !strncmp(figure, "full_", 5) || !strncmp(figure, "vs_", 3); }

/* The first time or rate of a suite, of which this case has none at all. */
static const struct ha_recorded_figure *of_others(const struct ha_record *now, const struct ha_recorded_case *c)
{
    for (size_t k = 0; k < c->figures; k++)
        if (ha_figure_is_speed(&c->figure[k]) && ha_figure_tested(c, &c->figure[k], false)) return NULL;
    for (size_t i = 0; i < now->count; i++) {
        const struct ha_recorded_case *d = now->cases[i];
        for (size_t k = 0; k < d->figures && !strcmp(d->suite, c->suite); k++)
            if (ha_figure_is_speed(&d->figure[k]) && ha_figure_tested(d, &d->figure[k], false)) return &d->figure[k];
    }
    return NULL;
}

static void note_lost(struct ha_night_log *log, const struct ha_recorded_case *c, const char *figure, size_t lost)
{
    ha_night_log_note(log, "%s %s: no value in %zu of its %zu processes", c->id, figure, lost, c->processes);
}

size_t ha_night_rows_lost(struct ha_night_log *log, const struct ha_record *now)
{
    size_t lost = 0, said = 0;
    for (size_t i = 0; i < now->count; i++) {
        const struct ha_recorded_case *c = now->cases[i];
        if (strcmp(c->mode, "run") != 0 || !ha_passed(c->verdict) || c->disturbances >= c->processes) continue;
        const struct ha_recorded_figure *all = of_others(now, c);
        if (all && ++said <= LISTED) note_lost(log, c, all->name, c->processes);
        lost += all != NULL;
        for (size_t k = 0; k < c->figures; k++) {
            const struct ha_recorded_figure *f = &c->figure[k];
            if (!f->count || ha_figure_beside(f->name) || of_another(f->name) || !missing(c, f)) continue;
            if (++said <= LISTED) note_lost(log, c, f->name, missing(c, f));
            lost += ha_figure_tested(c, f, false);
        }
    }
    if (said > LISTED) ha_night_log_note(log, "and %zu more figures without a value in some processes", said - LISTED);
    return lost;
}
