#include "harness/base/team.h"
#include "harness/base/text.h"
#include "harness/base/why.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of LLVM's runtime; other runtimes have no such thing. How many milliseconds the calling thread stays awake where it
 * waits next: threads of a region begin with what its caller has. And that who is awake gives its core away only where
 * there are more threads than cores, not every few microseconds. */
extern void kmp_set_blocktime(int ms) __attribute__((weak));
extern void kmp_set_library_turnaround(void) __attribute__((weak));

static void stay_awake(const struct ha_pool *pool, size_t worker)
{
    if (kmp_set_blocktime) kmp_set_blocktime(ha_team_awake(pool, worker) ? HA_POOL_AWAKE_NS / 1000000 : 0);
}

/* "4", " 4 , 2 " */
static bool are_numbers(const char *text)
{
    char *end = NULL;
    for (;; text = end + 1) {
        text += strspn(text, " \t");
        if (*text < '0' || *text > '9') return false;
        const unsigned long n = strtoul(text, &end, 10);
        if (n < 1 || n > HA_POOL_THREADS_MAX) return false;
        end += strspn(end, " \t");
        if (!*end) return true;
        if (*end != ',') return false;
    }
}

void ha_pool_environment(void)
{
    static const char name[] = "OMP_NUM_THREADS";
    const char *text = getenv(name);
    if (!text || are_numbers(text)) return;
    fprintf(stderr, "warning: %s is '", name);
    ha_text_print(stderr, text);
    fprintf(stderr, "', not 1 to %d threads, and is ignored: --threads says how many\n", HA_POOL_THREADS_MAX);
    unsetenv(name);
}

/* The runtime lends one set of threads to all pools: a thread stays where the last pool that used it has put it. */
static void settle(const struct ha_pool *pool, size_t worker)
{
    static _Thread_local struct {
        uint64_t pool;
        size_t worker;
    } placed;
    if (placed.pool == pool->id && placed.worker == worker) return;
    ha_team_place(pool, worker);
    placed.pool = pool->id;
    placed.worker = worker;
}

/* A run from within a parallel region gets fewer threads than it has workers: each is then several of them. */
static void openmp_run(struct ha_pool *pool)
{
    omp_set_dynamic(0); /* as many threads as are asked for */
    stay_awake(pool, 1);
#pragma omp parallel num_threads((int)pool->threads)
    {
        const size_t team = (size_t)omp_get_num_threads();
        size_t worker = (size_t)omp_get_thread_num();
        if (worker > 0) settle(pool, worker);
        else if (ha_team_awake(pool, 0) != ha_team_awake(pool, 1)) stay_awake(pool, 0);
        for (; worker < pool->threads; worker += team) ha_team_work(pool, worker);
    }
}

/* Settings of the environment may bind the caller to a core (OMP_PROC_BIND), or limit the number of threads. */
static enum ha_status openmp_start(struct ha_pool *pool, struct ha_why *why)
{
    int team = 1;
    if (pool->threads == 1) return HA_OK;
    if (kmp_set_library_turnaround && !omp_in_parallel()) kmp_set_library_turnaround();
    omp_set_dynamic(0); /* as many threads as are asked for */
    stay_awake(pool, 1);
#pragma omp parallel num_threads((int)pool->threads)
    {
        if (omp_get_thread_num() > 0) settle(pool, (size_t)omp_get_thread_num());
        else team = omp_get_num_threads();
    }
    hwloc_set_cpubind(pool->topology, pool->allowed, HWLOC_CPUBIND_THREAD);
    if ((size_t)team == pool->threads) return HA_OK;
    return ha_why(why, HA_ERROR, "OpenMP gives a team of %d threads, not %zu: unset OMP_THREAD_LIMIT, or say team=own",
                  team, pool->threads);
}

/* The threads are the runtime's, and serve the next pool. */
static void openmp_end(struct ha_pool *pool) { (void)pool; }

const struct ha_team_kind ha_team_openmp = {
    .name = "openmp", .start = openmp_start, .run = openmp_run, .end = openmp_end
};
