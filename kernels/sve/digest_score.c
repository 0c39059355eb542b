#include "kernels/sve/ops.h"

#if defined(HA_ISA_SVE)
#include "kernels/sve/simd.h"

enum { VECS = LANES == 8 ? 4 : 2 };
#include "kernels/digest_score.inc"

void HA_SVE(digest_score)(const struct ha_digest_score *args) { digest_score(args); }
#endif
