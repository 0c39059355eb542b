#ifndef HA_KERNELS_VECTORS_SIMD_H
#define HA_KERNELS_VECTORS_SIMD_H

/* The vectors of the instruction set that a file is compiled for. HA_256_BITS: of AVX-512 those of 256 bits, of which
 * it has 32. */

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
