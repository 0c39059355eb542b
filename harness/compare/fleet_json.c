#include "harness/base/json_line.h"
#include "harness/base/text.h"
#include "harness/compare/fleet_parts.h"
#include "harness/compare/fleet_print.h"
#include "harness/report/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SUSPICIOUS = 50 };

static void set_bool(json_t *row, const char *name, bool value) { json_object_set_new(row, name, json_boolean(value)); }

/* A ratio of what may be infinite is left out then. */
static void set_ratio(json_t *row, const char *name, double logarithm)
{
    if (isfinite(logarithm)) ha_json_set_number(row, name, exp(logarithm));
}

static void put_fleet(FILE *out, const struct ha_fleet *f)
{
    json_t *row = json_object();
    char *line = ha_fleet_line(f, NULL, NULL);
    const char *first = "", *last = "";
    size_t records = 0;
    for (size_t i = 0; i < f->count; i++) {
        const char *date = f->machine[i].date;
        records += f->machine[i].record;
        if (*date && (!*first || strcmp(date, first) < 0)) first = date;
        if (*date && strcmp(date, last) > 0) last = date;
    }
    ha_json_set_text(row, "row", "fleet");
    ha_json_set_text(row, "path", f->path);
    ha_json_set_count(row, "machines", f->count);
    ha_json_set_count(row, "records", records);
    ha_json_set_count(row, "expected", f->expected);
    ha_json_set_count(row, "never_began", f->never_began);
    ha_json_set_count(row, "groups", f->groups);
    ha_json_set_text(row, "first_utc", first);
    ha_json_set_text(row, "last_utc", last);
    ha_json_set_count(row, "exit", (size_t)ha_fleet_exit(f));
    ha_json_set_text(row, "verdict", ha_fleet_word(f));
    ha_json_set_text(row, "notes", f->notes);
    ha_json_set_text(row, "line", line);
    ha_json_put_line(out, row);
    free(line);
}

static json_t *difference_of(const struct ha_fleet_difference *d)
{
    json_t *all = json_object(), *values = json_array();
    ha_json_set_text(all, "name", d->name);
    for (size_t v = 0; v < d->values; v++) {
        json_t *value = json_object(), *machines = json_array();
        ha_json_set_text(value, "value", d->value[v].value);
        for (size_t k = 0; k < d->value[v].count && k < 5; k++)
            json_array_append_new(machines, ha_json_text(d->value[v].machine[k]));
        json_object_set_new(value, "machines", machines);
        ha_json_set_count(value, "count", d->value[v].count);
        json_array_append_new(values, value);
    }
    json_object_set_new(all, "values", values);
    return all;
}

static bool is_differing(const struct ha_fleet_difference *d, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (d[i].name == name) return true;
    return false;
}

static json_t *tracks_of(const struct ha_fleet_group *g)
{
    json_t *all = json_array();
    char name[200];
    for (size_t k = 0; k < g->tracks && g->judged; k++) {
        json_t *t = json_object();
        ha_json_set_text(t, "name", ha_fleet_track_name(&g->track[k], name));
        set_bool(t, "part", g->track[k].part);
        ha_json_set_number(t, "spread", g->track[k].at.sd);
        set_ratio(t, "least", g->track[k].least);
        json_array_append_new(all, t);
    }
    return all;
}

static void put_group(FILE *out, const struct ha_fleet *f, size_t index)
{
    const struct ha_fleet_group *g = &f->group[index];
    const struct ha_fleet_machine *m = &f->machine[g->machine[0]];
    json_t *row = json_object(), *facts = json_object(), *differs = json_array();
    size_t count;
    struct ha_fleet_difference *d = ha_fleet_differences(f, g, &count);
    ha_json_set_text(row, "row", "group");
    ha_json_set_count(row, "index", index);
    ha_json_set_text(row, "name", g->name);
    ha_json_set_count(row, "machines", g->count);
    set_bool(row, "judged", g->judged);
    ha_json_set_text(row, "kinds", g->kinds);
    for (size_t i = 0; i < m->facts; i++)
        if (*m->fact[i] && !is_differing(d, count, f->fact[i])) ha_json_set_text(facts, f->fact[i], m->fact[i]);
    for (size_t i = 0; i < count; i++) json_array_append_new(differs, difference_of(&d[i]));
    json_object_set_new(row, "facts", facts);
    json_object_set_new(row, "differs", differs);
    json_object_set_new(row, "tracks", tracks_of(g));
    ha_json_put_line(out, row);
    ha_fleet_differences_free(d, count);
}

