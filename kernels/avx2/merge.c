#include "kernels/avx2/ops.h"

#if defined(HA_ISA_AVX2)
#include "kernels/avx2/simd.h"
#include "kernels/merge.inc"

void ha_avx2_merge(const struct ha_merge *args) { merge(args); }
#endif
