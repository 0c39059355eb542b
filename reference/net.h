#ifndef HA_REFERENCE_NET_H
#define HA_REFERENCE_NET_H

/* A feed-forward net in binary64, and what binary32 may make of it. */

#include "reference/definitions.h"

enum { HA_REF_NET_LAYERS_MAX = 4, HA_REF_NET_WIDTH_MAX = 1024 };

struct ha_ref_net {
    size_t layers;
    const size_t *width;      /* [layers + 1] inputs of the first layer, then outputs of each */
    const float *const *w;    /* [layers] -> [width[i]][width[i + 1]] */
    const float *const *bias; /* [layers] -> [width[i + 1]] */
};

/* y = W_n relu(... relu(W_1 x + b_1) ...) + b_n, [width[layers]] of [width[0]]. y[j].low to high is what any such net
 * of binary32 may have for inputs from x[i].low to high, each sum in any order, fused or not; y[j].value is in the
 * middle, x[i].value is not read. */
void ha_ref_net(const struct ha_ref_net *net, const struct ha_ref_score *x, struct ha_ref_score *y);

#endif
