#ifndef HA_SPEED_H
#define HA_SPEED_H

#include "harness/base/pool.h"

/* How fast cores take empty instructions now, as a share of the fastest seen so far, of the slowest thread of the pool;
 * in some 30 us. About a half where another guest of the machine runs on the other half of a core, which no counter of
 * this system shows. Arithmetic alone does not show it either. best: [HA_POOL_THREADS_MAX], 0 at first, kept between
 * calls. */
double ha_speed_least(struct ha_pool *pool, double *best);

#endif
