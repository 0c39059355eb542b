#include "kernels/avx512_bf16/ops.h"

#if defined(HA_ISA_AVX512_BF16)
#include "harness/base/numeric.h"
#include "kernels/avx512/simd.h"

/* a + x y over pairs of bfloat16 */
#define V_DOT
static inline vec v_dot(vec x, vec y, vec a) { return _mm512_dpbf16_ps(a, (__m512bh)x, (__m512bh)y); }
static inline void v_dot_store(char *to, vec first, vec second)
{
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(second, first));
}

#include "kernels/attend_packed.inc"

static void by_pairs(const struct ha_packed_chunk *c), v_by_pairs(const struct ha_packed_chunk *c);
ATTEND_PACKED(by_pairs, HA_BF16, DOT, DOT)
ATTEND_PACKED(v_by_pairs, HA_BF16, SINGLE, DOT)

static bool exact(const struct ha_packed_chunk *c)
{
    uint32_t any = 0;
    for (size_t r = 0; r < c->q_rows; r++)
        for (size_t d = 0; d < c->head_dim; d++) {
            uint32_t u;
            memcpy(&u, c->q + r * c->q_stride + d, sizeof u);
            any |= u;
        }
    return (any & 0xffff) == 0;
}

void ha_avx512_bf16_attend_packed_bf16(const struct ha_packed_chunk *c)
{
    if (exact(c)) by_pairs(c);
    else v_by_pairs(c);
}
#endif
