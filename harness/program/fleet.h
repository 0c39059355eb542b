#ifndef HA_PROGRAM_FLEET_H
#define HA_PROGRAM_FLEET_H

#include "harness/program/commands.h"

/* The command as one rank of a fleet (--fleet FLEET): into a folder of its own, which becomes FLEET/MACHINE at the end.
 */
enum ha_exit ha_program_fleet(const struct ha_options *options,
                              enum ha_exit (*command)(const struct ha_options *options, struct ha_why *why),
                              struct ha_why *why);

#endif
