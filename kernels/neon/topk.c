#include "kernels/neon/ops.h"

#if defined(HA_ISA_NEON)
#include "kernels/neon/simd.h"
#include "kernels/topk.inc"

void ha_neon_topk(const struct ha_topk *args) { topk(args); }
#endif
