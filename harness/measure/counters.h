#ifndef HA_COUNTERS_H
#define HA_COUNTERS_H

/* What the CPU counts while threads work, by perf_event_open(2): the kernel's generic events, so that no code of a
 * vendor's is needed. Virtual machines and containers mostly have none. */

#include "harness/base/pool.h"

enum ha_counter {
    HA_COUNTER_CYCLES,
    HA_COUNTER_STALLS, /* cycles in which nothing retires, because data or units are waited for */
    HA_COUNTER_MISSES, /* loads that find their line in no cache */
    HA_COUNTER_WALKS,  /* loads whose page is not in the DTLB */
};
enum { HA_COUNTERS = HA_COUNTER_WALKS + 1 };

/* The system's calls; a test has others. */
struct ha_counters_system {
    /* of the calling thread, without the kernel, from now on; below 0: not counted here */
    int (*open)(uint32_t type, uint64_t config);
    /* the count, and for how many ns it was wanted and was made; false: it cannot be read */
    bool (*read)(int counter, uint64_t value[3]);
    void (*close)(int counter);
};
extern const struct ha_counters_system ha_counters_linux;

/* Calls run(arg) and says what was counted meanwhile on all threads of the pool; NaN: an event that one of them does
 * not count, or that had no turn in so short a time. Where cycles are not counted run is not called. */
void ha_counters_take(const struct ha_counters_system *system, struct ha_pool *pool, void (*run)(void *arg), void *arg,
                      double count[HA_COUNTERS]);

#endif
