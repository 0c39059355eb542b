#include "kernels/neon/ops.h"

#if defined(HA_ISA_NEON)
#include "kernels/neon/simd.h"
#include "kernels/attend_packed.inc"

void ha_neon_attend_packed_f32(const struct ha_packed_chunk *c) { attend_packed(c, HA_F32, SINGLE, SINGLE); }
void ha_neon_attend_packed_f16(const struct ha_packed_chunk *c) { attend_packed(c, HA_F16, SINGLE, SINGLE); }
void ha_neon_attend_packed_bf16(const struct ha_packed_chunk *c) { attend_packed(c, HA_BF16, SINGLE, SINGLE); }
#endif
