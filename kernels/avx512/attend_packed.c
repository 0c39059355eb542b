#include "kernels/avx512/ops.h"

#if defined(HA_ISA_AVX512)
#include "kernels/avx512/simd.h"
#include "kernels/attend_packed.inc"

ATTEND_PACKED(ha_avx512_attend_packed_f32, HA_F32, SINGLE, SINGLE)
#endif
