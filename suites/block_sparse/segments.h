#ifndef HA_BLOCK_SPARSE_SEGMENTS_H
#define HA_BLOCK_SPARSE_SEGMENTS_H

/* One layer of one sequence in three segments (Fluxion, section 8 and appendix A): the first tokens (sink) and the last
 * ones (local), to which all later ones are added, on the device; between them the host segment, whole blocks of every
 * size in host memory, with digests of each size. It stays as the prefill has left it. */

#include "suites/parts/digests.h"
#include "suites/parts/frame.h"
#include "suites/block_sparse/labels.h"
#include "suites/block_sparse/selector.h"

struct ha_segments {
    struct ha_kv device, store; /* the sink, then the local tokens; the host segment */
    size_t sinks, host;         /* tokens of the sink, of the host segment */
    struct ha_digests digests[HA_GRANULARITIES];
};

/* Rows of seg->device, which is the caller's to make. */
size_t ha_segments_rows(const struct ha_shape *shape, size_t b, size_t sink, size_t recent);
/* memory: of the host segment */
enum ha_status ha_segments_open(const struct ha_context *ctx, size_t b, size_t sink, size_t recent,
                                enum ha_memory memory, struct ha_segments *seg, struct ha_why *why);
enum ha_status ha_segments_prefill(const struct ha_context *ctx, size_t b, const struct ha_prefill *in,
                                   enum ha_digest_kind kind, struct ha_segments *seg, struct ha_why *why);
/* Enqueues a step's tokens, those of a sequence that had so many. */
enum ha_status ha_segments_append(const struct ha_context *ctx, const struct ha_segments *seg, size_t tokens,
                                  const struct ha_kv *fresh);
/* Rows of KV head 0; local: of a sequence of so many tokens. */
struct ha_rows ha_segments_sink(const struct ha_shape *shape, const struct ha_segments *seg);
struct ha_rows ha_segments_local(const struct ha_shape *shape, const struct ha_segments *seg, size_t tokens);
/* The same as positions: sink, then local. */
enum ha_status ha_segments_use(const struct ha_context *ctx, const struct ha_segments *seg, size_t tokens,
                               struct ha_positions *device, struct ha_why *why);

#endif
