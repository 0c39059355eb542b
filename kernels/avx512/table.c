#include "kernels/avx512/ops.h"

extern const struct ha_kernels ha_kernels_avx512;

/* packed keys: partial sums over 32 elements, over 32 keys, start at 0 and are added one after the other */
#define PACKED                                                                                                      \
    {                                                                                                               \
        .dot_lanes = 32, .dot_extra = 31, .sum_lanes = 32, .sum_extra = 31, .exp_eps = 0x1p-23, .log_eps = 0x1p-23, \
        .exact_joins = true                                                                                         \
    }

#if defined(HA_ISA_AVX512)
/* dot: 16 lanes, joined by 4 additions; 8 and 3 cover that for every length.
 * sum: tiles of 32 keys, of which one may come in two parts, added one after the other.
 * exp: v_exp and v_exp2 of simd.h, measured by the tests over every float; log, log2: the C library's. */
const struct ha_kernels ha_kernels_avx512 = {
    .name = "avx512",
    .cpu_bit = HA_CPU_AVX512,
    .profile = { .dot_lanes = 8, .dot_extra = 3, .sum_lanes = 32, .sum_extra = 31,
                 .exp_eps = 0x1p-23, .log_eps = 0x1p-23, .exact_joins = true },
    .traits = {
        .forms = (1u << HA_FORM_COUNT) - 1, .dtypes = (1u << HA_DTYPE_COUNT) - 1,
        .aliases = 1u << HA_ALIAS_NONE | 1u << HA_ALIAS_FIRST | 1u << HA_ALIAS_LAST,
        .lse_order = HA_LSE_ANY, .o_strides = true, .plus_inf = true, .commutes = true,
        .exp_eps = 0x1p-23, .log_eps = 0x1p-23,
    },
    .attend_chunk = ha_avx512_attend_chunk,
    .packed_profile = { [HA_F32] = PACKED, [HA_F16] = PACKED, [HA_BF16] = PACKED },
    .attend_packed = {
        [HA_F32] = ha_avx512_attend_packed_f32, [HA_F16] = ha_avx512_attend_packed_f16,
        [HA_BF16] = ha_avx512_attend_packed_bf16
    },
    .merge = ha_avx512_merge,
    .score = ha_avx512_score,
    .topk = ha_avx512_topk,
    .digest = ha_avx512_digest,
    .digest_score = ha_avx512_digest_score,
    .softmax = ha_avx512_softmax,
    .read = ha_avx512_read,
    .flops = ha_avx512_flops, .flops_bf16 = ha_avx512_flops,
};
#else
const struct ha_kernels ha_kernels_avx512 = { .name = "avx512",
                                              .cpu_bit = HA_CPU_AVX512,
                                              .absent = "not compiled for this target" };
#endif
