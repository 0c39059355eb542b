#ifndef HA_COMPARE_RESULTS_H
#define HA_COMPARE_RESULTS_H

/* Figures of the answer, not of its time: how far it is from full attention's, which keys it used, what it keeps in
 * memory. Of one build, one plan of kernels and one instruction set they repeat to the digit, whatever else the machine
 * does; between builds they differ by rounding. One that differs in the base itself may be as far away again. */

#include "harness/compare/compare.h"

/* Is it such a figure? */
bool ha_is_result(const char *figure);
/* Fills in kind and result of a change of such a figure: HA_CHANGE_SAME, HA_CHANGE_BETTER, or HA_CHANGE_OTHER_RESULT
 * where it is worse, or another one and neither is better. counts: the nights of the base that count. */
void ha_result_judge(struct ha_change *change, const struct ha_comparison *of, const bool *counts);

#endif
