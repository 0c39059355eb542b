#ifndef HA_MERGE_STAGE_H
#define HA_MERGE_STAGE_H

/* The cases that are more than one call on packed memory: huge strides, late producers, graphs, flags, splits. */

#include "suites/merge/judge.h"
#include "suites/merge/subject.h"

/* Runs case c, whose stage is not HA_STAGE_PLAIN, in one form and type. HA_OK, HA_FAIL (why says, and *j where it is
 * a number), HA_WAIVED (why says what the subject lacks), HA_ERROR. After HA_OK why is empty, or says which part was
 * not offered. *j begins zeroed and counts rows and ratios, as ha_judge_row does. */
enum ha_status ha_merge_stage(const struct ha_merge_case *c, struct ha_subject *subject, enum ha_form form,
                              enum ha_dtype dtype, uint64_t seed, struct ha_judgement *j, struct ha_why *why);

/* ---- what the stages share (stage_run.c). Each has the batch in ordinary memory, brings what it holds to where it is
 * merged, brings the result back, and has it judged there. */

enum { HA_STAGE_STATES_MAX = 8, HA_STAGE_DIM = 64 };

struct ha_stage_run {
    const struct ha_merge_case *c;
    struct ha_subject *subject;
    struct ha_merge_shape shape;
    uint64_t seed;
    struct ha_merge_trial trial;
    struct ha_judgement *j;
    struct ha_why *why;
};

/* The batch of s->shape in room (NULL: in memory of its own), filled by the case. The trial is to be closed, after a
 * failure too. */
enum ha_status ha_stage_open(struct ha_stage_run *s, const struct ha_room *room);
/* Judges the result that lies in the batch, and then whether all else there is as it was. HA_FAIL: "WHAT: row 3,
 * element 5: got ..., want ... within ... (against what)". */
enum ha_status ha_stage_judge(struct ha_stage_run *s, const char *what);

/* HA_STAGE_HUGE; why is empty when it begins */
enum ha_status ha_stage_huge(struct ha_stage_run *s);
/* HA_ERROR with what was being done and the device's own reason, unless status is HA_OK */
enum ha_status ha_stage_did(struct ha_stage_run *s, enum ha_status status, const char *what);

#endif
