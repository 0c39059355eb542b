#include "kernels/sve/ops.h"

extern const struct ha_kernels ha_kernels_sve256, ha_kernels_sve512;

#if HA_SVE_BITS == 256
#define HA_SVE_TABLE ha_kernels_sve256
#define NAME         "sve256"
#define CPU_BIT      HA_CPU_SVE256
#else
#define HA_SVE_TABLE ha_kernels_sve512
#define NAME         "sve512"
#define CPU_BIT      HA_CPU_SVE512
#endif

#if defined(HA_ISA_SVE)
/* packed keys: partial sums over 32 elements, over 32 keys, start at 0 and are added one after the other */
#define PACKED                                                                                                      \
    {                                                                                                               \
        .dot_lanes = 32, .dot_extra = 31, .sum_lanes = 32, .sum_extra = 31, .exp_eps = 0x1p-23, .log_eps = 0x1p-23, \
        .exact_joins = true                                                                                         \
    }

/* dot: 8 or 16 lanes, joined by 3 or 4 additions; 8 and 3 cover both for every length.
 * sum: tiles of 32 keys, of which one may come in two parts, added one after the other.
 * exp: v_exp and v_exp2 of simd.h, measured by the tests over every float; log, log2: the C library's. */
const struct ha_kernels HA_SVE_TABLE = {
    .name = NAME,
    .cpu_bit = CPU_BIT,
    .profile = { .dot_lanes = 8, .dot_extra = 3, .sum_lanes = 32, .sum_extra = 31,
                 .exp_eps = 0x1p-23, .log_eps = 0x1p-23, .exact_joins = true },
    .packed_profile = { [HA_F32] = PACKED, [HA_F16] = PACKED, [HA_BF16] = PACKED },
    .traits = {
        .forms = (1u << HA_FORM_COUNT) - 1, .dtypes = (1u << HA_DTYPE_COUNT) - 1,
        .aliases = 1u << HA_ALIAS_NONE | 1u << HA_ALIAS_FIRST | 1u << HA_ALIAS_LAST,
        .lse_order = HA_LSE_ANY, .o_strides = true, .plus_inf = true, .commutes = true,
        .exp_eps = 0x1p-23, .log_eps = 0x1p-23,
    },
    .attend_chunk = HA_SVE(attend_chunk),
    .attend_packed = {
        [HA_F32] = HA_SVE(attend_packed_f32), [HA_F16] = HA_SVE(attend_packed_f16),
        [HA_BF16] = HA_SVE(attend_packed_bf16)
    },
    .merge = HA_SVE(merge),
    .score = HA_SVE(score),
    .topk = HA_SVE(topk),
    .digest = HA_SVE(digest),
    .digest_score = HA_SVE(digest_score),
    .softmax = HA_SVE(softmax),
    .read = HA_SVE(read),
    .flops = HA_SVE(flops), .flops_bf16 = HA_SVE(flops),
};
#else
const struct ha_kernels HA_SVE_TABLE = { .name = NAME, .cpu_bit = CPU_BIT, .absent = "not compiled for this target" };
#endif
