#ifndef HA_KERNELS_AVX2_OPS_H
#define HA_KERNELS_AVX2_OPS_H

#include "kernels/table.h"

/* The compiler may use the instructions; without them the table is absent. */
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define HA_ISA_AVX2 1
#endif

HA_KERNELS_DECLARE(avx2)

#endif
