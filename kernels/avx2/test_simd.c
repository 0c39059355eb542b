#include "kernels/avx2/ops.h"
#include "kernels/test_simd.h"

#if defined(HA_ISA_AVX2)
#include "kernels/avx2/simd.h"
#include "kernels/test_simd.inc"

const struct ha_test_simd ha_test_simd_avx2 = { "avx2", exp2_of, narrow, exp_of };
#else
const struct ha_test_simd ha_test_simd_avx2 = { .name = "avx2" };
#endif
