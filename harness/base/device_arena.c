#include "harness/base/device_arena.h"
#include "harness/base/fence.h"
#include "harness/base/order.h"
#include "harness/base/tally.h"
#include "harness/base/why.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct block {
    struct block *next;
    void *base, *ptr; /* ptr is given out */
    size_t bytes, fences_bytes;
    enum ha_memory kind;
    enum ha_tag tag;
};

struct kept_event {
    struct kept_event *next;
    struct ha_event *event;
};

struct ha_device_arena {
    const struct ha_device_api *api;
    struct ha_device *device;
    pthread_mutex_t lock;
    struct block *blocks; /* newest first */
    struct kept_event *events;
    struct ha_device_fill fill; /* stream NULL: as the device gives it */
    void *staging;              /* one of the blocks, or NULL */
    size_t staging_bytes;
    struct ha_tally on_device, on_host;
};

static const char *memory_name(enum ha_memory kind)
{
    return kind == HA_MEM_DEVICE ? "device" : kind == HA_MEM_PINNED ? "pinned" : "mapped";
}

static struct ha_tally *tally_of(struct ha_device_arena *arena, enum ha_memory kind)
{
    return kind == HA_MEM_DEVICE ? &arena->on_device : &arena->on_host;
}

enum ha_status ha_device_arena_create(struct ha_device_arena **arena, const struct ha_device_api *api,
                                      struct ha_device *device, struct ha_why *why)
{
    *arena = calloc(1, sizeof **arena);
    if (!*arena) return ha_why(why, HA_ERROR, "device arena: out of memory");
    (*arena)->api = api;
    (*arena)->device = device;
    pthread_mutex_init(&(*arena)->lock, NULL);
    return HA_OK;
}

void ha_device_arena_fill(struct ha_device_arena *arena, const struct ha_device_fill *fill) { arena->fill = *fill; }

static enum ha_status fill(const struct ha_device_arena *arena, enum ha_memory kind, char *ptr, size_t bytes,
                           struct ha_why *why)
{
    enum { PIECE = 1 << 18 };
    const struct ha_device_fill *f = &arena->fill;
    if (kind != HA_MEM_DEVICE) {
        memset(ptr, f->byte, bytes);
        ha_order_thread_access("fill", "what memory held", HA_WRITE, ptr, 1, 0, bytes);
        return HA_OK;
    }
    const size_t most = bytes < PIECE ? bytes : PIECE;
    char *from = malloc(most);
    if (!from) return ha_why(why, HA_ERROR, "no host memory to fill it from");
    memset(from, f->byte, most);
    enum ha_status status = HA_OK;
    for (size_t at = 0; at < bytes && status == HA_OK; at += most)
        status = f->api->copy(f->stream, ptr + at, from, bytes - at < most ? bytes - at : most, HA_H2D);
    const enum ha_status synced = f->api->stream_sync(f->stream);
    free(from);
    return status == HA_OK && synced == HA_OK ? HA_OK : ha_why(why, HA_ERROR, "it could not be filled");
}

void *ha_device_alloc(struct ha_device_arena *arena, enum ha_memory kind, size_t bytes, enum ha_tag tag,
                      struct ha_why *why)
{
    return ha_device_alloc_fenced(arena, kind, bytes, 0, tag, why);
}

void *ha_device_alloc_fenced(struct ha_device_arena *arena, enum ha_memory kind, size_t bytes, size_t fences_bytes,
                             enum ha_tag tag, struct ha_why *why)
{
    struct ha_why reason = { "" };
    struct block *b = malloc(sizeof *b);
    void *base = NULL;
    enum { LINE = 256 };
    const size_t before = arena->fill.stream ? LINE + arena->fill.shift : 0, all = bytes + fences_bytes;
    /* one byte for none: a device may answer a request for nothing with a null pointer */
    bool got = b && arena->api->mem_alloc(arena->device, kind, (all ? all : 1) + before, &base, &reason) == HA_OK
               && base;
    char *ptr = base;
    if (got && before) ptr += (LINE - (uintptr_t)base % LINE) % LINE + arena->fill.shift;
    if (got && arena->fill.stream && all && fill(arena, kind, ptr, all, &reason) != HA_OK) {
        arena->api->mem_free(arena->device, kind, base);
        got = false;
    }
    if (!got) {
        ha_why(why, HA_ERROR, "out of %s memory of device %s: %zu bytes (%s)%s%s", memory_name(kind), arena->api->name,
               bytes, ha_tag_name(tag), *reason.text ? ": " : "", reason.text);
        free(b);
        return NULL;
    }
    pthread_mutex_lock(&arena->lock);
    *b = (struct block){ .next = arena->blocks,
                         .base = base,
                         .ptr = ptr,
                         .bytes = bytes,
                         .fences_bytes = fences_bytes,
                         .kind = kind,
                         .tag = tag };
    arena->blocks = b;
    ha_tally_add(tally_of(arena, kind), tag, bytes);
    pthread_mutex_unlock(&arena->lock);
    return ptr;
}

