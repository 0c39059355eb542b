#ifndef HA_COMPARE_BLAME_H
#define HA_COMPARE_BLAME_H

/* MACHINE or CODE: a figure that has moved, beside what the machine could do in the same processes. */

#include "harness/compare/compare.h"

/* Fills in cause, part, part_shift and rest of a change that is worse or better. Where the part of the machine that
 * moved most moved as the figure did, or more, it is the machine; where the figure over that part moved, too, and both
 * are beyond doubt, both; where no part moved and half as much would have been seen, the code. nights: the spread
 * between nights. */
enum ha_status ha_blame(struct ha_change *change, const bool *counts, double nights, struct ha_why *why);

/* Does the case move bytes over the link? */
bool ha_moves_bytes(const struct ha_recorded_case *of);

#endif
