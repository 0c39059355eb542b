#include "kernels/avx512/ops.h"

extern const struct ha_kernels ha_kernels_avx512;

const struct ha_kernels ha_kernels_avx512 = {
    .name = "avx512",
    .cpu_bit = HA_CPU_AVX512,
#if defined(HA_ISA_AVX512)
    HA_KERNELS_VECTORS(avx512),
#else
    .absent = "not compiled for this target",
#endif
};
