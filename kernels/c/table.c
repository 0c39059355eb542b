#include "kernels/c/ops.h"

extern const struct ha_kernels ha_kernels_c;

/* dot: 8 lanes in blocks of 256, joined by 3 additions. sum: tiles of 32 keys, whose sums are
 * added one after the other. exp, log: expf and logf of the C library; the tests measure both. */
const struct ha_kernels ha_kernels_c = {
    .name = "c",
    .cpu_bit = HA_CPU_C,
    .profile = { .dot_lanes = 8, .dot_extra = 3, .sum_lanes = 32, .sum_extra = 31, .exp_eps = 0x1p-23, .log_eps = 0x1p-23 },
    .attend_chunk = ha_c_attend_chunk,
    .merge = ha_c_merge,
    .score = ha_c_score,
    .attend = ha_c_attend,
    .attend_scratch_bytes = ha_c_attend_scratch_bytes,
};
