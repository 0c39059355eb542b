#include "kernels/sve/ops.h"

#if defined(HA_ISA_SVE)
#include "kernels/sve/simd.h"
#include "kernels/topk.inc"

void HA_SVE(topk)(const struct ha_topk *args) { topk(args); }
#endif
