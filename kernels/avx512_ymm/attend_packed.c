#include "kernels/avx512_ymm/ops.h"

#if defined(HA_ISA_AVX512_YMM)
#include "kernels/avx2/simd.h"
#include "kernels/attend_packed.inc"

ATTEND_PACKED(ha_avx512_ymm_attend_packed_f16, HA_F16, SINGLE, SINGLE)
ATTEND_PACKED(ha_avx512_ymm_attend_packed_bf16, HA_BF16, SINGLE, SINGLE)
#endif
