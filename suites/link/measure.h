#ifndef HA_LINK_MEASURE_H
#define HA_LINK_MEASURE_H

/* One group of figures: all methods of one direction, piece size and layout, so that what the machine does meanwhile is
 * done to all of them alike. */

#include "suites/link/results.h"

struct ha_link_group {
    struct ha_link_bench *bench;
    struct ha_link_result
        *result; /* [count]: of one group, in the order of the methods; state NOT_RUN where it is to be run */
    size_t count;
    double ceiling_GBps; /* of the link that way; NaN: there is none */
    bool measure;        /* else: checked only */
    bool checked;        /* false: a device that moves nothing */
    uint64_t cap_ns;     /* of measuring */
    enum ha_status (*reopen)(void *arg,
                             struct ha_why *why); /* the device has failed: a fresh one, laid out as before */
    void *arg;
};

/* Moves each once and compares, then measures what was right, one after the other in turns, until each is known well
 * enough or the time is over. What goes wrong is in the results. HA_WAIVED: stopped, results that are not complete are
 * NOT_RUN. HA_ERROR: no device any more. */
enum ha_status ha_link_group_run(struct ha_link_group *group, struct ha_why *why);

#endif
