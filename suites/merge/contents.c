#include "suites/merge/cases.h"
#include "suites/merge/defects.h"
#include "suites/merge/fills.h"

enum {
    DEFECTS = 0
#define HA_DEFECT(...) +1
#include "suites/merge/defects.def"
#undef HA_DEFECT
};

extern const struct ha_merge_suite ha_merge_suite;
const struct ha_merge_suite ha_merge_suite = {
    .cases = ha_lse_merge_cases,
    .cases_count = HA_LSE_MERGE_CASES,
    .defects = ha_lse_merge_defects,
    .defects_count = DEFECTS,
    .random_fill = ha_random_fill,
    .random_states = ha_random_states,
};
