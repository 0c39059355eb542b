#include "kernels/isa.h"

#if defined(HA_VECTORS)
/* 256-bit vectors, of which AVX-512 has 32: the 512-bit conversion takes slots of the multipliers, and arithmetic is
 * the limit here. */
#include "kernels/avx2/simd.h"
#include "kernels/attend_packed.inc"

ATTEND_PACKED(ha_avx512_attend_packed_f16, HA_F16, SINGLE, SINGLE)
ATTEND_PACKED(ha_avx512_attend_packed_bf16, HA_BF16, SINGLE, SINGLE)
#endif
