#include "harness/base/clock.h"
#include "harness/measure/ceilings_parts.h"

#include <stdatomic.h>
#include <string.h>

enum { BLOCK = 4 << 20 };

double ha_ceiling_read_one(struct ha_ceiling_bench *b) { return ha_paired_read_alone(b->memory_read); }
double ha_ceiling_read_all(struct ha_ceiling_bench *b) { return ha_paired_read_all(b->memory_read); }

static void copy_task(void *arg, size_t task, size_t worker)
{
    struct ha_ceiling_bench *b = arg;
    (void)worker;
    memcpy(b->buffer + b->buffer_bytes / 2 + task * BLOCK, b->buffer + task * BLOCK, BLOCK);
}

double ha_ceiling_copy_all(struct ha_ceiling_bench *b)
{
    const uint64_t begin_ns = ha_now_ns();
    ha_pool_run(b->pool, "probe", b->buffer_bytes / 2 / BLOCK, copy_task, b);
    return (double)(b->buffer_bytes / 2) / (double)(ha_now_ns() - begin_ns);
}

/* GFLOP/s while the time lasts */
static double spin(const struct ha_kernels *kernels)
{
    enum { ROUNDS = 2000, LAST_NS = 2000000 };
    const uint64_t begin_ns = ha_now_ns();
    double flop = 0;
    uint64_t ns;

    do flop += kernels->flops(ROUNDS);
    while ((ns = ha_now_ns() - begin_ns) < LAST_NS);
    return flop / (double)ns;
}

struct spins {
    const struct ha_kernels *kernels;
    atomic_size_t missing; /* workers that have not come yet */
    _Atomic double sum;
};

static void spin_task(void *arg, size_t task, size_t worker)
{
    struct spins *s = arg;
    (void)task, (void)worker;
    /* the clock of one core depends on what the others do */
    atomic_fetch_sub(&s->missing, 1);
    while (atomic_load(&s->missing)) continue;
    const double GFLOPps = spin(s->kernels);
    double sum = atomic_load(&s->sum);
    while (!atomic_compare_exchange_weak(&s->sum, &sum, sum + GFLOPps)) continue;
}

double ha_ceiling_flops_one(struct ha_ceiling_bench *b) { return spin(b->kernels); }

double ha_ceiling_flops_all(struct ha_ceiling_bench *b)
{
    struct spins s = { .kernels = b->kernels, .missing = ha_pool_threads(b->pool) };
    ha_pool_each(b->pool, "probe", spin_task, &s);
    return atomic_load(&s.sum);
}

double ha_ceiling_tick(struct ha_ceiling_bench *b)
{
    uint64_t begin = ha_now_ns(), end;
    (void)b;
    while ((end = ha_now_ns()) == begin) continue;
    return (double)(end - begin);
}
