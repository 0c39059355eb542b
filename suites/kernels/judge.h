#ifndef HA_CPU_JUDGE_H
#define HA_CPU_JUDGE_H

/* What the smaller kernels have to give, in plain words: binary64, or exactly. Each returns the largest error over its
 * bound; infinity where a result that has to be exact is not. */

#include "harness/api/kernels.h"

/* scale q.k of natural rows */
double ha_cpu_judge_score(const float *q, size_t head_dim, const struct ha_rows *rows, enum ha_dtype dtype, float scale,
                          const float *got);
/* smallest and largest of each dimension of blocks of so many keys; key(arg, i, row) gives row i of K as floats */
double ha_cpu_judge_digest(size_t keys, size_t head_dim, size_t block, enum ha_dtype dtype,
                           void (*key)(const void *arg, size_t i, float *row), const void *arg, const void *got);
/* scale * sum max(q min, q max) of these digests */
double ha_cpu_judge_digest_score(const float *q, size_t head_dim, const void *digests, size_t blocks,
                                 enum ha_dtype dtype, float scale, const float *got);
/* exactly: the k largest of x in increasing order of their indices, ties to the smaller index */
double ha_cpu_judge_topk(const float *x, size_t n, size_t k, const uint32_t *got);
double ha_cpu_judge_softmax(const float *x, size_t n, const struct ha_profile *profile, const float *got, float lse);

#endif
