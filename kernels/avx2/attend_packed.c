#include "kernels/avx2/ops.h"

#if defined(HA_ISA_AVX2)
#include "kernels/avx2/simd.h"
#include "kernels/attend_packed.inc"

void ha_avx2_attend_packed_f32(const struct ha_packed_chunk *c) { attend_packed(c, HA_F32, SINGLE, SINGLE); }
void ha_avx2_attend_packed_f16(const struct ha_packed_chunk *c) { attend_packed(c, HA_F16, SINGLE, SINGLE); }
void ha_avx2_attend_packed_bf16(const struct ha_packed_chunk *c) { attend_packed(c, HA_BF16, SINGLE, SINGLE); }
#endif
