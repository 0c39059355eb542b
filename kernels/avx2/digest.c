#include "kernels/avx2/ops.h"

#if defined(HA_ISA_AVX2)
#include "kernels/avx2/simd.h"
#include "kernels/digest.inc"

void ha_avx2_digest(const struct ha_digest *args) { digest(args); }
#endif
