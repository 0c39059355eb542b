#include "harness/base/fingerprint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

uint64_t ha_fingerprint_bytes(uint64_t h, const void *at, size_t bytes)
{
    const unsigned char *from = at;
    for (size_t i = 0; i < bytes; i += sizeof h) {
        uint64_t word = 0;
        memcpy(&word, from + i, bytes - i < sizeof word ? bytes - i : sizeof word);
        h = ha_fingerprint_mix(h, word);
    }
    return ha_fingerprint_mix(h, bytes);
}

static uint64_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : bits;
}

uint64_t ha_fingerprint_floats(uint64_t h, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 2)
        h = ha_fingerprint_mix(h, bits_of(x[i]) | (i + 1 < n ? bits_of(x[i + 1]) << 32 : 0));
    return ha_fingerprint_mix(h, n * sizeof *x);
}

const char *ha_fingerprint_print(uint64_t h, char out[HA_FINGERPRINT_TEXT])
{
    snprintf(out, HA_FINGERPRINT_TEXT, "%016" PRIx64, h);
    return out;
}
