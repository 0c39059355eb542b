#ifndef HA_PARTS_VECTORS_H
#define HA_PARTS_VECTORS_H

/* K and V of the KV heads of a sequence on the device, of each head as many tokens as it wants: a pool of vectors, rows
 * of one head each, those of a head one behind the other. So a buffer of some keys and the whole of another head's lie
 * side by side, and one attention reads both in place (CLO, section 5): with its heads a vector apart, head h's list of
 * rows counts from vector h on. */

#include "suites/parts/kv.h"

struct ha_vectors {
    struct ha_kv kv; /* cap: vectors; token-major it is not */
    size_t *first;   /* [kv_heads] a head's first vector, whose distance from the head's number is a multiple of unit */
    size_t unit;     /* vectors of an entry of a list */
};

/* rows: [kv_heads] */
enum ha_status ha_vectors_create(const struct ha_context *ctx, size_t unit, const size_t *rows, struct ha_vectors *v,
                                 struct ha_why *why);
/* The entry of a head's list that its first vectors are; those behind follow. */
static inline uint32_t ha_vectors_entry(const struct ha_vectors *v, size_t head)
{
    return (uint32_t)((v->first[head] - head) / v->unit);
}
/* What lists count in: the run of attention, without its index and keys. And of heads that all have as many rows the
 * first one's, with the bytes from one head to the next. */
struct ha_rows ha_vectors_run(const struct ha_shape *shape, const struct ha_vectors *v);
struct ha_rows ha_vectors_rows(const struct ha_shape *shape, const struct ha_vectors *v, size_t *head_bytes);

/* Enqueues, on the main stream, rows [from, from + count) of src, token-major on the device, of those heads that are
 * marked, to their rows `at` and on; and of all heads such rows to the first `count` of dst. */
enum ha_status ha_vectors_put(const struct ha_context *ctx, const struct ha_vectors *v, const bool *mark,
                              const struct ha_kv *src, size_t from, size_t at, size_t count);
enum ha_status ha_vectors_get(const struct ha_context *ctx, const struct ha_vectors *v, size_t at,
                              const struct ha_kv *dst, size_t count);

#endif
