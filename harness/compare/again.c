#include "harness/compare/again.h"

#include "harness/base/array.h"
#include "harness/base/why.h"

#include <string.h>

enum { READERS = 3 };

static bool is_machine(const struct ha_change *k) { return k->now && !strcmp(k->now->id, HA_MACHINE_CASE); }

/* More processes do not help a base that was disturbed. */
static bool open_still(const struct ha_change *k)
{
    return k->kind == HA_CHANGE_SUSPICIOUS || k->kind == HA_CHANGE_PERHAPS_BETTER
           || (k->kind == HA_CHANGE_DISTURBED && 2 * k->disturbed > k->processes);
}

static enum ha_status add(struct ha_again *a, const struct ha_recorded_case *of, struct ha_why *why)
{
    for (size_t i = 0; i < a->count; i++)
        if (a->of[i] == of) return HA_OK;
    if (!ha_array_room(&a->of, &a->room, a->count + 1, sizeof *a->of)) return ha_why(why, HA_ERROR, "out of memory");
    a->of[a->count++] = of;
    return HA_OK;
}

static bool reads(const struct ha_recorded_case *of, const char *figure)
{
    const struct ha_recorded_figure *f = ha_record_figure(of, figure);
    return f && f->count;
}

/* What is run again for its own sake reads the machine, too; others are added until there are enough. */
static enum ha_status add_readers(struct ha_again *a, const struct ha_comparison *c, const char *figure,
                                  struct ha_why *why)
{
    size_t have = 0;
    for (size_t i = 0; i < a->count; i++) have += reads(a->of[i], figure);
    for (size_t i = 0; i < c->count && have < READERS; i++) {
        const struct ha_change *k = &c->change[i];
        if (!k->figure || is_machine(k) || !reads(k->now, figure)) continue;
        const size_t before = a->count;
        HA_TRY(add(a, k->now, why));
        have += a->count - before;
    }
    return HA_OK;
}

enum ha_status ha_comparison_again(struct ha_again *a, const struct ha_comparison *c, struct ha_why *why)
{
    *a = (struct ha_again){ 0 };
    for (size_t i = 0; i < c->count; i++)
        if (open_still(&c->change[i]) && !is_machine(&c->change[i])) HA_TRY(add(a, c->change[i].now, why));
    for (size_t i = 0; i < c->count; i++)
        if (open_still(&c->change[i]) && is_machine(&c->change[i]))
            HA_TRY(add_readers(a, c, c->change[i].figure->name, why));
    return HA_OK;
}
