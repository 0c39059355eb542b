#ifndef HA_KERNELS_NEON_OPS_H
#define HA_KERNELS_NEON_OPS_H

#include "kernels/table.h"

/* The compiler may use the instructions; without them the table is absent. */
#if defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__)
#define HA_ISA_NEON 1
#endif

HA_KERNELS_DECLARE(neon)

#endif
