#ifndef HA_PARTS_TEST_MEMORY_H
#define HA_PARTS_TEST_MEMORY_H

/* For tests: a device that is memory, at once. It begins as NaN, so that a token that was not copied is seen. */

#include "harness/api/device.h"
#include "harness/base/test.h"

static inline enum ha_status memory_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                          struct ha_why *because)
{
    *ptr = malloc(bytes);
    if (*ptr) memset(*ptr, 0xFF, bytes);
    return *ptr ? HA_OK : HA_ERROR;
}
static inline void memory_free(struct ha_device *dev, enum ha_memory kind, void *ptr) { free(ptr); }
static inline enum ha_status memory_copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                         enum ha_direction dir)
{
    memcpy(dst, src, bytes);
    return HA_OK;
}
static inline enum ha_status memory_copy_2d(struct ha_stream *stream, void *dst, size_t dst_stride, const void *src,
                                            size_t src_stride, size_t row_bytes, size_t rows, enum ha_direction dir)
{
    for (size_t i = 0; i < rows; i++)
        memcpy((char *)dst + i * dst_stride, (const char *)src + i * src_stride, row_bytes);
    return HA_OK;
}
static inline enum ha_status memory_sync(struct ha_stream *stream) { return HA_OK; }

static const struct ha_device_api memory = { .name = "memory",
                                             .mem_alloc = memory_alloc,
                                             .mem_free = memory_free,
                                             .copy = memory_copy,
                                             .copy_2d = memory_copy_2d,
                                             .stream_sync = memory_sync };

#endif
