#ifndef HA_CPU_TABLES_H
#define HA_CPU_TABLES_H

#include "suites/kernels/suite.h"

/* A table for each section: the keys that differ in it, then what was found; then the share of the ceiling along the
 * axis of each section that has one. */
void ha_cpu_print(FILE *out, const struct ha_results *results);
/* What the kernels are meant to reach, held against the figures of a run. No verdict on a goal is one of the run.
 * Nothing is printed of a run that has no figure for any of them. */
bool ha_cpu_conclude(FILE *out, const struct ha_results *results, struct ha_why *why);

#endif
