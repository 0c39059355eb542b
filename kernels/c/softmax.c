#include "kernels/c/ops.h"
#include "kernels/rows.h"

#include <math.h>

enum { TILE = 32, SPAN = 4096 };

/* x = exp(x - max); returns the sum: of tiles, of spans of tiles, of spans */
static float weigh(float *x, size_t n, float max)
{
    float sum = 0;
    for (size_t i = 0; i < n; i += SPAN) {
        const size_t end = i + ha_least(SPAN, n - i);
        float span = 0;
        for (size_t j = i; j < end; j += TILE) {
            float part = 0;
            for (size_t k = j; k < j + ha_least(TILE, end - j); k++) {
                x[k] = expf(x[k] - max);
                part += x[k];
            }
            span += part;
        }
        sum += span;
    }
    return sum;
}

static float softmax_row(float *x, size_t n)
{
    float max = -INFINITY;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        max = x[i] > max ? x[i] : max;
        finite &= x[i] < INFINITY;
    }
    if (!finite) max = NAN;
    if (max == -INFINITY) {
        for (size_t i = 0; i < n; i++) x[i] = 0;
        return max;
    }
    const float sum = weigh(x, n, max);
    for (size_t i = 0; i < n; i++) x[i] /= sum;
    return (float)((double)max + log((double)sum));
}

void ha_c_softmax(const struct ha_softmax *s)
{
    for (size_t r = 0; r < s->rows; r++) {
        const float lse = softmax_row(s->x + r * s->stride, s->n);
        if (s->lse) s->lse[r] = lse;
    }
}
