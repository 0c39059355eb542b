#ifndef HA_BASE_POOL_H
#define HA_BASE_POOL_H

#include "harness/api/device.h"

/* The CPU side's threads: OpenMP workers, each pinned to a core of its own (hwloc) where the process
 * is allowed to and has as many; tasks are pulled from one counter, lowest index first. The
 * caller is worker 0: it is moved to its core but keeps its affinity. One caller at a time. */

enum { HA_POOL_THREADS_MAX = 1024 };

struct ha_pool;

/* threads = 0: one for each core that the process may use */
enum ha_status ha_pool_create(struct ha_pool **pool, size_t threads, struct ha_why *why);
size_t ha_pool_threads(const struct ha_pool *pool);
/* fn(arg, task, worker) for every task in [0, tasks); worker in [0, threads). Returns when all are done. */
void ha_pool_run(struct ha_pool *pool, const char *name, size_t tasks, void (*fn)(void *arg, size_t task, size_t worker), void *arg);
/* Spans (HA_SPAN_CPU, lanes "cpu 0", "cpu 1", ..., one for each worker and run that did work) go to
 * sink; NULL ends it. Lanes live as long as the process. Not while a run is under way. */
void ha_pool_trace(struct ha_pool *pool, const struct ha_span_sink *sink);
/* sum of the workers' compute time since the last call, counted always: from a worker's first
 * task in a run to the end of its last */
uint64_t ha_pool_busy_ns(struct ha_pool *pool);
void ha_pool_destroy(struct ha_pool *pool);

#endif
