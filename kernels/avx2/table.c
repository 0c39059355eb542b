#include "kernels/avx2/ops.h"

extern const struct ha_kernels ha_kernels_avx2;

#if defined(HA_ISA_AVX2)
/* dot: 8 lanes, joined by 3 additions.
 * sum: tiles of 32 keys, of which one may come in two parts, added one after the other.
 * exp: v_exp and v_exp2 of simd.h, measured by the tests over every float; log, log2: the C library's. */
const struct ha_kernels ha_kernels_avx2 = {
    .name = "avx2",
    .cpu_bit = HA_CPU_AVX2,
    .profile = { .dot_lanes = 8, .dot_extra = 3, .sum_lanes = 32, .sum_extra = 31, .exp_eps = 0x1p-23, .log_eps = 0x1p-23 },
    .traits = {
        .forms = (1u << HA_FORM_COUNT) - 1, .dtypes = (1u << HA_DTYPE_COUNT) - 1,
        .aliases = 1u << HA_ALIAS_NONE | 1u << HA_ALIAS_FIRST | 1u << HA_ALIAS_LAST,
        .lse_order = HA_LSE_ANY, .o_strides = true, .plus_inf = true, .commutes = true,
        .exp_eps = 0x1p-23, .log_eps = 0x1p-23,
    },
    .attend_chunk = ha_avx2_attend_chunk,
    .merge = ha_avx2_merge,
    .score = ha_avx2_score,
};
#else
const struct ha_kernels ha_kernels_avx2 = { .name = "avx2", .cpu_bit = HA_CPU_AVX2, .absent = "not compiled for this target" };
#endif
