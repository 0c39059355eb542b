#include "suites/kernels/suite.h"

#include <math.h>

/* A walk through page tables takes at least so many cycles, where they lie in the second cache. An assumption. */
static const double walk_cycles = 30;
/* Of the lines, that loads find in no cache: with fewer, what is waited for is on the chip. */
static const double misses_few = 0.1;

static double of_ceiling(const struct ha_cpu_row *r) { return r->ratio.median; }
static double of_cache(const struct ha_cpu_row *r) { return r->GBps / r->cache_GBps; }
static double in_walks(const struct ha_cpu_row *r)
{
    return walk_cycles * r->per_line[HA_COUNTER_WALKS] / r->per_line[HA_COUNTER_CYCLES];
}
static double on_chip(const struct ha_cpu_row *r)
{
    return r->per_line[HA_COUNTER_MISSES] < misses_few ? r->per_line[HA_COUNTER_STALLS] / r->per_line[HA_COUNTER_CYCLES]
                                                       : (double)NAN;
}

const char *ha_cpu_limit(const struct ha_cpu_row *r)
{
    static const struct {
        const char *limit;
        double (*share)(const struct ha_cpu_row *row);
        double least;
    } rule[] = {
        { "memory", of_ceiling, 0.9 }, { "arithmetic", of_cache, 0.85 },   { "waits: DTLB", in_walks, 0.1 },
        { "waits: L2", on_chip, 0.3 }, { "waits", of_ceiling, -HUGE_VAL },
    };
    const bool known = !*r->disturbed && r->cache_GBps > 0 && !isnan(r->ratio.median);
    for (size_t i = 0; known && i < sizeof rule / sizeof *rule; i++)
        if (rule[i].share(r) >= rule[i].least) return rule[i].limit;
    return "";
}
