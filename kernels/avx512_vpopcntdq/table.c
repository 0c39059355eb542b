#include "kernels/avx512_vpopcntdq/ops.h"

extern const struct ha_kernels ha_kernels_avx512_vpopcntdq;

const struct ha_kernels ha_kernels_avx512_vpopcntdq = {
    .name = "avx512_vpopcntdq",
    .cpu_bit = HA_CPU_AVX512_VPOPCNTDQ,
#if defined(HA_ISA_AVX512_VPOPCNTDQ)
    .hamming = ha_avx512_vpopcntdq_hamming,
#else
    .absent = "not compiled for this target",
#endif
};
