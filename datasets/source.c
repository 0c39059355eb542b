#include "datasets/source.h"

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>

/* streams pack seq into 8 bits, layer and head into 24 each */
#define LAYERS_MAX ((size_t)1 << 24)
#define HEADS_MAX  ((size_t)1 << 24)
/* token * head_dim stays far below 2^64 */
#define TOKENS_MAX   ((size_t)1 << 40)
#define WQ_BYTES_MAX ((size_t)4 << 30)
#define SINK_VALUE   (1.0f / 32)
enum { MODEL_DIM_DEFAULT = 256, LANES = 16 };

uint64_t ha_stream(enum ha_purpose purpose, size_t seq, size_t layer, size_t head)
{
    return (uint64_t)purpose << 56 | (uint64_t)seq << 48 | (uint64_t)layer << 24 | (uint64_t)head;
}

static enum ha_status shape_check(const char *name, const struct ha_shape *s, size_t total_tokens, struct ha_why *why)
{
    const struct {
        const char *key;
        size_t value, max;
    } limits[] = {
        { "layers", s->layers, LAYERS_MAX },          { "batch", s->batch, HA_BATCH_MAX },
        { "query heads", s->q_heads, HEADS_MAX },     { "KV heads", s->kv_heads, HEADS_MAX },
        { "head_dim", s->head_dim, HA_HEAD_DIM_MAX }, { "tokens", total_tokens, TOKENS_MAX },
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].value < 1 || limits[i].value > limits[i].max)
            return ha_why(why, HA_ERROR, "dataset %s: %s is %zu; from 1 to %zu is possible", name, limits[i].key,
                          limits[i].value, limits[i].max);
    if (s->q_heads % s->kv_heads)
        return ha_why(why, HA_ERROR, "dataset %s: %zu query heads are not a multiple of %zu KV heads", name, s->q_heads,
                      s->kv_heads);
    for (size_t b = 0; b < s->batch; b++)
        if (s->ctx[b] > total_tokens)
            return ha_why(why, HA_ERROR, "dataset %s: sequence %zu has %zu tokens, more than the total of %zu", name, b,
                          s->ctx[b], total_tokens);
    if (!isfinite(s->scale)) return ha_why(why, HA_ERROR, "dataset %s: the scale is not finite", name);
    return HA_OK;
}

enum ha_status ha_source_make(const struct ha_dataset *self, struct ha_source **src, size_t bytes,
                              struct ha_shape *shape, size_t total_tokens, uint64_t seed, const char *file,
                              struct ha_why *why)
{
    *src = NULL;
    if (file) return ha_why(why, HA_ERROR, "dataset %s reads no file: leave out '/%s'", self->name, file);
    HA_TRY(shape_check(self->name, shape, total_tokens, why));
    struct ha_source *s = calloc(1, bytes);
    if (!s) return ha_why(why, HA_ERROR, "dataset %s: out of memory (%zu bytes)", self->name, bytes);
    shape->model_dim = 0;
    if (!(shape->scale != 0)) shape->scale = 1 / sqrtf((float)shape->head_dim);
    s->shape = *shape;
    s->total_tokens = total_tokens;
    s->seed = seed;
    *src = s;
    return HA_OK;
}

enum ha_status ha_source_open(const struct ha_dataset *self, struct ha_source **src, struct ha_shape *shape,
                              size_t total_tokens, uint64_t seed, const char *file, struct ha_why *why)
{
    return ha_source_make(self, src, sizeof **src, shape, total_tokens, seed, file, why);
}

void ha_source_close(struct ha_source *src) { free(src); }

