#include "kernels/regions.h"

#include "harness/base/array.h"
#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

const char *ha_memory_name(enum ha_memory kind)
{
    static const char *const name[] = {
        [HA_MEM_DEVICE] = "device", [HA_MEM_PINNED] = "pinned", [HA_MEM_MAPPED] = "mapped"
    };
    return name[kind];
}

void ha_regions_init(struct ha_regions *r)
{
    *r = (struct ha_regions){ .list = NULL };
    pthread_mutex_init(&r->lock, NULL);
}

void ha_regions_end(struct ha_regions *r)
{
    free(r->list);
    pthread_mutex_destroy(&r->lock);
}

/* index of the first region that starts after ptr */
static size_t after(const struct ha_regions *r, const void *ptr)
{
    size_t lo = 0, hi = r->count;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if ((uintptr_t)r->list[mid].base > (uintptr_t)ptr) hi = mid;
        else lo = mid + 1;
    }
    return lo;
}

bool ha_regions_add(struct ha_regions *r, struct ha_region region)
{
    pthread_mutex_lock(&r->lock);
    const bool room = ha_array_room(&r->list, &r->capacity, r->count + 1, sizeof *r->list);
    if (room) {
        const size_t at = after(r, region.base);
        memmove(r->list + at + 1, r->list + at, (r->count - at) * sizeof *r->list);
        r->list[at] = region;
        r->count++;
    }
    pthread_mutex_unlock(&r->lock);
    return room;
}

bool ha_regions_take(struct ha_regions *r, enum ha_memory kind, const void *ptr, struct ha_region *out)
{
    pthread_mutex_lock(&r->lock);
    const size_t at = after(r, ptr);
    const bool known = at > 0 && r->list[at - 1].base == ptr && r->list[at - 1].kind == kind;
    if (known) {
        *out = r->list[at - 1];
        memmove(r->list + at - 1, r->list + at, (r->count - at) * sizeof *r->list);
        r->count--;
    }
    pthread_mutex_unlock(&r->lock);
    return known;
}

/* Its allocation, or with bytes > 0 the one that the range runs into; false: it touches none. */
static bool find(struct ha_regions *r, const void *ptr, size_t bytes, struct ha_region *hit)
{
    const uintptr_t begin = (uintptr_t)ptr;
    pthread_mutex_lock(&r->lock);
    const size_t at = after(r, ptr);
    const bool inside = at > 0 && begin - (uintptr_t)r->list[at - 1].base < r->list[at - 1].bytes;
    const bool runs_into = !inside && at < r->count && (uintptr_t)r->list[at].base - begin < bytes;
    if (inside || runs_into) *hit = r->list[inside ? at - 1 : at];
    pthread_mutex_unlock(&r->lock);
    return inside || runs_into;
}

size_t ha_regions_room(struct ha_regions *r, const void *ptr, enum ha_memory *kind)
{
    struct ha_region hit;
    if (!find(r, ptr, 0, &hit)) return 0;
    if (kind) *kind = hit.kind;
    return hit.bytes - ((uintptr_t)ptr - (uintptr_t)hit.base);
}

enum ha_place ha_regions_place(struct ha_regions *r, const char *role, const void *ptr, size_t bytes, unsigned allowed,
                               struct ha_why *why)
{
    static const char *const wanted[16] = {
        [HA_AT_DEVICE] = "device memory",
        [HA_AT_MAPPED] = "mapped memory",
        [HA_AT_DEVICE | HA_AT_MAPPED] = "device or mapped memory",
        [HA_AT_PINNED | HA_AT_MAPPED | HA_AT_PAGEABLE] = "host memory",
    };
    struct ha_region hit;
    if (bytes == 0) return HA_AT_DEVICE;
    if (!ptr) {
        ha_why(why, HA_ERROR, "%s is NULL", role);
        return 0;
    }
    const bool allocated = find(r, ptr, bytes, &hit);
    const size_t offset = allocated ? (uintptr_t)ptr - (uintptr_t)hit.base
                                    : 0; /* wraps where the range begins before it */
    if (allocated && !(offset < hit.bytes && bytes <= hit.bytes - offset)) {
        ha_why(why, HA_ERROR, "%s [%p, +%zu bytes) leaves the allocation of %s memory [%p, +%zu bytes)", role, ptr,
               bytes, ha_memory_name(hit.kind), (void *)hit.base, hit.bytes);
        return 0;
    }
    const enum ha_place place = allocated ? (enum ha_place)(1 << hit.kind) : HA_AT_PAGEABLE;
    if (!(place & allowed)) {
        ha_why(why, HA_ERROR, "%s %p is %s memory and must be %s", role, ptr,
               allocated ? ha_memory_name(hit.kind) : "pageable host", wanted[allowed]);
        return 0;
    }
    return place;
}
