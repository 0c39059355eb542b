#include "kernels/neon/ops.h"

#if defined(HA_ISA_NEON)
#include "kernels/neon/simd.h"
#include "kernels/score.inc"

void ha_neon_score(const struct ha_score *args) { score(args); }
#endif
