#include "harness/compare/blame.h"

#include "harness/base/why.h"
#include "harness/compare/sides.h"

#include <math.h>
#include <string.h>

bool ha_moves_bytes(const struct ha_recorded_case *c)
{
    static const char *const figure[] = { "h2d_bytes", "d2h_bytes", "zero_copy_bytes" };
    for (size_t i = 0; i < sizeof figure / sizeof *figure; i++) {
        const struct ha_recorded_figure *f = ha_record_figure(c, figure[i]);
        if (f && f->count && f->at[f->count - 1].value > 0) return true;
    }
    return !strncmp(c->id, "link", 4);
}

/* The shift of a figure, or of one over another, with its sign turned where the change is for the better. */
static enum ha_status shift_of(struct ha_shift *out, const struct ha_recorded_figure *base,
                               const struct ha_recorded_figure *base_over, const struct ha_recorded_figure *now,
                               const struct ha_recorded_figure *over, const bool *counts, double nights, double sign,
                               struct ha_why *why)
{
    struct ha_side a = { 0 }, b = { 0 };
    enum ha_status status = base_over ? ha_side_over(&a, base, base_over, counts, why)
                                      : ha_side_make(&a, base, counts, why);
    if (status == HA_OK) status = over ? ha_side_over(&b, now, over, NULL, why) : ha_side_make(&b, now, NULL, why);
    for (size_t i = 0; i < a.count; i++) a.x[i] *= sign;
    for (size_t i = 0; i < b.count; i++) b.x[i] *= sign;
    *out = (struct ha_shift){ .size = (double)NAN, .lo = (double)NAN, .hi = (double)NAN };
    const struct ha_shift_nights of = { nights, HA_SHARES_ASSUMED, 0.05, 1 };
    if (status == HA_OK && a.count && b.count) status = ha_shift_find(out, &a, &b, &of, why);
    ha_side_free(&a);
    ha_side_free(&b);
    return status;
}

static bool moved(const struct ha_shift *s) { return s->lo > 0 && s->size > HA_SHIFT_LEAST; }

/* Of some seven parts with noisy readings one moves by chance now and then: that is no proof that the machine did. */
static bool beyond_doubt(const struct ha_shift *s) { return s->p < 0.001; }

static enum ha_cause cause_of(const struct ha_shift *figure, double sign, const struct ha_shift *part,
                              const struct ha_shift *rest)
{
    const double size = sign * figure->size;
    if (isnan(rest->size)) return HA_CAUSE_UNDECIDED;
    if (rest->hi < size / 2) return HA_CAUSE_MACHINE;
    if (rest->lo > HA_SHIFT_LEAST && part->size < size / 4) return HA_CAUSE_CODE;
    return beyond_doubt(part) && beyond_doubt(rest) ? HA_CAUSE_BOTH : HA_CAUSE_UNDECIDED;
}

/* Of causes those that can be: code that is the same has not changed. */
static enum ha_cause possible(const struct ha_comparison *all, enum ha_cause cause)
{
    const bool software = all->other_software;
    switch (cause) {
    case HA_CAUSE_CODE:
        if (!all->same_build) return software ? HA_CAUSE_UNDECIDED : HA_CAUSE_CODE;
        return software ? HA_CAUSE_SOFTWARE : HA_CAUSE_MACHINE;
    case HA_CAUSE_BOTH: return all->same_build && !software ? HA_CAUSE_MACHINE : HA_CAUSE_BOTH;
    default: return cause;
    }
}

enum ha_status ha_blame(const struct ha_comparison *all, struct ha_change *c, const bool *counts, struct ha_why *why)
{
    const double nights = all->nights;
    c->suspects = all->suspects ? all->suspects : "";
    const double sign = c->kind == HA_CHANGE_BETTER ? -1 : 1;
    const bool link = ha_moves_bytes(c->now);
    size_t asked = 0;
    bool still = true; /* no part has moved by half as much */
    if (!strcmp(c->now->id, HA_MACHINE_CASE)) {
        c->cause = HA_CAUSE_MACHINE;
        return HA_OK;
    }
    for (const struct ha_part_of_machine *p = ha_parts_of_machine; p->figure; p++) {
        const struct ha_recorded_figure *base = ha_record_figure(c->base, p->figure);
        const struct ha_recorded_figure *now = ha_record_figure(c->now, p->figure);
        struct ha_shift s;
        if (!base || !now || (p->link && !link)) continue;
        HA_TRY(shift_of(&s, base, NULL, now, NULL, counts, nights, sign, why));
        if (isnan(s.size)) continue;
        asked++;
        still = still && s.hi < sign * c->shift.size / 2;
        if (!moved(&s) || (c->part && c->part_shift.size >= s.size)) continue;
        c->part = p;
        c->part_shift = s;
        HA_TRY(shift_of(&c->rest, c->base_figure, base, c->figure, now, counts, nights, sign, why));
    }
    if (c->part) c->cause = cause_of(&c->shift, sign, &c->part_shift, &c->rest);
    else c->cause = asked && still ? HA_CAUSE_CODE : HA_CAUSE_UNDECIDED;
    c->cause = possible(all, c->cause);
    return HA_OK;
}
