/* Blocks of keys, and the scores that their digests give them. */

#include "reference/definitions.h"
#include "reference/rows.h"

#include "harness/base/numeric.h"

#include <float.h>

static double rounded(double x, enum ha_dtype t) { return (double)ha_round((float)x, t); }

/* A mean is a sum of binary32 in any order, over their number, before it is rounded: rounding keeps the order, so that
 * it is between what the least and the largest are rounded to. */
void ha_def_digest(const struct ha_shape *shape, const struct ha_def_blocks *blocks, const void *k, size_t block,
                   struct ha_def_digest *out)
{
    const size_t dim = shape->head_dim, first = blocks->first + block * blocks->size;
    const enum ha_dtype t = shape->dtype;
    const double n = (double)blocks->size;
    double sum[HA_REF_DIM_MAX], size[HA_REF_DIM_MAX];
    float row[HA_REF_DIM_MAX];
    for (size_t d = 0; d < dim; d++) out->least[d] = HUGE_VAL, out->most[d] = -HUGE_VAL, sum[d] = size[d] = 0;
    for (size_t j = first; j < first + blocks->size; j++) {
        ha_load_row((const char *)k + j * dim * ha_dtype_bytes(t), dim, t, row);
        for (size_t d = 0; d < dim; d++) {
            const double x = (double)row[d];
            out->least[d] = x < out->least[d] ? x : out->least[d];
            out->most[d] = x > out->most[d] ? x : out->most[d];
            sum[d] += x;
            size[d] += fabs(x);
        }
    }
    for (size_t d = 0; d < dim && blocks->mean; d++) {
        const double off = ha_ref_stored(ha_ref_gamma(n + 2) * size[d] / n, sum[d] / n, 0, 0);
        /* nothing is known of a sum that may overflow */
        const bool known = !(size[d] > (double)FLT_MAX);
        out->least[d] = known ? rounded(sum[d] / n - off, t) : -HUGE_VAL;
        out->most[d] = known ? rounded(sum[d] / n + off, t) : HUGE_VAL;
    }
}

/* a score that is off by so much more */
static struct ha_ref_score widened(struct ha_ref_score s, double by)
{
    return (struct ha_ref_score){ s.value, s.low - by, s.high + by };
}

struct ha_ref_score ha_def_digest_score(const struct ha_shape *shape, const struct ha_def_blocks *blocks,
                                        const struct ha_def_digest *digest, const double *q, const double *off)
{
    const size_t dim = shape->head_dim;
    double k[HA_REF_DIM_MAX], k_off[HA_REF_DIM_MAX], moved = 0;
    for (size_t d = 0; d < dim; d++) {
        k[d] = q[d] < 0 ? digest->least[d] : digest->most[d];
        if (blocks->mean) k[d] = (digest->least[d] + digest->most[d]) / 2;
        k_off[d] = (digest->most[d] - digest->least[d]) / 2;
        /* of a range whichever end is larger, of a mean whatever it is */
        if (off) moved += off[d] * fmax(fabs(digest->least[d]), fabs(digest->most[d]));
    }
    const double scale = (double)shape->scale;
    const struct ha_ref_score s = ha_ref_score_dot(q, NULL, k, blocks->mean ? k_off : NULL, dim, scale);
    if (!(fmax(1, fabs(scale)) * moved < (double)FLT_MAX / 4)) return widened(s, HUGE_VAL);
    return widened(s, fabs(scale) * (1 + ha_ref_gamma((double)dim + 3)) * moved);
}

void ha_def_choice_digests(struct ha_def_choice *c, const struct ha_shape *shape, const struct ha_def_blocks *blocks,
                           const struct ha_def_head *h)
{
    const size_t dim = shape->head_dim;
    struct ha_def_digest digest;
    double q[HA_REF_DIM_MAX];
    for (size_t b = 0; b < blocks->count; b++) {
        ha_def_digest(shape, blocks, h->k, b, &digest);
        for (size_t t = 0; t < h->queries; t++)
            for (size_t g = 0; g < c->heads; g++) {
                for (size_t d = 0; d < dim; d++) q[d] = (double)h->q[(t * shape->q_heads + g) * dim + d];
                ha_def_choice_score(c, g, b, ha_def_digest_score(shape, blocks, &digest, q, NULL));
            }
    }
}

enum ha_status ha_def_choice_blocks(struct ha_def_choice *c, const struct ha_def_blocks *blocks,
                                    const struct ha_def_head *h, const uint8_t *mark, struct ha_why *why)
{
    for (size_t b = 0; b < blocks->count; b++) {
        const size_t first = blocks->first + b * blocks->size;
        c->taken[b] = mark[first] != HA_MARK_NONE;
        for (size_t i = 1; i < blocks->size; i++)
            if ((mark[first + i] != HA_MARK_NONE) != c->taken[b])
                return ha_def_wrong(h, why, "key %zu is %s: block %zu is used in part", first + i,
                                    mark[first + i] ? "used" : "missing", b);
    }
    return HA_OK;
}
