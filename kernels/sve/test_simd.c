#include "kernels/sve/ops.h"
#include "kernels/test_simd.h"

#if HA_SVE_BITS == 256
#define HA_SVE_SIMD ha_test_simd_sve256
#define NAME        "sve256"
#else
#define HA_SVE_SIMD ha_test_simd_sve512
#define NAME        "sve512"
#endif

#if defined(HA_ISA_SVE)
#include "kernels/sve/simd.h"
#include "kernels/test_simd.inc"

const struct ha_test_simd HA_SVE_SIMD = { NAME, exp2_of, narrow, exp_of };
#else
const struct ha_test_simd HA_SVE_SIMD = { .name = NAME };
#endif
