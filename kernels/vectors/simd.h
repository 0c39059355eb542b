#ifndef HA_KERNELS_VECTORS_SIMD_H
#define HA_KERNELS_VECTORS_SIMD_H

/* The vectors that kernels are written in, of the instruction set that a file is compiled for: vec is LANES floats. v_*
 * is elementwise unless its name says otherwise; _part takes the first n lanes and does not touch memory past them. A
 * tile of the dot product is 4 query rows x KEYS keys, of the weighted sum 4 rows x COLS vectors.
 *
 *   v_load_part(p, n, rest)    lanes past n hold `rest`
 *   v_widen, v_widen_part      stored numbers as binary32; lanes past n are 0
 *   v_narrow, v_narrow_part    binary32 as stored numbers, rounded as harness/base/numeric.h does it
 *   v_fma, v_fnma              a b + c, c - a b
 *   v_max, v_min               b where either is NaN
 *   v_ge                       bit i: lane i of a is at least that of b, neither is NaN
 *   v_from                     a where it is at least b, elsewhere 0
 *   v_floor                    the largest integral number that is not above
 *   totals, v_no_totals        binary64 numbers of LANES totals; zeros
 *   v_more                     more by the lanes of a vector
 *   v_total                    the sum of all of them
 *   v_has_nan                  nonzero if a lane is NaN
 *   v_pick(a, b, s)            b where s is negative, -0 included, a elsewhere; of vectors of 8 floats and of SVE
 *   v_put_indices              first + i for every bit i set, in order; LANES numbers are written
 *   v_repeat(p)                four numbers, again and again
 *   v_spread(p)                LANES / 4 numbers, each in four lanes
 *   v_put_of                   of the LANES numbers of 32 bits from there on those with a bit set, likewise
 *   v_hold                     x in a register: gcc would load it again for every use
 *   tile_store                 s[r * stride + k] = scale * sum of the lanes of a[r * KEYS + k], for k < keys
 *
 * Besides, kernels/attend_packed.inc, kernels/exp.inc and kernels/hamming.inc ask for some.
 *
 * HA_256_BITS: of AVX-512 the vectors of 256 bits, of which it has 32. */

#include "kernels/isa.h"

#if !defined(HA_VECTORS)
#elif defined(HA_FOR_AVX512) && !defined(HA_256_BITS)
#include "kernels/avx512/simd.h"
#elif defined(HA_FOR_AVX512) || defined(HA_FOR_AVX2)
#include "kernels/avx2/simd.h"
#elif defined(HA_FOR_NEON)
#include "kernels/neon/simd.h"
#else
#include "kernels/sve/simd.h"
#endif

#endif
