#ifndef HA_BLOCK_SPARSE_FEATURES_H
#define HA_BLOCK_SPARSE_FEATURES_H

/* What a predictor of budgets knows of each query head when a prefill is over (Fluxion, appendix A;
 * harness/api/features.h), by the CPU; and that on the device, for struct ha_device_features. */

#include "harness/api/features.h"
#include "suites/block_sparse/labels.h"

/* A layer of a sequence whose prefill ends with the anchor's token: tokens [0, sinks) are the sink, [sinks, sinks +
 * host) the host segment, the others up to `tokens` local. */
struct ha_features_of {
    size_t layer, sinks, host, tokens;
    const void *k, *v; /* [kv_heads][cap][head_dim] in host memory */
    size_t cap;
    const float *anchor; /* [q_heads][head_dim] */
};

struct ha_features {
    const struct ha_labels *labels;        /* the caller's: with room for q_heads units */
    unsigned char *digest[HA_LABEL_SIZES]; /* [kv_heads][digest_bytes]; [0]: NULL */
    size_t digest_bytes[HA_LABEL_SIZES];
    struct ha_label_unit *unit; /* [q_heads] */
    struct ha_label *label;     /* [q_heads] */
    struct ha_features_work {
        double *x;       /* [tokens_max] norms, or scores, of keys */
        float *score;    /* [tokens_max] */
        double *mean[2]; /* [head_dim], of K and V */
        void *attend;    /* of the kernels */
    } * work;            /* [threads] */
    float *o, *lse;      /* [2][q_heads][head_dim], [2][q_heads]: over sink and local */
    float *known;        /* [q_heads][HA_FEATURES]; pinned where ha_features_share has made it, as is the next */
    float *mean_k;       /* [kv_heads][head_dim] */
    float *anchor;       /* pinned: [q_heads][head_dim]; NULL without ha_features_share */
    bool *finite;        /* [kv_heads] */
};

/* tokens_max: of the longest prefill */
enum ha_status ha_features_create(struct ha_features *f, const struct ha_labels *labels, struct ha_arena *arena,
                                  size_t tokens_max, struct ha_why *why);
/* f->known and f->mean_k, by the pool's workers. Statistics are made in binary64, of scores, norms and attention in
 * binary32; the features that change with the query are 0. HA_ERROR: K or V is not finite. */
enum ha_status ha_features_learn(struct ha_features *f, const struct ha_features_of *of, struct ha_why *why);

/* ---- for a variant ----------------------------------------------------------------------------------------------- */

/* The same, with what goes to the device in pinned memory. */
enum ha_status ha_features_share(struct ha_features *f, const struct ha_labels *labels, const struct ha_context *ctx,
                                 struct ha_why *why);

/* Of a layer of a sequence. */
struct ha_features_kept {
    float *known, *anchor, *mean_k; /* device: [q_heads][HA_FEATURES], [q_heads][head_dim], [kv_heads][head_dim] */
    double *learnt; /* [q_heads][HA_FEATURES] the known ones, for selection(); NULL where none is recorded */
};
enum ha_status ha_features_open(const struct ha_context *ctx, struct ha_features_kept *kept, struct ha_why *why);
/* Learns, and enqueues what is kept on the main stream. HA_ERROR with words where K or V is not finite, and where the
 * prefill hands over no query. */
enum ha_status ha_features_prefill(struct ha_features *f, const struct ha_context *ctx, size_t layer, size_t b,
                                   const struct ha_prefill *in, size_t sinks, size_t host,
                                   struct ha_features_kept *kept, struct ha_why *why);
/* What the device's operation is given in a step, but for q, the states, device_keys and x. */
static inline struct ha_device_features_seq ha_features_seq(const struct ha_features_kept *kept)
{
    return (struct ha_device_features_seq){ .known = kept->known, .anchor = kept->anchor, .mean_k = kept->mean_k };
}

#endif
