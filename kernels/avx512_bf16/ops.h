#ifndef HA_KERNELS_AVX512_BF16_OPS_H
#define HA_KERNELS_AVX512_BF16_OPS_H

#include "harness/api/kernels.h"

/* The compiler may use the instructions; without them the table is absent. */
#if defined(__AVX512BF16__) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) \
    && defined(__AVX512VL__)
#define HA_ISA_AVX512_BF16 1
#endif

void ha_avx512_bf16_attend_packed(const struct ha_packed_chunk *c);
double ha_avx512_bf16_flops(size_t rounds);

#endif
