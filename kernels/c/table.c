#include "kernels/c/ops.h"

extern const struct ha_kernels ha_kernels_c;

/* dot: 8 lanes in blocks of 256, joined by 3 additions. sum: tiles of 32 keys, whose sums are
 * added one after the other. exp, exp2, log, log2: the C library's; the tests measure them. */
const struct ha_kernels ha_kernels_c = {
    .name = "c",
    .cpu_bit = HA_CPU_C,
    .profile = { .dot_lanes = 8, .dot_extra = 3, .sum_lanes = 32, .sum_extra = 31, .exp_eps = 0x1p-23, .log_eps = 0x1p-23 },
    .traits = {
        .forms = (1u << HA_FORM_COUNT) - 1, .dtypes = (1u << HA_DTYPE_COUNT) - 1,
        .aliases = 1u << HA_ALIAS_NONE | 1u << HA_ALIAS_FIRST | 1u << HA_ALIAS_LAST,
        .lse_order = HA_LSE_ANY, .o_strides = true, .plus_inf = true, .commutes = true,
        .exp_eps = 0x1p-23, .log_eps = 0x1p-23,
    },
    .attend_chunk = ha_c_attend_chunk,
    .merge = ha_c_merge,
    .score = ha_c_score,
    .attend = ha_c_attend,
    .attend_scratch_bytes = ha_c_attend_scratch_bytes,
};
