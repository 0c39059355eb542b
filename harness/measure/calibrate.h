#ifndef HA_CALIBRATE_H
#define HA_CALIBRATE_H

/* The meters against what is known: an empty window, bytes that were copied, kernels that are busy for a known share of
 * the time, the link's hardware counters. */

#include "harness/measure/ceilings.h"

#include <stdio.h>

/* Prints a line for each. HA_ERROR: a meter is off, or nothing could be run; then what rests on spans is not to be
 * used. What the device does not offer is a line that says so. */
enum ha_status ha_calibrate(FILE *out, const struct ha_device_api *api, struct ha_device *device,
                            const struct ha_ceilings *ceilings, struct ha_why *why);

#endif
