#include "harness/measure/meter.h"

#include <stdatomic.h>
#include <string.h>

static struct ha_device_api metered;
static const struct ha_device_api *real;
static atomic_uint_fast64_t counted[3], copies;

static void count(enum ha_direction dir, size_t bytes)
{
    atomic_fetch_add_explicit(&counted[dir], bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&copies, 1, memory_order_relaxed);
}

static enum ha_status copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    count(dir, bytes);
    return real->copy(stream, dst, src, bytes, dir);
}

static enum ha_status copy_2d(struct ha_stream *stream, void *dst, size_t dst_stride, const void *src, size_t src_stride,
                              size_t row_bytes, size_t rows, enum ha_direction dir)
{
    count(dir, row_bytes * rows);
    return real->copy_2d(stream, dst, dst_stride, src, src_stride, row_bytes, rows, dir);
}

const struct ha_device_api *ha_meter_wrap(const struct ha_device_api *api)
{
    memset(&metered, 0, sizeof metered);
    memcpy(&metered, api, api->struct_bytes < sizeof metered ? api->struct_bytes : sizeof metered);
    real = api;
    if (metered.copy)
        metered.copy = copy;
    if (metered.copy_2d)
        metered.copy_2d = copy_2d;
    return &metered;
}

struct ha_meter_count ha_meter_take(void)
{
    return (struct ha_meter_count){ atomic_exchange(&counted[HA_H2D], 0), atomic_exchange(&counted[HA_D2H], 0),
                                    atomic_exchange(&copies, 0) };
}
