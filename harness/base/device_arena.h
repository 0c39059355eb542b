#ifndef HA_BASE_DEVICE_ARENA_H
#define HA_BASE_DEVICE_ARENA_H

#include "harness/api/device.h"
#include "harness/base/arena.h"

/* The device's counterpart of the arena: owns what it hands out, memory and events, and counts memory by tag; pinned
 * and mapped memory counts as host memory. Thread-safe. */

struct ha_device_arena;

enum ha_status ha_device_arena_create(struct ha_device_arena **arena, const struct ha_device_api *api,
                                      struct ha_device *device, struct ha_why *why);
/* What blocks hold from now on, before anything is written to them, and that they begin `shift` bytes behind a multiple
 * of 256: what a device gives may be anything, and what is computed must depend on neither. */
struct ha_device_fill {
    const struct ha_device_api *api;
    struct ha_stream *stream; /* that copies it there; waited for */
    unsigned char byte;
    size_t shift; /* a multiple of 64 */
};
void ha_device_arena_fill(struct ha_device_arena *arena, const struct ha_device_fill *fill);
/* NULL, with why filled in (kind, bytes, the device's reason) */
void *ha_device_alloc(struct ha_device_arena *arena, enum ha_memory kind, size_t bytes, enum ha_tag tag,
                      struct ha_why *why);
/* The same with more memory than is counted, of which nobody writes anything: fences. */
void *ha_device_alloc_fenced(struct ha_device_arena *arena, enum ha_memory kind, size_t bytes, size_t fences_bytes,
                             enum ha_tag tag, struct ha_why *why);
/* A fence of such a block: AddressSanitizer stops at whatever touches it, where the device is in this process. */
void ha_device_fence(struct ha_device_arena *arena, void *ptr, size_t bytes);
void ha_device_free(struct ha_device_arena *arena, void *ptr);
/* Pinned memory of the arena's own, at least `bytes`, for what goes up in pieces: the same one each time, so whoever
 * had it before is done with it. NULL, with why filled in. */
void *ha_device_staging(struct ha_device_arena *arena, size_t bytes, struct ha_why *why);
/* an event that nobody destroys but the arena, when it is destroyed */
enum ha_status ha_device_event(struct ha_device_arena *arena, struct ha_event **event, struct ha_why *why);
size_t ha_device_arena_peak_bytes(struct ha_device_arena *arena, enum ha_tag tag); /* HA_MEM_DEVICE only */
size_t ha_pinned_peak_bytes(struct ha_device_arena *arena, enum ha_tag tag);       /* pinned and mapped */
void ha_device_arena_destroy(struct ha_device_arena *arena);

#endif
