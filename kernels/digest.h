#ifndef HA_KERNELS_DIGEST_H
#define HA_KERNELS_DIGEST_H

/* Where digests (harness/api/kernels.h) lie, and one score by the definition. */

#include "harness/api/kernels.h"
#include "harness/base/numeric.h"

#include <math.h>

/* Terms of a score that are summed before they meet the others. */
enum { HA_DIGEST_TERMS = 32 };

/* which number the minimum of dimension d is, of the first block of b's group; the maxima follow HA_PACK_KEYS later */
static inline size_t ha_digest_at(size_t b, size_t d, size_t head_dim)
{
    return (b / HA_PACK_KEYS * head_dim + d) * 2 * HA_PACK_KEYS;
}

/* The score of block b and query row r. For scores that came out as NaN: only a NaN, or infinities of both signs, make
 * this one NaN, an infinity whose factor is 0 does not. */
static inline float ha_digest_score_one(const struct ha_digest_score *s, size_t r, size_t b)
{
    const float *q = s->q + r * s->q_stride;
    float sum = 0, part = 0;
    for (size_t d = 0; d < s->head_dim; d++) {
        const size_t at = ha_digest_at(b, d, s->head_dim) + b % HA_PACK_KEYS;
        const float x = ha_load(s->digests, q[d] < 0 ? at : at + HA_PACK_KEYS, s->dtype);
        part += q[d] == 0 && isinf(x) ? 0 : q[d] * x;
        if (d % HA_DIGEST_TERMS != HA_DIGEST_TERMS - 1 && d + 1 < s->head_dim) continue;
        sum += part;
        part = 0;
    }
    return s->scale * sum;
}

#endif
