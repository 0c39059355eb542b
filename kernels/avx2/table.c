#include "kernels/avx2/ops.h"

extern const struct ha_kernels ha_kernels_avx2;

/* packed keys: partial sums over 32 elements, over 32 keys, start at 0 and are added one after the other */
#define PACKED                                                                                                      \
    {                                                                                                               \
        .dot_lanes = 32, .dot_extra = 31, .sum_lanes = 32, .sum_extra = 31, .exp_eps = 0x1p-23, .log_eps = 0x1p-23, \
        .exact_joins = true                                                                                         \
    }

#if defined(HA_ISA_AVX2)
/* dot: 8 lanes, joined by 3 additions.
 * sum: tiles of 32 keys, of which one may come in two parts, added one after the other.
 * exp: v_exp and v_exp2 of simd.h, measured by the tests over every float; log, log2: the C library's. */
const struct ha_kernels ha_kernels_avx2 = {
    .name = "avx2",
    .cpu_bit = HA_CPU_AVX2,
    .profile = { .dot_lanes = 8, .dot_extra = 3, .sum_lanes = 32, .sum_extra = 31,
                 .exp_eps = 0x1p-23, .log_eps = 0x1p-23, .exact_joins = true },
    .traits = {
        .forms = (1u << HA_FORM_COUNT) - 1, .dtypes = (1u << HA_DTYPE_COUNT) - 1,
        .aliases = 1u << HA_ALIAS_NONE | 1u << HA_ALIAS_FIRST | 1u << HA_ALIAS_LAST,
        .lse_order = HA_LSE_ANY, .o_strides = true, .plus_inf = true, .commutes = true,
        .exp_eps = 0x1p-23, .log_eps = 0x1p-23,
    },
    .attend_chunk = ha_avx2_attend_chunk,
    .packed_profile = { [HA_F32] = PACKED, [HA_F16] = PACKED, [HA_BF16] = PACKED },
    .attend_packed = {
        [HA_F32] = ha_avx2_attend_packed_f32, [HA_F16] = ha_avx2_attend_packed_f16,
        [HA_BF16] = ha_avx2_attend_packed_bf16
    },
    .pack = ha_avx2_pack,
    .unpack = ha_avx2_unpack,
    .merge = ha_avx2_merge,
    .score = ha_avx2_score,
    .topk = ha_avx2_topk,
    .digest = ha_avx2_digest,
    .digest_score = ha_avx2_digest_score,
    .softmax = ha_avx2_softmax,
    .read = ha_avx2_read,
    .flops = ha_avx2_flops, .flops_bf16 = ha_avx2_flops,
};
#else
const struct ha_kernels ha_kernels_avx2 = { .name = "avx2",
                                            .cpu_bit = HA_CPU_AVX2,
                                            .absent = "not compiled for this target" };
#endif
