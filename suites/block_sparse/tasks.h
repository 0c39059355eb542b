#ifndef HA_BLOCK_SPARSE_TASKS_H
#define HA_BLOCK_SPARSE_TASKS_H

/* One queue of tasks for both sides: the pool's workers and the thread that launches work on the device each take a
 * whole task when they are free, the most urgent first (Fluxion). Who took what is kept. One thread fills it; then any
 * number take from it, without locks. */

#include "harness/api/variant.h"

#include <stdatomic.h>

enum ha_tasks_order { HA_TASKS_GIVEN, HA_TASKS_LARGEST }; /* as added; largest value first, ties as added */
enum ha_taker { HA_TAKEN_BY_NONE, HA_TAKEN_BY_HOST, HA_TAKEN_BY_DEVICE };

struct ha_tasks {
    size_t count, tasks_max;
    float *value;              /* [tasks_max] by task: its place in the order of addition */
    uint32_t *line;            /* [count] tasks in the order in which they are taken */
    _Atomic unsigned char *by; /* [count] enum ha_taker, by task */
    _Atomic size_t head[2];    /* before this the side finds nothing more */
    /* NULL: each may take all. Which tasks a side may take: the answer stays the same until the next fill. */
    bool (*may)(const void *arg, bool device_side, size_t task);
    const void *may_arg;
};

enum ha_status ha_tasks_create(struct ha_tasks *t, const struct ha_context *ctx, size_t tasks_max, struct ha_why *why);
/* Tasks 0 .. count-1, none of them taken; value: [count] or, as given, NULL. A NaN is less than any number. Nobody
 * takes meanwhile; what makes the takers begin orders this before them. HA_ERROR: more than tasks_max. */
enum ha_status ha_tasks_fill(struct ha_tasks *t, enum ha_tasks_order order, const float *value, size_t count,
                             struct ha_why *why);
/* The next task is the caller's; false: there is none left that this side may take. */
bool ha_tasks_take(struct ha_tasks *t, bool device_side, size_t *task);
/* Once nobody takes any more: for what is reported. */
enum ha_taker ha_tasks_taker(const struct ha_tasks *t, size_t task);

#endif
