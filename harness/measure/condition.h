#ifndef HA_CONDITION_H
#define HA_CONDITION_H

/* What the device's meters say of the passes of a benchmark: read right after the last timed step of each, while clocks
 * are still what they were in it. */

#include "harness/api/device.h"

struct ha_condition {
    size_t readings;
    double sm_clock_MHz, memory_clock_MHz, link_gen, link_width; /* the least of all readings */
    double temperature_C;                                        /* the most */
    double power_W;                                              /* their mean */
    double energy_step_J; /* of a pass, by its steps; NaN unless the counter moved in every pass */
    char throttle[96];    /* every reason that any reading had; "none" */
    /* inside */
    double before_J, energy_J, power_sum_W, elapsed_s;
    uint64_t before_ns;
    size_t steps;
    bool still; /* a pass was too short for the energy counter */
};

/* all NaN and empty */
struct ha_condition ha_condition_none(void);
/* Around a pass of so many steps. */
void ha_condition_begin(struct ha_condition *c, const struct ha_device_api *api, struct ha_device *device);
void ha_condition_end(struct ha_condition *c, const struct ha_device_api *api, struct ha_device *device, size_t steps);
/* HA_FAIL: the energy of all passes is not about their power times their time, where all of it is known. */
enum ha_status ha_condition_agrees(const struct ha_condition *c, struct ha_why *why);

#endif
