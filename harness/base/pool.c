#include "harness/base/pool.h"
#include "harness/base/clock.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <hwloc.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINE = 64 };

/* A word that somebody waits for, and how many have gone to sleep over it. */
struct gate {
    alignas(LINE) atomic_uint word;
    atomic_uint asleep;
};

struct job {
    const char *name;
    void (*fn)(void *arg, size_t task, size_t worker);
    void *arg;
    size_t tasks;
    bool each; /* task w is worker w's */
};

struct worker {
    alignas(LINE) struct ha_pool *pool;
    size_t index;
    pthread_t thread; /* of all but worker 0 */
    _Atomic uint64_t busy_ns;
};

struct ha_pool {
    size_t threads, started; /* workers besides the caller that run */
    hwloc_topology_t topology;
    hwloc_cpuset_t allowed; /* of the thread that made the pool */
    hwloc_cpuset_t *place;  /* [threads], or NULL: more workers than cores, none is pinned */
    const struct ha_span_sink *sink;
    struct worker *worker; /* [threads] */
    struct gate start;     /* runs begun */
    struct job job;        /* on the line after, written before start.word moves */
    bool ending;
    atomic_bool shared;               /* the cores, with others, between runs */
    struct gate done;                 /* workers besides the caller that have yet to finish the run */
    alignas(LINE) atomic_size_t next; /* task to be pulled */
};

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

static hwloc_topology_t load_topology(void)
{
    hwloc_topology_t t;
    if (hwloc_topology_init(&t) != 0) return NULL;
    hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(t, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(t) == 0) return t;
    hwloc_topology_destroy(t);
    return NULL;
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

/* ---- waiting --------------------------------------------------------------------------------- */

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* `yield` takes no time on most cores */
#endif
}

/* Looks at the word until it is `want`; false: it was not for so long. */
static bool spin(struct gate *g, unsigned want, uint64_t patience_ns)
{
    enum { LOOKS = 64 };

    for (uint64_t end_ns = 0, now_ns = 0; now_ns <= end_ns && patience_ns;) {
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(&g->word, memory_order_acquire) == want) return true;
            relax();
        }
        now_ns = ha_now_ns();
        if (!end_ns) end_ns = now_ns + patience_ns;
    }
    return false;
}

/* No wake-up is lost. Who waits counts itself asleep and then looks at the word; who moves the word does so and then
 * looks at the count. All four are sequentially consistent: in their one order either the count comes before its look,
 * and it wakes, or the look at the count comes before the count, and so the moved word before the look at it. Between
 * that look and sleep the kernel compares the word once more, under the lock that a wake-up takes. */
