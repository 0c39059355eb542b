#ifndef HA_ENGINE_AT_ONCE_H
#define HA_ENGINE_AT_ONCE_H

/* Ranks that run the same plan, each group of points at once, or one rank after another while the others wait. A place
 * is that of a group in the order of the run, over all of its rounds, counted from 0, also where nothing of it is left
 * to run. Of NULL nothing waits and nothing is said. */

#include "harness/api/suite.h"
#include "harness/fleet/meet.h"

struct ha_at_once {
    struct ha_meet *meet;
    struct ha_meet *also; /* NULL, or others that wait meanwhile, and are to see that this rank moves */
    bool turns;           /* one after another; else at once */
    uint64_t first;       /* the first of its windows, ha_at_once_windows of them */
    size_t entries;       /* of the plan */
    size_t of;            /* how many are to measure at once */
    /* [processes][entries] how fast each case was (ha_fields_speed), NaN: not known. Of turns: to be filled; else: what
     * it is held against. NULL: nobody wants it. */
    double *alone;
};

/* Enough windows for a run of so many points and processes, both of turns and at once. */
uint64_t ha_at_once_windows(const struct ha_meet *meet, size_t entries, size_t processes);
/* The window of the group at this place that is this rank's. */
uint64_t ha_at_once_window(const struct ha_at_once *at_once, uint64_t place);
/* Waits for this rank's turn; not without end for others that do not move for limit_ns. */
void ha_at_once_await(const struct ha_at_once *at_once, uint64_t place, uint64_t limit_ns);
/* What is before this place is over for this rank, whatever became of it. */
void ha_at_once_pass(const struct ha_at_once *at_once, uint64_t place);
/* All of it is. */
void ha_at_once_end(const struct ha_at_once *at_once, size_t processes);

/* Of a row of entry i: what it kept of its speed alone goes into the row; or it is the speed alone. */
void ha_at_once_kept(const struct ha_at_once *at_once, size_t process, size_t entry, const struct ha_suite *suite,
                     void *row);
void ha_at_once_alone(const struct ha_at_once *at_once, size_t process, size_t entry, const struct ha_suite *suite,
                      const void *row);

#endif
