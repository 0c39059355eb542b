#ifndef HA_PARTS_CREW_H
#define HA_PARTS_CREW_H

/* A few threads of one caller's own, which is the first of them: for an engine in the background, beside which others
 * use the pool. Not bound to places. */

#include "harness/api/device.h"

enum { HA_CREW_MAX = 8 };
struct ha_worker;
struct ha_crew {
    size_t threads;
    struct ha_crew_hand {
        struct ha_crew *crew;
        struct ha_worker *worker;
        uint64_t ticket;
        size_t index;
    } hand[HA_CREW_MAX]; /* from the second on */
    const char *name;
    void (*fn)(void *arg, size_t task, size_t worker);
    void *arg;
    size_t tasks, next;              /* next: atomic */
    const struct ha_span_sink *sink; /* where the caller's spans go, and theirs */
};

/* What was made before a failure ha_crew_end ends, too. */
enum ha_status ha_crew_create(struct ha_crew *c, size_t threads, struct ha_why *why);
/* fn(arg, task, worker) for every task, worker below threads. Returns when all are done; by one thread at a time. */
void ha_crew_run(struct ha_crew *c, const char *name, size_t tasks, void (*fn)(void *arg, size_t task, size_t worker),
                 void *arg);
void ha_crew_end(struct ha_crew *c);

#endif
