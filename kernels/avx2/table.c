#include "kernels/avx2/ops.h"

extern const struct ha_kernels ha_kernels_avx2;

#if defined(HA_ISA_AVX2)
/* dot: 8 lanes, joined by 3 additions.
 * sum: tiles of 32 keys, of which one may come in two parts, added one after the other.
 * exp: v_exp of simd.h, measured by the tests over every float; log: the C library's. */
const struct ha_kernels ha_kernels_avx2 = {
    .name = "avx2",
    .cpu_bit = HA_CPU_AVX2,
    .profile = { .dot_lanes = 8, .dot_extra = 3, .sum_lanes = 32, .sum_extra = 31, .exp_eps = 0x1p-23, .log_eps = 0x1p-23 },
    .attend_chunk = ha_avx2_attend_chunk,
    .merge = ha_avx2_merge,
    .score = ha_avx2_score,
};
#else
const struct ha_kernels ha_kernels_avx2 = { .name = "avx2", .cpu_bit = HA_CPU_AVX2, .absent = "not compiled for this target" };
#endif
