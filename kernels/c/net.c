#include "kernels/c/ops.h"
#include "kernels/net.h"

#include <string.h>

static void layer(const struct ha_net_layer *l)
{
    for (size_t r = 0; r < l->rows; r++) {
        const float *x = l->x + r * l->in;
        float *y = l->y + r * l->out;
        memcpy(y, l->bias, l->out * sizeof *y);
        for (size_t i = 0; i < l->in; i++)
            for (size_t j = 0; j < l->out; j++) y[j] += x[i] * l->w[i * l->out + j];
        for (size_t j = 0; l->relu && j < l->out; j++) y[j] = y[j] < 0 ? 0 : y[j];
    }
}

void ha_c_net(const struct ha_net *n) { ha_net_each(n, layer); }
