#ifndef HA_KERNELS_TABLE_H
#define HA_KERNELS_TABLE_H

/* What the declarations and tables of the instruction sets are made of. The kernel NAME of instruction set ISA is
 * ha_ISA_NAME, and with the type behind it where there is one for each type. */

#include "harness/api/kernels.h"

#define HA_KERNEL_DECLARE(isa, result, name, arguments, companion) result ha_##isa##_##name arguments;
#define HA_KERNEL_DECLARE_TYPED(isa, result, name, arguments, companion) \
    result ha_##isa##_##name##_f32 arguments;                            \
    result ha_##isa##_##name##_f16 arguments;                            \
    result ha_##isa##_##name##_bf16 arguments;
/* All kernels, whether this instruction set has them or not. */
#define HA_KERNELS_DECLARE(isa) HA_KERNELS_OF_ALL(HA_KERNEL_DECLARE, HA_KERNEL_DECLARE_TYPED, isa)

#define HA_KERNEL_ENTRY(isa, result, name, arguments, companion) .name = ha_##isa##_##name,
#define HA_KERNEL_ENTRY_TYPED(isa, result, name, arguments, companion)                                               \
    .name = {                                                                                                        \
        [HA_F32] = ha_##isa##_##name##_f32, [HA_F16] = ha_##isa##_##name##_f16, [HA_BF16] = ha_##isa##_##name##_bf16 \
    },

/* What the portable kernels and those of vectors declare alike.
 * dot: 8 lanes, joined by 3 additions; 16 lanes and 4 are covered by that for every length.
 * sum: tiles of 32 keys, of which one may come in two parts, added one after the other.
 * exp: kernels/exp.inc, in portable C the C library's; log, log2: the C library's. The tests measure them. */
#define HA_KERNELS_SUM_PROFILE \
    .sum_lanes = 32, .sum_extra = 31, .exp_eps = 0x1p-23, .log_eps = 0x1p-23, .exact_joins = true
/* packed keys: partial sums over 32 elements, over 32 keys, start at 0 and are added one after the other */
#define HA_KERNELS_PACKED_PROFILE .dot_lanes = 32, .dot_extra = 31, HA_KERNELS_SUM_PROFILE
/* What attend_packed asks for ahead where no plan says it, as measured on Zen 4. What is read in order is fetched by
 * the hardware there, and one line of two, a few lines ahead, only keeps it going; where a second pass over a row
 * follows (a vector of 8 and 16 registers) it needs none. Several passes are a pause in which the hardware gives up:
 * then it is far ahead that counts. */
/* clang-format off */
#define HA_REACH_CONSTANTS(linear) { HA_REACH_OF(linear), HA_REACH_OF(linear), HA_REACH_OF(linear) }
#define HA_REACH_OF(linear) \
    { [HA_PATTERN_LINEAR] = { linear, 512 }, \
      [HA_PATTERN_LIST] = { HA_REACH_L2, 0 }, \
      [HA_PATTERN_PASSES] = { HA_REACH_L2, 9216 } }
/* clang-format on */

#define HA_KERNELS_DECLARED                                                          \
    .profile = { .dot_lanes = 8, .dot_extra = 3, HA_KERNELS_SUM_PROFILE },           \
    .packed_profile = { [HA_F32] = { HA_KERNELS_PACKED_PROFILE },                    \
                        [HA_F16] = { HA_KERNELS_PACKED_PROFILE },                    \
                        [HA_BF16] = { HA_KERNELS_PACKED_PROFILE } },                 \
    .traits = {                                                                      \
        .forms = (1u << HA_FORM_COUNT) - 1,                                          \
        .dtypes = (1u << HA_DTYPE_COUNT) - 1,                                        \
        .fp8 = (1u << HA_FP8_COUNT) - 1,                                             \
        .aliases = 1u << HA_ALIAS_NONE | 1u << HA_ALIAS_FIRST | 1u << HA_ALIAS_LAST, \
        .lse_order = HA_LSE_ANY,                                                     \
        .o_strides = true,                                                           \
        .plus_inf = true,                                                            \
        .commutes = true,                                                            \
        .exp_eps = 0x1p-23,                                                          \
        .log_eps = 0x1p-23,                                                          \
    }

#endif
