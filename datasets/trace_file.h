#ifndef HA_DATASETS_TRACE_FILE_H
#define HA_DATASETS_TRACE_FILE_H

/* One file of a trace, read and checked. The format is defined in datasets/README.md, section "Traces". */

#include "harness/api/base.h"
#include "harness/base/safetensors.h"

/* The tensors of a layer: "layers.3.k". */
enum ha_trace_part {
    HA_TRACE_K,
    HA_TRACE_V,
    HA_TRACE_Q,
    HA_TRACE_X,
    HA_TRACE_WQ,
    HA_TRACE_NORM,
    HA_TRACE_Q_BIAS,
    HA_TRACE_Q_NORM,
    HA_TRACE_WO,
    HA_TRACE_PARTS
};

struct ha_trace {
    const char *name;            /* stands in the reasons */
    struct ha_safetensors *file; /* whose both are is for the caller to say */
    /* what ha_trace_read fills in */
    size_t version, tokens, q_first, layers, q_heads, kv_heads, head_dim;
    size_t model_dim; /* 0 where x is not there */
    double norm_eps, scale, q_norm_eps, rope_scale;
    double rope_theta;        /* 0: unknown, or rope.inv_freq says more */
    size_t rotary;            /* dimensions of a head that are turned; 0: unknown or none */
    bool adjacent;            /* pairs are (2j, 2j + 1) */
    bool has[HA_TRACE_PARTS]; /* in all layers */
    enum ha_dtype stored;     /* of all tensors but rope.inv_freq */
};

/* Reads the metadata and checks every tensor, each number rounded to `dtype` too. */
enum ha_status ha_trace_read(struct ha_trace *t, enum ha_dtype dtype, struct ha_why *why);
/* of a part that it has: its numbers in the file, at any alignment */
const void *ha_trace_data(const struct ha_trace *t, size_t layer, enum ha_trace_part part);
size_t ha_trace_elements(const struct ha_trace *t, enum ha_trace_part part);
const char *ha_trace_part_name(enum ha_trace_part part);
/* How far a token turns each pair, in radians: [rotary / 2] */
void ha_trace_inv_freq(const struct ha_trace *t, float *out);

#endif
