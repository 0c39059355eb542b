#ifndef HA_REFERENCE_OBSERVE_H
#define HA_REFERENCE_OBSERVE_H

/* Attention weights as the definitions need them: a rule that compares weights can only be judged
 * up to what binary32 makes of a weight. */

#include "harness/api/reference.h"

/* Queries over the rows of one KV head; query c sees the first visible[c] rows. */
struct ha_ref_observed {
    const float *q; /* [count], q_stride floats apart */
    size_t count, q_stride, head_dim;
    double scale;
    const size_t *visible; /* [count] */
    struct ha_rows rows;   /* v is not read */
    enum ha_dtype dtype;
};

/* mean[j] = the mean over the queries of their softmax weight on row j, a query that sees no row adding 0;
 * |got - mean[j]| <= tol[j] for any mean of weights computed in binary32 (2^-23 for products on
 * tensor cores, exp and log within 2^-22, sums over keys in chunks of HA_CHUNK_KEYS or with shorter
 * paths). HA_ERROR: no memory. */
enum ha_status ha_ref_observe(const struct ha_ref_observed *in, double *mean, double *tol, struct ha_why *why);

#endif
