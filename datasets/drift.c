#include "datasets/source.h"

/* Keys fixed, queries that turn slowly: from one independent direction to the next in STEPS tokens,
 * by equal angles of 90/11 degrees, so that neighbouring queries have a cosine near 0.99. Heads go
 * from flat to peaked by the length of their queries. */

enum { STEPS = 11 };
static const float GAIN[4] = { 1, 2, 3, 4 };

/* sin(pi/2 x) for x in [0, 1] within 0.002 (Bhaskara I): rational, so the same on every machine */
static float quarter_sine(float x)
{
    float y = x * (2 - x);
    return 4 * y / (5 - y);
}

static void drift_query(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token, float *q)
{
    uint64_t stream = ha_stream(HA_FOR_QUERY, seq, layer, head);
    float next[HA_HEAD_DIM_MAX], x = (float)(token % STEPS) / STEPS, gain = GAIN[head % 4];
    float a = gain * quarter_sine(1 - x), b = gain * quarter_sine(x);
    ha_noise_row(src, stream, token / STEPS, q);
    ha_noise_row(src, stream, token / STEPS + 1, next);
    for (size_t j = 0; j < src->shape.head_dim; j++) q[j] = a * q[j] + b * next[j];
    ha_row_round(src, q);
}

const struct ha_dataset ha_dataset_drift = {
    .name = "drift",
    .doc = "queries turn slowly: cosine between neighbouring tokens near 0.99, keys fixed",
    .open = ha_source_open,
    .close = ha_source_close,
    .kv = ha_noise_kv,
    .query = drift_query,
};
