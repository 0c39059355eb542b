#define _GNU_SOURCE /* sched_getcpu */
#include "harness/base/clock.h"
#include "harness/base/thread.h"
#include "harness/base/delays.h"
#include "harness/base/stores.h"
#include "harness/base/surroundings.h"
#include "harness/base/team.h"
#include "harness/base/why.h"
#include "harness/base/worker.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ha_team_kind *const kinds[] = { [HA_TEAM_OPENMP] = &ha_team_openmp, [HA_TEAM_OWN] = &ha_team_own };

/* Lanes are read after their pool is gone. */
static char lanes[HA_POOL_THREADS_MAX][16];

static void name_lanes(void)
{
    for (int w = 0; w < HA_POOL_THREADS_MAX; w++) snprintf(lanes[w], sizeof lanes[w], "cpu %d", w);
}

/* The next core that the process may use, if only in part. */
static hwloc_obj_t next_core(const struct ha_pool *pool, hwloc_obj_t core)
{
    /* some virtual machines report no cores */
    hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(pool->topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE
                                                                                         : HWLOC_OBJ_PU;
    do core = hwloc_get_next_obj_by_type(pool->topology, type, core);
    while (core && !hwloc_bitmap_intersects(core->cpuset, pool->allowed));
    return core;
}

static size_t count_cores(const struct ha_pool *pool)
{
    size_t n = 0;
    for (hwloc_obj_t core = NULL; (core = next_core(pool, core));) n++;
    return n;
}

/* All pools read the one of the process: it takes longer to load than a small case takes to run. */
static hwloc_topology_t topology;

static void load_topology(void)
{
    hwloc_topology_t t;
    if (hwloc_topology_init(&t) != 0) return;
    hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(t, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(t) == 0) topology = t;
    else hwloc_topology_destroy(t);
}

/* Each worker's core; false when out of memory. */
static bool choose_places(struct ha_pool *pool, size_t cores)
{
    if (pool->threads > cores) return true;
    pool->place = calloc(pool->threads, sizeof *pool->place);
    if (!pool->place) return false;
    hwloc_obj_t core = NULL;
    for (size_t w = 0; w < pool->threads; w++) {
        core = next_core(pool, core);
        pool->place[w] = hwloc_bitmap_dup(core->cpuset);
        if (!pool->place[w]) return false;
        hwloc_bitmap_and(pool->place[w], pool->place[w], pool->allowed);
    }
    return true;
}

/* The caller is moved to its core but not held there, because every thread that it starts
 * elsewhere would inherit the restriction. The other cores being taken, it stays. */
static void place_caller(const struct ha_pool *pool)
{
    int cpu = sched_getcpu();
    if (!pool->place || pool->threads == 1 || cpu < 0 || hwloc_bitmap_isset(pool->place[0], (unsigned)cpu)) return;
    if (hwloc_set_cpubind(pool->topology, pool->place[0], HWLOC_CPUBIND_THREAD) == 0)
        hwloc_set_cpubind(pool->topology, pool->allowed, HWLOC_CPUBIND_THREAD);
}

/* Where pinning is refused a worker runs on unpinned. */
void ha_team_place(const struct ha_pool *pool, size_t worker)
{
    hwloc_set_cpubind(pool->topology, pool->place ? pool->place[worker] : pool->allowed, HWLOC_CPUBIND_THREAD);
}

bool ha_team_awake(const struct ha_pool *pool, size_t worker)
{
    return pool->place && worker < atomic_load_explicit(&pool->awake, memory_order_relaxed);
}

/* ---- runs -------------------------------------------------------------------------------------- */

/* What a worker does of a group. */
static void work_off(struct ha_pool *pool, const struct job *job, struct ha_pool_group *group, size_t worker,
                     struct ha_span *span)
{
    const struct ha_pool_group of = { .tasks = group->tasks, .fn = group->fn, .arg = group->arg };
    for (size_t task;
         (task = job->each ? worker : __atomic_fetch_add(&group->pulled, 1, __ATOMIC_RELAXED)) < of.tasks;) {
        if (pool->delays) ha_sleep_ns(ha_delays_next(pool->delays));
        if (pool->sink && !span->begin_ns) span->begin_ns = ha_now_ns();
        of.fn(of.arg, task, worker);
        if (job->each) break;
    }
}

void ha_team_work(struct ha_pool *pool, size_t worker)
{
    const struct job job = pool->job;
    const size_t first = worker * job.groups / pool->threads, next = (worker + 1) * job.groups / pool->threads;
    const struct ha_order_identity own = ha_order_stand_for(job.caller);
    struct ha_span span = { .kind = HA_SPAN_CPU, .lane = lanes[worker], .name = job.name };
    const struct ha_stores_lane outer = ha_stores_within((struct ha_stores_lane){ pool->sink, &span });
    for (size_t g = first; g == first || g < next; g++) work_off(pool, &job, &job.group[g], worker, &span);
    ha_stores_within(outer);
    ha_order_stand_for(own);
    ha_surroundings_task();
    if (!span.begin_ns) return;
    span.end_ns = ha_now_ns();
    pool->sink->span(pool->sink->self, &span);
}

static enum ha_status set_up(struct ha_pool *pool, size_t threads, struct ha_why *why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_topology);
    pool->topology = topology;
    pool->allowed = hwloc_bitmap_alloc();
    if (!pool->topology || !pool->allowed)
        return ha_why(why, HA_ERROR, "thread pool: hwloc cannot read this machine's topology");
    if (hwloc_get_cpubind(pool->topology, pool->allowed, HWLOC_CPUBIND_THREAD) != 0)
        hwloc_bitmap_copy(pool->allowed, hwloc_topology_get_allowed_cpuset(pool->topology));
    size_t cores = count_cores(pool);
    pool->threads = threads ? threads : cores ? cores : 1;
    pool->worker = aligned_alloc(HA_TEAM_LINE, pool->threads * sizeof *pool->worker);
    if (!pool->worker || !choose_places(pool, cores)) return ha_why(why, HA_ERROR, "thread pool: out of memory");
    for (size_t w = 0; w < pool->threads; w++) pool->worker[w] = (struct worker){ .pool = pool, .index = w };
    return pool->kind->start(pool, why);
}

