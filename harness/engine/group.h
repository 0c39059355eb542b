#ifndef HA_ENGINE_GROUP_H
#define HA_ENGINE_GROUP_H

/* Points that run at once, through the hooks of their suite, to verdicts. */

#include "harness/engine/at_once.h"
#include "harness/engine/machine.h"
#include "harness/engine/plan.h"

struct ha_group_rows {
    struct ha_group of; /* all of them; cap_ns and deadline_ns are the caller's to set */
    /* [2][of.count]: of all, then room for those that are measured */
    void **row; /* each on the heap; NULL: taken over by the caller */
    const void **point;
    const char **id;
    bool *right;
    struct ha_machine *machine;       /* what is read beside a measurement; NULL: nothing is. The caller's to set */
    const struct ha_at_once *at_once; /* ranks that measure this group at once, in this window; NULL: none. The caller's
                                         to set */
    uint64_t window;
    bool failed_beside; /* a device failed by such a reading, when all that the rows say was done */
};

/* A cleared row for each of these entries of the plan, which are of one suite and belong together. HA_ERROR: no
 * memory; to be freed all the same. */
enum ha_status ha_group_make(struct ha_group_rows *rows, const struct ha_plan *plan, const size_t *entry, size_t count,
                             struct ha_why *why);
/* Open, check, measure those that were found right, with readings of the machine right before and after, close. What
 * was found right passes when all that was asked is done; a row without a verdict is an error then, unless its reason
 * says why it was not run. */
void ha_group_run(struct ha_group_rows *rows, const struct ha_suite *suite, void *run, bool measure);
/* The verdict of every row that has none of its own; after a stop, what is not complete has none. */
void ha_group_set(struct ha_group_rows *rows, enum ha_status status, const struct ha_why *why);
void ha_group_free(struct ha_group_rows *rows);

#endif
