#ifndef HA_KERNELS_AMX_OPS_H
#define HA_KERNELS_AMX_OPS_H

#include "harness/api/kernels.h"

/* The compiler may use the instructions; without them the table is absent. A build for tests has HA_AMX_TWIN, and the
 * tile instructions in plain C (tile.h): its kernel has a name of its own, and is never in the program. */
#if defined(__AVX512BF16__) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) \
    && defined(__AVX512VL__)
#if defined(HA_AMX_TWIN) || (defined(__AMX_TILE__) && defined(__AMX_BF16__))
#define HA_ISA_AMX 1
#endif
#endif

#if defined(HA_AMX_TWIN)
#define ha_amx_attend_packed ha_amx_twin_attend_packed
#define ha_kernels_amx       ha_kernels_amx_twin
#endif

void ha_amx_attend_packed(const struct ha_packed_chunk *c);

#endif
