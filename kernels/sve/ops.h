#ifndef HA_KERNELS_SVE_OPS_H
#define HA_KERNELS_SVE_OPS_H

#include "kernels/table.h"

/* These files are compiled twice, with HA_SVE_BITS 256 and 512; they run only where the vectors have that length. The
 * compiler may use the instructions; without them the table is absent. */
#if defined(HA_SVE_BITS) && defined(__ARM_FEATURE_SVE_BITS) && !defined(__AARCH64EB__)
#if __ARM_FEATURE_SVE_BITS == HA_SVE_BITS
#define HA_ISA_SVE 1
#endif
#endif

#if defined(HA_SVE_BITS) && HA_SVE_BITS == 256
#define HA_SVE(name) ha_sve256_##name
HA_KERNELS_DECLARE(sve256)
#else
#define HA_SVE(name) ha_sve512_##name
HA_KERNELS_DECLARE(sve512)
#endif

#endif
