#ifndef HA_KERNELS_AVX512_YMM_OPS_H
#define HA_KERNELS_AVX512_YMM_OPS_H

/* AVX-512 in registers of 256 bits, of which it has 32. Where the 512-bit conversion of 16-bit floats takes slots of
 * the multipliers (Zen 4) this is faster, where only 512-bit instructions use all multipliers (Intel) slower. */

#include "kernels/table.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define HA_ISA_AVX512_YMM 1
#endif

HA_KERNELS_DECLARE(avx512_ymm)

#endif
