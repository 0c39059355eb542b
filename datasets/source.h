#ifndef HA_DATASETS_SOURCE_H
#define HA_DATASETS_SOURCE_H

/* What the generators share: the source, its checks, and rows of noise. */

#include "harness/api/dataset.h"

enum { HA_HEAD_DIM_MAX = 1024 };

/* A generator that needs more puts this first in a struct of its own. */
struct ha_source {
    struct ha_shape shape;
    size_t total_tokens;
    uint64_t seed;
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

/* Row `row` of the noise of a stream: [head_dim], mean 0, variance 1. */
void ha_noise_row(const struct ha_source *src, uint64_t stream, size_t row, float *out);
/* ha_dataset.kv with K and V noise, each value independent of all others */
void ha_noise_kv(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t first, size_t count, void *k,
                 void *v);
/* the noise rows [first, first+count) of one stream, stored as shape.dtype */
void ha_noise_store(const struct ha_source *src, uint64_t stream, size_t first, size_t count, void *out);
/* one token's row among `out`'s rows */
void ha_row_store(const struct ha_source *src, void *out, size_t row, const float *in);
/* rounds a row of head_dim floats to shape.dtype */
void ha_row_round(const struct ha_source *src, float *row);

#endif
