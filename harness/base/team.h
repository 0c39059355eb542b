#ifndef HA_BASE_TEAM_H
#define HA_BASE_TEAM_H

/* What a pool and the two teams of threads behind it share; nobody else includes this. */

#include "harness/base/order.h"
#include "harness/base/pool.h"

#include <hwloc.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

enum { HA_TEAM_LINE = 64 };

/* A word that threads wait for, and how many of them sleep. */
struct gate {
    alignas(HA_TEAM_LINE) atomic_uint word;
    atomic_uint asleep;
};

struct job {
    const char *name;
    struct ha_pool_group *group; /* [groups] */
    size_t groups;               /* at least one */
    bool each;                   /* task w is worker w's */
    struct ha_order_identity caller;
};

struct worker {
    alignas(HA_TEAM_LINE) struct ha_pool *pool;
    size_t index;
    pthread_t thread; /* own: of all but worker 0 */
};

struct ha_team_kind {
    const char *name;
    enum ha_status (*start)(struct ha_pool *pool, struct ha_why *why);
    void (*run)(struct ha_pool *pool); /* ha_team_work once for each worker; returns when all are back */
    void (*end)(struct ha_pool *pool); /* also after a start that failed */
};
extern const struct ha_team_kind ha_team_own, ha_team_openmp;

struct ha_pool {
    const struct ha_team_kind *kind;
    size_t threads, started; /* own: workers besides the caller that run */
    uint64_t id;             /* of this pool among all of the process, from 1 */
    hwloc_topology_t topology;
    hwloc_cpuset_t allowed; /* of the thread that made the pool */
    hwloc_cpuset_t *place;  /* [threads], or NULL: more workers than cores, none is pinned */
    const struct ha_span_sink *sink;
    struct ha_delays *delays; /* before a task; or NULL */
    struct worker *worker;    /* [threads] */
    struct gate start;        /* own: runs begun */
    struct job job;           /* on the line after, written before start.word moves */
    bool ending;
    struct ha_worker *background; /* that calls what is started, or NULL */
    struct job started_job;       /* what it calls next */
    uint64_t ticket;              /* of that */
    atomic_size_t awake;          /* so many workers stay awake between runs, the first ones */
    struct gate done;             /* own: workers besides the caller that have yet to finish the run */
    struct ha_pool_group all;     /* of a run that has one group */
};

/* One worker's part of a run. */
void ha_team_work(struct ha_pool *pool, size_t worker);
/* Puts the calling thread on the worker's place. */
void ha_team_place(const struct ha_pool *pool, size_t worker);
/* Whether it stays awake for HA_POOL_AWAKE_NS where it waits, or sleeps at once: one that shares its core would only
 * keep others from theirs. The caller waits for the end of a run, the others for the next one. */
bool ha_team_awake(const struct ha_pool *pool, size_t worker);

#endif
