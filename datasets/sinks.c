#include "datasets/source.h"

#include "harness/base/rng.h"

#include <math.h>

/* What the heads of language models look like: the first tokens are sinks with small values, a few
 * tokens are heavy hitters for every query, near tokens weigh more than far ones, and heads differ
 * in how much of each they follow.
 *
 * A key is noise plus multiples of directions of its KV head; a query holds the same directions, so
 * that each contributes a wanted amount to the score (directions are independent and nearly
 * orthogonal). Nearness works the same way: at each of three widths a direction moves along the
 * sequence from knot to knot, and two tokens share it while they are less than two knots apart. */

enum { SEGMENT = 1024, LEVELS = 3 };
#define SINK_SCORE  10.0f
#define HEAVY_SCORE 9.0f /* one token of each SEGMENT */
#define NEAR_SCORE  2.5f /* at each level */
#define KEY_NOISE   0.5f

static const struct {
    size_t width;
    enum ha_purpose purpose;
} LEVEL[LEVELS] = {
    { 16, HA_FOR_NEAR_16 },
    { 128, HA_FOR_NEAR_128 },
    { 1024, HA_FOR_NEAR_1024 },
};

/* How much a query of a kind of head holds of each. */
static const struct kind {
    float noise, sink, heavy, near;
} KIND[4] = {
    { 0.5f, 0.3f, 0.1f, 0.1f }, /* flat */
    { 0.5f, 1.0f, 0.3f, 0.3f }, /* sink */
    { 0.5f, 0.5f, 0.3f, 1.2f }, /* local */
    { 3.0f, 0.5f, 1.0f, 0.3f }, /* peaked */
};

/* A direction that moves from knot to knot: both ends of the current piece. */
struct path {
    size_t knot;
    bool valid;
    float from[HA_HEAD_DIM_MAX], to[HA_HEAD_DIM_MAX];
};

static void path_move(const struct ha_source *src, uint64_t stream, size_t knot, struct path *p)
{
    if (p->valid && p->knot == knot) return;
    p->valid = true;
    p->knot = knot;
    ha_noise_row(src, stream, knot, p->from);
    ha_noise_row(src, stream, knot + 1, p->to);
}

/* row += gain * the directions of nearness at `token` */
static void near_add(const struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token, float gain,
                     struct path path[LEVELS], float *row)
{
    for (size_t l = 0; l < LEVELS; l++) {
        size_t width = LEVEL[l].width;
        path_move(src, ha_stream(LEVEL[l].purpose, seq, layer, head), token / width, &path[l]);
        float x = (float)(token % width) / (float)width, a = gain * (1 - x), b = gain * x;
        for (size_t j = 0; j < src->shape.head_dim; j++) row[j] += a * path[l].from[j] + b * path[l].to[j];
    }
}

static bool is_heavy(const struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token)
{
    return token % SEGMENT
           == ha_rng_below(src->seed, ha_stream(HA_FOR_PLACE, seq, layer, head), token / SEGMENT, SEGMENT);
}

static void add(size_t n, float gain, const float *from, float *row)
{
    for (size_t j = 0; j < n; j++) row[j] += gain * from[j];
}

static void sinks_keys(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t first, size_t count,
                       void *k)
{
    size_t d = src->shape.head_dim;
    struct path path[LEVELS] = { 0 };
    float sink[HA_HEAD_DIM_MAX], heavy[HA_HEAD_DIM_MAX], row[HA_HEAD_DIM_MAX], unit = 1 / sqrtf((float)d);
    ha_noise_row(src, ha_stream(HA_FOR_SINK, seq, layer, head), 0, sink);
    ha_noise_row(src, ha_stream(HA_FOR_HEAVY, seq, layer, head), 0, heavy);
    for (size_t i = 0; i < count; i++) {
        size_t token = first + i;
        ha_noise_row(src, ha_stream(HA_FOR_KEY, seq, layer, head), token, row);
        for (size_t j = 0; j < d; j++) row[j] *= KEY_NOISE;
        near_add(src, seq, layer, head, token, NEAR_SCORE * unit, path, row);
        if (token < HA_SINKS) add(d, SINK_SCORE * unit, sink, row);
        else if (is_heavy(src, seq, layer, head, token)) add(d, HEAVY_SCORE * unit, heavy, row);
        ha_row_store(src, k, i, row);
    }
}

static void sinks_kv(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t first, size_t count, void *k,
                     void *v)
{
    if (k) sinks_keys(src, seq, layer, head, first, count, k);
    if (v) ha_sinks_values(src, seq, layer, head, first, count, v);
}

static void sinks_query(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token, float *q)
{
    size_t d = src->shape.head_dim, kv_head = head / ha_shape_group(&src->shape);
    const struct kind *kind = &KIND[head % 4];
    struct path path[LEVELS] = { 0 };
    float direction[HA_HEAD_DIM_MAX];
    ha_noise_row(src, ha_stream(HA_FOR_QUERY, seq, layer, head), token, q);
    for (size_t j = 0; j < d; j++) q[j] *= kind->noise;
    ha_noise_row(src, ha_stream(HA_FOR_SINK, seq, layer, kv_head), 0, direction);
    add(d, kind->sink, direction, q);
    ha_noise_row(src, ha_stream(HA_FOR_HEAVY, seq, layer, kv_head), 0, direction);
    add(d, kind->heavy, direction, q);
    near_add(src, seq, layer, kv_head, token, kind->near, path, q);
    ha_row_round(src, q);
}

const struct ha_dataset ha_dataset_sinks = {
    .name = "sinks",
    .doc = "sinks with small values, heavy hitters, recency; heads flat, sink, local and peaked in turn",
    .open = ha_source_open,
    .close = ha_source_close,
    .kv = sinks_kv,
    .query = sinks_query,
};
