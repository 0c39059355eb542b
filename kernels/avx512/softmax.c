#include "kernels/avx512/ops.h"

#if defined(HA_ISA_AVX512)
#include "kernels/avx512/simd.h"
#include "kernels/softmax.inc"

void ha_avx512_softmax(const struct ha_softmax *args) { softmax(args); }
#endif
