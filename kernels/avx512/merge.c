#include "kernels/avx512/ops.h"

#if defined(HA_ISA_AVX512)
#include "kernels/avx512/simd.h"
#include "kernels/merge.inc"

void ha_avx512_merge(const struct ha_merge *args) { merge(args); }
#endif
