#ifndef HA_KERNELS_STATES_H
#define HA_KERNELS_STATES_H

/* What the arguments of a merge (harness/api/merge.h) hold for row (t, h). */

#include "harness/api/merge.h"

#include <math.h>

/* element d of a state's row of o, and of the result's */
static inline void *ha_merge_o(const struct ha_merge *m, const struct ha_merge_state *s, size_t t, size_t h, size_t d)
{
    return (char *)s->o + (t * s->o_token_stride + h * s->o_head_stride + d) * ha_dtype_bytes(m->dtype);
}
static inline void *ha_merge_out(const struct ha_merge *m, size_t t, size_t h, size_t d)
{
    return (char *)m->out.o + (t * m->out.o_token_stride + h * m->out.o_head_stride + d) * ha_merge_o_bytes(m, true);
}

/* of the row's lse, and of its sum */
static inline size_t ha_merge_at(const struct ha_merge_state *s, size_t t, size_t h)
{
    return t * s->lse_token_stride + h * s->lse_head_stride;
}

/* the LSE, or the maximum: -inf of every state without keys, never +inf */
static inline float ha_merge_level(const struct ha_merge *m, const struct ha_merge_state *s, size_t t, size_t h)
{
    const float l = s->lse[ha_merge_at(s, t, h)];
    return l != INFINITY ? l : m->plus_inf_is_empty ? -INFINITY : NAN;
}

/* the largest level. NaN wins; 0 wins over -0, so that the order of states does not matter */
static inline float ha_merge_max(const struct ha_merge *m, size_t t, size_t h)
{
    float max = -INFINITY;
    for (size_t i = 0; i < m->states_count; i++) {
        const float l = ha_merge_level(m, &m->states[i], t, h);
        max = l > max || isnan(l) ? l : max;
    }
    if (max == 0 && signbit(max))
        for (size_t i = 0; i < m->states_count; i++)
            if (ha_merge_level(m, &m->states[i], t, h) == 0) max += ha_merge_level(m, &m->states[i], t, h);
    return max;
}

#endif
