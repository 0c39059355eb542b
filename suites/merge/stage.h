#ifndef HA_MERGE_STAGE_H
#define HA_MERGE_STAGE_H

/* The cases that are more than one call on packed memory: huge strides, late producers, graphs, flags. */

#include "suites/merge/judge.h"
#include "suites/merge/subject.h"

/* Runs case c, whose stage is not HA_STAGE_PLAIN, in one form and type. HA_OK, HA_FAIL (why says, and *j where it is
 * a number), HA_WAIVED (why says what the subject lacks), HA_ERROR. After HA_OK why is empty, or says which part was
 * not offered. *j begins zeroed and counts rows and ratios, as ha_judge_row does. */
enum ha_status ha_merge_stage(const struct ha_merge_case *c, struct ha_subject *subject, enum ha_form form,
                              enum ha_dtype dtype, uint64_t seed, struct ha_judgement *j, struct ha_why *why);

#endif
