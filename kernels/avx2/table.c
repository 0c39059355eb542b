#include "kernels/avx2/ops.h"

extern const struct ha_kernels ha_kernels_avx2;

const struct ha_kernels ha_kernels_avx2 = {
    .name = "avx2",
    .cpu_bit = HA_CPU_AVX2,
#if defined(HA_ISA_AVX2)
    HA_KERNELS_VECTORS(avx2),
    .pack = ha_avx2_pack,
    .unpack = ha_avx2_unpack,
#else
    .absent = "not compiled for this target",
#endif
};
