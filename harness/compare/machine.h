#ifndef HA_COMPARE_MACHINE_H
#define HA_COMPARE_MACHINE_H

/* The machine itself on both sides of a comparison. What is read beside one case may be far from what is read beside
 * another (a launch finds its thread awake, or not), and the cases of the two sides, or of the processes of a night in
 * which some were run again, are not the same. So each reading counts by what it is of what its case usually reads. */

#include "harness/compare/record.h"

/* The case "machine" of either side, in a record of its own, which is begun here and to be freed, also after a failure;
 * without the case where there are no readings. counts: [base->nights] the nights of the base that count. pair:
 * [now->count] the same case of the base; NULL: there is none, and it is left out. HA_ERROR: no memory. */
enum ha_status ha_machine_of_both(struct ha_record out[2], const struct ha_record *base, const struct ha_record *now,
                                  const bool *counts, const struct ha_recorded_case *const *pair, struct ha_why *why);

#endif
