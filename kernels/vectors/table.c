#include "kernels/isa.h"

extern const struct ha_kernels ha_kernels_avx2, ha_kernels_avx512, ha_kernels_neon, ha_kernels_sve256,
    ha_kernels_sve512;

#define TEXT(name)  TEXT_(name)
#define TEXT_(name) #name

const struct ha_kernels HA_ISA_NAME(ha_kernels_, HA_ISA, ) = {
    .name = TEXT(HA_ISA),
    .cpu_bit = HA_ISA_BIT,
#if defined(HA_VECTORS)
    HA_KERNELS_OF_VECTORS(HA_KERNEL_ENTRY, HA_KERNEL_ENTRY_TYPED, HA_ISA) HA_KERNELS_DECLARED,
    .flops_bf16 = HA_KERNEL(flops),
#if defined(HA_FOR_AVX2)
    .reach = HA_REACH_CONSTANTS(HA_REACH_NONE),
#else
    .reach = HA_REACH_CONSTANTS(HA_REACH_ONE),
#endif
#if defined(HA_FOR_AVX2)
    .pack = ha_avx2_pack,
    .unpack = ha_avx2_unpack,
#endif
#else
    .absent = "not compiled for this target",
#endif
};
