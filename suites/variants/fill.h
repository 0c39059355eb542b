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

#endif
