#ifndef HA_LOAD_H
#define HA_LOAD_H

/* load=layer: the products of a model's layer, on the main stream around the attention of each layer, so that what a
 * variant does beside them has a real window: y = x w^T with w of [q_heads + 2 kv_heads, each of head_dim][hidden]
 * before it; [hidden][q_heads * head_dim], [1 or 2 of feed_forward][hidden] and [hidden][feed_forward] after it. What
 * lies between them in a model (norms, positions, activation) is left out. Inputs and weights are random and finite, of
 * the type of K and V; nothing reads the results. Every layer has weights of its own, or, where they are more than
 * HA_LOAD_BYTES, takes turns with as many layers' as that holds, one at least: still more than caches hold. */

#include "suites/variants/case.h"
#include "harness/api/device.h"

struct ha_device_arena;

enum { HA_LOAD_PRODUCTS = 4, HA_LOAD_BEFORE = 1 }; /* of a layer; those ahead of attention */
#define HA_LOAD_BYTES ((size_t)2 << 30)

struct ha_load {
    size_t products;                                    /* 0: attention alone */
    struct ha_device_product product[HA_LOAD_PRODUCTS]; /* w: of the first layer */
    size_t layer_bytes, kept;                           /* weights of a layer, of how many layers they are kept */
};

/* NULL, or why this device has no products. */
const char *ha_load_unsupported(const struct ha_device_api *api, const struct ha_device_info *info);
/* Buffers from the arena, filled. HA_ERROR: they do not fit. */
enum ha_status ha_load_create(struct ha_load *load, const struct ha_model *model, const struct ha_shape *shape,
                              const struct ha_device_api *api, struct ha_stream *stream, struct ha_device_arena *arena,
                              struct ha_why *why);
/* Products [first, end) of a layer, as far as there are any. */
enum ha_status ha_load_enqueue(const struct ha_load *load, const struct ha_device_api *api, struct ha_stream *stream,
                               size_t layer, size_t first, size_t end);

#endif
