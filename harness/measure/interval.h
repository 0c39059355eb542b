#ifndef HA_INTERVAL_H
#define HA_INTERVAL_H

#include "harness/api/base.h"

/* Sets of moments as sorted, disjoint intervals: what idle and overlap are computed from. */

struct ha_interval {
    uint64_t begin_ns, end_ns;
};

/* Sorts x and joins what touches, in place; empty intervals vanish. Returns how many remain. */
size_t ha_interval_union(struct ha_interval *x, size_t count);
/* of unions */
uint64_t ha_interval_length(const struct ha_interval *x, size_t count);
uint64_t ha_interval_common(const struct ha_interval *a, size_t a_count, const struct ha_interval *b, size_t b_count);

#endif
