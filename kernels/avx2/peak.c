#include "kernels/avx2/ops.h"

#if defined(HA_ISA_AVX2)
#include <immintrin.h>

/* The last prefetches run past the end. */
uint64_t ha_avx2_read(const void *p, size_t bytes)
{
    enum { AHEAD_BYTES = 4096, LINE = 64 };
    const char *at = p;
    __m256i sum[2] = { _mm256_setzero_si256(), _mm256_setzero_si256() };
    uint64_t word[4];

    for (size_t i = 0; i < bytes; i += LINE) {
        _mm_prefetch(at + i + AHEAD_BYTES, _MM_HINT_T1);
        sum[0] = _mm256_add_epi64(sum[0], _mm256_loadu_si256((const __m256i *)(const void *)(at + i)));
        sum[1] = _mm256_add_epi64(sum[1], _mm256_loadu_si256((const __m256i *)(const void *)(at + i + 32)));
    }
    _mm256_storeu_si256((__m256i *)(void *)word, _mm256_add_epi64(sum[0], sum[1]));
    return word[0] + word[1] + word[2] + word[3];
}

/* More chains than two ports times a latency of five; with the factor and the addend they take 14 of 16 registers. */
double ha_avx2_flops(size_t rounds)
{
    enum { CHAINS = 12, LANES = 8 };
    volatile float half = 0.5f, keep;
    const __m256 a = _mm256_set1_ps(half), b = _mm256_add_ps(a, a);
    __m256 x[CHAINS];

    for (int j = 0; j < CHAINS; j++) x[j] = _mm256_setzero_ps();
    for (size_t i = 0; i < rounds; i++)
        for (int j = 0; j < CHAINS; j++) x[j] = _mm256_fmadd_ps(x[j], a, b);
    for (int j = 1; j < CHAINS; j++) x[0] = _mm256_add_ps(x[0], x[j]);
    keep = _mm256_cvtss_f32(x[0]);
    (void)keep;
    return 2.0 * CHAINS * LANES * (double)rounds;
}
#endif
