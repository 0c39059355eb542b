#include "kernels/avx2/ops.h"

#if defined(HA_ISA_AVX2)
#include "kernels/avx2/simd.h"
#include "kernels/topk.inc"

void ha_avx2_topk(const struct ha_topk *args) { topk(args); }
#endif
