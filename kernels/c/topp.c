#include "harness/base/numeric.h"
#include "kernels/c/ops.h"
#include "kernels/rows.h"

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS };
static const uint64_t enough = UINT64_C(1) << 63; /* more than any p asks for, and no sum overflows */

static uint64_t weight(const struct ha_topp *t, size_t i)
{
    uint64_t sum = 0;
    for (size_t r = 0; r < t->rows; r++)
        sum += (uint64_t)((double)t->x[r * t->stride + i] * (double)(1ull << HA_TOPP_BITS));
    return sum;
}

static bool any_nan(const struct ha_topp *t)
{
    bool any = false;
    for (size_t r = 0; r < t->rows; r++)
        for (size_t i = 0; i < t->n; i++) any |= t->x[r * t->stride + i] != t->x[r * t->stride + i];
    return any;
}

/* The weight down to which all are wanted, by its digits, the highest first: each pass adds up those that have the
 * digits found so far. *left: what those that equal it have to add. False: all of them are not enough. */
static bool find_least(const struct ha_topp *t, uint64_t *least, uint64_t *left)
{
    const double all = (double)t->rows * t->p * (double)(1ull << HA_TOPP_BITS);
    *left = (uint64_t)all + ((double)(uint64_t)all < all);
    uint64_t found = 0, mask = 0;
    for (int shift = 64 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        uint64_t sum[DIGITS] = { 0 };
        for (size_t i = 0; i < t->n; i++) {
            const uint64_t w = weight(t, i);
            uint64_t *of = &sum[w >> shift & (DIGITS - 1)];
            if ((w & mask) == found) *of = ha_least(*of + w, enough);
        }
        size_t digit = DIGITS - 1;
        while (digit > 0 && sum[digit] < *left) *left -= sum[digit--];
        if (digit == 0 && sum[0] < *left) return false;
        found |= (uint64_t)digit << shift;
        mask |= (uint64_t)(DIGITS - 1) << shift;
    }
    *least = found;
    return true;
}

void ha_c_topp(const struct ha_topp *t)
{
    uint64_t least = 0, left = UINT64_MAX;
    uint32_t keys = 0;
    const bool none = any_nan(t);
    if (!none && !find_least(t, &least, &left)) {
        least = 0;
        left = UINT64_MAX;
    }
    for (size_t i = 0; i < t->n && !none; i++) {
        const uint64_t w = weight(t, i);
        if (w < least || (w == least && !left)) continue;
        if (w == least) left = left > w ? left - w : 0;
        t->index[keys] = (uint32_t)i;
        for (size_t r = 0; r < t->rows; r++) ha_store(t->w, r * t->w_stride + keys, t->w_type, t->x[r * t->stride + i]);
        keys++;
    }
    *t->keys = keys;
}