enum ha_status ha_input_source_open(const struct ha_dataset *self, struct ha_source **src, size_t images,
                                    struct ha_shape *shape, size_t total_tokens, uint64_t seed, const char *file,
                                    struct ha_why *why)
{
    *src = NULL;
    size_t model_dim = shape->model_dim ? shape->model_dim : MODEL_DIM_DEFAULT, rows, wq, more, bytes;
    if (model_dim > HA_MODEL_DIM_MAX)
        return ha_why(why, HA_ERROR, "dataset %s: model_dim is %zu; up to %d is possible", self->name, model_dim,
                      HA_MODEL_DIM_MAX);
    if (__builtin_mul_overflow(shape->q_heads, shape->head_dim, &rows) || __builtin_mul_overflow(rows, model_dim, &wq)
        || __builtin_mul_overflow(shape->kv_heads, shape->head_dim, &rows)
        || __builtin_mul_overflow(rows, images, &more) || __builtin_add_overflow(wq, more, &bytes)
        || __builtin_mul_overflow(bytes, shape->layers, &bytes) || __builtin_mul_overflow(bytes, sizeof(float), &bytes)
        || bytes > WQ_BYTES_MAX)
        return ha_why(why, HA_ERROR,
                      "dataset %s: W_Q of %zu layers x %zu query heads x head_dim %zu x model_dim %zu takes more "
                      "than %zu bytes: lower model_dim, heads or layers",
                      self->name, shape->layers, shape->q_heads, shape->head_dim, model_dim, WQ_BYTES_MAX);
    HA_TRY(ha_source_make(self, src, sizeof(struct ha_input_source) + bytes, shape, total_tokens, seed, file, why));
    struct ha_input_source *s = (void *)*src;
    shape->model_dim = s->base.shape.model_dim = model_dim;
    s->wq_floats = wq;
    s->wq = (float *)(s + 1);
    s->images = s->wq + shape->layers * wq;
    return HA_OK;
}

struct ha_projection ha_input_source_projection(struct ha_source *src, size_t layer)
{
    const struct ha_input_source *s = (const void *)src;
    return (struct ha_projection){ .wq = s->wq + layer * s->wq_floats };
}

void ha_input_source_query(struct ha_source *src, size_t layer, size_t head, const float *x, float *q)
{
    size_t d = src->shape.head_dim, n = src->shape.model_dim;
    const float *w = ha_input_source_projection(src, layer).wq + head * d * n;
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

float ha_wq_unit(size_t model_dim)
{
    float unit = 1;
    for (size_t n = 16; n < model_dim; n *= 4) unit *= 0.5f;
    return unit;
}

void ha_noise_row(const struct ha_source *src, uint64_t stream, size_t row, float *out)
{
    size_t d = src->shape.head_dim;
    ha_rng_normals(src->seed, stream, (uint64_t)row * d, d, out);
}

void ha_noise_store(const struct ha_source *src, uint64_t stream, size_t first, size_t count, void *out)
{
    float piece[1024];
    const size_t most = sizeof piece / sizeof *piece, d = src->shape.head_dim;
    enum ha_dtype dtype = src->shape.dtype;
    for (size_t done = 0, n; done < count * d; done += n) {
        n = count * d - done < most ? count * d - done : most;
        ha_rng_normals(src->seed, stream, (uint64_t)first * d + done, n, piece);
        ha_store_row((char *)out + done * ha_dtype_bytes(dtype), n, dtype, piece);
    }
}

void ha_noise_kv(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t first, size_t count, void *k,
                 void *v)
{
    if (k) ha_noise_store(src, ha_stream(HA_FOR_KEY, seq, layer, head), first, count, k);
    if (v) ha_noise_store(src, ha_stream(HA_FOR_VALUE, seq, layer, head), first, count, v);
}

void ha_sinks_values(const struct ha_source *src, size_t seq, size_t layer, size_t head, size_t first, size_t count,
                     void *v)
{
    uint64_t stream = ha_stream(HA_FOR_VALUE, seq, layer, head);
    float row[HA_HEAD_DIM_MAX];
    ha_noise_store(src, stream, first, count, v);
    for (size_t token = first; token < first + count && token < HA_SINKS; token++) {
        ha_noise_row(src, stream, token, row);
        for (size_t j = 0; j < src->shape.head_dim; j++) row[j] *= SINK_VALUE;
        ha_row_store(src, v, token - first, row);
    }
}

void ha_row_store(const struct ha_source *src, void *out, size_t row, const float *in)
{
    size_t d = src->shape.head_dim;
    ha_store_row((char *)out + row * d * ha_dtype_bytes(src->shape.dtype), d, src->shape.dtype, in);
}

void ha_row_round(const struct ha_source *src, float *row)
{
    for (size_t j = 0; j < src->shape.head_dim; j++) row[j] = ha_round(row[j], src->shape.dtype);
}
