#ifndef HA_BASE_RNG_H
#define HA_BASE_RNG_H

/* Counter-based random numbers: (seed, stream, i) -> bits, no state, the same on every
 * machine and in any order. Philox4x32-10 (Salmon et al., SC'11), counter = (i, stream),
 * key = seed; the published known-answer vectors are in the test. */

#include "harness/api/base.h"

void ha_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

uint64_t ha_rng_bits(uint64_t seed, uint64_t stream, uint64_t i);
/* uniform in [0, 1), 24 bits: exact in binary32 */
float ha_rng_uniform(uint64_t seed, uint64_t stream, uint64_t i);
/* in [0, n), n > 0; no value is likelier than 1/n by more than 2^-64 */
uint64_t ha_rng_below(uint64_t seed, uint64_t stream, uint64_t i, uint64_t n);
/* Bell-shaped: a sum of eight 16-bit uniforms, centred exactly and scaled by one binary32 product,
 * so that the bits are the same everywhere. Mean 0, variance 1 + 7.3e-8, kurtosis 3 - 0.15,
 * |x| < 4.9, symmetric, a multiple of about 1/53510. */
float ha_rng_normal(uint64_t seed, uint64_t stream, uint64_t i);
/* out[j] = ha_rng_normal(seed, stream, first + j) */
void ha_rng_normals(uint64_t seed, uint64_t stream, uint64_t first, size_t n, float *out);

#endif
