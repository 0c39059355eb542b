#ifndef HA_SUITES_LSE_MERGE_DEFECTS_H
#define HA_SUITES_LSE_MERGE_DEFECTS_H

/* The gallery: merges that are right but for one mistake, each of which has been made or is easily made. A check
 * that does not catch all of them is no check. They read and write only the elements that the arguments name, so
 * that a defect shows in numbers and not as a crash. */

#include "harness/api/merge_suite.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct ha_merge_defect ha_lse_merge_defects[];
extern const size_t ha_lse_merge_defects_count;

#ifdef __cplusplus
}
#endif
#endif
