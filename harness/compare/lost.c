#include "harness/compare/lost.h"

#include "harness/base/array.h"
#include "harness/base/why.h"
#include "harness/compare/compare.h"

#include <stdio.h>
#include <string.h>

enum { NAMED_MOST = 3 };

bool ha_figure_steady(const struct ha_recorded_case *of, const struct ha_recorded_figure *f, const bool *counts,
                      size_t all)
{
    size_t nights = 0, values = 0, with_row = 0, rows = 0, last = SIZE_MAX;
    for (size_t i = 0; i < f->count; i++) {
        const size_t night = f->at[i].night;
        if (counts && !counts[night]) continue;
        values++;
        nights += night != last; /* values come night by night */
        last = night;
    }
    for (size_t i = 0; i < of->nights; i++) {
        if (counts && !counts[of->by_night[i].night]) continue;
        with_row++;
        rows += of->by_night[i].processes;
    }
    for (size_t i = 0; i < of->disturbances; i++) rows -= !counts || counts[of->disturbed[i].night];
    if (!of->nights) with_row = all; /* the machine itself has no rows */
    return nights && nights == with_row && 10 * values >= 9 * rows;
}

bool ha_figure_there(const struct ha_recorded_case *of, const char *name)
{
    const struct ha_recorded_figure *f = of ? ha_record_figure(of, name) : NULL;
    return f && f->count;
}

bool ha_figure_names_have(const struct ha_figure_names *names, const char *name)
{
    size_t i = 0;
    while (i < names->count && strcmp(names->name[i], name) != 0) i++;
    return i < names->count;
}

enum ha_status ha_figure_names_add(struct ha_figure_names *names, const char *name, struct ha_why *why)
{
    if (ha_figure_names_have(names, name)) return HA_OK;
    if (!ha_array_room(&names->name, &names->room, names->count + 1, sizeof *names->name))
        return ha_why(why, HA_ERROR, "out of memory");
    names->name[names->count++] = name;
    return HA_OK;
}

enum ha_status ha_figure_names_of(struct ha_figure_names *names, const struct ha_record *r, struct ha_why *why)
{
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < r->cases[i]->figures; k++)
            if (r->cases[i]->figure[k].count) HA_TRY(ha_figure_names_add(names, r->cases[i]->figure[k].name, why));
    return HA_OK;
}

static bool has_no_row(const struct ha_change *k) { return k->kind == HA_CHANGE_GONE && !k->lost; }

/* base is NULL of a case that has figures in the new record alone, and no row in either */
static bool together(const struct ha_change *a, const struct ha_change *b)
{
    const struct ha_recorded_case *x = a->base ? a->base : a->now, *y = b->base ? b->base : b->now;
    return has_no_row(a) && has_no_row(b) && !strcmp(x->suite, y->suite) && !strcmp(x->mode, y->mode);
}

void ha_lost_together(struct ha_comparison *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->count; i++) {
        struct ha_change k = c->change[i];
        size_t first = 0, all = 0;
        while (first < kept && !together(&c->change[first], &k)) first++;
        if (first < kept && c->change[first].cases) continue;
        for (size_t j = i; first == kept && j < c->count; j++) all += together(&c->change[j], &k);
        if (all > NAMED_MOST) k.cases = all;
        c->change[kept++] = k;
    }
    c->count = kept;
}

char *ha_figure_names_text(const struct ha_figure_names *names)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f) return NULL;
    for (size_t i = 0; i < names->count; i++) fprintf(f, "%s%s", i ? ", " : "", names->name[i]);
    fclose(f);
    return text;
}
