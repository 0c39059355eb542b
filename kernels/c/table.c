#include "kernels/c/ops.h"

extern const struct ha_kernels ha_kernels_c;

const struct ha_kernels ha_kernels_c = {
    .name = "c",
    .cpu_bit = HA_CPU_C,
    HA_KERNELS_OF_ALL(HA_KERNEL_ENTRY, HA_KERNEL_ENTRY_TYPED, c) HA_KERNELS_DECLARED,
};
