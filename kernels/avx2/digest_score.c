#include "kernels/avx2/ops.h"

#if defined(HA_ISA_AVX2)
#include "kernels/avx2/simd.h"

enum { VECS = 2 };
#include "kernels/digest_score.inc"

void ha_avx2_digest_score(const struct ha_digest_score *args) { digest_score(args); }
#endif
