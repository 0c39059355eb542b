#include "kernels/avx512/ops.h"

extern const struct ha_kernels ha_kernels_avx512;

#if defined(HA_ISA_AVX512)
/* dot: 16 lanes, joined by 4 additions; 8 and 3 cover that for every length.
 * sum: tiles of 32 keys, of which one may come in two parts, added one after the other.
 * exp: v_exp and v_exp2 of simd.h, measured by the tests over every float; log, log2: the C library's. */
const struct ha_kernels ha_kernels_avx512 = {
    .name = "avx512",
    .cpu_bit = HA_CPU_AVX512,
    .profile = { .dot_lanes = 8, .dot_extra = 3, .sum_lanes = 32, .sum_extra = 31, .exp_eps = 0x1p-23, .log_eps = 0x1p-23 },
    .traits = {
        .forms = (1u << HA_FORM_COUNT) - 1, .dtypes = (1u << HA_DTYPE_COUNT) - 1,
        .aliases = 1u << HA_ALIAS_NONE | 1u << HA_ALIAS_FIRST | 1u << HA_ALIAS_LAST,
        .lse_order = HA_LSE_ANY, .o_strides = true, .plus_inf = true, .commutes = true,
        .exp_eps = 0x1p-23, .log_eps = 0x1p-23,
    },
    .attend_chunk = ha_avx512_attend_chunk,
    .merge = ha_avx512_merge,
    .score = ha_avx512_score,
};
#else
const struct ha_kernels ha_kernels_avx512 = { .name = "avx512", .cpu_bit = HA_CPU_AVX512, .absent = "not compiled for this target" };
#endif
