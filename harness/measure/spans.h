#ifndef HA_SPANS_H
#define HA_SPANS_H

/* Does what a device says of its own work agree with what it was asked for and with the host's clock? A device that
 * stamps its spans itself may leave some out or make them shorter, and look idle, or its link fast. */

#include "harness/measure/timeline.h"

/* The operations and copies of a traced pass, as the host counted them. */
struct ha_spans_asked {
    uint64_t attend, merge, product;     /* calls with work to do: each has a span of its name at least */
    uint64_t called;                     /* ha_meter_count.called: others have no span of a kernel */
    uint64_t up, down;                   /* copies to the device, to the host: each has a span at least */
    uint64_t h2d_bytes[2], d2h_bytes[2]; /* of copies: the least and the most that can be */
    bool clocks;                         /* when spans were enqueued and ran is judged, too */
    struct ha_interval traced;           /* from before the trace began until it had ended */
    struct ha_interval busy; /* all work was enqueued by its begin, and not all was done before its end: the device has
                              * always something to do, but for what spans say it waits for; empty: there is none */
};

/* HA_FAIL, and in one line what is contradicted: an operation without a span, a kernel that nobody called, other bytes,
 * spans that were enqueued or ran outside of the trace, or across one another on one lane. *unexplained:
 * the part of `busy` in which by the spans nothing runs or waits, as far as it is no accident: the median gap between
 * two spans, if it is longer than a launch (10 us), over itself and the median span; or the part behind the last span.
 * NaN where it is shorter than 0.5 ms or has fewer than 8 spans. */
enum ha_status ha_spans_judge(const struct ha_timeline *timeline, const struct ha_spans_asked *asked,
                              double *unexplained, struct ha_why *why);

#endif
