#ifndef HA_FILL_H
#define HA_FILL_H

/* From what ran to the columns of a row. */

#include "suites/variants/bench.h"
#include "harness/measure/ceilings.h"
#include "suites/variants/row.h"

/* exact, bounded, statistical; or unchecked */
const char *ha_contract_word(const struct ha_variant *variant);
/* what stands in the case; what a dataset fixes is 0 until the session */
void ha_fill_case(struct ha_row *row, const struct ha_case *c);
void ha_fill_session(struct ha_row *row, const struct ha_session *session);
void ha_fill_accuracy(struct ha_row *row, const struct ha_accuracy *a);
void ha_fill_check(struct ha_row *row, const struct ha_check *check);
/* slowest_arm_ns: NaN if it was not run */
void ha_fill_bench(struct ha_row *row, const struct ha_bench *bench, const struct ha_ceilings *ceilings,
                   double slowest_arm_ns);

/* The time of the slowest part of a step, each its bytes over its ceiling. A ceiling is the highest of its readings,
 * because disturbance only lowers them. Where the device's memory is the host's, both sides' reads share one ceiling.
 */
double ha_floor_ns(const struct ha_ceilings *ceilings, bool in_host, double device_bytes, double host_bytes,
                   double h2d_bytes, double d2h_bytes);
/* Of the bytes that a step reads in one memory, those that come out of it and not out of caches of so many bytes. A
 * step reads each byte once, so that between two visits of a byte lie all others of that step: all come from memory
 * where they are more than the caches hold, else none. */
double ha_floor_fetched(double bytes, double cache_bytes);

/* ---- what later cases are set beside ------------------------------------------------------------------------------
 */

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
