#include "harness/base/clock.h"
#include "harness/measure/ceilings_parts.h"

#include <string.h>

enum { BLOCK = 4 << 20, PREFETCH_AHEAD = 4096 };

static double rate(size_t bytes, uint64_t begin_ns) { return (double)bytes / (double)(ha_now_ns() - begin_ns); }

/* A core sustains about ten lines in flight unless lines are asked for ahead of the loads. The prefetch of the last block
 * runs past it: into the buffer's end, or where no load follows. */
static uint64_t read_block(const uint64_t *p, size_t words)
{
    uint64_t sum[8] = { 0 };

    for (size_t i = 0; i < words; i += 16) {
        __builtin_prefetch((const char *)(p + i) + PREFETCH_AHEAD, 0, 2);
        __builtin_prefetch((const char *)(p + i + 8) + PREFETCH_AHEAD, 0, 2);
        for (size_t j = 0; j < 8; j++) sum[j] += p[i + j];
        for (size_t j = 0; j < 8; j++) sum[j] += p[i + 8 + j];
    }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

static void read_task(void *arg, size_t task, size_t worker)
{
    struct ha_ceiling_bench *b = arg;
    uint64_t sum = read_block((const uint64_t *)(const void *)(b->buffer + task * BLOCK), BLOCK / sizeof(uint64_t));

    (void)worker;
    __atomic_fetch_add(&b->kept, sum, __ATOMIC_RELAXED);
}

bool ha_ceiling_read_one(struct ha_ceiling_bench *b, double *gbps)
{
    uint64_t begin = ha_now_ns();

    for (size_t task = 0; task < b->buffer_bytes / BLOCK; task++) read_task(b, task, 0);
    *gbps = rate(b->buffer_bytes, begin);
    return true;
}

bool ha_ceiling_read_all(struct ha_ceiling_bench *b, double *gbps)
{
    uint64_t begin = ha_now_ns();

    ha_pool_run(b->pool, "probe", b->buffer_bytes / BLOCK, read_task, b);
    *gbps = rate(b->buffer_bytes, begin);
    return true;
}

static void copy_task(void *arg, size_t task, size_t worker)
{
    struct ha_ceiling_bench *b = arg;

    (void)worker;
    memcpy(b->buffer + b->buffer_bytes / 2 + task * BLOCK, b->buffer + task * BLOCK, BLOCK);
}

bool ha_ceiling_copy_all(struct ha_ceiling_bench *b, double *gbps)
{
    uint64_t begin = ha_now_ns();

    ha_pool_run(b->pool, "probe", b->buffer_bytes / 2 / BLOCK, copy_task, b);
    *gbps = rate(b->buffer_bytes / 2, begin);
    return true;
}

static void nothing(void *arg, size_t task, size_t worker) { (void)arg, (void)task, (void)worker; }

bool ha_ceiling_wake(struct ha_ceiling_bench *b, double *ns)
{
    uint64_t begin = ha_now_ns();

    ha_pool_run(b->pool, "probe", ha_pool_threads(b->pool), nothing, NULL);
    *ns = (double)(ha_now_ns() - begin);
    return true;
}

bool ha_ceiling_tick(struct ha_ceiling_bench *b, double *ns)
{
    uint64_t begin = ha_now_ns(), end;

    (void)b;
    while ((end = ha_now_ns()) == begin) continue;
    *ns = (double)(end - begin);
    return true;
}
