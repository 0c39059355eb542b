#include "kernels/avx512/ops.h"

#if defined(HA_ISA_AVX512)
#include "kernels/avx512/simd.h"
#include "kernels/attend_packed.inc"

void ha_avx512_attend_packed_f32(const struct ha_packed_chunk *c) { attend_packed(c, HA_F32, SINGLE, SINGLE); }
#endif
