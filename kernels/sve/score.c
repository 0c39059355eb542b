#include "kernels/sve/ops.h"

#if defined(HA_ISA_SVE)
#include "kernels/sve/simd.h"
#include "kernels/score.inc"

void HA_SVE(score)(const struct ha_score *args) { score(args); }
#endif
