#include "kernels/neon/ops.h"

#if defined(HA_ISA_NEON)
#include "kernels/neon/simd.h"
#include "kernels/attend_packed.inc"

ATTEND_PACKED(ha_neon_attend_packed_f32, HA_F32, SINGLE, SINGLE)
ATTEND_PACKED(ha_neon_attend_packed_f16, HA_F16, SINGLE, SINGLE)
ATTEND_PACKED(ha_neon_attend_packed_bf16, HA_BF16, SINGLE, SINGLE)
#endif
