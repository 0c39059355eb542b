#include "datasets/source.h"

#include "harness/base/rng.h"

#include <math.h>

/* Each query head looks for one key of the context, at a depth given by the seed: the query is that
 * key, amplified so that it scores SCORE, and a little noise. Other keys score 0 +- SCORE / |key|, so that
 * from head_dim 64 on the needle holds nearly all the mass of up to about a million tokens. */

#define SCORE 20.0f

static void needle_query(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token, float *q)
{
    size_t d = src->shape.head_dim, context = src->shape.ctx[seq];
    uint64_t depth = ha_rng_below(src->seed, ha_stream(HA_FOR_PLACE, seq, layer, head), 0, context ? context : 1);
    float key[HA_HEAD_DIM_MAX];
    double squares = 0;
    ha_noise_row(src, ha_stream(HA_FOR_KEY, seq, layer, head / ha_shape_group(&src->shape)), depth, key);
    ha_noise_row(src, ha_stream(HA_FOR_QUERY, seq, layer, head), token, q);
    for (size_t j = 0; j < d; j++) squares += (double)key[j] * (double)key[j];
    float gain = squares > 0 ? (float)((double)(SCORE * sqrtf((float)d)) / squares) : 0;
    for (size_t j = 0; j < d; j++) q[j] = gain * key[j] + 0.5f * q[j];
    ha_row_round(src, q);
}

const struct ha_dataset ha_dataset_needle = {
    .name = "needle",
    .doc = "for each query head one key, at a depth given by the seed, holds nearly all the mass",
    .open = ha_source_open,
    .close = ha_source_close,
    .kv = ha_noise_kv,
    .query = needle_query,
};
