#include "kernels/sve/ops.h"

#if defined(HA_ISA_SVE)
#include "kernels/sve/simd.h"

typedef svuint64_t words __attribute__((arm_sve_vector_bits(HA_SVE_BITS)));

/* The last prefetches run past the end. */
uint64_t HA_SVE(read)(const void *p, size_t bytes)
{
    enum { AHEAD_BYTES = 4096, LINE = 64, STEP = HA_SVE_BITS / 64 };
    const uint64_t *at = p;
    words sum = svdup_n_u64(0);

    for (size_t i = 0; i < bytes / sizeof *at; i += LINE / sizeof *at) {
        __builtin_prefetch((const char *)(at + i) + AHEAD_BYTES, 0, 2);
        for (size_t j = 0; j < LINE / sizeof *at; j += STEP)
            sum = svadd_u64_x(svptrue_b64(), sum, svld1_u64(svptrue_b64(), at + i + j));
    }
    return svaddv_u64(svptrue_b64(), sum);
}

/* More chains than four pipes times a latency of four. */
double HA_SVE(flops)(size_t rounds)
{
    enum { CHAINS = 20 };
    volatile float half = 0.5f, keep;
    const vec a = v_set(half), b = v_add(a, a);
    vec x[CHAINS];

    for (size_t j = 0; j < CHAINS; j++) x[j] = v_set((float)j);
    for (size_t i = 0; i < rounds; i++)
        for (size_t j = 0; j < CHAINS; j++) x[j] = v_fma(x[j], a, b);
    for (size_t j = 1; j < CHAINS; j++) x[0] = v_add(x[0], x[j]);
    keep = v_sum_lanes(x[0]);
    (void)keep;
    return 2.0 * CHAINS * LANES * (double)rounds;
}
#endif