static void await(struct gate *g, unsigned want, uint64_t patience_ns)
{
    if (spin(g, want, patience_ns)) return;
    atomic_fetch_add(&g->asleep, 1u);
    for (unsigned now; (now = atomic_load(&g->word)) != want;)
        syscall(SYS_futex, &g->word, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
    atomic_fetch_sub(&g->asleep, 1u);
}

static void wake(struct gate *g)
{
    if (atomic_load(&g->asleep)) syscall(SYS_futex, &g->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* What a worker with a core of its own stays awake for: from one layer of a step to the next. One that shares its core
 * would only keep others from theirs. */
enum { AWAKE_NS = 100000 };

/* ---- runs -------------------------------------------------------------------------------------- */

/* One worker's part of a run. */
static void work(struct ha_pool *pool, struct worker *self)
{
    const struct job job = pool->job;
    const size_t worker = self->index;
    struct ha_span span = { .kind = HA_SPAN_CPU, .lane = lanes[worker], .name = job.name };

    for (size_t task;
         (task = job.each ? worker : atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed)) < job.tasks;) {
        if (!span.begin_ns) span.begin_ns = ha_now_ns();
        job.fn(job.arg, task, worker);
        if (job.each) break;
    }
    if (!span.begin_ns) return;
    span.end_ns = ha_now_ns();
    atomic_fetch_add_explicit(&self->busy_ns, span.end_ns - span.begin_ns, memory_order_relaxed);
    if (pool->sink) pool->sink->span(pool->sink->self, &span);
}

/* Where pinning is refused a worker runs on unpinned. */
static void *worker_main(void *arg)
{
    struct worker *self = arg;
    struct ha_pool *pool = self->pool;

    hwloc_set_cpubind(pool->topology, pool->place ? pool->place[self->index] : pool->allowed, HWLOC_CPUBIND_THREAD);
    for (unsigned run = 1;; run++) {
        await(&pool->start, run,
              pool->place && !atomic_load_explicit(&pool->shared, memory_order_relaxed) ? AWAKE_NS : 0);
        if (pool->ending) return NULL;
        work(pool, self);
        /* the run may end with this, and the next one begin: a wake-up too many finds nobody, or who looks again */
        if (atomic_fetch_sub(&pool->done.word, 1u) == 1) wake(&pool->done);
    }
}

/* Ends the workers that were started. */
static void end_workers(struct ha_pool *pool)
{
    pool->ending = true;
    atomic_fetch_add(&pool->start.word, 1u);
    wake(&pool->start);
    for (size_t w = 1; w <= pool->started; w++) pthread_join(pool->worker[w].thread, NULL);
}

static enum ha_status start_workers(struct ha_pool *pool, struct ha_why *why)
{
    for (size_t w = 0; w < pool->threads; w++) {
        pool->worker[w] = (struct worker){ .pool = pool, .index = w };
        if (w == 0) continue;
        const int error = ha_thread_start(&pool->worker[w].thread, worker_main, &pool->worker[w]);
        if (error)
            return ha_why(why, HA_ERROR, "thread pool: cannot start thread %zu of %zu: %s", w + 1, pool->threads,
                          strerror(error));
        pool->started++;
    }
    return HA_OK;
}

static enum ha_status set_up(struct ha_pool *pool, size_t threads, struct ha_why *why)
{
    pool->topology = load_topology();
    pool->allowed = hwloc_bitmap_alloc();
    if (!pool->topology || !pool->allowed)
        return ha_why(why, HA_ERROR, "thread pool: hwloc cannot read this machine's topology");
    if (hwloc_get_cpubind(pool->topology, pool->allowed, HWLOC_CPUBIND_THREAD) != 0)
        hwloc_bitmap_copy(pool->allowed, hwloc_topology_get_allowed_cpuset(pool->topology));
    size_t cores = count_cores(pool);
    pool->threads = threads ? threads : cores ? cores : 1;
    pool->worker = aligned_alloc(LINE, pool->threads * sizeof *pool->worker);
    if (!pool->worker || !choose_places(pool, cores)) return ha_why(why, HA_ERROR, "thread pool: out of memory");
    return start_workers(pool, why);
}

enum ha_status ha_pool_create(struct ha_pool **out, size_t threads, struct ha_why *why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, name_lanes);
    *out = NULL;
    if (threads > HA_POOL_THREADS_MAX)
        return ha_why(why, HA_ERROR, "%zu threads: at most %d", threads, HA_POOL_THREADS_MAX);
    struct ha_pool *pool = aligned_alloc(LINE, sizeof *pool);
    if (!pool) return ha_why(why, HA_ERROR, "thread pool: out of memory");
    memset(pool, 0, sizeof *pool);
    enum ha_status status = set_up(pool, threads, why);
    if (status == HA_OK) *out = pool;
    else ha_pool_destroy(pool);
    return status;
}

size_t ha_pool_threads(const struct ha_pool *pool) { return pool->threads; }

static void run(struct ha_pool *pool, const struct job *job)
{
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    place_caller(pool);
    pool->job = *job;
    if (pool->started && job->tasks > 1) { /* for one task nobody needs to be woken */
        atomic_store_explicit(&pool->done.word, (unsigned)pool->started, memory_order_relaxed);
        atomic_fetch_add(&pool->start.word, 1u);
        wake(&pool->start);
    }
    work(pool, &pool->worker[0]);
    await(&pool->done, 0, pool->place ? AWAKE_NS : 0);
}

void ha_pool_run(struct ha_pool *pool, const char *name, size_t tasks,
                 void (*fn)(void *arg, size_t task, size_t worker), void *arg)
{
    run(pool, &(struct job){ .name = name, .fn = fn, .arg = arg, .tasks = tasks });
}

void ha_pool_each(struct ha_pool *pool, const char *name, void (*fn)(void *arg, size_t task, size_t worker), void *arg)
{
    run(pool, &(struct job){ .name = name, .fn = fn, .arg = arg, .tasks = pool->threads, .each = true });
}

void ha_pool_share(struct ha_pool *pool) { atomic_store_explicit(&pool->shared, true, memory_order_relaxed); }

void ha_pool_trace(struct ha_pool *pool, const struct ha_span_sink *sink) { pool->sink = sink; }

uint64_t ha_pool_busy_ns(struct ha_pool *pool)
{
    uint64_t sum = 0;
    for (size_t w = 0; w < pool->threads; w++)
        sum += atomic_exchange_explicit(&pool->worker[w].busy_ns, 0, memory_order_relaxed);
    return sum;
}

void ha_pool_destroy(struct ha_pool *pool)
{
    if (!pool) return;
    end_workers(pool);
    for (size_t w = 0; pool->place && w < pool->threads; w++) hwloc_bitmap_free(pool->place[w]);
    free(pool->place);
    free(pool->worker);
    hwloc_bitmap_free(pool->allowed);
    if (pool->topology) hwloc_topology_destroy(pool->topology);
    free(pool);
}
