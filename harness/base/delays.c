#include "harness/base/delays.h"

#include "harness/base/rng.h"

uint64_t ha_delays_next(struct ha_delays *d)
{
    enum { US = 1000, SHORT_US = 200, LONG_US = 3000, ONE_LONG_IN = 32 };
    const uint64_t bits = ha_rng_bits(d->seed, d->stream, __atomic_fetch_add(&d->drawn, 1, __ATOMIC_RELAXED)),
                   kind = bits >> 32, length = bits & UINT32_MAX;
    if (kind % d->one_in) return 0;
    return US * (kind / d->one_in % ONE_LONG_IN ? 1 + length % SHORT_US : 1000 + length % LONG_US);
}
