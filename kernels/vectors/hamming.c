#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)
#include "kernels/hamming.inc"

void HA_KERNEL(hamming)(const struct ha_hamming *h) { hamming(h); }
#endif
