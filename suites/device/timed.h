#ifndef HA_DEVICE_SUITE_TIMED_H
#define HA_DEVICE_SUITE_TIMED_H

/* An operation of a device whose next call is repeated until its time is known. */

#include "harness/measure/sampling.h"
#include "suites/device/stage.h"

struct ha_op_timing {
    uint64_t cap_ns;     /* of all samples */
    struct ha_series ns; /* of a call, of those that follow one another without a sync: a sample each */
    double bytes;        /* of the operands of a call; NaN: an index on the device says which */
};

/* The device with this entry timed, of one stage at a time. The caller frees timing->ns. NULL: there is no such entry.
 */
const struct ha_device_api *ha_timed(struct ha_op_stage *stage, const char *entry, struct ha_op_timing *timing);

#endif
