#include "kernels/neon/ops.h"

#if defined(HA_ISA_NEON)
#include "kernels/neon/simd.h"
#include "kernels/digest.inc"

void ha_neon_digest(const struct ha_digest *args) { digest(args); }
#endif
