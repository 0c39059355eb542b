#include "kernels/avx512/ops.h"

#if defined(HA_ISA_AVX512)
#include "kernels/avx512/simd.h"
#include "kernels/digest.inc"

void ha_avx512_digest(const struct ha_digest *args) { digest(args); }
#endif