static void put_figure(FILE *out, const struct ha_fleet *f, size_t group, const struct ha_fleet_column *c)
{
    const struct ha_fleet_figure *figure = f->figure[c->figure];
    json_t *row = json_object(), *quantiles = json_array();
    ha_json_set_text(row, "row", "figure");
    ha_json_set_count(row, "group", group);
    ha_json_set_text(row, "case_id", figure->case_id);
    ha_json_set_text(row, "mode", figure->mode);
    ha_json_set_text(row, "suite", figure->suite);
    ha_json_set_text(row, "figure", figure->name);
    ha_json_set_text(row, "unit", figure->unit);
    ha_json_set_text(row, "better", ha_better_name(figure->better));
    set_bool(row, "share", !*figure->unit);
    if (figure->part) ha_json_set_text(row, "part", figure->part->name);
    ha_json_set_count(row, "machines", c->machines);
    ha_json_set_number(row, "median", ha_fleet_value_of(figure, c->at.middle));
    ha_json_set_number(row, "spread", c->at.sd);
    for (size_t k = 0; k < 7; k++) /* of what is better the more, the worst is the least */
        json_array_append_new(quantiles,
                              json_real(ha_fleet_value_of(figure, c->quantile[figure->better == HA_MORE ? 6 - k : k])));
    json_object_set_new(row, "quantiles", quantiles);
    set_ratio(row, "least", c->least);
    ha_json_put_line(out, row);
}

static const char *part_of(const struct ha_fleet *f, const struct ha_fleet_machine *m)
{
    if (m->track) return m->track->part ? m->track->part->name : "";
    const struct ha_fleet_figure *figure = m->column ? f->figure[m->column->figure] : NULL;
    return figure && figure->part ? figure->part->name : "";
}

static void put_machine(FILE *out, const struct ha_fleet *f, const struct ha_fleet_machine *m)
{
    json_t *row = json_object();
    char *line = ha_fleet_line(f, m, NULL), name[200];
    ha_json_set_text(row, "row", "machine");
    ha_json_set_text(row, "name", m->name);
    ha_json_set_text(row, "host", m->host);
    if (m->group != SIZE_MAX) ha_json_set_count(row, "group", m->group);
    ha_json_set_text(row, "state", ha_fleet_state_word(m->state));
    ha_json_set_number(row, "suspicion", m->suspicion);
    ha_json_set_text(row, "part", part_of(f, m));
    if (m->track) ha_json_set_text(row, "track", ha_fleet_track_name(m->track, name));
    if (m->track || m->column) {
        set_ratio(row, "worse", m->by);
        ha_json_set_number(row, "sigmas", m->sigmas);
    }
    ha_json_set_count(row, "figures", m->figures);
    ha_json_set_text(row, "line", line);
    ha_json_put_line(out, row);
    free(line);
}

static void put_deviation(FILE *out, const struct ha_fleet *f, const struct ha_fleet_machine *m, size_t value)
{
    const struct ha_fleet_cell cell = ha_fleet_cell(f, m, value);
    const struct ha_fleet_figure *figure = f->figure[cell.column->figure];
    json_t *row = json_object();
    ha_json_set_text(row, "row", "deviation");
    ha_json_set_text(row, "machine", m->name);
    ha_json_set_count(row, "group", m->group);
    ha_json_set_text(row, "case_id", figure->case_id);
    ha_json_set_text(row, "figure", figure->name);
    ha_json_set_number(row, "value", ha_fleet_value_of(figure, m->value[value].x));
    ha_json_set_number(row, "ratio", exp(figure->better == HA_MORE ? -cell.by : cell.by));
    ha_json_set_number(row, "sigmas", cell.sigmas);
    ha_json_set_number(row, "p", cell.p);
    set_bool(row, "called", cell.called);
    ha_json_put_line(out, row);
}

static json_t *disagreeing(const struct ha_fleet *f, const struct ha_fleet_disagreement *d)
{
    json_t *all = json_array();
    const size_t alike = f->machine[f->group[d->group].machine[0]].alike;
    for (size_t i = 0; i < f->count; i++) {
        const struct ha_fleet_machine *m = &f->machine[i];
        for (size_t k = 0; k < m->digests && m->record && m->alike == alike; k++) {
            if (m->digest[k].of != d->of || (d->known && !m->digest[k].mixed && m->digest[k].digest == d->most))
                continue;
            char digest[32];
            snprintf(digest, sizeof digest, "%016llx", (unsigned long long)m->digest[k].digest);
            json_t *one = json_object();
            ha_json_set_text(one, "name", m->name);
            ha_json_set_text(one, "digest", m->digest[k].mixed ? "several" : digest);
            json_array_append_new(all, one);
        }
    }
    return all;
}

