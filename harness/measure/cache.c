#include "harness/measure/cache.h"

#include "harness/base/text.h"

#include <hwloc.h>

#include <math.h>
#include <string.h>

enum { SHARED_LEVEL = 3 };

double ha_cache_usable_bytes(const struct ha_cache *caches, size_t count, bool guest)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        const struct ha_cache *c = &caches[i];
        double share = c->cores ? c->bytes * (double)c->own / (double)c->cores : 0;
        if (guest && c->level >= SHARED_LEVEL) share = fmin(share, HA_CACHE_GUEST_BYTES * (double)c->own);
        sum += share;
    }
    return sum;
}

static bool is_guest(void)
{
    char flags[8192];
    ha_text_line("/proc/cpuinfo", "flags", flags, sizeof flags);
    return strstr(flags, " hypervisor ");
}

static double of_topology(hwloc_topology_t t, hwloc_bitmap_t mine)
{
    static const hwloc_obj_type_t level[] = { HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE };
    const bool guest = is_guest();
    double sum = 0;
    for (int l = 0; l < 2; l++)
        for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(t, level[l], o));) {
            hwloc_bitmap_t both = hwloc_bitmap_dup(o->cpuset);
            if (!both) return sum;
            hwloc_bitmap_and(both, both, mine);
            const struct ha_cache c = { l + 2, (double)o->attr->cache.size, (size_t)hwloc_bitmap_weight(o->cpuset),
                                        (size_t)hwloc_bitmap_weight(both) };
            sum += ha_cache_usable_bytes(&c, 1, guest);
            hwloc_bitmap_free(both);
        }
    return sum;
}

double ha_cache_own_bytes(void)
{
    hwloc_bitmap_t mine = hwloc_bitmap_alloc();
    hwloc_topology_t t;
    double bytes = 0;
    if (mine && hwloc_topology_init(&t) == 0) {
        if (hwloc_topology_load(t) == 0 && hwloc_get_cpubind(t, mine, HWLOC_CPUBIND_PROCESS) == 0)
            bytes = of_topology(t, mine);
        hwloc_topology_destroy(t);
    }
    hwloc_bitmap_free(mine);
    return bytes;
}
