#ifndef HA_MERGE_BUNDLE_H
#define HA_MERGE_BUNDLE_H

/* All cases, or random rows, in as few tasks as there are shapes, flat and packed: for a subject each of whose runs is
 * a process of its own. */

#include "suites/merge/task.h"

struct ha_merge_bundles {
    const struct ha_merge_suite *suite;
    const struct ha_merge_axes *only; /* of which form and type count */
    const bool *asked;                /* [cases], or [kinds of random rows][types] */
    size_t batches;                   /* of random rows, for each form and type; 0: cases */
    bool heads_first;                 /* LSE [heads][tokens] */
    struct ha_merge_bundle at_hand;   /* of the last task */
};
size_t ha_merge_bundles_count(const struct ha_merge_bundles *bundles);
/* Task i, valid until the next; one without tokens where there is nothing to ask. */
struct ha_merge_task ha_merge_bundle_task(void *bundles, size_t i);

#endif
