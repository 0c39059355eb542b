#ifndef HA_KERNELS_AVX512_VPOPCNTDQ_OPS_H
#define HA_KERNELS_AVX512_VPOPCNTDQ_OPS_H

#include "kernels/table.h"

/* The compiler may use the instructions; without them the table is absent. */
#if defined(__AVX512VPOPCNTDQ__) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) \
    && defined(__AVX512VL__)
#define HA_ISA_AVX512_VPOPCNTDQ 1
#endif

HA_KERNELS_DECLARE(avx512_vpopcntdq)

#endif