static void put_outputs(FILE *out, const struct ha_fleet *f, const struct ha_fleet_disagreement *d)
{
    json_t *row = json_object();
    char *line = ha_fleet_line(f, NULL, d), digest[32];
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)d->most);
    ha_json_set_text(row, "row", "outputs");
    ha_json_set_count(row, "group", d->group);
    ha_json_set_text(row, "case_id", f->of[d->of].id);
    ha_json_set_text(row, "mode", f->of[d->of].mode);
    ha_json_set_text(row, "plan", f->of[d->of].plan);
    ha_json_set_text(row, "digest", d->known ? digest : "");
    ha_json_set_count(row, "agree", d->known ? d->agree : 0);
    json_object_set_new(row, "disagree", disagreeing(f, d));
    ha_json_set_text(row, "line", line);
    ha_json_put_line(out, row);
    free(line);
}

void ha_fleet_print_json(FILE *out, const struct ha_fleet *f)
{
    size_t *order = ha_fleet_order(f);
    put_fleet(out, f);
    for (size_t i = 0; i < f->groups; i++) put_group(out, f, i);
    for (size_t i = 0; i < f->groups; i++)
        for (size_t k = 0; k < f->group[i].columns; k++) put_figure(out, f, i, &f->group[i].column[k]);
    for (size_t i = 0; i < f->count && order; i++) put_machine(out, f, &f->machine[order[i]]);
    for (size_t i = 0; i < f->count && order; i++) {
        const struct ha_fleet_machine *m = &f->machine[order[i]];
        for (size_t v = 0; v < m->values && m->group != SIZE_MAX; v++)
            if (i < MOST_SUSPICIOUS || (m->figures && ha_fleet_cell(f, m, v).called)) put_deviation(out, f, m, v);
    }
    for (size_t i = 0; i < f->disagreements; i++) put_outputs(out, f, &f->disagreement[i]);
    free(order);
}

/* ---- two fleets -------------------------------------------------------------------------------------------------- */

void ha_fleet_shift_print_json(FILE *out, const struct ha_fleet_shift *s)
{
    json_t *row = json_object();
    ha_json_set_text(row, "row", "shift");
    ha_json_set_text(row, "before", s->before->path);
    ha_json_set_text(row, "now", s->now->path);
    ha_json_set_count(row, "machines", s->machines);
    ha_json_set_count(row, "gone", s->gone);
    ha_json_set_count(row, "added", s->added);
    set_ratio(row, "worse", s->by);
    set_ratio(row, "lo", s->lo);
    set_ratio(row, "hi", s->hi);
    set_ratio(row, "least", s->least);
    ha_json_set_count(row, "exit", (size_t)ha_fleet_shift_exit(s));
    ha_json_put_line(out, row);
    for (size_t i = 0; i < s->machines; i++) {
        row = json_object();
        ha_json_set_text(row, "row", "machine_shift");
        ha_json_set_text(row, "name", s->machine[i].machine->name);
        set_ratio(row, "worse", s->machine[i].by);
        ha_json_set_number(row, "sigmas", s->machine[i].sigmas);
        ha_json_set_number(row, "p", s->machine[i].p);
        set_bool(row, "called", s->machine[i].called);
        ha_json_put_line(out, row);
    }
    for (size_t i = 0; i < s->figures; i++) {
        const struct ha_fleet_figure_moved *f = &s->figure[i];
        row = json_object();
        ha_json_set_text(row, "row", "figure_shift");
        ha_json_set_text(row, "case_id", f->figure->case_id);
        ha_json_set_text(row, "mode", f->figure->mode);
        ha_json_set_text(row, "suite", f->figure->suite);
        ha_json_set_text(row, "figure", f->figure->name);
        ha_json_set_text(row, "better", ha_better_name(f->figure->better));
        ha_json_set_count(row, "machines", f->machines);
        set_ratio(row, "worse", f->by);
        set_ratio(row, "lo", f->lo);
        set_ratio(row, "hi", f->hi);
        ha_json_set_number(row, "p", f->p);
        set_bool(row, "called", f->called);
        ha_json_put_line(out, row);
    }
}
