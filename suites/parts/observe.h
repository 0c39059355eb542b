#ifndef HA_PARTS_OBSERVE_H
#define HA_PARTS_OBSERVE_H

/* What the last queries of a prefill say about its keys. */

#include "suites/parts/digests.h"

/* The softmax weight of each key of positions [first, first + count), softmax over these keys
 * alone, averaged over the observed queries: [q_heads][weights_stride]. A query sees the keys up
 * to its own position; one that sees none adds 0. Source: HGCA Algorithm 1 (A_gpu, A_cpu of the
 * prefill's last tokens). */
enum ha_status ha_observe(const struct ha_context *ctx, const struct ha_prefill *in, size_t b, size_t first,
                          size_t count, float *weights, size_t weights_stride, struct ha_why *why);

/* The digests of the context's whole blocks, to d in device memory; and of each KV head the `count` blocks of largest
 * score for any of its observed queries, rising, all where there are no more: [kv_heads][stride]. Without observed
 * queries the newest blocks are those. */
enum ha_status ha_observe_blocks(const struct ha_context *ctx, const struct ha_prefill *in, size_t b,
                                 enum ha_digest_kind kind, struct ha_digests *d, size_t count, uint32_t *best,
                                 size_t stride, struct ha_why *why);

#endif
