#include "datasets/source.h"

#include "harness/base/rng.h"
#include "harness/base/why.h"

/* Layers whose inputs resemble each other, so that the next layer's query can be predicted from
 * this layer's input: x turns from one independent vector to the next in STEPS layers, by equal
 * angles of 15 degrees (cosine 0.966). q = W_Q x, rounded to the dtype.
 *
 * x and W_Q are small integers times a power of two, chosen so that W_Q x is exact in binary32
 * whatever the order of its sum: |x| <= 255 * 1.4143 < 361 and |w| <= 4 units, and 8192 products of
 * them stay below 2^24. */

enum { STEPS = 6 };
#define X_UNIT 0x1p-6f

/* 1024 cos(15 i degrees); the sine is the same table backwards */
static const int32_t COSINE[STEPS + 1] = { 1024, 989, 887, 724, 512, 265, 0 };

static enum ha_status residual_open(const struct ha_dataset *self, struct ha_source **src, struct ha_shape *shape,
                                    size_t total_tokens, uint64_t seed, const char *file, struct ha_why *why)
{
    HA_TRY(ha_input_source_open(self, src, 0, shape, total_tokens, seed, file, why));
    const struct ha_input_source *r = (const void *)*src;
    float unit = ha_wq_unit(shape->model_dim);
    for (size_t layer = 0; layer < shape->layers; layer++) {
        float *w = r->wq + layer * r->wq_floats;
        ha_rng_normals(seed, ha_stream(HA_FOR_WQ, 0, layer, 0), 0, r->wq_floats, w);
        for (size_t i = 0; i < r->wq_floats; i++) w[i] = (float)ha_whole(0.9f * w[i]) * unit;
    }
    return HA_OK;
}

static void residual_input(struct ha_source *src, size_t seq, size_t layer, size_t token, float *x)
{
    size_t n = src->shape.model_dim, knot = layer / STEPS, i = layer % STEPS;
    float next[HA_MODEL_DIM_MAX];
    ha_rng_normals(src->seed, ha_stream(HA_FOR_INPUT, seq, knot, 0), token * n, n, x);
    ha_rng_normals(src->seed, ha_stream(HA_FOR_INPUT, seq, knot + 1, 0), token * n, n, next);
    for (size_t j = 0; j < n; j++) {
        /* |normal| < 4.9, so that 52 of it is at most 255; the offset keeps the shift off negatives */
        int32_t sum = COSINE[i] * ha_whole(52 * x[j]) + COSINE[STEPS - i] * ha_whole(52 * next[j]);
        x[j] = (float)(((sum + (512 << 10) + 512) >> 10) - 512) * X_UNIT;
    }
}

static void residual_query(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token, float *q)
{
    float x[HA_MODEL_DIM_MAX];
    residual_input(src, seq, layer, token, x);
    ha_input_source_query(src, layer, head, x, q);
}

const struct ha_dataset ha_dataset_residual = {
    .name = "residual",
    .doc = "layer inputs that resemble each other (cosine 0.966) and q = W_Q x: the next query can be predicted",
    .open = residual_open,
    .close = ha_source_close,
    .kv = ha_noise_kv,
    .query = residual_query,
    .input = residual_input,
    .projection = ha_input_source_projection,
};
