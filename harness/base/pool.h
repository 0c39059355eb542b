#ifndef HA_BASE_POOL_H
#define HA_BASE_POOL_H

#include "harness/api/device.h"

#include <stdalign.h>

/* The CPU side's threads, each pinned to a core of its own (hwloc) where the process is allowed to and has as many;
 * tasks are pulled from one counter, lowest index first. The caller is worker 0: it is moved to its core but keeps its
 * affinity. One run at a time, called or started, by whichever thread: the next waits for what was started.
 * Workers that have a core each stay awake for a moment after a run, so that the next one starts and ends within a few
 * cache misses; then they sleep, as do workers that share cores at once. */

/* Whose threads they are: OpenMP's runtime, which lends the same ones to every pool that a thread calls, or the pool's
 * own. A process that is forked from one with an OpenMP pool makes none itself. How long threads stay awake can be told
 * to LLVM's runtime, libomp; with gcc's, libgomp, it is what the environment says (OMP_WAIT_POLICY, GOMP_SPINCOUNT). */
enum ha_team { HA_TEAM_OPENMP, HA_TEAM_OWN, HA_TEAMS, HA_TEAM_DEFAULT = HA_TEAM_OPENMP };
const char *ha_team_name(size_t team); /* "openmp", "own"; NULL behind the last */

enum {
    HA_POOL_THREADS_MAX = 1024,
    HA_POOL_AWAKE_NS = 1000000, /* from one layer of a step to the next; libomp counts in milliseconds */
};

struct ha_pool;
struct ha_delays; /* harness/base/delays.h */

/* Takes an OMP_NUM_THREADS that is no list of 1 to HA_POOL_THREADS_MAX threads out of the environment, with a warning.
 * LLVM's runtime reads such a list to numbers of any size, and may abort or never end. Before the first pool; pools do
 * not depend on this variable. */
void ha_pool_environment(void);

/* threads = 0: one for each core that the process may use */
enum ha_status ha_pool_create(struct ha_pool **pool, enum ha_team team, size_t threads, struct ha_why *why);
size_t ha_pool_threads(const struct ha_pool *pool);
enum ha_team ha_pool_team(const struct ha_pool *pool);
/* Others need the cores between runs, as a device that computes on this host does: from now on workers sleep at once */
void ha_pool_share(struct ha_pool *pool);
/* No clock watches: the caller sleeps at once, too, where it waits for the end of a run */
void ha_pool_rest(struct ha_pool *pool);
/* fn(arg, task, worker) for every task in [0, tasks); worker in [0, threads). Returns when all are done. */
void ha_pool_run(struct ha_pool *pool, const char *name, size_t tasks,
                 void (*fn)(void *arg, size_t task, size_t worker), void *arg);

/* Several sets of tasks side by side, each on a group of workers of its own: ScoutAttention gives each sequence of a
 * batch one (section 4). Workers are dealt evenly and in order: worker w of `threads` is of group w * groups / threads.
 * Where there are fewer workers than groups it has several, up to the next worker's first one, which it works off one
 * after the other. A worker pulls tasks of its own groups only, and is idle when they have none left. */
struct ha_pool_group {
    alignas(64) size_t tasks; /* may be 0 */
    void (*fn)(void *arg, size_t task, size_t worker);
    void *arg;
    size_t pulled; /* the pool's: tasks so far; atomic */
};
void ha_pool_run_groups(struct ha_pool *pool, const char *name, struct ha_pool_group *group, size_t groups);

/* Makes the thread that started runs are called from: before the first of them; again does nothing. */
enum ha_status ha_pool_background(struct ha_pool *pool, struct ha_why *why);
/* The same runs, begun and not awaited: the caller is no worker, a thread of the pool's is worker 0 in its place. What
 * the tasks read and write, groups too, stays until ha_pool_wait has returned, after which it is the caller's again. */
void ha_pool_start(struct ha_pool *pool, const char *name, size_t tasks,
                   void (*fn)(void *arg, size_t task, size_t worker), void *arg);
void ha_pool_start_groups(struct ha_pool *pool, const char *name, struct ha_pool_group *group, size_t groups);
void ha_pool_wait(struct ha_pool *pool); /* returns at once where nothing was started */

/* fn(arg, worker, worker) once on every worker, however long one of them takes: for memory that each touches first */
void ha_pool_each(struct ha_pool *pool, const char *name, void (*fn)(void *arg, size_t task, size_t worker), void *arg);
/* Spans (HA_SPAN_CPU, lanes "cpu 0", "cpu 1", ...) go to sink, one for each worker that did work in a run, from its
 * first task to the end of its last, and cut where it stores (harness/base/stores.h); NULL ends it. Lanes live as long
 * as the process. Waits for what was started. */
void ha_pool_trace(struct ha_pool *pool, const struct ha_span_sink *sink);
/* Before each task its worker sleeps as long as is drawn; NULL ends it. Waits for what was started. */
void ha_pool_delay(struct ha_pool *pool, struct ha_delays *delays);
void ha_pool_destroy(struct ha_pool *pool);

#endif
