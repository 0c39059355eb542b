#ifndef HA_CACHE_H
#define HA_CACHE_H

/* What the caches of this machine can hold for this process. */

#include "harness/api/base.h"

struct ha_cache {
    int level;
    double bytes;
    size_t cores, own; /* that share it, as far as the system shows; of these, that the process may run on */
};

/* The sum of the second and third levels, each by the share of the cores that the process has of it. A guest does not
 * see who else shares the last level: there it counts at most HA_CACHE_GUEST_BYTES a core, which is more than a core's
 * share is on machines that are rented out. */
#define HA_CACHE_GUEST_BYTES ((double)(16 << 20))
double ha_cache_usable_bytes(const struct ha_cache *caches, size_t count, bool guest);

/* Of this machine. 0: nothing is known. */
double ha_cache_own_bytes(void);

#endif
