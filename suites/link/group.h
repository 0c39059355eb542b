#ifndef HA_LINK_GROUP_H
#define HA_LINK_GROUP_H

/* One group: all methods of one direction, piece size and layout, in turns, so that what the machine does meanwhile is
 * done to all of them alike. */

#include "suites/link/suite.h"

struct ha_link_turns {
    struct ha_link_bench *bench; /* laid out for the group */
    enum ha_status (*reopen)(void *arg,
                             struct ha_why *why); /* the device has failed: a fresh one, laid out as before */
    void *arg;
};

/* Moves each once and compares. */
enum ha_status ha_link_group_check(const struct ha_link_turns *turns, struct ha_group *group, struct ha_why *why);
/* Times what was right, one after the other, until each is known well enough or the time is over. */
enum ha_status ha_link_group_measure(const struct ha_link_turns *turns, struct ha_group *group, struct ha_why *why);

#endif
