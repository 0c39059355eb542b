#include "kernels/sve/ops.h"

#if defined(HA_ISA_SVE)
#include "kernels/sve/simd.h"
#include "kernels/merge.inc"

void HA_SVE(merge)(const struct ha_merge *args) { merge(args); }
#endif
