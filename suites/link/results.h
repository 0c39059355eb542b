#ifndef HA_LINK_RESULTS_H
#define HA_LINK_RESULTS_H

/* The figures of a link run. */

#include "suites/link/id.h"

enum ha_link_state {
    HA_LINK_NOT_RUN,
    HA_LINK_WAIVED,
    HA_LINK_FAILED,
    HA_LINK_ERROR,
    HA_LINK_CHECKED,   /* right, and not measured */
    HA_LINK_MEASURED,  /* right, and measured */
    HA_LINK_UNCHECKED, /* a device that moves nothing: measured, and no figure of a link */
};

struct ha_link_result {
    struct ha_link_point point;
    enum ha_link_state state;
    char reason[512]; /* of what is waived, wrong or an error */
    size_t pieces, moved_bytes, verified_bytes, samples;
    double GBps, lo, hi; /* median and its interval */
    double least, most;
    double share; /* of the link's ceiling in its direction */
};

struct ha_link_results {
    struct ha_link_result *result; /* in the order in which they run: up before down, layout, piece, method */
    size_t count;
    double ceiling[2]; /* by direction, GB/s; NaN: not measured */
    size_t cores;
    bool link; /* there is one: false where the device's memory is the host's */
};

const char *ha_link_state_name(enum ha_link_state state);

#endif
