#include "kernels/sve/ops.h"

extern const struct ha_kernels ha_kernels_sve256, ha_kernels_sve512;

#if HA_SVE_BITS == 256
const struct ha_kernels ha_kernels_sve256 = {
    .name = "sve256",
    .cpu_bit = HA_CPU_SVE256,
#if defined(HA_ISA_SVE)
    HA_KERNELS_VECTORS(sve256),
#else
    .absent = "not compiled for this target",
#endif
};
#else
const struct ha_kernels ha_kernels_sve512 = {
    .name = "sve512",
    .cpu_bit = HA_CPU_SVE512,
#if defined(HA_ISA_SVE)
    HA_KERNELS_VECTORS(sve512),
#else
    .absent = "not compiled for this target",
#endif
};
#endif
