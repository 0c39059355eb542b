#ifndef HA_BASE_PLACEMENT_H
#define HA_BASE_PLACEMENT_H

#include "harness/api/base.h"

/* Where memory really lies, as the kernel says. */

enum { HA_PLACEMENT_NODES = 64 };

struct ha_placement {
    double huge;                     /* share on huge pages, of what is in memory of the mappings that hold the range */
    double node[HA_PLACEMENT_NODES]; /* share of the range by NUMA node, of pages evenly spaced, 65536 at most */
    double absent;                   /* share of the same pages that nobody has written yet */
    struct ha_why no_huge, no_nodes; /* why huge, or node and absent, are NaN; else empty */
};

/* of bytes > 0 */
void ha_placement_read(struct ha_placement *placement, const void *memory, size_t bytes);

#endif
