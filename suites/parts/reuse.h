#ifndef HA_PARTS_REUSE_H
#define HA_PARTS_REUSE_H

/* How similar a query must be for what an earlier one read to serve it, and which KV heads are so hard to serve that
 * all of their keys stay on the device (CLO, sections 3.2 and 3.3, equations 7 to 13, of which 12 is printed inverted).
 * It follows from the importance of heads, the mean similarity of neighbouring queries, the time of a layer and the
 * link's bandwidth, which a fit has; all tensors are F32:
 *
 *   importance_q   [layers][q_heads]   in [0, 1]; where it is missing, all are 1
 *   importance_kv  [layers][kv_heads]  the same
 *   similarity     [layers][kv_heads]  the mean, harmonic over the group; without it no head is hard
 *   similarity_min [layers][kv_heads]  the same of the least of the group, read in its place by that rule
 *   pace           [2]                 nanoseconds of a layer's computing, bytes per nanosecond of the link; without it
 *                                      nothing can be prefetched */

#include "harness/api/variant.h"

struct ha_reuse_rule {
    double eta, p, eps;
    bool adaptive;         /* else every threshold is eta */
    bool hard;             /* whether heads of layers behind the first may be persistent */
    double budget_bytes;   /* of persistent heads, the first layer's too; 0: any */
    double buffer_bytes;   /* K and V of a buffer of one KV head, all sequences together */
    double whole_bytes;    /* of all tokens that the sequences reach, the same */
    enum ha_similar group; /* whose mean similarity counts */
};

struct ha_reuse {
    float *threshold;  /* [layers][kv_heads] */
    float *importance; /* [layers][q_heads], at least 2^-10 */
    bool *persistent;  /* [layers][kv_heads] the first layer's all are */
};

/* From the case's fit, or without. Arrays are the arena's. HA_ERROR with words: a tensor of another shape, an
 * importance out of [0, 1], a budget that the first layer alone exceeds. */
enum ha_status ha_reuse_create(struct ha_reuse *r, const struct ha_context *ctx, const struct ha_reuse_rule *rule,
                               struct ha_why *why);

/* `habench fit`: all of these, pace where the input has it. sink, recent: as the variant keeps them. Over the observed
 * queries of all sequences: the importance of a query head is the mean of |o_stream - o_full| / |o_full|, o_stream
 * being its attention over sinks, the recent tokens before the query and the query's own, less the least of all query
 * heads' of the model, divided by the largest such difference (1 where that is not above 1e-6); that of a KV head the
 * same of its query heads' outputs taken together, among KV heads. The similarity is that of each observed query and
 * the one before it, a cosine with a query of zeros being 0. HA_ERROR with words: fewer than two observed queries, no
 * key besides sinks and recent ones, or K, V or a query that is not finite. */
enum ha_status ha_reuse_fit(const struct ha_fit_input *in, struct ha_fit_writer *out, size_t sink, size_t recent,
                            struct ha_why *why);

#endif
