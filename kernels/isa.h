#ifndef HA_KERNELS_ISA_H
#define HA_KERNELS_ISA_H

/* The instruction set with vectors of its own that a file is compiled for; files in kernels/vectors are compiled once
 * for each. The build says which: HA_FOR_AVX2, HA_FOR_AVX512, HA_FOR_NEON, or HA_SVE_BITS, 256 or 512, the length of
 * the vectors of the only CPUs where the files run then. HA_ISA is its name, HA_ISA_BIT its enum ha_cpu_bit, and
 * HA_VECTORS is defined where the compiler may use the instructions; without them its table is absent. */

#include "kernels/table.h"

#if defined(HA_FOR_AVX2)
#define HA_ISA     avx2
#define HA_ISA_BIT HA_CPU_AVX2
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define HA_VECTORS
#endif
#elif defined(HA_FOR_AVX512)
#define HA_ISA     avx512
#define HA_ISA_BIT HA_CPU_AVX512
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define HA_VECTORS
#endif
#elif defined(HA_FOR_NEON)
#define HA_ISA     neon
#define HA_ISA_BIT HA_CPU_NEON
#if defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__)
#define HA_VECTORS
#endif
#elif defined(HA_SVE_BITS)
#if HA_SVE_BITS == 256
#define HA_ISA     sve256
#define HA_ISA_BIT HA_CPU_SVE256
#else
#define HA_ISA     sve512
#define HA_ISA_BIT HA_CPU_SVE512
#endif
#if defined(__ARM_FEATURE_SVE_BITS) && !defined(__AARCH64EB__)
#if __ARM_FEATURE_SVE_BITS == HA_SVE_BITS
#define HA_VECTORS
#endif
#endif
#endif

/* before_ISA_after */
#define HA_ISA_NAME(before, isa, after)  HA_ISA_NAME_(before, isa, after)
#define HA_ISA_NAME_(before, isa, after) before##isa##after
/* the kernel NAME of this instruction set */
#define HA_KERNEL(name) HA_ISA_NAME(ha_, HA_ISA, _##name)

HA_KERNELS_DECLARE(HA_ISA)

#endif
