#ifndef HA_LSE_MERGE_CASES_H
#define HA_LSE_MERGE_CASES_H

#include "harness/api/merge_suite.h"

enum { HA_LSE_MERGE_CASES = 47 };
extern const struct ha_merge_case ha_lse_merge_cases[HA_LSE_MERGE_CASES];

#endif
