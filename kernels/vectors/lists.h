#ifndef HA_KERNELS_VECTORS_LISTS_H
#define HA_KERNELS_VECTORS_LISTS_H

/* Rising lists of the numbers that reach a threshold, for kernels in terms of vectors. A NaN reaches none. */

#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)
#include <math.h>

static inline vec v_load_at(const float *x, size_t i, size_t end)
{
    return end - i >= LANES ? v_load(x + i) : v_load_part(x + i, end - i, NAN);
}

static inline size_t v_ones(unsigned bits) { return (size_t)__builtin_popcount(bits); }

/* position behind the `left`-th number, from 1, that reaches `t` and not `above` */
static inline size_t v_behind_tie(const float *x, size_t n, float t, float above, size_t left)
{
    const vec lo = v_set(t), hi = v_set(above);
    size_t i = 0;
    unsigned bits = 0;
    for (; i < n; i += LANES) {
        const vec v = v_load_at(x, i, n);
        bits = v_ge(v, lo) & ~v_ge(v, hi);
        if (v_ones(bits) >= left) break;
        left -= v_ones(bits);
    }
    while (--left > 0) bits &= bits - 1;
    return i + (size_t)__builtin_ctz(bits) + 1;
}

/* the indices of [i, end) that reach t, at most `room`; returns how many */
static inline size_t v_list(const float *x, size_t i, size_t end, float t, uint32_t *out, size_t room)
{
    const vec from = v_set(t);
    size_t at = 0;
    for (; i < end && at + LANES <= room; i += LANES) {
        const unsigned bits = v_ge(v_load_at(x, i, end), from);
        v_put_indices(out + at, (uint32_t)i, bits);
        at += v_ones(bits);
    }
    for (; i < end && at < room; i += LANES)
        for (unsigned bits = v_ge(v_load_at(x, i, end), from); bits; bits &= bits - 1)
            out[at++] = (uint32_t)i + (uint32_t)__builtin_ctz(bits);
    return at;
}
#endif
#endif
