#include "datasets/source.h"

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <stdlib.h>

/* Layers whose inputs resemble each other, so that the next layer's query can be predicted from
 * this layer's input: x turns from one independent vector to the next in STEPS layers, by equal
 * angles of 15 degrees (cosine 0.966). q = W_Q x, rounded to the dtype.
 *
 * x and W_Q are small integers times a power of two, chosen so that W_Q x is exact in binary32
 * whatever the order of its sum: |x| <= 255 * 1.4143 < 361 and |w| <= 4 units, and 8192 products of
 * them stay below 2^24. */

enum { STEPS = 6, MODEL_DIM_DEFAULT = 256, MODEL_DIM_MAX = 8192, LANES = 16 };
#define X_UNIT       0x1p-6f
#define WQ_BYTES_MAX ((size_t)4 << 30)

/* 1024 cos(15 i degrees); the sine is the same table backwards */
static const int32_t COSINE[STEPS + 1] = { 1024, 989, 887, 724, 512, 265, 0 };

struct residual {
    struct ha_source base;
    size_t layer_floats;
    float wq[]; /* [layers][q_heads*head_dim][model_dim] */
};

static struct residual *of(struct ha_source *src) { return (struct residual *)(void *)src; }

/* to the nearest integer, for |x| < 512 */
static int32_t nearest(float x) { return (int32_t)(x + 512.5f) - 512; }

/* the power of two that gives q a deviation between 1.5 and 3 */
static float wq_unit(size_t model_dim)
{
    float unit = 1;
    for (size_t n = 16; n < model_dim; n *= 4) unit *= 0.5f;
    return unit;
}

static enum ha_status residual_open(const struct ha_dataset *self, struct ha_source **src, struct ha_shape *shape,
                                    size_t total_tokens, uint64_t seed, const char *file, struct ha_why *why)
{
    *src = NULL;
    size_t model_dim = shape->model_dim ? shape->model_dim : MODEL_DIM_DEFAULT, floats, bytes;
    if (model_dim > MODEL_DIM_MAX)
        return ha_why(why, HA_ERROR, "dataset residual: model_dim is %zu; up to %d is possible", model_dim,
                      MODEL_DIM_MAX);
    if (__builtin_mul_overflow(shape->q_heads, shape->head_dim, &floats)
        || __builtin_mul_overflow(floats, model_dim, &floats) || __builtin_mul_overflow(floats, shape->layers, &bytes)
        || __builtin_mul_overflow(bytes, sizeof(float), &bytes) || bytes > WQ_BYTES_MAX)
        return ha_why(why, HA_ERROR,
                      "dataset residual: W_Q of %zu layers x %zu query heads x head_dim %zu x model_dim %zu takes more "
                      "than %zu bytes: lower model_dim, heads or layers",
                      shape->layers, shape->q_heads, shape->head_dim, model_dim, WQ_BYTES_MAX);
    HA_TRY(ha_source_make(self, src, sizeof(struct residual) + bytes, shape, total_tokens, seed, file, why));
    struct residual *r = of(*src);
    shape->model_dim = r->base.shape.model_dim = model_dim;
    r->layer_floats = floats;
    float unit = wq_unit(model_dim);
    for (size_t layer = 0; layer < shape->layers; layer++) {
        float *w = r->wq + layer * floats;
        ha_rng_normals(seed, ha_stream(HA_FOR_WQ, 0, layer, 0), 0, floats, w);
        for (size_t i = 0; i < floats; i++) w[i] = (float)nearest(0.9f * w[i]) * unit;
    }
    return HA_OK;
}

static void residual_input(struct ha_source *src, size_t seq, size_t layer, size_t token, float *x)
{
    size_t n = src->shape.model_dim, knot = layer / STEPS, i = layer % STEPS;
    float next[MODEL_DIM_MAX];
    ha_rng_normals(src->seed, ha_stream(HA_FOR_INPUT, seq, knot, 0), token * n, n, x);
    ha_rng_normals(src->seed, ha_stream(HA_FOR_INPUT, seq, knot + 1, 0), token * n, n, next);
    for (size_t j = 0; j < n; j++) {
        /* |normal| < 4.9, so that 52 of it is at most 255; the offset keeps the shift off negatives */
        int32_t sum = COSINE[i] * nearest(52 * x[j]) + COSINE[STEPS - i] * nearest(52 * next[j]);
        x[j] = (float)(((sum + (512 << 10) + 512) >> 10) - 512) * X_UNIT;
    }
}

static struct ha_projection residual_projection(struct ha_source *src, size_t layer)
{
    return (struct ha_projection){ .wq = of(src)->wq + layer * of(src)->layer_floats };
}

static void residual_query(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token, float *q)
{
    size_t d = src->shape.head_dim, n = src->shape.model_dim;
    const float *w = residual_projection(src, layer).wq + head * d * n;
    float x[MODEL_DIM_MAX];
    residual_input(src, seq, layer, token, x);
    for (size_t i = 0; i < d; i++, w += n) {
        float lane[LANES] = { 0 }, sum = 0;
        size_t j = 0;
        for (; j + LANES <= n; j += LANES)
            for (size_t l = 0; l < LANES; l++) lane[l] += w[j + l] * x[j + l];
        for (; j < n; j++) sum += w[j] * x[j];
        for (size_t l = 0; l < LANES; l++) sum += lane[l];
        q[i] = sum;
    }
    ha_row_round(src, q);
}

const struct ha_dataset ha_dataset_residual = {
    .name = "residual",
    .doc = "layer inputs that resemble each other (cosine 0.966) and q = W_Q x: the next query can be predicted",
    .open = residual_open,
    .close = ha_source_close,
    .kv = ha_noise_kv,
    .query = residual_query,
    .input = residual_input,
    .projection = residual_projection,
};
