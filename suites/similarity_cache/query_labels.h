#ifndef HA_SIMILARITY_CACHE_QUERY_LABELS_H
#define HA_SIMILARITY_CACHE_QUERY_LABELS_H

/* Queries as labels of what KV heads have chosen by them: is a query so similar to the label that what that chose
 * serves it, too (CLO, sections 3.1 and 5)? All on the device. */

#include "suites/parts/frame.h"
#include "suites/parts/reuse.h"

struct ha_query_labels_layer {
    float *threshold, *importance; /* device: [kv_heads], [q_heads] */
    float *label;                  /* device: [batch][q_heads][head_dim], zeros where there is none */
    float *similarity;             /* mapped: [batch][kv_heads] of the last look-up */
};

struct ha_query_labels {
    const struct ha_context *ctx;
    enum ha_similar group;
    struct ha_query_labels_layer *layer;
    struct ha_device_similarity_seq *seq; /* [batch] */
    float *zeros;                         /* pinned: [batch][q_heads][head_dim] */
};

/* Persistent heads of `reuse` are never looked up: they count as hits. HA_WAIVED: the device has no mapped memory. */
enum ha_status ha_query_labels_create(struct ha_query_labels *q, const struct ha_context *ctx,
                                      const struct ha_reuse *reuse, enum ha_similar group, struct ha_why *why);
/* Enqueues on the main stream: nothing has a label. */
enum ha_status ha_query_labels_clear(const struct ha_query_labels *q, size_t layer);
/* Enqueues on the main stream a look-up by queries [batch][q_len][q_heads][head_dim]: missed, [batch][kv_heads] in
 * device or mapped memory, is 1 of a KV head that misses, and the queries become its labels. */
enum ha_status ha_query_labels_look_up(const struct ha_query_labels *q, size_t layer, const float *queries,
                                       uint32_t *missed);

#endif
