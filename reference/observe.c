#include "reference/definitions.h"
#include "reference/rows.h"

#include "harness/base/why.h"

#include <stdlib.h>

enum { QUERIES = 8 }; /* of one pass over the rows */

/* A computed weight lies between (p - p theta)/((1 + Theta)(1 + g)) and (p + p theta)/((1 - Theta)(1 - g)); the
 * latter is the farther from p. It is never outside [0, 1] by more than rounding. */
static void add_weights(const double *w, const double *spread, size_t keys, const struct ha_ref_softmax *s, double g,
                        double share, struct ha_ref_weight *mean)
{
    const double kept = (1 - s->theta) * (1 - g);
    for (size_t j = 0; j < keys; j++) {
        const double p = w[j] / s->sum, t = (spread[j] + p * (s->theta + g)) / kept + s->lost;
        mean[j].value += share * p;
        mean[j].tol += share * (kept > 0 && s->theta < 1 && t < 1 ? t : 1);
    }
}

enum ha_status ha_ref_observe(const struct ha_shape *shape, const struct ha_def_head *h, const uint32_t *token,
                              size_t first, size_t keys, struct ha_ref_weight *weight, struct ha_why *why)
{
    const size_t dim = shape->head_dim, row = dim * ha_dtype_bytes(shape->dtype);
    const struct ha_rows rows = {
        .k = (const char *)h->k + first * row, .k_stride_bytes = row, .index = token, .keys = keys
    };
    for (size_t j = 0; j < keys; j++) weight[j] = (struct ha_ref_weight){ 0, 0 };
    if (keys == 0 || h->queries == 0) return HA_OK;
    double *work = malloc(ha_ref_smaller(h->queries, QUERIES) * 2 * keys * sizeof *work);
    if (!work) return ha_why(why, HA_ERROR, "reference: no memory for the weights of %zu keys", keys);
    /* in whatever runs the keys were given, packed or not */
    const struct ha_bound b = ha_bound_attend(h->observer, dim, keys, HA_RUNS_MAX + 1);
    const double g = ha_ref_gamma(b.h_sum + b.rescales + HA_REF_KAPPA_Q), share = 1 / (double)h->queries;
    size_t seen = 0;
    for (size_t from = 0; from < h->queries; from += QUERIES) {
        const size_t n = ha_ref_smaller(h->queries - from, QUERIES);
        size_t visible[QUERIES];
        for (size_t c = 0; c < n; c++) {
            const size_t own = h->tokens - h->queries + from + c;
            while (seen < keys && (token ? token[seen] : first + seen) <= own) seen++;
            visible[c] = seen;
        }
        struct ha_ref_tile tile;
        for (size_t j = 0; j < seen; j += HA_REF_TILE) {
            ha_ref_tile_load(&tile, &rows, HA_REF_K, j, dim, shape->dtype);
            for (size_t c = 0; c < n; c++)
                if (visible[c] > j) {
                    double *s = work + c * 2 * keys;
                    ha_ref_tile_score(&tile, ha_ref_smaller(visible[c] - j, tile.rows),
                                      h->q + (from + c) * shape->q_heads * dim, (double)shape->scale, s, s + keys);
                }
        }
        for (size_t c = 0; c < n; c++) {
            double *s = work + c * 2 * keys;
            const struct ha_ref_softmax softmax = ha_ref_softmax(s, s + keys, visible[c], &b);
            if (softmax.sum > 0) add_weights(s, s + keys, visible[c], &softmax, g, share, weight);
        }
    }
    /* the mean itself: so many additions and a product */
    for (size_t j = 0; j < keys; j++)
        weight[j].tol += ha_ref_gamma((double)h->queries + 1) * (weight[j].value + weight[j].tol);
    free(work);
    return HA_OK;
}
