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
#define TOKENS_MAX ((size_t)1 << 40)

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

void ha_row_store(const struct ha_source *src, void *out, size_t row, const float *in)
{
    size_t d = src->shape.head_dim;
    ha_store_row((char *)out + row * d * ha_dtype_bytes(src->shape.dtype), d, src->shape.dtype, in);
}

void ha_row_round(const struct ha_source *src, float *row)
{
    for (size_t j = 0; j < src->shape.head_dim; j++) row[j] = ha_round(row[j], src->shape.dtype);
}
