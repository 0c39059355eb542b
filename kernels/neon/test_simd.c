#include "kernels/neon/ops.h"
#include "kernels/test_simd.h"

#if defined(HA_ISA_NEON)
#include "kernels/neon/simd.h"
#include "kernels/test_simd.inc"

const struct ha_test_simd ha_test_simd_neon = { "neon", exp2_of, narrow, exp_of };
#else
const struct ha_test_simd ha_test_simd_neon = { .name = "neon" };
#endif
