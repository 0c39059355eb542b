#ifndef HA_LSE_MERGE_CASES_H
#define HA_LSE_MERGE_CASES_H

/* The two tables of ha_merge_suite. */

#include "suites/merge/merge_suite.h"

enum { HA_LSE_MERGE_CASES = 47, HA_LSE_MERGE_DEFECTS = 43 };
extern const struct ha_merge_case ha_lse_merge_cases[HA_LSE_MERGE_CASES];
extern const struct ha_merge_defect ha_lse_merge_defects[HA_LSE_MERGE_DEFECTS];

#endif
