#include "harness/compare/fold.h"

#include "harness/compare/results.h"

#include <stdio.h>
#include <string.h>

static bool folds(const struct ha_change *k)
{
    return k->figure && k->now && strcmp(k->now->id, HA_MACHINE_CASE) != 0 && ha_change_loud(k);
}

static bool one_case(const struct ha_change *a, const struct ha_change *b)
{
    return b->figure && a->now == b->now && ha_is_result(a->figure->name) == ha_is_result(b->figure->name);
}

static bool is_step(const struct ha_change *k) { return !strcmp(k->figure->name, "step_ns"); }

static void fold(struct ha_change *lead, struct ha_change *k)
{
    const size_t have = strlen(lead->follows);
    k->folded = true;
    snprintf(lead->follows + have, sizeof lead->follows - have, "%s%s", have ? ", " : "", k->figure->name);
}

/* The changes first to end - 1 are of one case; all of one sort of figure as that at first. */
static void fold_case(struct ha_change *first, const struct ha_change *end)
{
    struct ha_change *lead = first;
    for (struct ha_change *k = first + 1; k < end; k++)
        if (folds(k) && one_case(first, k) && (k->kind > lead->kind || (k->kind == lead->kind && is_step(k)))) lead = k;
    for (struct ha_change *k = first; k < end; k++)
        if (k != lead && folds(k) && one_case(first, k)) fold(lead, k);
}

static struct ha_change *resident_of(struct ha_comparison *c, const struct ha_change *k)
{
    for (size_t i = 0; i < c->count; i++) {
        struct ha_change *const r = &c->change[i];
        if (folds(r) && r->now != k->now && is_step(r) && !strncmp(r->now->id, "resident:", 9)
            && !strcmp(r->now->suite, k->now->suite))
            return r;
    }
    return NULL;
}

void ha_fold(struct ha_comparison *c)
{
    for (size_t i = 0, end; i < c->count; i = end) {
        for (end = i + 1; end < c->count && c->change[end].now == c->change[i].now;) end++;
        for (size_t k = i; k < end; k++)
            if (folds(&c->change[k])) fold_case(&c->change[k], &c->change[end]);
    }
    for (size_t i = 0; i < c->count; i++) {
        struct ha_change *const k = &c->change[i];
        const bool full = folds(k) && !strcmp(k->figure->name, "full_step_ns");
        if (full && resident_of(c, k)) k->folded = true;
    }
}
