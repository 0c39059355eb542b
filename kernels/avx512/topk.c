#include "kernels/avx512/ops.h"

#if defined(HA_ISA_AVX512)
#include "kernels/avx512/simd.h"
#include "kernels/topk.inc"

void ha_avx512_topk(const struct ha_topk *args) { topk(args); }
#endif
