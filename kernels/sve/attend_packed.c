#include "kernels/sve/ops.h"

#if defined(HA_ISA_SVE)
#include "kernels/sve/simd.h"
#include "kernels/attend_packed.inc"

void HA_SVE(attend_packed_f32)(const struct ha_packed_chunk *c) { attend_packed(c, HA_F32, SINGLE, SINGLE); }
void HA_SVE(attend_packed_f16)(const struct ha_packed_chunk *c) { attend_packed(c, HA_F16, SINGLE, SINGLE); }
void HA_SVE(attend_packed_bf16)(const struct ha_packed_chunk *c) { attend_packed(c, HA_BF16, SINGLE, SINGLE); }
#endif
