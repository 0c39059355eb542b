#ifndef HA_CPU_GOALS_H
#define HA_CPU_GOALS_H

/* What the kernels are meant to reach, held against the figures of a run. No verdict on a goal changes the exit code.
 * Nothing is printed of a run that has no figure for any of them. */

#include "suites/kernels/plan.h"

void ha_cpu_print_goals(FILE *out, const struct ha_cpu_plan *plan);

#endif
