#include "harness/base/clock.h"
#include "harness/measure/ceilings_parts.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

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
    (void)task;
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
