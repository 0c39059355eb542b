#ifndef HA_KERNELS_REGIONS_H
#define HA_KERNELS_REGIONS_H

/* What a device has allocated, by address, and whether an operand lies in it. Thread-safe. */

#include "harness/api/device.h"

#include <pthread.h>

enum ha_place { HA_AT_DEVICE = 1, HA_AT_PINNED = 2, HA_AT_MAPPED = 4, HA_AT_PAGEABLE = 8 };

struct ha_region {
    char *base;
    size_t bytes;
    enum ha_memory kind;
    size_t mapping_bytes; /* the device's own mark */
};

struct ha_regions {
    pthread_mutex_t lock;
    struct ha_region *list; /* by address */
    size_t count, capacity;
};

void ha_regions_init(struct ha_regions *r);
void ha_regions_end(struct ha_regions *r); /* of the list alone: what it names is the device's */
/* false: no memory for the list */
bool ha_regions_add(struct ha_regions *r, struct ha_region region);
/* takes the allocation of that kind that begins at ptr off the list; false: there is none */
bool ha_regions_take(struct ha_regions *r, enum ha_memory kind, const void *ptr, struct ha_region *out);
/* Bytes from ptr to the end of its allocation, and the kind of that (may be NULL); 0: it lies in none. */
size_t ha_regions_room(struct ha_regions *r, const void *ptr, enum ha_memory *kind);
/* Where [ptr, ptr + bytes) lies. 0, and why: that is not one of `allowed`, or the range leaves its allocation. bytes =
 * 0 is always right. */
enum ha_place ha_regions_place(struct ha_regions *r, const char *role, const void *ptr, size_t bytes, unsigned allowed,
                               struct ha_why *why);
const char *ha_memory_name(enum ha_memory kind);

#endif
