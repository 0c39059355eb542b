#include "kernels/sve/ops.h"

#if defined(HA_ISA_SVE)
#include "kernels/sve/simd.h"
#include "kernels/attend_packed.inc"

ATTEND_PACKED(HA_SVE(attend_packed_f32), HA_F32, SINGLE, SINGLE)
ATTEND_PACKED(HA_SVE(attend_packed_f16), HA_F16, SINGLE, SINGLE)
ATTEND_PACKED(HA_SVE(attend_packed_bf16), HA_BF16, SINGLE, SINGLE)
#endif
