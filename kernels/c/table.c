#include "kernels/c/ops.h"

extern const struct ha_kernels ha_kernels_c;

/* packed keys: partial sums over 32 elements, over 32 keys, start at 0 and are added one after the other */
#define PACKED                                                                                                      \
    {                                                                                                               \
        .dot_lanes = 32, .dot_extra = 31, .sum_lanes = 32, .sum_extra = 31, .exp_eps = 0x1p-23, .log_eps = 0x1p-23, \
        .exact_joins = true                                                                                         \
    }

/* dot: 8 lanes in blocks of 256, joined by 3 additions. sum: tiles of 32 keys, whose sums are
 * added one after the other. exp, exp2, log, log2: the C library's; the tests measure them. */
const struct ha_kernels ha_kernels_c = {
    .name = "c",
    .cpu_bit = HA_CPU_C,
    .profile = { .dot_lanes = 8, .dot_extra = 3, .sum_lanes = 32, .sum_extra = 31,
                 .exp_eps = 0x1p-23, .log_eps = 0x1p-23, .exact_joins = true },
    .traits = {
        .forms = (1u << HA_FORM_COUNT) - 1, .dtypes = (1u << HA_DTYPE_COUNT) - 1,
        .aliases = 1u << HA_ALIAS_NONE | 1u << HA_ALIAS_FIRST | 1u << HA_ALIAS_LAST,
        .lse_order = HA_LSE_ANY, .o_strides = true, .plus_inf = true, .commutes = true,
        .exp_eps = 0x1p-23, .log_eps = 0x1p-23,
    },
    .attend_chunk = ha_c_attend_chunk,
    .packed_profile = { [HA_F32] = PACKED, [HA_F16] = PACKED, [HA_BF16] = PACKED },
    .attend_packed = {
        [HA_F32] = ha_c_attend_packed_f32, [HA_F16] = ha_c_attend_packed_f16, [HA_BF16] = ha_c_attend_packed_bf16
    },
    .pack = ha_c_pack,
    .unpack = ha_c_unpack,
    .merge = ha_c_merge,
    .score = ha_c_score,
    .read = ha_c_read,
    .flops = ha_c_flops, .flops_bf16 = ha_c_flops,
    .topk = ha_c_topk,
    .digest = ha_c_digest,
    .digest_score = ha_c_digest_score,
    .softmax = ha_c_softmax,
    .attend = ha_c_attend,
    .attend_part = ha_c_attend_part,
    .attend_join = ha_c_attend_join,
    .attend_scratch_bytes = ha_c_attend_scratch_bytes,
    .attend_state_bytes = ha_c_attend_state_bytes,
    .attend_splits = ha_c_attend_splits,
    .attend_all = ha_c_attend_all,
    .attend_all_bytes = ha_c_attend_all_bytes,
};
