#ifndef HA_DOCTOR_CHECKS_H
#define HA_DOCTOR_CHECKS_H

/* What the table of checks is made of, inside harness/doctor. */

#include "harness/doctor/doctor.h"

typedef void ha_doctor_looks(const struct ha_doctor_check *check, const struct ha_doctor_seen *seen,
                             struct ha_finding *finding);

/* finding.c. Says what was found. */
void ha_found(struct ha_finding *f, enum ha_fitness verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A command in place of the check's own. */
void ha_mend(struct ha_finding *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* cores.c */
ha_doctor_looks ha_look_governor, ha_look_turbo, ha_look_clock, ha_look_throttled, ha_look_smt, ha_look_shared,
    ha_look_steal, ha_look_load, ha_look_load_average, ha_look_cpuset, ha_look_priority, ha_look_clocksource,
    ha_look_virtual;
/* Of these cores the hardware threads that are others. False: the system does not say. */
bool ha_siblings(const char *root, const bool mine[HA_CORES_MOST], bool out[HA_CORES_MOST]);

/* memory.c */
ha_doctor_looks ha_look_memory, ha_look_huge_pages, ha_look_swap, ha_look_swappiness, ha_look_numa_cores,
    ha_look_numa_memory, ha_look_numa_balancing;
double ha_swapped_pages(const char *root);
/* Which nodes these cores are of. False: the system does not say. *nodes: how many there are. */
bool ha_nodes_of(const char *root, const bool mine[HA_CORES_MOST], bool out[HA_CORES_MOST], size_t *nodes);

/* limits.c; ha_look_limit's arg is a struct ha_limit */
ha_doctor_looks ha_look_cpu_quota, ha_look_memory_limit, ha_look_limit;
struct ha_limit {
    const char *line; /* of /proc/self/limits */
    const char *unit; /* behind the number, or "" */
    double divisor;
    double unfit, warning; /* below so much of the unit; a warning of HUGE_VAL: any limit */
};

/* gpu.c */
ha_doctor_looks ha_look_device_throttled, ha_look_device_clock, ha_look_link, ha_look_slot, ha_look_ecc,
    ha_look_ecc_errors, ha_look_persistence, ha_look_mig, ha_look_power_limit, ha_look_device_busy,
    ha_look_device_processes, ha_look_device_memory, ha_look_driver, ha_look_spans, ha_look_profiling;
/* pci.c */
ha_doctor_looks ha_look_iommu, ha_look_acs, ha_look_device_node;

#endif
