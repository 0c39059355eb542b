#ifndef HA_REFERENCE_PROPERTIES_H
#define HA_REFERENCE_PROPERTIES_H

/* Three properties that are predicted of each query head in each step (Fluxion, section 5.2), and whether those that
 * are reported may be right. */

#include "reference/features.h"

/* Of the keys on the host it needs the share bgt0 + k log2 B, in blocks of B; none iff s > 0: it streams. */
struct ha_def_property {
    double bgt0, k, s;
};

/* A layer of a sequence. Begins zeroed. */
struct ha_def_place {
    size_t sinks, host,
        prefill;   /* tokens: on the device before those of the host, of the host, before the first step */
    float *anchor; /* [q_heads][head_dim] queries of the prefill's last token */
    double *known; /* [q_heads][HA_FEATURES] as reported and found to be true; NULL: not yet */
};
void ha_def_place_end(struct ha_def_place *place);

/*   net: of the 41 features of each query head (harness/api/features.h), each less its mean and times inv, within [-10,
 *        10], by a net of 312 units, 312 units, (bgt0, k, s)
 *   oracle: the labels of the step's last query (reference/labels.h)
 *   budget: that one, 0, 0 */
enum ha_def_predict { HA_DEF_BY_NET, HA_DEF_BY_ORACLE, HA_DEF_BY_BUDGET };

enum { HA_DEF_BLOCK_SIZES = HA_DEF_SIZES - 1 };

/* What is set first: */
struct ha_def_predictor {
    struct ha_shape shape;
    enum ha_def_predict predict;
    double budget;
    enum ha_def_criterion criterion;
    double tau;
    bool mean; /* the digest of labels */

    float means[HA_FEATURES], inv[HA_FEATURES], *weights;
    struct ha_net net;                /* its layers, widths and weights */
    struct ha_ref_score *feature;     /* [q_heads][HA_FEATURES] */
    uint8_t *met[HA_DEF_BLOCK_SIZES]; /* by block size, in a place's first step: of ha_def_features_met */
    bool begins;                      /* it is that */
    const void **k, **v;              /* [kv_heads] */
};
/* fit: of the net; HA_WAIVED where it is needed and NULL */
enum ha_status ha_def_predictor_create(struct ha_def_predictor *p, const struct ha_fit *fit, struct ha_why *why);
void ha_def_predictor_end(struct ha_def_predictor *p);

/* in prefill, of each head */
enum ha_status ha_def_predictor_prefill(const struct ha_def_predictor *p, struct ha_def_place *place,
                                        const struct ha_def_head *h, struct ha_why *why);
/* In judge, of each head in its order: HA_FAIL unless the features that do not change with the query,
 * h->chosen->learnt, may be what binary32 makes of them, and are what they were before. */
enum ha_status ha_def_predictor_learnt(struct ha_def_predictor *p, struct ha_def_place *place,
                                       const struct ha_def_head *h, struct ha_why *why);
/* Behind the last of these, first being the first head: HA_FAIL unless is[q_heads] may be predicted. */
enum ha_status ha_def_predictor_judge(const struct ha_def_predictor *p, const struct ha_def_place *place,
                                      const struct ha_def_head *first, const struct ha_def_property *is,
                                      struct ha_why *why);

#endif
