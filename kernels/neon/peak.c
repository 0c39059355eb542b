#include "kernels/neon/ops.h"

#if defined(HA_ISA_NEON)
#include <arm_neon.h>

/* The last prefetches run past the end. */
uint64_t ha_neon_read(const void *p, size_t bytes)
{
    enum { AHEAD_BYTES = 4096, LINE = 64, PARTS = 4 };
    const uint8_t *at = p;
    uint64x2_t sum[PARTS];

    for (size_t j = 0; j < PARTS; j++) sum[j] = vdupq_n_u64(0);
    for (size_t i = 0; i < bytes; i += LINE) {
        __builtin_prefetch(at + i + AHEAD_BYTES, 0, 2);
        for (size_t j = 0; j < PARTS; j++)
            sum[j] = vaddq_u64(sum[j], vreinterpretq_u64_u8(vld1q_u8(at + i + j * LINE / PARTS)));
    }
    return vaddvq_u64(vaddq_u64(vaddq_u64(sum[0], sum[1]), vaddq_u64(sum[2], sum[3])));
}

/* More chains than four pipes times a latency of four. */
double ha_neon_flops(size_t rounds)
{
    enum { CHAINS = 20, LANES = 4 };
    volatile float half = 0.5f, keep;
    const float32x4_t a = vdupq_n_f32(half), b = vaddq_f32(a, a);
    float32x4_t x[CHAINS];

    for (size_t j = 0; j < CHAINS; j++) x[j] = vdupq_n_f32((float)j);
    for (size_t i = 0; i < rounds; i++)
        for (size_t j = 0; j < CHAINS; j++) x[j] = vfmaq_f32(b, x[j], a);
    for (size_t j = 1; j < CHAINS; j++) x[0] = vaddq_f32(x[0], x[j]);
    keep = vaddvq_f32(x[0]);
    (void)keep;
    return 2.0 * CHAINS * LANES * (double)rounds;
}
#endif
