#include "harness/base/numeric.h"
#include "kernels/c/ops.h"
#include "kernels/rows.h"

#include <math.h>

static float sum_of(const float *a, const char *x, size_t dim, enum ha_dtype t)
{
    float sum = 0;
    for (size_t d = 0; d < dim; d++) {
        const float of = ha_load(x, d, t);
        sum += (a ? a[d] : of) * of;
    }
    return sum;
}

void ha_c_hash(const struct ha_hash *h)
{
    const size_t words = h->bits / 32;
    for (size_t i = 0; i < h->rows.keys; i++) {
        const size_t row = h->first + i;
        uint32_t *block = (uint32_t *)h->codes + row / HA_CODE_KEYS * (words + 1) * HA_CODE_KEYS;
        const char *x = ha_row_k(&h->rows, i);
        for (size_t w = 0; w < words; w++) {
            uint32_t word = 0;
            for (size_t b = 0; b < 32; b++)
                word |= (uint32_t)(sum_of(h->a + (w * 32 + b) * h->head_dim, x, h->head_dim, h->dtype) > 0) << b;
            block[w * HA_CODE_KEYS + row % HA_CODE_KEYS] = word;
        }
        ((float *)block)[words * HA_CODE_KEYS + row % HA_CODE_KEYS] = sqrtf(sum_of(NULL, x, h->head_dim, h->dtype));
    }
}
