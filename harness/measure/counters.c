#define _GNU_SOURCE
#include "harness/measure/counters.h"

#include <linux/perf_event.h>
#include <math.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READ_MISSES(cache) \
    ((cache) | (uint64_t)PERF_COUNT_HW_CACHE_OP_READ << 8 | (uint64_t)PERF_COUNT_HW_CACHE_RESULT_MISS << 16)
static const struct {
    uint32_t type;
    uint64_t config;
} events[HA_COUNTERS] = {
    [HA_COUNTER_CYCLES] = { PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES },
    [HA_COUNTER_STALLS] = { PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_BACKEND },
    [HA_COUNTER_MISSES] = { PERF_TYPE_HW_CACHE, READ_MISSES(PERF_COUNT_HW_CACHE_LL) },
    [HA_COUNTER_WALKS] = { PERF_TYPE_HW_CACHE, READ_MISSES(PERF_COUNT_HW_CACHE_DTLB) },
};

static int linux_open(uint32_t type, uint64_t config)
{
    struct perf_event_attr attr = {
        .type = type,
        .size = sizeof attr,
        .config = config,
        .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
        .exclude_kernel = 1,
        .exclude_hv = 1,
    };
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static bool linux_read(int counter, uint64_t value[3])
{
    return read(counter, value, 3 * sizeof *value) == (ssize_t)(3 * sizeof *value);
}

static void linux_close(int counter) { close(counter); }

const struct ha_counters_system ha_counters_linux = { linux_open, linux_read, linux_close };

struct taking {
    const struct ha_counters_system *system;
    struct counter {
        int fd;
        bool read;
        uint64_t before[3];
    } (*thread)[HA_COUNTERS];
};

static void open_all(void *arg, size_t task, size_t worker)
{
    const struct taking *t = arg;
    for (size_t e = 0; e < HA_COUNTERS; e++)
        t->thread[worker][e].fd = t->system->open(events[e].type, events[e].config);
}

static double since(const struct ha_counters_system *system, const struct counter *c)
{
    uint64_t now[3];
    if (!c->read || !system->read(c->fd, now) || now[2] == c->before[2]) return (double)NAN;
    return (double)(now[0] - c->before[0]) * (double)(now[1] - c->before[1]) / (double)(now[2] - c->before[2]);
}

static bool counts(const struct ha_counters_system *system)
{
    const int cycles = system->open(events[HA_COUNTER_CYCLES].type, events[HA_COUNTER_CYCLES].config);
    if (cycles >= 0) system->close(cycles);
    return cycles >= 0;
}

void ha_counters_take(const struct ha_counters_system *system, struct ha_pool *pool, void (*run)(void *arg), void *arg,
                      double count[HA_COUNTERS])
{
    const size_t threads = ha_pool_threads(pool);
    struct taking t = { .system = system };
    for (size_t e = 0; e < HA_COUNTERS; e++) count[e] = (double)NAN;
    if (!counts(system) || !(t.thread = calloc(threads, sizeof *t.thread))) return;
    ha_pool_each(pool, "counters", open_all, &t);
    for (size_t i = 0; i < threads * HA_COUNTERS; i++) {
        struct counter *c = &t.thread[i / HA_COUNTERS][i % HA_COUNTERS];
        c->read = c->fd >= 0 && system->read(c->fd, c->before);
    }
    run(arg);
    for (size_t e = 0; e < HA_COUNTERS; e++) count[e] = 0;
    for (size_t i = 0; i < threads * HA_COUNTERS; i++) {
        const struct counter *c = &t.thread[i / HA_COUNTERS][i % HA_COUNTERS];
        count[i % HA_COUNTERS] += since(system, c);
        if (c->fd >= 0) system->close(c->fd);
    }
    free(t.thread);
}
