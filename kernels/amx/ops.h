#ifndef HA_KERNELS_AMX_OPS_H
#define HA_KERNELS_AMX_OPS_H

#include "kernels/table.h"

/* The compiler may use the instructions; without them the table is absent. A build for tests has HA_AMX_TWIN, and the
 * tile instructions in plain C (tile.h): its kernel has a name of its own, and is never in the program. */
#if defined(__AVX512BF16__) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) \
    && defined(__AVX512VL__)
#if defined(HA_AMX_TWIN) || (defined(__AMX_TILE__) && defined(__AMX_BF16__))
#define HA_ISA_AMX 1
#endif
#endif

#if defined(HA_AMX_TWIN)
#define HA_AMX(name)   ha_amx_twin_##name
#define ha_kernels_amx ha_kernels_amx_twin
HA_KERNELS_DECLARE(amx_twin)
#else
#define HA_AMX(name) ha_amx_##name
HA_KERNELS_DECLARE(amx)
#endif

#endif
