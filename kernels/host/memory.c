#include "kernels/host/host.h"

#include "harness/base/why.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_name[] = { "device", "pinned", "mapped" };

void ha_host_memory_size(uint64_t *total_bytes, uint64_t *free_bytes)
{
    *total_bytes = *free_bytes = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    if (!file) return;
    char line[128];
    while (fgets(line, sizeof line, file)) {
        unsigned long long kib;
        if (sscanf(line, "MemTotal: %llu", &kib) == 1) *total_bytes = kib * 1024;
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1) *free_bytes = kib * 1024;
    }
    fclose(file);
}

/* index of the first region that starts after ptr */
static size_t after(const struct ha_host_memory *m, const char *ptr)
{
    size_t lo = 0, hi = m->count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((uintptr_t)m->regions[mid].base > (uintptr_t)ptr) hi = mid;
        else lo = mid + 1;
    }
    return lo;
}

static bool region_add(struct ha_host_memory *m, struct ha_host_region region)
{
    if (m->count == m->capacity) {
        size_t capacity = m->capacity ? 2 * m->capacity : 64;
        struct ha_host_region *grown = realloc(m->regions, capacity * sizeof *grown);
        if (!grown) return false;
        m->regions = grown;
        m->capacity = capacity;
    }
    size_t at = after(m, region.base);
    memmove(m->regions + at + 1, m->regions + at, (m->count - at) * sizeof *m->regions);
    m->regions[at] = region;
    m->count++;
    return true;
}

enum ha_status ha_host_mem_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr, struct ha_why *why)
{
    struct ha_host_memory *m = &dev->memory;
    uint64_t total, available;
    ha_host_memory_size(&total, &available);
    /* Linux would grant it and kill the process at first touch */
    if (bytes > available - available / 16)
        return ha_why(why, HA_ERROR, "host device: %zu bytes of %s memory asked for, %llu available; use a smaller case", bytes,
                      kind_name[kind], (unsigned long long)available);
    void *block = ha_alloc(m->arena, bytes, HA_TAG_SCRATCH, why);
    if (!block) return HA_ERROR;
    pthread_mutex_lock(&m->lock);
    bool added = region_add(m, (struct ha_host_region){ block, bytes, kind });
    pthread_mutex_unlock(&m->lock);
    if (!added) {
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
    pthread_mutex_lock(&m->lock);
    size_t at = after(m, ptr);
    bool known = at > 0 && m->regions[at - 1].base == ptr && m->regions[at - 1].kind == kind;
    if (known) {
        memmove(m->regions + at - 1, m->regions + at, (m->count - at) * sizeof *m->regions);
        m->count--;
    }
    pthread_mutex_unlock(&m->lock);
    struct ha_why why;
    if (!known) ha_host_fail(dev, "mem_free: %p is not an allocation of %s memory", ptr, kind_name[kind]);
    else ha_free(m->arena, ptr);
    if (ha_arena_check(m->arena, &why) != HA_OK) ha_host_fail(dev, "device memory is damaged: %s", why.text);
}

size_t ha_host_room(struct ha_device *dev, const void *ptr, enum ha_memory *kind)
{
    struct ha_host_memory *m = &dev->memory;
    size_t room = 0;
    pthread_mutex_lock(&m->lock);
    const size_t at = after(m, ptr);
    const struct ha_host_region *hit = at > 0 ? &m->regions[at - 1] : NULL;
    if (hit && (uintptr_t)ptr - (uintptr_t)hit->base < hit->bytes) {
        room = hit->bytes - ((uintptr_t)ptr - (uintptr_t)hit->base);
        if (kind) *kind = hit->kind;
    }
    pthread_mutex_unlock(&m->lock);
    return room;
}

enum ha_host_place ha_host_operand(struct ha_stream *stream, const char *operation, const char *role, const void *ptr,
                                   size_t bytes, unsigned allowed)
{
    static const char *const wanted[16] = {
        [HA_AT_DEVICE] = "device memory", [HA_AT_MAPPED] = "mapped memory",
        [HA_AT_DEVICE | HA_AT_MAPPED] = "device or mapped memory",
        [HA_AT_PINNED | HA_AT_MAPPED | HA_AT_PAGEABLE] = "host memory",
    };
    struct ha_host_memory *m = &stream->device->memory;
    if (bytes == 0) return HA_AT_DEVICE;
    if (!ptr) {
        ha_host_fail(stream->device, "%s on %s: %s is NULL", operation, stream->lane, role);
        return 0;
    }
    enum ha_host_place place = HA_AT_PAGEABLE;
    struct ha_host_region hit = { 0 };
    bool out = false;
    const uintptr_t begin = (uintptr_t)ptr;
    pthread_mutex_lock(&m->lock);
    size_t at = after(m, ptr);
    if (at > 0 && begin - (uintptr_t)m->regions[at - 1].base < m->regions[at - 1].bytes) {
        hit = m->regions[at - 1];
        place = (enum ha_host_place)(1 << hit.kind);
        out = bytes > hit.bytes - (begin - (uintptr_t)hit.base);
    } else if (at < m->count && (uintptr_t)m->regions[at].base - begin < bytes) {
        hit = m->regions[at];
        out = true;
    }
    pthread_mutex_unlock(&m->lock);
    if (out) {
        ha_host_fail(stream->device, "%s on %s: %s [%p, +%zu bytes) leaves the allocation of %s memory [%p, +%zu bytes)",
                     operation, stream->lane, role, ptr, bytes, kind_name[hit.kind], (void *)hit.base, hit.bytes);
        return 0;
    }
    if (!(place & allowed)) {
        ha_host_fail(stream->device, "%s on %s: %s %p is %s memory and must be %s", operation, stream->lane, role, ptr,
                     place == HA_AT_PAGEABLE ? "pageable host" : kind_name[hit.kind], wanted[allowed]);
        return 0;
    }
    return place;
}
