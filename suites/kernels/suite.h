#ifndef HA_CPU_SUITE_H
#define HA_CPU_SUITE_H

/* The CPU kernels as a suite; docs/kernels.md. */

#include "harness/api/kernels.h"
#include "harness/api/suite.h"
#include "suites/kernels/results.h"

extern const struct ha_suite ha_suite_cpu_kernels;
extern const struct ha_key ha_cpu_keys[HA_CPU_ALL_KEYS];

struct ha_cpu_row {
    struct ha_result head;
    char state[8], disturbed[4]; /* ha_cpu_ceiling_state; "yes", "no", "" */
    struct ha_cpu_result of;
};

/* For tests, before the first point of a run: these tables and this much to rotate through, where they are not 0. */
void ha_cpu_run_with(void *run, const struct ha_kernels *kernels, size_t rotate_bytes);

#endif
