#ifndef HA_BASE_STORES_H
#define HA_BASE_STORES_H

#include "harness/api/device.h"

/* Bytes that CPU threads store into device memory (map_device of harness/api/device.h). No operation of the device
 * tells of them, so whoever stores says so, in any thread:
 *
 *     const uint64_t begun = ha_stores_begin();
 *     ...stores, and the fence behind them...
 *     ha_stores_end(begun, bytes);
 *
 * They count as bytes to the device. In a task of a pool or a job of a worker that is traced they are also a span
 * (HA_SPAN_H2D, name "store") in the lane of the thread, whose own span ends before it and goes on behind it: a moment
 * in which a thread stores is time of the link and not of attention. One span for each call, so some KiB at a time. */

uint64_t ha_stores_begin(void); /* 0: no spans are wanted of this thread */
void ha_stores_end(uint64_t begun, size_t bytes);
/* The bytes of all threads since the last call. */
uint64_t ha_stores_take(void);

/* For those who give threads their work: the span that is under way in the calling thread, and where spans go.
 * sink NULL: nowhere. Returns the one of before, to put back. */
struct ha_stores_lane {
    const struct ha_span_sink *sink;
    struct ha_span *span;
};
struct ha_stores_lane ha_stores_within(struct ha_stores_lane lane);

#endif
