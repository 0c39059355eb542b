#include "kernels/avx512_bf16/ops.h"

#if defined(HA_ISA_AVX512_BF16)
#include <immintrin.h>

/* More chains than two ports times a latency of six. */
double ha_avx512_bf16_flops_bf16(size_t rounds)
{
    enum { CHAINS = 16, LANES = 16, PAIR = 2 };
    volatile float half = 0.5f, keep;
    const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(half), _mm512_set1_ps(half));
    __m512 x[CHAINS];

    for (int j = 0; j < CHAINS; j++) x[j] = _mm512_set1_ps((float)j); /* else they were one chain */
    for (size_t i = 0; i < rounds; i++)
        for (int j = 0; j < CHAINS; j++) x[j] = _mm512_dpbf16_ps(x[j], a, a);
    for (int j = 1; j < CHAINS; j++) x[0] = _mm512_add_ps(x[0], x[j]);
    keep = _mm512_cvtss_f32(x[0]);
    (void)keep;
    return 2.0 * PAIR * CHAINS * LANES * (double)rounds;
}
#endif
