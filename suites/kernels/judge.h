#ifndef HA_CPU_JUDGE_H
#define HA_CPU_JUDGE_H

/* What the smaller kernels have to give, in plain words: binary64, or exactly. Each returns the largest error over its
 * bound; infinity where a result that has to be exact is not. */

#include "suites/kernels/work.h"

/* scale q.k of the natural rows of a unit */
double ha_cpu_judge_score(const struct ha_cpu_work *work, size_t unit, const float *q, const float *got);
/* smallest and largest of each dimension of the blocks of a unit; key gives row i of its K as floats */
double ha_cpu_judge_digest(const struct ha_cpu_work *work, size_t unit,
                           void (*key)(const struct ha_cpu_work *work, const char *kv, size_t i, float *row),
                           const void *got);
/* scale * sum max(q min, q max) of these digests of a unit */
double ha_cpu_judge_digest_score(const struct ha_cpu_work *work, const float *q, const void *digests, const float *got);
/* exactly: the k largest of x in increasing order of their indices, ties to the smaller index */
double ha_cpu_judge_topk(const float *x, size_t n, size_t k, const uint32_t *got);
double ha_cpu_judge_softmax(const float *x, size_t n, const struct ha_profile *profile, const float *got, float lse);

#endif
