#ifndef HA_PREFLIGHT_H
#define HA_PREFLIGHT_H

#include "harness/program/options.h"
#include "suites/variants/suite.h"

/* What can be refused before the first case: the instruction set, the devices, the files of datasets, the output
 * folder. HA_EXIT_OK, or the exit code of the program with the reason. */
enum ha_exit ha_preflight(const struct ha_options *o, const struct ha_case_list *list, struct ha_why *why);

/* A device that is in the program, or a plugin's file that is there. */
enum ha_exit ha_preflight_device(const char *name, struct ha_why *why);

#endif
