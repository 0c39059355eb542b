#include "kernels/avx512_ymm/ops.h"

extern const struct ha_kernels ha_kernels_avx512_ymm;

const struct ha_kernels ha_kernels_avx512_ymm = {
    .name = "avx512_ymm",
    .cpu_bit = HA_CPU_AVX512_YMM,
#if defined(HA_ISA_AVX512_YMM)
    .packed_profile = { [HA_F16] = { HA_KERNELS_PACKED_PROFILE }, [HA_BF16] = { HA_KERNELS_PACKED_PROFILE } },
    .attend_packed = { [HA_F16] = ha_avx512_ymm_attend_packed_f16, [HA_BF16] = ha_avx512_ymm_attend_packed_bf16 },
    .reach = HA_REACH_CONSTANTS(HA_REACH_ONE),
#else
    .absent = "not compiled for this target",
#endif
};
