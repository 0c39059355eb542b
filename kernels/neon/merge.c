#include "kernels/neon/ops.h"

#if defined(HA_ISA_NEON)
#include "kernels/neon/simd.h"
#include "kernels/merge.inc"

void ha_neon_merge(const struct ha_merge *args) { merge(args); }
#endif
