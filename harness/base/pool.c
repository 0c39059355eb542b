#include "harness/base/pool.h"
#include "harness/base/clock.h"
#include "harness/base/why.h"

#include <hwloc.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct ha_pool {
    size_t threads;
    unsigned id;               /* of this pool among all of the process, from 1 */
    hwloc_topology_t topology;
    hwloc_cpuset_t allowed;    /* of the thread that made the pool */
    hwloc_cpuset_t *place;     /* [threads], or NULL: more workers than cores, none is pinned */
    const struct ha_span_sink *sink;
    atomic_size_t next;        /* task to be pulled */
    _Atomic uint64_t busy_ns;
};

/* Lanes are read after their pool is gone. */
static char lanes[HA_POOL_THREADS_MAX][16];

static void name_lanes(void)
{
    for (int w = 0; w < HA_POOL_THREADS_MAX; w++)
        snprintf(lanes[w], sizeof lanes[w], "cpu %d", w);
}

/* The next core that the process may use, if only in part. */
static hwloc_obj_t next_core(const struct ha_pool *pool, hwloc_obj_t core)
{
    /* some virtual machines report no cores */
    hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(pool->topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    do
        core = hwloc_get_next_obj_by_type(pool->topology, type, core);
    while (core && !hwloc_bitmap_intersects(core->cpuset, pool->allowed));
    return core;
}

static size_t count_cores(const struct ha_pool *pool)
{
    size_t n = 0;
    for (hwloc_obj_t core = NULL; (core = next_core(pool, core));)
        n++;
    return n;
}

static hwloc_topology_t load_topology(void)
{
    hwloc_topology_t t;
    if (hwloc_topology_init(&t) != 0)
        return NULL;
    hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(t, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(t) == 0)
        return t;
    hwloc_topology_destroy(t);
    return NULL;
}

/* Each worker's core; false when out of memory. */
static bool choose_places(struct ha_pool *pool, size_t cores)
{
    if (pool->threads > cores)
        return true;
    pool->place = calloc(pool->threads, sizeof *pool->place);
    if (!pool->place)
        return false;
    hwloc_obj_t core = NULL;
    for (size_t w = 0; w < pool->threads; w++) {
        core = next_core(pool, core);
        pool->place[w] = hwloc_bitmap_dup(core->cpuset);
        if (!pool->place[w])
            return false;
        hwloc_bitmap_and(pool->place[w], pool->place[w], pool->allowed);
    }
    return true;
}

enum ha_status ha_pool_create(struct ha_pool **out, size_t threads, struct ha_why *why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static atomic_uint pools;
    pthread_once(&once, name_lanes);
    *out = NULL;
    if (threads > HA_POOL_THREADS_MAX)
        return ha_why(why, HA_ERROR, "%zu threads: at most %d", threads, HA_POOL_THREADS_MAX);
    struct ha_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return ha_why(why, HA_ERROR, "thread pool: out of memory");
    pool->id = atomic_fetch_add(&pools, 1u) + 1;
    pool->topology = load_topology();
    pool->allowed = hwloc_bitmap_alloc();
    if (!pool->topology || !pool->allowed) {
        ha_pool_destroy(pool);
        return ha_why(why, HA_ERROR, "thread pool: hwloc cannot read this machine's topology");
    }
    if (hwloc_get_cpubind(pool->topology, pool->allowed, HWLOC_CPUBIND_THREAD) != 0)
        hwloc_bitmap_copy(pool->allowed, hwloc_topology_get_allowed_cpuset(pool->topology));
    size_t cores = count_cores(pool);
    pool->threads = threads ? threads : cores ? cores : 1;
    if (!choose_places(pool, cores)) {
        ha_pool_destroy(pool);
        return ha_why(why, HA_ERROR, "thread pool: out of memory");
    }
    *out = pool;
    return HA_OK;
}

size_t ha_pool_threads(const struct ha_pool *pool) { return pool->threads; }

/* A worker of the OpenMP team stays where the last pool that used it put it. Where pinning is
 * refused it runs on unpinned. */
static void place_worker(const struct ha_pool *pool, size_t worker)
{
    static _Thread_local unsigned placed_by;
    if (placed_by == pool->id)
        return;
    hwloc_set_cpubind(pool->topology, pool->place ? pool->place[worker] : pool->allowed, HWLOC_CPUBIND_THREAD);
    placed_by = pool->id;
}

/* The caller is moved to its core but not held there, because every thread that it starts
 * elsewhere would inherit the restriction. The other cores being taken, it stays. */
static void place_caller(const struct ha_pool *pool)
{
    int cpu = sched_getcpu();
    if (!pool->place || pool->threads == 1 || cpu < 0 || hwloc_bitmap_isset(pool->place[0], (unsigned)cpu))
        return;
    if (hwloc_set_cpubind(pool->topology, pool->place[0], HWLOC_CPUBIND_THREAD) == 0)
        hwloc_set_cpubind(pool->topology, pool->allowed, HWLOC_CPUBIND_THREAD);
}

void ha_pool_run(struct ha_pool *pool, const char *name, size_t tasks, void (*fn)(void *arg, size_t task, size_t worker), void *arg)
{
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    place_caller(pool);
    #pragma omp parallel num_threads((int)pool->threads)
    {
        size_t worker = (size_t)omp_get_thread_num(), task;
        if (worker > 0)
            place_worker(pool, worker);
        struct ha_span span = { .kind = HA_SPAN_CPU, .lane = lanes[worker], .name = name };
        while ((task = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed)) < tasks) {
            if (!span.begin_ns)
                span.begin_ns = ha_now_ns();
            fn(arg, task, worker);
        }
        if (span.begin_ns) {
            span.end_ns = ha_now_ns();
            atomic_fetch_add_explicit(&pool->busy_ns, span.end_ns - span.begin_ns, memory_order_relaxed);
            if (pool->sink)
                pool->sink->span(pool->sink->self, &span);
        }
    }
}

void ha_pool_trace(struct ha_pool *pool, const struct ha_span_sink *sink) { pool->sink = sink; }

uint64_t ha_pool_busy_ns(struct ha_pool *pool) { return atomic_exchange(&pool->busy_ns, 0); }

void ha_pool_destroy(struct ha_pool *pool)
{
    if (!pool)
        return;
    for (size_t w = 0; pool->place && w < pool->threads; w++)
        hwloc_bitmap_free(pool->place[w]);
    free(pool->place);
    hwloc_bitmap_free(pool->allowed);
    if (pool->topology)
        hwloc_topology_destroy(pool->topology);
    free(pool);
}
