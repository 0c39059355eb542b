#ifndef HA_VARIANTS_CASE_H
#define HA_VARIANTS_CASE_H

/* One case, one string: `variant:key=value,...`. What the string leaves out has its default;
 * ha_case_print writes every key that differs from it, so that the id runs again anywhere. */

#include "harness/api/base.h"
#include "harness/api/shape.h"

enum { HA_PARAMS_MAX = 16, HA_CASE_ID_MAX = 512 };

/* The sizes of a model's layer. Feed-forward: two products (up, down), or three where it is gated. */
struct ha_model {
    const char *name;
    size_t layers, q_heads, kv_heads, head_dim, hidden, feed_forward;
    bool gated;
    const char *source;
};

/* What runs in a step: attention alone, or the products of each layer around it. */
enum ha_load_kind { HA_LOAD_ATTENTION, HA_LOAD_LAYER };

struct ha_case {
    char variant[48], device[256], dataset[256];
    const struct ha_model *model; /* NULL: none is named */
    enum ha_load_kind load;
    struct ha_shape shape;
    uint64_t seed;
    size_t isa;                  /* 0: the best of this CPU; i: table i - 1 of the registry */
    size_t team;                 /* who the threads of the CPU side are: enum ha_team of harness/base/pool.h */
    size_t threads;              /* of the CPU side; 0: the cores that the device leaves free */
    double param[HA_PARAMS_MAX]; /* of the variant, in its order */
};

#endif
