#include "kernels/sve/ops.h"

#if defined(HA_ISA_SVE)
#include "kernels/sve/simd.h"
#include "kernels/digest.inc"

void HA_SVE(digest)(const struct ha_digest *args) { digest(args); }
#endif
