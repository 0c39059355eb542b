/* struct ha_test_simd of the instruction set that this file is compiled for. */

#include "kernels/test_simd.h"
#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)
static void exp2_of(float *x, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        const size_t lanes = n - i < LANES ? n - i : LANES;
        v_store_part(x + i, v_exp2(v_load_part(x + i, lanes, 0)), lanes);
    }
}

static void exp_of(float *x, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        const size_t lanes = n - i < LANES ? n - i : LANES;
        v_store_part(x + i, v_exp(v_load_part(x + i, lanes, 0)), lanes);
    }
}

static void narrow(uint16_t *out, const float *x, size_t n, enum ha_dtype t)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) v_narrow((char *)(out + i), v_load(x + i), t);
    if (i < n) v_narrow_part((char *)(out + i), v_load_part(x + i, n - i, 0), n - i, t);
}

const struct ha_test_simd HA_ISA_NAME(ha_test_simd_, HA_ISA, ) = { exp2_of, exp_of, narrow };
#else
const struct ha_test_simd HA_ISA_NAME(ha_test_simd_, HA_ISA, ) = { NULL, NULL, NULL };
#endif
