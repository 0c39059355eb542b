#ifndef HA_MERGE_SHRINK_H
#define HA_MERGE_SHRINK_H

/* The smallest row that still fails: fewer states, fewer components, plainer numbers. */

#include "suites/merge/merge_suite.h"

/* Changes *row (states, dim, and the arrays in place, [states][dim] packed anew) as long as fails(arg, row) holds,
 * asking at most `budget` times; returns how often it asked. The row given must fail. `whole` and `full` are switched
 * off; a row that does not fail without them is left as it is. */
size_t ha_merge_shrink(struct ha_merge_row *row, bool (*fails)(void *arg, const struct ha_merge_row *row), void *arg,
                       size_t budget);

#endif
