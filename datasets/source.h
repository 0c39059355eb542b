#ifndef HA_DATASETS_SOURCE_H
#define HA_DATASETS_SOURCE_H

/* What the generators share: the source, its checks, and rows of noise. */

#include "harness/api/dataset.h"

enum { HA_HEAD_DIM_MAX = 1024, HA_MODEL_DIM_MAX = 8192, HA_SINKS = 4 };

/* A generator that needs more puts this first in a struct of its own. */
struct ha_source {
    struct ha_shape shape;
    size_t total_tokens;
    uint64_t seed;
};

/* The same for a generator of layer inputs, whose query is W_Q x rounded to the dtype. */
struct ha_input_source {
    struct ha_source base;
    size_t wq_floats; /* of a layer */
    float *wq;        /* [layers][q_heads*head_dim][model_dim] */
    float *images;    /* [layers][kv_heads][images][head_dim], of the generator's own */
};

/* Every number has a purpose, and every (purpose, seq, layer, head) a stream of its own. The values are
 * part of the data's identity: append only. */
enum ha_purpose {
    HA_FOR_KEY,
    HA_FOR_VALUE,
    HA_FOR_QUERY,
    HA_FOR_PLACE,
    HA_FOR_SIGN,
    HA_FOR_SINK,
    HA_FOR_HEAVY,
    HA_FOR_NEAR_16,
    HA_FOR_NEAR_128,
    HA_FOR_NEAR_1024,
    HA_FOR_INPUT,
    HA_FOR_WQ,
    HA_FOR_PATTERN,
    HA_FOR_TOPIC,
    HA_FOR_POSITION,
    HA_FOR_CUT,
    HA_FOR_OWN_WQ,
};
uint64_t ha_stream(enum ha_purpose purpose, size_t seq, size_t layer, size_t head);

/* ha_dataset.open of a generator: checks the shape, fills in scale, sets model_dim to 0. */
enum ha_status ha_source_open(const struct ha_dataset *self, struct ha_source **src, struct ha_shape *shape,
                              size_t total_tokens, uint64_t seed, const char *file, struct ha_why *why);
/* The same for a source of `bytes`, all zero after its first member. */
enum ha_status ha_source_make(const struct ha_dataset *self, struct ha_source **src, size_t bytes,
                              struct ha_shape *shape, size_t total_tokens, uint64_t seed, const char *file,
                              struct ha_why *why);
void ha_source_close(struct ha_source *src);

/* The same for a struct ha_input_source, W_Q and images all zero. model_dim is 256 if the shape has none. */
enum ha_status ha_input_source_open(const struct ha_dataset *self, struct ha_source **src, size_t images,
                                    struct ha_shape *shape, size_t total_tokens, uint64_t seed, const char *file,
                                    struct ha_why *why);
/* ha_dataset.projection, and q = W_Q x of a query head */
struct ha_projection ha_input_source_projection(struct ha_source *src, size_t layer);
void ha_input_source_query(struct ha_source *src, size_t layer, size_t head, const float *x, float *q);
/* to the nearest integer, for |x| < 512 */
static inline int32_t ha_whole(float x) { return (int32_t)(x + 512.5f) - 512; }
/* the power of two that brings W_Q x to a deviation between 1.5 and 3 for W_Q of 0.9 and x of 0.8 */
float ha_wq_unit(size_t model_dim);

/* Row `row` of the noise of a stream: [head_dim], mean 0, variance 1. */
void ha_noise_row(const struct ha_source *src, uint64_t stream, size_t row, float *out);
/* ha_dataset.kv with K and V noise, each value independent of all others */
void ha_noise_kv(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t first, size_t count, void *k,
                 void *v);
/* the noise rows [first, first+count) of one stream, stored as shape.dtype */
void ha_noise_store(const struct ha_source *src, uint64_t stream, size_t first, size_t count, void *out);
/* The values of a sequence that begins with HA_SINKS sinks: noise, 1/32 of it in those. */
void ha_sinks_values(const struct ha_source *src, size_t seq, size_t layer, size_t head, size_t first, size_t count,
                     void *v);
/* one token's row among `out`'s rows */
void ha_row_store(const struct ha_source *src, void *out, size_t row, const float *in);
/* rounds a row of head_dim floats to shape.dtype */
void ha_row_round(const struct ha_source *src, float *row);

#endif
