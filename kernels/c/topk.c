#include "kernels/c/ops.h"

#include <math.h>

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS };

/* Integers in the order of the floats: NaN is 0, -0 is +0. */
static inline uint32_t key_of(float x)
{
    union {
        float f;
        uint32_t u;
    } c = { .f = x + 0.0f };
    if (isnan(x)) return 0;
    return c.u >> 31 ? ~c.u : c.u | 0x80000000u;
}

/* The k-th largest key by its digits, the highest first: each pass counts the digits of the keys that have those found
 * so far. */
void ha_c_topk(const struct ha_topk *t)
{
    if (t->k >= t->n) {
        for (size_t i = 0; i < t->n; i++) t->index[i] = (uint32_t)i;
        return;
    }
    if (t->k == 0) return;
    uint32_t found = 0, mask = 0;
    size_t left = t->k;
    for (int shift = 32 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        uint32_t count[DIGITS] = { 0 }, digit = DIGITS - 1;
        for (size_t i = 0; i < t->n; i++) {
            const uint32_t key = key_of(t->x[i]);
            if ((key & mask) == found) count[key >> shift & (DIGITS - 1)]++;
        }
        while (count[digit] < left) left -= count[digit--];
        found |= digit << shift;
        mask |= (uint32_t)(DIGITS - 1) << shift;
    }
    /* `left` of those that equal it are among the k largest */
    uint32_t *out = t->index;
    for (size_t i = 0; i < t->n; i++) {
        const uint32_t key = key_of(t->x[i]);
        if (key < found || (key == found && left == 0)) continue;
        left -= key == found;
        *out++ = (uint32_t)i;
    }
}
