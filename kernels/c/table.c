#include "kernels/c/ops.h"

extern const struct ha_kernels ha_kernels_c;

const struct ha_kernels ha_kernels_c = {
    .name = "c",
    .cpu_bit = HA_CPU_C,
    HA_KERNELS_ALL(c),
};
