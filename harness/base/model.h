#ifndef HA_BASE_MODEL_H
#define HA_BASE_MODEL_H

#include "harness/api/base.h"

/* The sizes of a model. Feed-forward: two products (up, down), or three where it is gated. */
struct ha_model {
    const char *name;
    size_t layers, q_heads, kv_heads, head_dim, hidden, feed_forward;
    bool gated;
    uint64_t parameters; /* all of them, embeddings too */
    const char *source;
};

extern const struct ha_model ha_models[];
enum { HA_MODELS_COUNT = 10 };

#endif
