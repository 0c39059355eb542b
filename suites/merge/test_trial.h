#ifndef HA_MERGE_TEST_TRIAL_H
#define HA_MERGE_TEST_TRIAL_H

/* Rows and batches for the tests of merges. */

#include "harness/base/test_beside.h"
#include "suites/merge/judge.h"
#include "suites/merge/subject.h"

/* LSE and o near 0, sums in [1, 8]; and the same with LSE further apart and every fifth state empty (the shape says how
 * that is marked). */
void near_rows(struct ha_merge_row *row);
void some_empty(struct ha_merge_row *row);

/* Rows of this shape where the subject (NULL: none) wants them; a failure fails the test. */
struct ha_merge_trial trial_open(struct ha_subject *subject, const struct ha_merge_shape *shape, ha_merge_fill *fill);
/* merged by kernels/c */
void trial_merge(const struct ha_merge_trial *trial);
/* Every row judged by its bound; a failure fails the test. */
struct ha_judgement trial_judge(struct ha_merge_trial *trial, const struct ha_merge_traits *traits);
/* One small batch handed to the subject: what its run says, and what came of it, where that was HA_OK. Nothing else may
 * be written. */
extern const struct ha_merge_shape few_rows;
enum ha_status asked_once(struct ha_subject *subject, struct ha_judgement *j);
/* One batch merged by the subject, intact and right; returns the worst err/bound. */
double merges_right(struct ha_subject *subject, const struct ha_merge_shape *shape);
/* Runs f over this shape in every form, type, order, alias and layout; returns how many there are. */
size_t each_shape(struct ha_merge_shape shape, void (*f)(const struct ha_merge_shape *));

extern struct ha_why why; /* what was said last */
/* It is one line that has these words, or the test fails. */
void says(const char *words);

#endif
