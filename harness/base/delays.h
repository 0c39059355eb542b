#ifndef HA_BASE_DELAYS_H
#define HA_BASE_DELAYS_H

#include "harness/api/base.h"

/* Random delays, a sequence from (seed, stream): most are none, of `one_in` one is 1 to 200 us, and of 32 of those one
 * is 1 to 4 ms. Thread-safe: the sequence is the same every time, which thread draws which number is not. */
struct ha_delays {
    uint64_t seed, stream, one_in;
    uint64_t drawn; /* so far; atomic */
};

/* ns, or 0: none */
uint64_t ha_delays_next(struct ha_delays *delays);

#endif
