#include "harness/engine/at_once.h"

#include "harness/base/stop.h"
#include "harness/report/row.h"

#include <stdio.h>

uint64_t ha_at_once_windows(const struct ha_meet *meet, size_t entries, size_t processes)
{
    return ((uint64_t)entries * (processes ? processes : 1) + 1) * ha_meet_ranks(meet);
}

uint64_t ha_at_once_window(const struct ha_at_once *o, uint64_t place)
{
    if (!o) return 0;
    return o->turns ? o->first + place * ha_meet_ranks(o->meet) + ha_meet_rank(o->meet) : o->first + place;
}

void ha_at_once_await(const struct ha_at_once *o, uint64_t place, uint64_t limit_ns)
{
    if (!o || !o->turns || ha_meet_turn(o->meet, ha_at_once_window(o, place), limit_ns) || ha_stop) return;
    fputs("warning: another rank does not move: this case may not be measured alone\n", stderr);
}

void ha_at_once_pass(const struct ha_at_once *o, uint64_t place)
{
    if (o) ha_meet_pass(o->meet, ha_at_once_window(o, place));
    if (o && o->also) ha_meet_pass(o->also, place);
}

void ha_at_once_end(const struct ha_at_once *o, size_t processes)
{
    if (o) ha_meet_pass(o->meet, o->first + ha_at_once_windows(o->meet, o->entries, processes));
}

void ha_at_once_kept(const struct ha_at_once *o, size_t process, size_t entry, const struct ha_suite *suite, void *row)
{
    if (!o || o->turns || !o->alone) return;
    const double was = o->alone[process * o->entries + entry], is = ha_fields_speed(suite, row);
    if ((was < 0) == (is < 0)) ha_result_of(row)->kept = is < 0 ? is / was : was / is; /* NaN of what is not known */
}

void ha_at_once_alone(const struct ha_at_once *o, size_t process, size_t entry, const struct ha_suite *suite,
                      const void *row)
{
    if (o && o->turns && o->alone) o->alone[process * o->entries + entry] = ha_fields_speed(suite, row);
}
