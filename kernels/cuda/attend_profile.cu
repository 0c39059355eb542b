#include "kernels/cuda/launch.h"

/* Where these numbers come from, in roundings (u = 2^-24) that one term passes at most.
 *
 * Tensor cores. Products of tf32 numbers are exact. Four of them and the accumulator are added with their bits below
 * those of the largest one cut off, and the sum is cut to binary32 (M. Fasi, N. J. Higham, M. Mikaitis and S. Pranesh,
 * Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 7:e330, 2021). Taking 24 bits, which is the fewest
 * they found, each of the four that is not the largest loses less than 2 u of it, the sum 2 u: 10 for each four, TENSOR
 * = 20 for a product of depth 8. The low halves add less than a thousandth of that: with what else is that small, 1. A
 * number of 24 bits that is cut into two of 11 loses its last two bits at most: 3 * 2^-23, CUT = 6.
 *
 * q.k. Tensor cores: 32 dims are 4 products, then high and low are added, then the ceil(d / 32) sums one after another:
 * ceil(d / 32) + 80 + CUT + 1. Without, in binary32: a lane's 4 dims in each 128, then 5 additions over the lanes: 9,
 * or 13 from dim 129 on, at most ceil(d / 32) + 8; in 16 bits 8 dims and 4 additions, which are fewer than those of
 * tensor cores. The scale is multiplied by log2 e, rounded as well: one more than the two of the bound.
 *
 * Sums over keys. Changes of the reference are products with powers of two, exact: there are no rescales, and a join is
 * one addition. A weight is relative to an integer reference up to 1 above the largest score, whose difference is
 * rounded: 1 besides the bound's own. Tensor cores: 32 keys are 4 products, 80, and CUT; high and low, 1; then those
 * sums one after another, at most n / 32 + 3 if one warp has all n keys in 4 runs; 4 warps, 4. Without: the 8 keys of a
 * step and their addition to those before, 9; a warp has a step of 8 keys of every 4 steps (from dim 129 on, of 4 keys
 * of every 8), n / 32 + 2 steps; or the weights alone, the 2 of a step that a lane has, n / 32 + 2 steps, and 3 over
 * the lanes; 8 warps, 8. Splits: a warp has every eighth, S / 8 + 3 with what joins the warps (of the weights alone a
 * lane has every 32nd, S / 32 + 5), where no more of the S are other than empty than a warp that had all keys would
 * take steps: the more splits, the fewer additions before, and both together are at most n / 32 + 6 besides the 3
 * above. The LSE takes the sum apart into 2^e and [0.75, 1.5]: its logarithm and the sum with e ln 2 err by u |LSE|,
 * which the bound has, and 2 u. */
enum { TENSOR = 20, CUT = 6, SMALL = 1, SCALE = 1, REFERENCE = 1, STEPS = 3, SPLITS = 6, LSE = 2 };

struct ha_profile ha_cuda_attend_profile(enum ha_dtype dtype)
{
    const bool tensor = dtype != HA_F32;
    struct ha_profile p = {};
    p.dot_lanes = 32;
    p.dot_extra = (tensor ? 4 * TENSOR + CUT + 1 + SMALL : 8) + SCALE;
    p.sum_lanes = 32;
    p.sum_extra = (tensor ? 4 * TENSOR + CUT + 1 + SMALL + 4 : 9 + 8) + REFERENCE + STEPS + SPLITS + LSE;
    p.join_keys = UINT32_MAX;
    p.joins_max = 1;
    return p;
}
