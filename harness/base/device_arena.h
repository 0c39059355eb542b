#ifndef HA_BASE_DEVICE_ARENA_H
#define HA_BASE_DEVICE_ARENA_H

#include "harness/api/device.h"
#include "harness/base/arena.h"

/* The device's counterpart of the arena: owns what it hands out and counts it by tag; pinned
 * and mapped memory counts as host memory. Thread-safe. */

struct ha_device_arena;

enum ha_status ha_device_arena_create(struct ha_device_arena **arena, const struct ha_device_api *api,
                                      struct ha_device *device, struct ha_why *why);
/* NULL, with why filled in (kind, bytes, the device's reason) */
void *ha_device_alloc(struct ha_device_arena *arena, enum ha_memory kind, size_t bytes, enum ha_tag tag,
                      struct ha_why *why);
void ha_device_free(struct ha_device_arena *arena, void *ptr);
size_t ha_device_arena_peak_bytes(struct ha_device_arena *arena, enum ha_tag tag); /* HA_MEM_DEVICE only */
size_t ha_pinned_peak_bytes(struct ha_device_arena *arena, enum ha_tag tag);       /* pinned and mapped */
void ha_device_arena_destroy(struct ha_device_arena *arena);

#endif
