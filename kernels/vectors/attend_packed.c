/* attend_packed of each type. */

#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)
#include "kernels/attend_packed.inc"

ATTEND_PACKED(HA_KERNEL(attend_packed_f32), HA_F32, SINGLE, SINGLE)
ATTEND_PACKED(HA_KERNEL(attend_packed_f16), HA_F16, SINGLE, SINGLE)
ATTEND_PACKED(HA_KERNEL(attend_packed_bf16), HA_BF16, SINGLE, SINGLE)
#endif
