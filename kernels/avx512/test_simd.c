#include "kernels/avx512/ops.h"
#include "kernels/test_simd.h"

#if defined(HA_ISA_AVX512)
#include "kernels/avx512/simd.h"
#include "kernels/test_simd.inc"

const struct ha_test_simd ha_test_simd_avx512 = { "avx512", exp2_of, narrow, exp_of };
#else
const struct ha_test_simd ha_test_simd_avx512 = { .name = "avx512" };
#endif