static bool in_this_process(const struct ha_device_arena *arena)
{
    return !strcmp(arena->api->kind, "host") || !strcmp(arena->api->kind, "emulated");
}

void ha_device_fence(struct ha_device_arena *arena, void *ptr, size_t bytes)
{
    if (in_this_process(arena)) HA_FENCE(ptr, bytes);
}

static void block_release(struct ha_device_arena *arena, struct block *b)
{
    if (b->fences_bytes && in_this_process(arena)) HA_UNFENCE(b->ptr, b->bytes + b->fences_bytes);
    arena->api->mem_free(arena->device, b->kind, b->base);
    free(b);
}

void ha_device_free(struct ha_device_arena *arena, void *ptr)
{
    if (!ptr) return;
    pthread_mutex_lock(&arena->lock);
    struct block **link = &arena->blocks;
    while (*link && (*link)->ptr != ptr) link = &(*link)->next;
    struct block *b = *link;
    if (b) {
        *link = b->next;
        ha_tally_sub(tally_of(arena, b->kind), b->tag, b->bytes);
    }
    pthread_mutex_unlock(&arena->lock);
    if (b) block_release(arena, b);
}

void *ha_device_staging(struct ha_device_arena *arena, size_t bytes, struct ha_why *why)
{
    if (arena->staging && bytes <= arena->staging_bytes) return arena->staging;
    ha_device_free(arena, arena->staging);
    arena->staging = ha_device_alloc(arena, HA_MEM_PINNED, bytes, HA_TAG_SCRATCH, why);
    arena->staging_bytes = bytes;
    return arena->staging;
}

static size_t peak_bytes(struct ha_device_arena *arena, const struct ha_tally *tally, enum ha_tag tag)
{
    pthread_mutex_lock(&arena->lock);
    size_t peak = tally->peak[tag];
    pthread_mutex_unlock(&arena->lock);
    return peak;
}

size_t ha_device_arena_peak_bytes(struct ha_device_arena *arena, enum ha_tag tag)
{
    return peak_bytes(arena, &arena->on_device, tag);
}

size_t ha_pinned_peak_bytes(struct ha_device_arena *arena, enum ha_tag tag)
{
    return peak_bytes(arena, &arena->on_host, tag);
}

enum ha_status ha_device_event(struct ha_device_arena *arena, struct ha_event **event, struct ha_why *why)
{
    struct kept_event *e = malloc(sizeof *e);
    if (!e) return ha_why(why, HA_ERROR, "no host memory for an event");
    const enum ha_status status = arena->api->event_create(arena->device, event, why);
    if (status != HA_OK) {
        free(e);
        return status;
    }
    pthread_mutex_lock(&arena->lock);
    *e = (struct kept_event){ arena->events, *event };
    arena->events = e;
    pthread_mutex_unlock(&arena->lock);
    return HA_OK;
}

void ha_device_arena_destroy(struct ha_device_arena *arena)
{
    if (!arena) return;
    for (struct kept_event *e = arena->events, *next; e; e = next) {
        next = e->next;
        arena->api->event_destroy(e->event);
        free(e);
    }
    for (struct block *b = arena->blocks, *next; b; b = next) {
        next = b->next;
        block_release(arena, b);
    }
    pthread_mutex_destroy(&arena->lock);
    free(arena);
}
