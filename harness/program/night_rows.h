#ifndef HA_PROGRAM_NIGHT_ROWS_H
#define HA_PROGRAM_NIGHT_ROWS_H

/* What a night's own rows say, whatever was before: notes (night.h). */

#include "harness/compare/record.h"
#include "harness/engine/plan.h"
#include "harness/program/night.h"

/* How many cases have a row of each number of processes, [wanted + 1]; more than wanted counts as wanted. Notes the
 * cases without a row, and sections all of whose cases are waived. Returns how many have none. */
size_t ha_night_rows_count(struct ha_night_log *log, const struct ha_record *now, const struct ha_plan *plan,
                           size_t wanted, size_t *ran);
/* Notes figures that have no value (none, or NaN) in some processes whose row has passed. Returns how many of these
 * are compared from night to night. */
size_t ha_night_rows_lost(struct ha_night_log *log, const struct ha_record *now);

#endif
