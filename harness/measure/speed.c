#include "harness/measure/speed.h"

#include "harness/base/clock.h"

#include <math.h>

static void slots(void *arg, size_t task, size_t worker)
{
    enum { ROUNDS = 4000 };
    double *rate = arg;
    const uint64_t begin = ha_now_ns();
    for (size_t i = 0; i < ROUNDS; i++) __asm__ volatile(".rept 64\n\tnop\n\t.endr");
    rate[worker] = ROUNDS / (double)(ha_now_ns() - begin);
}

double ha_speed_least(struct ha_pool *pool, double *best)
{
    static double now[HA_POOL_THREADS_MAX];
    double least = 1;
    ha_pool_each(pool, "speed", slots, now);
    for (size_t i = 0; i < ha_pool_threads(pool); i++) {
        best[i] = fmax(best[i], now[i]);
        least = fmin(least, now[i] / best[i]);
    }
    return least;
}
