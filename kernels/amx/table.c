#include "kernels/amx/ops.h"

extern const struct ha_kernels ha_kernels_amx;

/* dot: a tile adds 16 even and 16 odd products, one after the other, and their sum to the score; three parts of a query
 * make that 3 ceil(n / 32) + 17 additions; few rows are avx512's, whose sums are shorter. Sums of weighted V: 16 and 16
 * of 32 keys alike. The subnormal numbers that avx512_bf16 treats as zero are zero here, those of K whatever the query.
 *
 * reach: passes measured on a CPU of Sapphire Rapids' class, the others on one of Emerald Rapids'. By tiles
 * HA_REACH_ONE is as HA_REACH_L2. */
const struct ha_kernels ha_kernels_amx = {
    .name = "amx",
    .cpu_bit = HA_CPU_AMX,
#if defined(HA_ISA_AMX)
    .packed_profile = { [HA_BF16] = { .dot_lanes = 8,
                                      .dot_extra = 31,
                                      HA_KERNELS_SUM_PROFILE,
                                      .weight_type = HA_BF16 } },
    .attend_packed = { [HA_BF16] = HA_AMX(attend_packed_bf16) },
    .flops_bf16 = HA_AMX(flops_bf16),
    .reach = { [HA_BF16] = { [HA_PATTERN_LINEAR] = { HA_REACH_STREAMS, 16384 },
                             [HA_PATTERN_LIST] = { HA_REACH_STREAMS, 0 },
                             [HA_PATTERN_PASSES] = { HA_REACH_L1, 3072 } } },
#else
    .absent = "not compiled for this target",
#endif
};
