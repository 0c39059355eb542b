#ifndef HA_MERGE_CHECK_H
#define HA_MERGE_CHECK_H

/* Judges the points of a group: hooks of the suite. */

#include "harness/api/suite.h"

enum ha_status ha_merge_begin(void **run, const struct ha_suite_config *config, const struct ha_results *before,
                              struct ha_why *why);
enum ha_status ha_merge_open(void *run, struct ha_group *group, struct ha_why *why);
enum ha_status ha_merge_check(void *run, struct ha_group *group, struct ha_why *why);
void ha_merge_close(void *run, struct ha_group *group);
void ha_merge_end(void *run);

#endif
