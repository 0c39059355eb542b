#ifndef HA_METER_H
#define HA_METER_H

#include "harness/api/device.h"

/* Counts the bytes of every copy that a variant asks for, traced or not; one that a graph keeps counts
 * where it is captured, however often it is launched. A device table has no pointer to itself, so there is
 * one meter: one case runs at a time. */

struct ha_meter_count {
    uint64_t h2d_bytes, d2h_bytes, copies;
};

/* The table to hand to a variant: that of `api`, with counted copies. Valid until the next call. */
const struct ha_device_api *ha_meter_wrap(const struct ha_device_api *api);
/* since the last call */
struct ha_meter_count ha_meter_take(void);

#endif
