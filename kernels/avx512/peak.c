#include "kernels/avx512/ops.h"

#if defined(HA_ISA_AVX512)
#include <immintrin.h>

/* The last prefetches run past the end. */
uint64_t ha_avx512_read(const void *p, size_t bytes)
{
    enum { AHEAD_BYTES = 4096, LINE = 64 };
    const char *at = p;
    __m512i sum = _mm512_setzero_si512();
    uint64_t word[8];

    for (size_t i = 0; i < bytes; i += LINE) {
        _mm_prefetch(at + i + AHEAD_BYTES, _MM_HINT_T1);
        sum = _mm512_add_epi64(sum, _mm512_loadu_si512(at + i));
    }
    _mm512_storeu_si512(word, sum);
    return word[0] + word[1] + word[2] + word[3] + word[4] + word[5] + word[6] + word[7];
}

/* More chains than two ports times a latency of five. */
double ha_avx512_flops(size_t rounds)
{
    enum { CHAINS = 16, LANES = 16 };
    volatile float half = 0.5f, keep;
    const __m512 a = _mm512_set1_ps(half), b = _mm512_add_ps(a, a);
    __m512 x[CHAINS];

    for (int j = 0; j < CHAINS; j++) x[j] = _mm512_setzero_ps();
    for (size_t i = 0; i < rounds; i++)
        for (int j = 0; j < CHAINS; j++) x[j] = _mm512_fmadd_ps(x[j], a, b);
    for (int j = 1; j < CHAINS; j++) x[0] = _mm512_add_ps(x[0], x[j]);
    keep = _mm512_cvtss_f32(x[0]);
    (void)keep;
    return 2.0 * CHAINS * LANES * (double)rounds;
}
#endif
