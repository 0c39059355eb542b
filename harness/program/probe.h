#ifndef HA_PROBE_H
#define HA_PROBE_H

#include "harness/program/options.h"

/* `habench probe`: measures and prints the ceilings, and calibrates the meters (calibrate.h); with -o also to
 * OUT/probe.csv and OUT/env.json. */
enum ha_exit ha_command_probe(const struct ha_options *options, struct ha_why *why);

#endif
