#include "kernels/avx2/ops.h"

#if defined(HA_ISA_AVX2)
#include "kernels/avx2/simd.h"
#include "kernels/score.inc"

void ha_avx2_score(const struct ha_score *args) { score(args); }
#endif
