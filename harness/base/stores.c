#include "harness/base/stores.h"

#include "harness/base/clock.h"

#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

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

void ha_store_stream(void *dst, const void *src, size_t bytes)
{
#if defined(__x86_64__)
    if (((uintptr_t)dst | bytes) % 16 == 0) {
        for (size_t i = 0; i < bytes; i += 16)
            _mm_stream_si128((__m128i *)(void *)((char *)dst + i),
                             _mm_loadu_si128((const __m128i *)(const void *)((const char *)src + i)));
        return;
    }
#endif
    memcpy(dst, src, bytes);
}

void ha_store_fence(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#else
    __sync_synchronize();
#endif
}
