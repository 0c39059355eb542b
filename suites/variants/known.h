#ifndef HA_KNOWN_H
#define HA_KNOWN_H

#include "suites/variants/row.h"
#include "harness/measure/timeline.h"

/* Step times measured earlier in this run, that later cases over the same workload are set beside. */

struct ha_known_step;
struct ha_known {
    struct ha_known_step *step;
    size_t count, capacity;
};

/* row names the workload and the device; variant and family are those that were measured */
void ha_known_add(struct ha_known *known, const struct ha_row *row, const char *variant, const char *family,
                  double step_ns);
/* the latest of the variant, of that family or, NULL, of any; NaN if there is none */
double ha_known_step(const struct ha_known *known, const struct ha_row *row, const char *variant, const char *family);
/* The slowest of the arms copy_only, device_only and cpu_only of the row's family that its own trace has a
 * part of: a variant that copies nothing is not held against the copy arm. NaN if none was run. */
double ha_known_slowest_arm(const struct ha_known *known, const struct ha_row *row, const struct ha_usage *usage);
void ha_known_free(struct ha_known *known);

#endif
