#ifndef HA_COMPARE_BLAME_H
#define HA_COMPARE_BLAME_H

/* MACHINE or CODE: a figure that has moved, beside what the machine could do in the same processes. */

#include "harness/compare/compare.h"

/* Fills in cause, part, part_shift, rest and suspects of a change that is worse or better. Where the part of the
 * machine that moved most moved as the figure did, or more, it is the machine; where the figure over that part moved,
 * too, and both are beyond doubt, both; where no part moved and half as much would have been seen, what is left: the
 * code where builds differ, software where that alone does, neither of the two where both do, and the machine where
 * nothing does. */
enum ha_status ha_blame(const struct ha_comparison *comparison, struct ha_change *change, const bool *counts,
                        struct ha_why *why);

/* Does the case move bytes over the link? */
bool ha_moves_bytes(const struct ha_recorded_case *of);

#endif
