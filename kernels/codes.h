#ifndef HA_KERNELS_CODES_H
#define HA_KERNELS_CODES_H

#include "harness/api/kernels.h"

/* Where codes of so many words hold the first word of a row: a number of words from their start. The next one is
 * HA_CODE_KEYS further on; behind the last is the norm. */
static inline size_t ha_code_at(size_t words, size_t row)
{
    return row / HA_CODE_KEYS * (words + 1) * HA_CODE_KEYS + row % HA_CODE_KEYS;
}

#endif
