#ifndef HA_KERNELS_CUDA_MATH_CUH
#define HA_KERNELS_CUDA_MATH_CUH

/* The kernels' own exp and exp2, from -inf to 0: the same bits on a GPU and in the emulation, about 1 ulp, gradual
 * underflow, 0 from -104.0 and from -150 down, NaN stays NaN. Included by simt.h.
 *
 * exp x = 2^n p(r), n = rint(x / ln 2), r = x - n ln 2. Adding 1.5 * 2^23 rounds x / ln 2 to an integer, which then is
 * the low bits of the sum; 25 more, so that p(r) 2^(n + 25) is a normal number for every n that counts, made by adding
 * to the exponent of p(r), and one product scales it back and rounds it once. */

#define HA_EXP_ROUND 12582937.f /* 1.5 * 2^23 + 25 */

/* p 2^n, n + 25 in the low bits of shifted, which was n + HA_EXP_ROUND */
static __device__ __forceinline__ float ha_exp_scale(float p, float shifted, float n)
{
    /* the second factor is 2^-25; of NaN, where the exponent's arithmetic may have made anything, it is NaN */
    return __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23)) * fmaf(n, 0.f, 0x1p-25f);
}

static __device__ __forceinline__ float ha_exp(float x)
{
    x = x < -105.f ? -105.f : x;
    const float shifted = fmaf(x, 0x1.715476p+0f, HA_EXP_ROUND);
    const float n = shifted - HA_EXP_ROUND;
    /* ln 2 in two parts, the first of 16 bits: its product with n is exact */
    const float r = fmaf(n, -0x1.7f7d1cp-20f, fmaf(n, -0x1.62e4p-1f, x));
    /* least relative error on [-ln2/2, ln2/2], coefficients rounded one after another: 2^-28.2 */
    float p = 0x1.6ac74cp-10f;
    p = fmaf(p, r, 0x1.123dep-7f);
    p = fmaf(p, r, 0x1.555858p-5f);
    p = fmaf(p, r, 0x1.55548cp-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    p = fmaf(p, r, 1.f);
    p = fmaf(p, r, 1.f);
    return ha_exp_scale(p, shifted, n);
}

static __device__ __forceinline__ float ha_exp2(float x)
{
    x = x < -152.f ? -152.f : x;
    const float shifted = x + HA_EXP_ROUND;
    const float n = shifted - HA_EXP_ROUND;
    const float r = x - n;
    /* as above, on [-1/2, 1/2]: 2^-27.5 */
    float p = 0x1.4bc7b4p-13f;
    p = fmaf(p, r, 0x1.5fc00ap-10f);
    p = fmaf(p, r, 0x1.3b21c6p-7f);
    p = fmaf(p, r, 0x1.c6ada6p-5f);
    p = fmaf(p, r, 0x1.ebfbe6p-3f);
    p = fmaf(p, r, 0x1.62e432p-1f);
    p = fmaf(p, r, 1.f);
    return ha_exp_scale(p, shifted, n);
}
#undef HA_EXP_ROUND

static __device__ __forceinline__ float ha_log(float x) { return logf(x); }
static __device__ __forceinline__ float ha_log2(float x) { return log2f(x); }

#endif
