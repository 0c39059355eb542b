#include "harness/base/clock.h"
#include "harness/measure/ceilings_parts.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* ---- memory, arithmetic, the clock ------------------------------------------------------------ */

enum { BLOCK = 4 << 20 };

double ha_ceiling_read_one(struct ha_ceiling_bench *b) { return ha_paired_read_alone(b->memory_read); }
double ha_ceiling_read_all(struct ha_ceiling_bench *b) { return ha_paired_read_all(b->memory_read); }

static void copy_task(void *arg, size_t task, size_t worker)
{
    struct ha_ceiling_bench *b = arg;
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
    while ((end = ha_now_ns()) == begin) continue;
    return (double)(end - begin);
}

/* ---- from core to core ------------------------------------------------------------------------ */

/* Two workers in turn add one to a number, so that its line goes from core to core and back. */
struct ping {
    _Alignas(64) atomic_uint number;
    _Alignas(64) size_t of[2]; /* the workers */
    double ns;                 /* one way; the first writes it */
};

/* The partner may have been given no core, or be on this one. */
static void await(const atomic_uint *number, unsigned want)
{
    enum { LOOKS = 2000 };
    for (int i = 1; atomic_load_explicit(number, memory_order_acquire) != want; i++)
        if (i % LOOKS == 0) sched_yield();
}

static void ping(void *arg, size_t task, size_t worker)
{
    enum { ROUNDS = 100 };
    struct ping *p = arg;
    const unsigned odd = worker == p->of[1];
    if (worker != p->of[0] && !odd) return;
    uint64_t begin_ns = 0;
    for (unsigned i = 0; i <= ROUNDS; i++) { /* the first round waits until both are here */
        if (i == 1) begin_ns = ha_now_ns();
        await(&p->number, 2 * i + odd);
        atomic_store_explicit(&p->number, 2 * i + odd + 1, memory_order_release);
    }
    if (odd) return;
    await(&p->number, 2 * ROUNDS + 2);
    p->ns = (double)(ha_now_ns() - begin_ns) / (2.0 * ROUNDS);
}

/* One of the pairs after another; of very many, some. */
static bool next_pair(struct ha_ceiling_bench *b, size_t of[2])
{
    enum { PAIRS_MOST = 100 };
    const size_t workers = ha_pool_threads(b->pool), pairs = workers * (workers - 1) / 2;
    if (!pairs) return false;
    size_t i = b->pair++ % (pairs < PAIRS_MOST ? pairs : PAIRS_MOST) * (pairs < PAIRS_MOST ? 1 : pairs / PAIRS_MOST),
           first = 0;
    for (; i >= workers - 1 - first; first++) i -= workers - 1 - first;
    of[0] = first;
    of[1] = first + 1 + i;
    return true;
}

double ha_ceiling_cores(struct ha_ceiling_bench *b)
{
    struct ping p = { 0 };
    if (!next_pair(b, p.of)) return (double)NAN;
    ha_pool_each(b->pool, "probe", ping, &p);
    return p.ns;
}

/* ---- wake-up and join -------------------------------------------------------------------------- */

static void nothing(void *arg, size_t task, size_t worker) { (void)arg, (void)task, (void)worker; }

double ha_ceiling_wake(struct ha_ceiling_bench *b)
{
    const uint64_t begin_ns = ha_now_ns();
    ha_pool_run(b->pool, "probe", ha_pool_threads(b->pool), nothing, NULL);
    return (double)(ha_now_ns() - begin_ns);
}

double ha_ceiling_wake_idle(struct ha_ceiling_bench *b)
{
    nanosleep(&(struct timespec){ .tv_nsec = 5 * HA_POOL_AWAKE_NS }, NULL);
    return ha_ceiling_wake(b);
}
