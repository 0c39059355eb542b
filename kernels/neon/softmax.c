#include "kernels/neon/ops.h"

#if defined(HA_ISA_NEON)
#include "kernels/neon/simd.h"
#include "kernels/softmax.inc"

void ha_neon_softmax(const struct ha_softmax *args) { softmax(args); }
#endif
