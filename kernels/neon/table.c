#include "kernels/neon/ops.h"

extern const struct ha_kernels ha_kernels_neon;

const struct ha_kernels ha_kernels_neon = {
    .name = "neon",
    .cpu_bit = HA_CPU_NEON,
#if defined(HA_ISA_NEON)
    HA_KERNELS_VECTORS(neon),
#else
    .absent = "not compiled for this target",
#endif
};
