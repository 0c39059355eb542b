#include "kernels/avx512/ops.h"

#if defined(HA_ISA_AVX512)
#include "kernels/avx512/simd.h"
#include "kernels/score.inc"

void ha_avx512_score(const struct ha_score *args) { score(args); }
#endif
