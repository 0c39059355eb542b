#ifndef HA_REFERENCE_FEATURES_H
#define HA_REFERENCE_FEATURES_H

/* The features of query heads (harness/api/features.h) in binary64, each with what binary32 may make of it. */

#include "harness/api/features.h"
#include "reference/labels.h"

/* A layer of a sequence. The prefill ends with the anchor's token: its tokens are [0, sinks) sink, [sinks, sinks +
 * host) host segment, the others up to `prefill` local; those that came since are local, too. */
struct ha_def_features {
    const struct ha_shape *shape;
    size_t layer, sinks, host, prefill;
    size_t tokens;                         /* that q sees, its own included; not read of the known ones */
    const void *const *k, *const *v;       /* [kv_heads] -> [tokens][head_dim], finite */
    const float *q, *anchor;               /* [q_heads][head_dim]; q is not read of the known ones */
    const struct ha_profile *cpu, *device; /* who computes the known ones, by attention and scores; the states of q */
    enum ha_def_criterion criterion;       /* of the anchor's budgets */
    double tau;
    bool mean;
};

/* Of all query heads: feature[q_heads][HA_FEATURES], value and what may be made of it, low to high. Of the known ones
 * statistics are those, in binary64 or better, of norms and scores in binary32, and each is rounded to binary32 at
 * last. A budget is between the least and the largest that may be; whether one of these may be, ha_def_features_met
 * says. The ones of the query are left as they are. HA_ERROR: no memory. */
enum ha_status ha_def_features_known(const struct ha_def_features *of, struct ha_ref_score *feature,
                                     struct ha_why *why);
/* met: [q_heads] arrays of ha_def_label_met for the anchor, blocks of ha_def_size(size); one block of memory, [q_heads]
 * [host / size + 1]. */
enum ha_status ha_def_features_met(const struct ha_def_features *of, size_t size, uint8_t *met, struct ha_why *why);
/* Those of the query, given the known ones as the variant has them, [q_heads][HA_FEATURES]; the known ones are left as
 * they are. As struct ha_device_features has them: from a mean of K in binary32, the anchor and the states of q. */
enum ha_status ha_def_features_online(const struct ha_def_features *of, const double *known,
                                      struct ha_ref_score *feature, struct ha_why *why);

#endif
