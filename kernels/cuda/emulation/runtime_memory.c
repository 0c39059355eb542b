#include "harness/base/array.h"
#include "kernels/cuda/emulation/runtime_inside.h"

#include <stdlib.h>
#include <string.h>

enum { DEVICE_ALIGN = 256, HOST_ALIGN = 4096 };

/* Bases are kept inverted, so that a leak checker sees what nobody else holds. */
static struct region {
    uintptr_t not_base;
    size_t bytes;
    enum region_kind { REGION_DEVICE, REGION_HOST, REGION_REGISTERED } kind;
} * regions; /* by address */
static size_t count, capacity;

static uintptr_t base_of(const struct region *r) { return ~r->not_base; }

/* the first region that ends behind the address */
static size_t region_at(uintptr_t address)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (base_of(&regions[middle]) + regions[middle].bytes > address) high = middle;
        else low = middle + 1;
    }
    return low;
}

static bool within(const struct region *r, uintptr_t address, size_t bytes)
{
    return address >= base_of(r) && bytes <= r->bytes && address - base_of(r) <= r->bytes - bytes;
}

enum ha_runtime_place ha_runtime_place(const void *ptr, size_t bytes)
{
    uintptr_t address = (uintptr_t)ptr;
    if (bytes > UINTPTR_MAX - address) return HA_PLACE_WRONG;
    size_t i = region_at(address);
    if (i == count || base_of(&regions[i]) >= address + bytes) return ptr ? HA_PLACE_PAGEABLE : HA_PLACE_WRONG;
    if (!within(&regions[i], address, bytes)) return HA_PLACE_WRONG;
    return regions[i].kind == REGION_DEVICE ? HA_PLACE_DEVICE : HA_PLACE_HOST;
}

static bool region_add(void *base, size_t bytes, enum region_kind kind)
{
    if (!ha_array_room(&regions, &capacity, count + 1, sizeof *regions)) return false;
    size_t i = region_at((uintptr_t)base);
    memmove(&regions[i + 1], &regions[i], (count - i) * sizeof *regions);
    regions[i] = (struct region){ .not_base = ~(uintptr_t)base, .bytes = bytes, .kind = kind };
    count++;
    return true;
}

static void region_drop(size_t i)
{
    if (regions[i].kind == REGION_DEVICE) ha_runtime.memory_used -= regions[i].bytes;
    if (regions[i].kind != REGION_REGISTERED) free((void *)base_of(&regions[i]));
    memmove(&regions[i], &regions[i + 1], (count - i - 1) * sizeof *regions);
    count--;
}

/* Under the lock, which it leaves for a while: filling takes long. */
static cudaError_t allocate(void **ptr, size_t bytes, enum region_kind kind)
{
    if (!ptr) return cudaErrorInvalidValue;
    *ptr = NULL;
    if (!bytes) return cudaSuccess;
    const size_t used = ha_runtime.memory_used, most = ha_runtime.settings.memory_bytes,
                 counted = kind == REGION_DEVICE ? bytes : 0;
    if (counted && !(used <= most && bytes <= most - used)) return cudaErrorMemoryAllocation;
    ha_runtime.memory_used += counted;
    void *base = NULL;
    ha_runtime_unlock();
    /* fresh memory holds anything: NaN in every floating type shows code that relies on its contents */
    if (posix_memalign(&base, kind == REGION_DEVICE ? DEVICE_ALIGN : HOST_ALIGN, bytes) == 0) memset(base, 0xFF, bytes);
    else base = NULL;
    ha_runtime_lock();
    if (!base || !region_add(base, bytes, kind)) {
        ha_runtime.memory_used -= counted;
        free(base);
        return cudaErrorMemoryAllocation;
    }
    *ptr = base;
    return cudaSuccess;
}

