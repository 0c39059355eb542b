#ifndef HA_COMPARE_HISTORY_SIGHT_H
#define HA_COMPARE_HISTORY_SIGHT_H

/* Of which size a change has to be, so that a history shows it. */

#include "harness/compare/history.h"

/* In so many nights a change of one of the figures, whichever it is, is found in 8 of 10 cases when it is `age` nights
 * old, if it is of at least this size (a logarithm). */
struct ha_history_sight {
    size_t nights, age;
    double size;
};
enum { HA_SIGHTS = 2 };

/* Of the nights that there are: when a change can be found first, and when it is twice as old. Where they are too few
 * to show any: of the fewest nights that are enough, and of twice as many, of which the change has as large a part.
 * *count: 0 where it is not known how nights differ. HA_ERROR: no memory. */
enum ha_status ha_history_look(struct ha_history_sight out[HA_SIGHTS], size_t *count, const struct ha_history *history,
                               struct ha_why *why);

#endif
