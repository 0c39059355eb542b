#ifndef HA_CPU_MEASURE_H
#define HA_CPU_MEASURE_H

/* Samples of one point: each is runs of the kernel, between two readings of the ceiling. What counts is their ratio. */

#include "suites/kernels/team.h"
#include "suites/kernels/work.h"

/* Fills in the figures of what was checked. Until the ratio is known to 1%, or cap_ns are over, at least 15 samples
 * where four times as long suffices; behind deadline_ns (0: none) one is enough. Samples in which a thread lost its
 * core are taken again, those after which one has lost half of it (see ha_cpu_team_speed), and those whose two readings
 * differ by more than a tenth. HA_WAIVED: stopped before there were enough. */
enum ha_status ha_cpu_measure(struct ha_cpu_work *work, struct ha_cpu_team *team, uint64_t cap_ns, uint64_t deadline_ns,
                              struct ha_cpu_row *row, struct ha_why *why);

/* Memory is read 1 to 8 times before each sample and after it, together for as long as the sample takes: another
 * program that takes half of a core for moments then slows both alike. Samples are dropped where a core was lost, so
 * that short readings would come from undisturbed moments alone. */
enum { HA_CPU_FIRST_READINGS = 3 }; /* that tell how long one takes */
size_t ha_cpu_readings_for(double sample_ns, double reading_ns);

#endif
