#include "harness/base/stores.h"

#include "harness/base/clock.h"

#include <stdatomic.h>

static atomic_uint_fast64_t stored;
static _Thread_local struct ha_stores_lane now;

struct ha_stores_lane ha_stores_within(struct ha_stores_lane lane)
{
    const struct ha_stores_lane before = now;
    now = lane;
    return before;
}

uint64_t ha_stores_begin(void) { return now.sink ? ha_now_ns() : 0; }

void ha_stores_end(uint64_t begun, size_t bytes)
{
    atomic_fetch_add_explicit(&stored, bytes, memory_order_relaxed);
    if (!begun) return;
    struct ha_span work = *now.span, store = { .begin_ns = begun,
                                               .end_ns = ha_now_ns(),
                                               .bytes = bytes,
                                               .kind = HA_SPAN_H2D,
                                               .lane = work.lane,
                                               .name = "store" };
    work.end_ns = begun;
    if (work.end_ns > work.begin_ns) now.sink->span(now.sink->self, &work);
    now.sink->span(now.sink->self, &store);
    now.span->begin_ns = store.end_ns;
}

uint64_t ha_stores_take(void) { return atomic_exchange(&stored, 0); }
