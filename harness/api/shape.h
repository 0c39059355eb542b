#ifndef HA_API_SHAPE_H
#define HA_API_SHAPE_H

/* The shape of a workload: what a model and a batch fix. */

#include "harness/api/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HA_BATCH_MAX = 256 };

struct ha_shape {
    size_t layers, batch;
    size_t q_heads, kv_heads, head_dim; /* q_heads is a multiple of kv_heads */
    size_t model_dim;                   /* of x; 0 where the dataset has no x */
    enum ha_dtype dtype;                /* of K and V; q values are exact in it too */
    float scale;                        /* of the scores */
    size_t ctx[HA_BATCH_MAX];           /* tokens in each sequence before the first step */
    size_t q_len;                       /* query tokens in a step: 1 = decode, more = append */
    size_t steps;
    bool follows;    /* a model decodes: what a layer gets depends on what attention made in the one before */
    size_t observed; /* prefill hands over the queries of this many last tokens */
};

static inline size_t ha_shape_group(const struct ha_shape *s) { return s->q_heads / s->kv_heads; }

#ifdef __cplusplus
}
#endif
#endif
