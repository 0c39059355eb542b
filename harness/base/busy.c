#define _GNU_SOURCE /* sched_getaffinity */
#include "harness/base/busy.h"

#include "harness/base/clock.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS_MAX = 256, BUSY_NS = 20000, SLEEP_NS = 180000 };

struct ha_busy {
    bool over;
    size_t count;
    pthread_t thread[THREADS_MAX];
};

static void *load(void *arg)
{
    const struct ha_busy *b = arg;
    while (!__atomic_load_n(&b->over, __ATOMIC_ACQUIRE)) {
        const uint64_t end_ns = ha_now_ns() + BUSY_NS;
        while (ha_now_ns() < end_ns) continue;
        nanosleep(&(struct timespec){ .tv_nsec = SLEEP_NS }, NULL);
    }
    return NULL;
}

enum ha_status ha_busy_start(struct ha_busy **busy, struct ha_why *why)
{
    cpu_set_t allowed;
    const size_t cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? (size_t)CPU_COUNT(&allowed) : 1,
                 most = cores < THREADS_MAX ? cores : THREADS_MAX;
    struct ha_busy *b = *busy = calloc(1, sizeof *b);
    if (!b) return ha_why(why, HA_ERROR, "out of memory");
    while (b->count < most && ha_thread_start(&b->thread[b->count], load, b) == 0) b->count++;
    if (b->count == most) return HA_OK;
    ha_why(why, HA_ERROR, "only %zu of %zu threads for the load to be had", b->count, most);
    ha_busy_stop(b);
    *busy = NULL;
    return HA_ERROR;
}

void ha_busy_stop(struct ha_busy *b)
{
    if (!b) return;
    __atomic_store_n(&b->over, true, __ATOMIC_RELEASE);
    for (size_t i = 0; i < b->count; i++) pthread_join(b->thread[i], NULL);
    free(b);
}
