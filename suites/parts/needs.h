#ifndef HA_PARTS_NEEDS_H
#define HA_PARTS_NEEDS_H

#include "harness/api/device.h"

enum { HA_NEEDS_ATTEND = 1, HA_NEEDS_MERGE = 2, HA_NEEDS_BLEND = 4, HA_NEEDS_COPY_2D = 8, HA_NEEDS_PRODUCTS = 16 };

/* NULL, or the first optional operation of `needs` that the device lacks, as a sentence */
const char *ha_needs(const struct ha_device_api *api, unsigned needs);

#endif
