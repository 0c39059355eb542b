#include "kernels/avx512/ops.h"

#if defined(HA_ISA_AVX512)
/* 256 bits: of 32 registers they hold as much of a block's digests as is needed at once, and 512 bits took half as long
 * again where those are two halves of a register */
#include "kernels/avx2/simd.h"

enum { VECS = 4 };
#include "kernels/digest_score.inc"

void ha_avx512_digest_score(const struct ha_digest_score *args) { digest_score(args); }
#endif
