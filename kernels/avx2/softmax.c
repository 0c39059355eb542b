#include "kernels/avx2/ops.h"

#if defined(HA_ISA_AVX2)
#include "kernels/avx2/simd.h"
#include "kernels/softmax.inc"

void ha_avx2_softmax(const struct ha_softmax *args) { softmax(args); }
#endif
