#include "kernels/neon/ops.h"

#if defined(HA_ISA_NEON)
#include "kernels/neon/simd.h"

enum { VECS = 1 };
#include "kernels/digest_score.inc"

void ha_neon_digest_score(const struct ha_digest_score *args) { digest_score(args); }
#endif
