#include "kernels/amx/ops.h"

extern const struct ha_kernels ha_kernels_amx;

#if defined(HA_ISA_AMX)
/* dot: a tile adds 16 even and 16 odd products, one after the other, and their sum to the score; three parts of a query
 * make that 3 ceil(n / 32) + 17 additions; few rows are avx512_bf16's. Sums of weighted V: 16 and 16 of 32 keys alike.
 */
const struct ha_kernels ha_kernels_amx = {
    .name = "amx",
    .cpu_bit = HA_CPU_AMX,
    .packed_profile = { [HA_BF16] = {
        .dot_lanes = 8, .dot_extra = 31, .sum_lanes = 32, .sum_extra = 31, .exp_eps = 0x1p-23, .log_eps = 0x1p-23,
        .weight_u = 0x1p-8, .weight_eta = 0x1p-126, .exact_joins = true,
    } },
    .attend_packed = { [HA_BF16] = ha_amx_attend_packed },
};
#else
const struct ha_kernels ha_kernels_amx = { .name = "amx",
                                           .cpu_bit = HA_CPU_AMX,
                                           .absent = "not compiled for this target" };
#endif
