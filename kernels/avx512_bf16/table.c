#include "kernels/avx512_bf16/ops.h"

extern const struct ha_kernels ha_kernels_avx512_bf16;

/* packed keys: partial sums as in avx512. Weights are rounded to bfloat16 before they meet V. Products that VDPBF16PS
 * takes are exact but for subnormal bfloat16 numbers, below 2^-126, which it treats as zero: of V and of weights, and
 * of K where the query is bfloat16 too. */
const struct ha_kernels ha_kernels_avx512_bf16 = {
    .name = "avx512_bf16",
    .cpu_bit = HA_CPU_AVX512_BF16,
#if defined(HA_ISA_AVX512_BF16)
    .packed_profile = { [HA_BF16] = { HA_KERNELS_PACKED_PROFILE, .weight_type = HA_BF16 } },
    .attend_packed = { [HA_BF16] = ha_avx512_bf16_attend_packed_bf16 },
    .reach = HA_REACH_CONSTANTS(HA_REACH_ONE),
    .flops_bf16 = ha_avx512_bf16_flops_bf16,
#else
    .absent = "not compiled for this target",
#endif
};