const char *ha_team_name(size_t team) { return team < HA_TEAMS ? kinds[team]->name : NULL; }

enum ha_status ha_pool_create(struct ha_pool **out, enum ha_team team, size_t threads, struct ha_why *why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static _Atomic uint64_t pools;
    pthread_once(&once, name_lanes);
    *out = NULL;
    if (threads > HA_POOL_THREADS_MAX)
        return ha_why(why, HA_ERROR, "%zu threads: at most %d", threads, HA_POOL_THREADS_MAX);
    struct ha_pool *pool = aligned_alloc(HA_TEAM_LINE, sizeof *pool);
    if (!pool) return ha_why(why, HA_ERROR, "thread pool: out of memory");
    memset(pool, 0, sizeof *pool);
    pool->kind = kinds[team];
    pool->awake = HA_POOL_THREADS_MAX;
    pool->id = atomic_fetch_add(&pools, UINT64_C(1)) + 1;
    enum ha_status status = set_up(pool, threads, why);
    if (status == HA_OK) *out = pool;
    else ha_pool_destroy(pool);
    return status;
}

size_t ha_pool_threads(const struct ha_pool *pool) { return pool->threads; }

enum ha_team ha_pool_team(const struct ha_pool *pool)
{
    return pool->kind == &ha_team_own ? HA_TEAM_OWN : HA_TEAM_OPENMP;
}

static void run(struct ha_pool *pool, const struct job *job)
{
    if (job->groups == 0) return;
    for (size_t g = 0; g < job->groups; g++) job->group[g].pulled = 0;
    place_caller(pool);
    pool->job = *job;
    pool->job.caller = ha_order_identity();
    if (pool->threads > 1 && (job->groups > 1 || job->group->tasks > 1)) pool->kind->run(pool);
    else ha_team_work(pool, 0); /* for one task nobody needs to be woken */
}

/* A run without groups, whose one group is the pool's. */
static struct job all(struct ha_pool *pool, const char *name, size_t tasks,
                      void (*fn)(void *arg, size_t task, size_t worker), void *arg)
{
    ha_pool_wait(pool);
    pool->all = (struct ha_pool_group){ .tasks = tasks, .fn = fn, .arg = arg };
    return (struct job){ .name = name, .group = &pool->all, .groups = 1 };
}

void ha_pool_run(struct ha_pool *pool, const char *name, size_t tasks,
                 void (*fn)(void *arg, size_t task, size_t worker), void *arg)
{
    const struct job job = all(pool, name, tasks, fn, arg);
    run(pool, &job);
}

void ha_pool_each(struct ha_pool *pool, const char *name, void (*fn)(void *arg, size_t task, size_t worker), void *arg)
{
    struct job job = all(pool, name, pool->threads, fn, arg);
    job.each = true;
    run(pool, &job);
}

void ha_pool_run_groups(struct ha_pool *pool, const char *name, struct ha_pool_group *group, size_t groups)
{
    ha_pool_wait(pool);
    run(pool, &(struct job){ .name = name, .group = group, .groups = groups });
}

enum ha_status ha_pool_background(struct ha_pool *pool, struct ha_why *why)
{
    return pool->background ? HA_OK : ha_worker_create(&pool->background, why);
}

static void run_started(void *arg)
{
    struct ha_pool *pool = arg;
    run(pool, &pool->started_job);
}

static void start(struct ha_pool *pool, struct job job)
{
    pool->started_job = job;
    pool->ticket = ha_worker_submit(pool->background, job.name, run_started, pool);
}

void ha_pool_start(struct ha_pool *pool, const char *name, size_t tasks,
                   void (*fn)(void *arg, size_t task, size_t worker), void *arg)
{
    start(pool, all(pool, name, tasks, fn, arg));
}

void ha_pool_start_groups(struct ha_pool *pool, const char *name, struct ha_pool_group *group, size_t groups)
{
    ha_pool_wait(pool);
    start(pool, (struct job){ .name = name, .group = group, .groups = groups });
}

void ha_pool_wait(struct ha_pool *pool)
{
    if (pool->background) ha_worker_wait(pool->background, pool->ticket);
}

void ha_pool_share(struct ha_pool *pool) { atomic_store_explicit(&pool->awake, 1, memory_order_relaxed); }

void ha_pool_rest(struct ha_pool *pool) { atomic_store_explicit(&pool->awake, 0, memory_order_relaxed); }

void ha_pool_trace(struct ha_pool *pool, const struct ha_span_sink *sink)
{
    ha_pool_wait(pool);
    pool->sink = sink;
}

void ha_pool_delay(struct ha_pool *pool, struct ha_delays *delays)
{
    ha_pool_wait(pool);
    pool->delays = delays;
}

void ha_pool_destroy(struct ha_pool *pool)
{
    if (!pool) return;
    ha_worker_destroy(pool->background); /* which ends what was started */
    pool->kind->end(pool);
    for (size_t w = 0; pool->place && w < pool->threads; w++) hwloc_bitmap_free(pool->place[w]);
    free(pool->place);
    free(pool->worker);
    hwloc_bitmap_free(pool->allowed);
    free(pool);
}
