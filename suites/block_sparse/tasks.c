#include "suites/block_sparse/tasks.h"

#include "harness/base/arena.h"
#include "harness/base/why.h"

#include <math.h>

enum ha_status ha_tasks_create(struct ha_tasks *t, const struct ha_context *ctx, size_t tasks_max, struct ha_why *why)
{
    *t = (struct ha_tasks){ .tasks_max = tasks_max };
    t->value = ha_alloc(ctx->arena, tasks_max * sizeof *t->value, HA_TAG_META, why);
    t->line = t->value ? ha_alloc(ctx->arena, tasks_max * sizeof *t->line, HA_TAG_META, why) : NULL;
    t->by = t->line ? ha_alloc(ctx->arena, tasks_max * sizeof *t->by, HA_TAG_META, why) : NULL;
    return t->by ? HA_OK : HA_ERROR;
}

static bool before(const struct ha_tasks *t, uint32_t a, uint32_t b)
{
    const float x = t->value[a], y = t->value[b];
    if (isnan(x) || isnan(y)) return isnan(x) == isnan(y) ? a < b : isnan(y);
    return x > y || (x == y && a < b);
}

/* Shell's sort: qsort may allocate. */
static void sort(struct ha_tasks *t)
{
    size_t gap = 1;
    while (gap < t->count / 3) gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (size_t i = gap; i < t->count; i++) {
            const uint32_t task = t->line[i];
            size_t at = i;
            for (; at >= gap && before(t, task, t->line[at - gap]); at -= gap) t->line[at] = t->line[at - gap];
            t->line[at] = task;
        }
}

enum ha_status ha_tasks_fill(struct ha_tasks *t, enum ha_tasks_order order, const float *value, size_t count,
                             struct ha_why *why)
{
    if (count > t->tasks_max) return ha_why(why, HA_ERROR, "%zu tasks, with room for %zu", count, t->tasks_max);
    t->count = count;
    for (size_t i = 0; i < count; i++) {
        t->line[i] = (uint32_t)i;
        atomic_store_explicit(&t->by[i], HA_TAKEN_BY_NONE, memory_order_relaxed);
    }
    for (int side = 0; side < 2; side++) atomic_store_explicit(&t->head[side], 0, memory_order_relaxed);
    if (order == HA_TASKS_GIVEN) return HA_OK;
    for (size_t i = 0; i < count; i++) t->value[i] = value[i];
    sort(t);
    return HA_OK;
}

bool ha_tasks_take(struct ha_tasks *t, bool device_side, size_t *task)
{
    const unsigned char by = device_side ? HA_TAKEN_BY_DEVICE : HA_TAKEN_BY_HOST;
    for (size_t i = atomic_load_explicit(&t->head[device_side], memory_order_relaxed); i < t->count; i++) {
        unsigned char none = HA_TAKEN_BY_NONE;
        *task = t->line[i];
        if (t->may && !t->may(t->may_arg, device_side, *task)) continue;
        if (!atomic_compare_exchange_strong_explicit(&t->by[*task], &none, by, memory_order_relaxed,
                                                     memory_order_relaxed))
            continue;
        /* all before it are taken, or not for this side; another thread of the side may put the head back, which only
         * makes the next one look again */
        atomic_store_explicit(&t->head[device_side], i + 1, memory_order_relaxed);
        return true;
    }
    return false;
}

enum ha_taker ha_tasks_taker(const struct ha_tasks *t, size_t task)
{
    return (enum ha_taker)atomic_load_explicit(&t->by[task], memory_order_relaxed);
}
