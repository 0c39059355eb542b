#ifndef HA_FINGERPRINT_H
#define HA_FINGERPRINT_H

/* 64 bits that stand for all bits of what a computation left (column `outputs`, docs/measurement.md): words of 8 bytes,
 * the first byte the lowest, are mixed in one after the other, h -> (h ^ word) * 0x9e3779b97f4a7c15, h ^ h >> 29. Both
 * are one to one, so that two inputs which differ within one word never have the same fingerprint; of others one pair
 * in 2^64 has. It is no protection against who wants to forge one. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { HA_FINGERPRINT_BEGIN = 1, HA_FINGERPRINT_TEXT = 17 };

static inline uint64_t ha_fingerprint_mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

/* The bytes, zeros behind the last up to a whole word, and how many there were. */
uint64_t ha_fingerprint_bytes(uint64_t h, const void *at, size_t bytes);
/* The same of floats, in which every NaN counts as one: which of its bits are set means nothing. */
uint64_t ha_fingerprint_floats(uint64_t h, const float *x, size_t n);
/* 16 hexadecimal digits */
const char *ha_fingerprint_print(uint64_t h, char out[HA_FINGERPRINT_TEXT]);

#ifdef __cplusplus
}
#endif
#endif
