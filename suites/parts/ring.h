#ifndef HA_PARTS_RING_H
#define HA_PARTS_RING_H

/* The most recent tokens of one sequence and layer on the device, in a ring of `kv.cap` slots:
 * token position p stands in slot p % cap. Positions [first, end) are present. */

#include "suites/parts/kv.h"

struct ha_ring {
    struct ha_kv kv;
    size_t first, end;
};

/* A stretch of positions that is contiguous in the ring; two cover any range. */
struct ha_stretch {
    size_t position, slot, count;
};
/* the stretches of positions [first, first + count); returns how many: 0, 1 or 2 */
size_t ha_ring_stretches(const struct ha_ring *ring, size_t first, size_t count, struct ha_stretch out[2]);

/* runs of all present tokens of KV head 0, in order; returns how many: 0, 1 or 2 */
size_t ha_ring_runs(const struct ha_shape *shape, const struct ha_ring *ring, struct ha_rows *runs);

/* tokens [first, first + count) from or to rows [at, ...) of other */
enum ha_status ha_ring_copy(const struct ha_context *ctx, struct ha_stream *stream, const struct ha_ring *ring,
                            size_t first, size_t count, const struct ha_kv *other, size_t at, bool to_ring);
/* appends `count` tokens from rows [from, ...) of src on the device */
enum ha_status ha_ring_append(const struct ha_context *ctx, struct ha_stream *stream, struct ha_ring *ring,
                              const struct ha_kv *src, size_t from, size_t count);
/* where K of the token at a position is, or will be */
const unsigned char *ha_ring_place(const struct ha_shape *shape, const struct ha_ring *ring, size_t position);
/* fills the ring with tokens [first, ctx[b]) of a prefill */
enum ha_status ha_ring_load(const struct ha_context *ctx, struct ha_ring *ring, const struct ha_prefill *in, size_t b,
                            size_t first);

/* HGCA's eviction count for a ring of blk_num blocks that holds l_cur tokens, new ones included:
 * 0 below l_max = blk_num * blk_size, else the least number of whole blocks that brings the ring
 * into [l_max - blk_size, l_max - 1]. (Algorithm 1, line 12, whose printed sign is reversed.) */
size_t ha_ring_evict_count(size_t l_cur, size_t blk_size, size_t blk_num);

#endif
