#ifndef HA_PARTS_HEAD_ROWS_H
#define HA_PARTS_HEAD_ROWS_H

/* Keys or values alone of one sequence and layer, head by head: [kv_heads][cap][head_dim] of shape.dtype, in host or
 * device memory. */

#include "suites/parts/kv.h"

struct ha_head_rows {
    enum ha_memory memory; /* HA_MEM_PINNED or HA_MEM_DEVICE */
    unsigned char *at;
    size_t cap, head_bytes; /* tokens; from a KV head to the next */
};

/* for all that sequence b can reach */
enum ha_status ha_head_rows_create(const struct ha_context *ctx, enum ha_memory memory, size_t b,
                                   struct ha_head_rows *rows, struct ha_why *why);
/* Tokens [first, first + count) of a sequence of a prefill (in->k[b] or in->v[b]) to rows `at` and on: by the link,
 * waited for, or by the pool's workers. */
enum ha_status ha_head_rows_load(const struct ha_context *ctx, const struct ha_head_rows *rows, size_t at,
                                 const void *from, size_t from_cap, size_t first, size_t count);
/* Enqueues token-major rows of device memory, [count][kv_heads][head_dim], to rows `at` and on. */
enum ha_status ha_head_rows_put(const struct ha_context *ctx, struct ha_stream *stream, const struct ha_head_rows *rows,
                                size_t at, const unsigned char *from, size_t count);

#endif
