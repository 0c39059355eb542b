#include "suites/parts/crew.h"

#include "harness/base/clock.h"
#include "harness/base/stores.h"
#include "harness/base/why.h"
#include "harness/base/worker.h"

static const char *const lanes[HA_CREW_MAX] = { "transfer 0", "transfer 1", "transfer 2", "transfer 3",
                                                "transfer 4", "transfer 5", "transfer 6", "transfer 7" };

enum ha_status ha_crew_create(struct ha_crew *c, size_t threads, struct ha_why *why)
{
    *c = (struct ha_crew){ .threads = 0 };
    if (threads < 1 || threads > HA_CREW_MAX)
        return ha_why(why, HA_ERROR, "%zu threads: 1 to %d", threads, HA_CREW_MAX);
    c->threads = threads;
    for (size_t i = 1; i < threads; i++) {
        c->hand[i] = (struct ha_crew_hand){ .crew = c, .index = i };
        HA_TRY(ha_worker_create(&c->hand[i].worker, why));
    }
    return HA_OK;
}

void ha_crew_end(struct ha_crew *c)
{
    for (size_t i = 1; i < c->threads; i++) ha_worker_destroy(c->hand[i].worker);
    c->threads = 0;
}

static void work_off(struct ha_crew *c, size_t worker)
{
    for (size_t task; (task = __atomic_fetch_add(&c->next, 1, __ATOMIC_RELAXED)) < c->tasks;)
        c->fn(c->arg, task, worker);
}

static void work(void *arg)
{
    const struct ha_crew_hand *hand = arg;
    struct ha_crew *c = hand->crew;
    struct ha_span span = { .begin_ns = ha_now_ns(), .kind = HA_SPAN_CPU, .lane = lanes[hand->index], .name = c->name };
    const struct ha_stores_lane outer = ha_stores_within((struct ha_stores_lane){ c->sink, &span });
    work_off(c, hand->index);
    ha_stores_within(outer);
    span.end_ns = ha_now_ns();
    if (c->sink) c->sink->span(c->sink->self, &span);
}

void ha_crew_run(struct ha_crew *c, const char *name, size_t tasks, void (*fn)(void *arg, size_t task, size_t worker),
                 void *arg)
{
    const struct ha_stores_lane own = ha_stores_within((struct ha_stores_lane){ .sink = NULL });
    ha_stores_within(own);
    c->name = name;
    c->fn = fn;
    c->arg = arg;
    c->tasks = tasks;
    c->next = 0;
    c->sink = own.sink;
    const size_t hands = tasks < c->threads ? tasks : c->threads;
    for (size_t i = 1; i < hands; i++) c->hand[i].ticket = ha_worker_submit(c->hand[i].worker, name, work, &c->hand[i]);
    work_off(c, 0);
    for (size_t i = 1; i < hands; i++) ha_worker_wait(c->hand[i].worker, c->hand[i].ticket);
}
