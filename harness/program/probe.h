#ifndef HA_PROBE_H
#define HA_PROBE_H

#include "harness/api/base.h"

/* `habench probe`: measures and prints, and calibrates the meters (calibrate.h); with out_dir
 * also to OUT/probe.csv and OUT/env.json. device: as in a case. */
enum ha_status ha_probe(const char *device, const char *out_dir, struct ha_why *why);

#endif
