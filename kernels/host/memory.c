#include "kernels/host/host.h"

#include "harness/base/why.h"

#include <inttypes.h>

enum ha_status ha_host_mem_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                 struct ha_why *why)
{
    struct ha_host_memory *m = &dev->memory;
    enum { NOTHING_MUCH = 1 << 20 }; /* is not worth reading five files for */
    const uint64_t available = bytes < NOTHING_MUCH ? 0 : ha_memory_available();
    /* Linux would grant it and kill the process at first touch; without /proc nobody knows */
    if (available && bytes > available - available / 16)
        return ha_why(why, HA_ERROR,
                      "host device: %zu bytes of %s memory asked for, %" PRIu64
                      " available; use a smaller case, or set " HA_MEMORY_UNCHECKED
                      " where the system gives more as needed",
                      bytes, ha_memory_name(kind), available);
    void *block = ha_alloc(m->arena, bytes, HA_TAG_SCRATCH, why);
    if (!block) return HA_ERROR;
    if (!ha_regions_add(&m->regions, (struct ha_region){ .base = block, .bytes = bytes, .kind = kind })) {
        ha_free(m->arena, block);
        return ha_why(why, HA_ERROR, "host device: no memory for the list of allocations");
    }
    *ptr = block;
    return HA_OK;
}

void ha_host_mem_free(struct ha_device *dev, enum ha_memory kind, void *ptr)
{
    struct ha_host_memory *m = &dev->memory;
    if (!ptr) return;
    struct ha_region region;
    const bool known = ha_regions_take(&m->regions, kind, ptr, &region);
    struct ha_why why;
    if (!known) ha_host_fail(dev, "mem_free: %p is not an allocation of %s memory", ptr, ha_memory_name(kind));
    else ha_free(m->arena, ptr);
    if (ha_arena_check(m->arena, &why) != HA_OK) ha_host_fail(dev, "device memory is damaged: %s", why.text);
}

enum ha_place ha_host_operand(struct ha_stream *stream, const char *operation, const char *role, const void *ptr,
                              size_t bytes, unsigned allowed)
{
    struct ha_why why;
    const enum ha_place place = ha_regions_place(&stream->device->memory.regions, role, ptr, bytes, allowed, &why);
    if (!place) ha_host_fail(stream->device, "%s on %s: %s", operation, stream->lane, why.text);
    return place;
}
