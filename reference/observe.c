#include "reference/observe.h"

#include "reference/error.h"
#include "reference/rows.h"

#include "harness/base/why.h"

#include <stdlib.h>

enum { QUERIES = 8 }; /* of one pass over the rows */

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* What the promise at ha_ref_observe says of an implementation. */
static struct ha_bound loosest(size_t dim, size_t keys)
{
    const double joins = (double)(keys / HA_CHUNK_KEYS + HA_RUNS_MAX);
    return (struct ha_bound){
        .h_dot = 2 * (double)dim, /* 2: u = 2^-23 */
        .h_sum = (double)smaller(keys, HA_CHUNK_KEYS) + joins + 4,
        .rescales = joins,
        .exp_eps = 0x1p-22,
        .log_eps = 0x1p-22,
        .kappa_s = 4,
        .kappa_t = 4,
    };
}

/* A computed weight lies between (p - p theta)/((1 + Theta)(1 + g)) and (p + p theta)/((1 - Theta)(1 - g)); the
 * latter is the farther from p. It is never outside [0, 1] by more than rounding. */
static void add_weights(const double *w, const double *spread, size_t keys, const struct ha_ref_softmax *s, double g,
                        double share, double *mean, double *tol)
{
    const double kept = (1 - s->theta) * (1 - g);
    for (size_t j = 0; j < keys; j++) {
        const double p = w[j] / s->sum, t = (spread[j] + p * (s->theta + g)) / kept + s->lost;
        mean[j] += share * p;
        tol[j] += share * (kept > 0 && s->theta < 1 && t < 1 ? t : 1);
    }
}

enum ha_status ha_ref_observe(const struct ha_ref_observed *in, double *mean, double *tol, struct ha_why *why)
{
    const size_t keys = in->rows.keys;
    for (size_t j = 0; j < keys; j++) mean[j] = tol[j] = 0;
    if (keys == 0 || in->count == 0) return HA_OK;
    double *work = malloc(smaller(in->count, QUERIES) * 2 * keys * sizeof *work);
    if (!work) return ha_why(why, HA_ERROR, "reference: no memory for the weights of %zu keys", keys);
    const struct ha_bound b = loosest(in->head_dim, keys);
    const double g = ha_ref_gamma(b.h_sum + b.rescales + HA_REF_KAPPA_Q), share = 1 / (double)in->count;
    for (size_t first = 0; first < in->count; first += QUERIES) {
        const size_t n = smaller(in->count - first, QUERIES);
        const size_t *visible = in->visible + first;
        struct ha_ref_tile tile;
        for (size_t j = 0; j < keys; j += HA_REF_TILE) {
            ha_ref_tile_load_k(&tile, &in->rows, j, in->head_dim, in->dtype);
            for (size_t c = 0; c < n; c++)
                if (visible[c] > j) {
                    double *s = work + c * 2 * keys;
                    ha_ref_tile_score(&tile, smaller(visible[c] - j, tile.rows), in->q + (first + c) * in->q_stride,
                                      in->scale, s, s + keys);
                }
        }
        for (size_t c = 0; c < n; c++) {
            double *s = work + c * 2 * keys;
            const struct ha_ref_softmax softmax = ha_ref_softmax(s, s + keys, visible[c], &b);
            if (softmax.sum > 0) add_weights(s, s + keys, visible[c], &softmax, g, share, mean, tol);
        }
    }
    /* the mean itself: count additions and a product */
    for (size_t j = 0; j < keys; j++) tol[j] += ha_ref_gamma((double)in->count + 1) * (mean[j] + tol[j]);
    free(work);
    return HA_OK;
}
