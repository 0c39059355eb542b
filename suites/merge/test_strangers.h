#ifndef HA_MERGE_TEST_STRANGERS_H
#define HA_MERGE_TEST_STRANGERS_H

/* Batches for the tests of strangers. */

#include "harness/base/test_beside.h"
#include "suites/merge/judge.h"
#include "suites/merge/subject.h"

struct rows_made {
    struct ha_merge_rows rows;
    struct ha_batch *batch;
    struct ha_room own; /* where the subject has none */
};

/* Random rows: LSE in [-20, 20], every fifth state empty (marked as the shape says), o in [-1, 1]. */
void rows_open(struct rows_made *made, struct ha_subject *subject, const struct ha_merge_shape *shape);
void rows_close(struct rows_made *made);
/* the binary64 result into the batch, as a merge without error would */
void rows_answer(const struct rows_made *made);
/* Every row judged; a failure fails the test. */
struct ha_judgement rows_judge(struct rows_made *made, const struct ha_merge_traits *traits);

/* words of why, or the test fails */
void says(const struct ha_why *why, const char *words);

#endif
