#ifndef HA_BLOCK_SPARSE_PROPERTIES_H
#define HA_BLOCK_SPARSE_PROPERTIES_H

/* What each query head of a step is like (Fluxion, section 5.2): as a net predicts it on the device, from what it knows
 * of the context and the query; as it is, found out by the CPU; or the same for all. With several query tokens in a
 * step it is asked of the last. */

#include "suites/block_sparse/features.h"
#include "suites/parts/frame.h"
#include "suites/block_sparse/segments.h"
#include "suites/block_sparse/selector.h"

/* oracle: nobody could know it in time, for what a perfect prediction would do. An option `predict` of variants. */
enum ha_property_by { HA_PROPERTY_NET, HA_PROPERTY_ORACLE, HA_PROPERTY_FIXED };
const char *ha_property_word(size_t i);
#define HA_PROPERTY_BY                                                                                              \
    {                                                                                                               \
        "predict", HA_PROPERTY_NET, .word = ha_property_word,                                                       \
                                    .doc = "budgets: of a net, which fit= names; the least that are enough, found " \
                                           "out in the step; or budget for all"                                     \
    }

/* Of a sequence. */
struct ha_property_seq {
    const struct ha_segments *segments;
    size_t device_keys;                  /* tokens on the device, with the step's */
    const struct ha_features_kept *kept; /* what a net knows of the context */
};

struct ha_properties {
    const struct ha_context *ctx;
    enum ha_property_by by;
    struct ha_property *of; /* mapped: [batch][q_heads], of the layer that was asked last, once ready */
    /* by a net */
    struct ha_features features;
    float *mean, *inv, *w, *x;          /* device; x: [batch][q_heads][HA_FEATURES] */
    struct ha_device_features_seq *ask; /* [batch] */
    struct ha_graph *graph;             /* the net; NULL where the device keeps none */
    struct ha_net net;
    /* as it is, and for what a net knows of the context */
    struct ha_labels labels;
    struct ha_state down[HA_FRAME_STATES]; /* pinned: the device's states */
    struct ha_label_unit *unit;            /* [batch][q_heads] */
    struct ha_label *label;                /* the same */
};

/* From a rule's share. fixed: of all heads, by HA_PROPERTY_FIXED. labels: digest, criterion and tau; host_max,
 * tokens_max: of the longest sequence. HA_WAIVED with words where a net is asked for and there is no fit;
 * HA_ERROR where the fit has what a net is trained by. */
enum ha_status ha_properties_create(struct ha_properties *p, const struct ha_layer *first, enum ha_property_by by,
                                    const struct ha_property *fixed, const struct ha_labels *labels, size_t host_max,
                                    struct ha_why *why);
void ha_properties_end(struct ha_properties *p);
/* In `ask` of a rule: enqueues on the main stream what it takes. seq: [batch]. */
enum ha_status ha_properties_ask(struct ha_properties *p, const struct ha_layer *l, const struct ha_step *step,
                                 const struct ha_property_seq *seq);
/* In `work` of a rule, once what was enqueued is done: p->of is complete. q: in host memory. */
void ha_properties_ready(struct ha_properties *p, const float *q, const struct ha_property_seq *seq);

#endif