/* Waits for all work first, as drivers do: freeing while a stream waits for a flag that comes later hangs here too. */
static cudaError_t release(cudaError_t error, void *ptr, enum region_kind kind, cudaError_t unknown)
{
    if (!ptr || !ha_runtime_may_release(error)) return error;
    size_t i = region_at((uintptr_t)ptr);
    bool known = i < count && base_of(&regions[i]) == (uintptr_t)ptr && regions[i].kind == kind;
    if (!known) return error ? error : unknown;
    ha_runtime_await_stream(NULL);
    i = region_at((uintptr_t)ptr);
    if (i < count && base_of(&regions[i]) == (uintptr_t)ptr) region_drop(i);
    return error ? error : ha_runtime_lost();
}

void ha_runtime_memory_reset(void)
{
    while (count) region_drop(count - 1);
}

void ha_runtime_regions_free(void)
{
    free(regions);
    regions = NULL;
    count = capacity = 0;
}

struct ha_emulated_alive ha_emulated_alive(void)
{
    struct ha_emulated_alive alive = { 0 };
    ha_runtime_lock();
    for (size_t i = 0; i < count; i++) {
        if (regions[i].kind == REGION_DEVICE) {
            alive.device_blocks++;
            alive.device_bytes += regions[i].bytes;
        } else alive.host_blocks++;
    }
    enum ha_runtime_kind kind;
    for (size_t at = 0; ha_runtime_handle_next(&at, &kind);) {
        if (kind == HA_HANDLE_STREAM) alive.streams++;
        else if (kind == HA_HANDLE_EVENT) alive.events++;
        else alive.graphs++;
    }
    if (ha_runtime.null_stream) alive.streams--;
    ha_runtime_unlock();
    return alive;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaMemGetInfo);
    if (!error && !(free_bytes && total)) error = cudaErrorInvalidValue;
    if (!error) {
        *total = ha_runtime.settings.memory_bytes;
        *free_bytes = *total - ha_runtime.memory_used;
    }
    return ha_runtime_leave(error);
}

cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaMalloc);
    if (!error) error = allocate(ptr, bytes, REGION_DEVICE);
    return ha_runtime_leave(error);
}

cudaError_t ha_emulated_library_alloc(void **ptr, size_t bytes)
{
    bool captures = false;
    ha_runtime_lock();
    for (const struct ha_runtime_stream *s = ha_runtime_streams; s; s = s->next) captures |= s->capture != NULL;
    ha_runtime_unlock();
    return captures ? cudaErrorStreamCaptureUnsupported : cudaMalloc(ptr, bytes);
}

cudaError_t cudaFree(void *ptr)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaFree);
    return ha_runtime_leave(release(error, ptr, REGION_DEVICE, cudaErrorInvalidValue));
}

cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaHostAlloc);
    if (!error && flags & ~3u) error = cudaErrorInvalidValue;
    if (!error) error = allocate(ptr, bytes, REGION_HOST);
    return ha_runtime_leave(error);
}

cudaError_t cudaFreeHost(void *ptr)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaFreeHost);
    return ha_runtime_leave(release(error, ptr, REGION_HOST, cudaErrorInvalidValue));
}

cudaError_t cudaHostRegister(void *ptr, size_t bytes, unsigned flags)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaHostRegister);
    if (!error && (!ptr || !bytes || flags & ~3u)) error = cudaErrorInvalidValue;
    if (!error && ha_runtime_place(ptr, bytes) != HA_PLACE_PAGEABLE) error = cudaErrorHostMemoryAlreadyRegistered;
    if (!error && !region_add(ptr, bytes, REGION_REGISTERED)) error = cudaErrorMemoryAllocation;
    return ha_runtime_leave(error);
}

cudaError_t cudaHostUnregister(void *ptr)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaHostUnregister);
    if (!error && !ptr) error = cudaErrorInvalidValue;
    return ha_runtime_leave(release(error, ptr, REGION_REGISTERED, cudaErrorHostMemoryNotRegistered));
}
