#ifndef HA_LINK_CLAIMS_H
#define HA_LINK_CLAIMS_H

/* What papers say of links, held against the figures of a run. */

#include "suites/link/bench.h"

/* What was right and measured. */
struct ha_link_figure {
    const struct ha_link_method *method;
    size_t piece_bytes;
    bool scattered;
    double GBps, share; /* share: of the link's ceiling in its direction */
};
struct ha_link_figures {
    const struct ha_link_figure *figure;
    size_t count, cores;
    bool link; /* there is one: false where the device's memory is the host's */
};

enum ha_link_verdict {
    HA_LINK_REPRODUCED,
    HA_LINK_IN_SHAPE, /* the relation holds, the figures do not */
    HA_LINK_REFUTED,
    HA_LINK_NOT_APPLICABLE, /* a condition that is not met here */
};
struct ha_link_claim {
    const char *text, *source, *rule;
    /* figures: what the verdict rests on, or the condition that is not met */
    enum ha_link_verdict (*judge)(const struct ha_link_figures *measured, char figures[512]);
};
extern const struct ha_link_claim ha_link_claims[];
extern const size_t ha_link_claims_count;
const char *ha_link_verdict_name(enum ha_link_verdict verdict);

#endif
