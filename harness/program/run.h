#ifndef HA_PROGRAM_RUN_H
#define HA_PROGRAM_RUN_H

#include "harness/engine/plan.h"
#include "harness/program/options.h"

/* `habench run` and `habench check`. */
enum ha_exit ha_command_run(const struct ha_options *options, struct ha_why *why);
/* The plan of words under the options. small: points of suite files are made small. HA_ERROR: usage. */
enum ha_status ha_program_plan(struct ha_plan *plan, const struct ha_options *o, char *const *words, size_t count,
                               bool small, struct ha_why *why);

#endif
