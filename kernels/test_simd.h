#ifndef HA_KERNELS_TEST_SIMD_H
#define HA_KERNELS_TEST_SIMD_H

/* The functions of a simd.h that no kernel shows as they are, for one instruction set; NULL where it is not compiled.
 */

#include "harness/api/base.h"

struct ha_test_simd {
    void (*exp2)(float *x, size_t n), (*exp)(float *x, size_t n); /* of each, in place */
    /* x[n] rounded to a type of 16 bits */
    void (*narrow)(uint16_t *out, const float *x, size_t n, enum ha_dtype t);
};

extern const struct ha_test_simd ha_test_simd_avx2, ha_test_simd_avx512, ha_test_simd_neon, ha_test_simd_sve256,
    ha_test_simd_sve512;

#endif
