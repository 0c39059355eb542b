#include "kernels/sve/ops.h"

#if defined(HA_ISA_SVE)
#include "kernels/sve/simd.h"
#include "kernels/softmax.inc"

void HA_SVE(softmax)(const struct ha_softmax *args) { softmax(args); }
#endif
