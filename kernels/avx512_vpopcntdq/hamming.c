#include "kernels/avx512_vpopcntdq/ops.h"

#if defined(HA_ISA_AVX512_VPOPCNTDQ)
#include "kernels/avx512/simd.h"
#include "kernels/hamming.inc"

void ha_avx512_vpopcntdq_hamming(const struct ha_hamming *h) { hamming(h); }
#endif
