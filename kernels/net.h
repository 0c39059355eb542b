#ifndef HA_KERNELS_NET_H
#define HA_KERNELS_NET_H

/* A net as one layer after the other. */

#include "harness/api/kernels.h"

struct ha_net_layer {
    size_t rows, in, out;
    const float *x, *w, *bias; /* [rows][in], [in][out], [out] */
    float *y;                  /* [rows][out] */
    bool relu;
};

static inline void ha_net_each(const struct ha_net *n, void (*layer)(const struct ha_net_layer *))
{
    const size_t half = ha_net_scratch(n) / 2;
    const float *x = n->x, *w = n->w;
    for (size_t i = 0; i < n->layers; i++) {
        const size_t in = n->width[i], out = n->width[i + 1];
        const bool last = i + 1 == n->layers;
        float *y = last ? n->y : n->scratch + i % 2 * half;
        const struct ha_net_layer of = { n->rows, in, out, x, w, w + in * out, y, !last };
        layer(&of);
        w += (in + 1) * out;
        x = y;
    }
}

#endif
