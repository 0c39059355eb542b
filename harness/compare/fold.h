#ifndef HA_COMPARE_FOLD_H
#define HA_COMPARE_FOLD_H

/* One thing that changed in a case moves many of its figures: one change stands for them. */

#include "harness/compare/compare.h"

/* Of the figures of a case that changed the worst leads, of its times the step's; the others are folded into it, and
 * times into one change, results into another. A full_step_ns, which each case of a run has of `resident`, is folded
 * into the change of that. */
void ha_fold(struct ha_comparison *comparison);

#endif
