/* CPU stores into device memory through GDRCopy: libgdrapi.so.2 and its kernel module gdrdrv, found at run time. Whole
 * GPU pages of 64 KiB are pinned and mapped around what was asked for. */

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/library.h"

#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

#define LIBRARY "libgdrapi.so.2"
static const uintptr_t PAGE = 65536;

#if !defined HA_CUDA_EMULATED && __has_include(<gdrapi.h>)
#include <gdrapi.h>
#define HAS_HEADER 1
#else
struct gdr_mh_s {
    unsigned long h;
};
#endif

/* ABI 2 of the library; what can fail gives an errno */
#define ENTRIES(X)                                                                                               \
    X(open, gdr_open, void *, (void))                                                                            \
    X(close, gdr_close, int, (void *gdr))                                                                        \
    X(pin, gdr_pin_buffer, int,                                                                                  \
      (void *gdr, unsigned long address, size_t bytes, uint64_t token, uint32_t space, struct gdr_mh_s *handle)) \
    X(unpin, gdr_unpin_buffer, int, (void *gdr, struct gdr_mh_s handle))                                         \
    X(map, gdr_map, int, (void *gdr, struct gdr_mh_s handle, void **at, size_t bytes))                           \
    X(unmap, gdr_unmap, int, (void *gdr, struct gdr_mh_s handle, void *at, size_t bytes))
struct entries {
    ENTRIES(HA_CUDA_MEMBER)
};
static const struct ha_cuda_symbol symbols[] = { ENTRIES(HA_CUDA_SYMBOL) };
enum { SYMBOLS = sizeof symbols / sizeof *symbols };
#ifdef HAS_HEADER
static inline void same(void) { ENTRIES(HA_CUDA_SAME) }
#endif

struct mapping {
    struct mapping *next;
    struct gdr_mh_s handle;
    void *at, *host; /* of the first page; of what was asked for */
    size_t bytes;    /* whole pages */
};
struct gdrcopy {
    struct entries call;
    void *library, *gdr;
    struct mapping *mappings;
};

static enum ha_status gdr_start(struct gdrcopy *g, struct ha_why *why)
{
    const char *lacks = ha_cuda_look_up(g->library, &g->call, symbols, SYMBOLS, SYMBOLS);
    if (lacks) return ha_why(why, HA_WAIVED, "GDRCopy: " LIBRARY " has no %s", lacks);
    g->gdr = g->call.open();
    if (g->gdr) return HA_OK;
    return ha_why(why, HA_WAIVED,
                  "GDRCopy: gdr_open failed: is the kernel module gdrdrv loaded, and /dev/gdrdrv there to be opened?");
}

/* Once for a device; where there is none, every call looks again. */
static enum ha_status gdr_make(struct gdrcopy **out, struct ha_why *why)
{
    void *library = dlopen(LIBRARY, RTLD_NOW);
    if (!library) return ha_why(why, HA_WAIVED, "GDRCopy: %s", dlerror());
    struct gdrcopy *g = calloc(1, sizeof *g);
    if (g) g->library = library;
    enum ha_status status = g ? gdr_start(g, why) : ha_why(why, HA_ERROR, "GDRCopy: no host memory");
    if (status == HA_OK) {
        *out = g;
        return HA_OK;
    }
    dlclose(library);
    free(g);
    return status;
}

/* Pinning fails where the window that the GPU shows on the bus is too small. */
static enum ha_status refused(struct ha_why *why, const char *call, int error, size_t bytes)
{
    return ha_why(why, HA_WAIVED, "GDRCopy: %s of %zu bytes: %s (%d); the GPU's BAR1 may be too small", call, bytes,
                  strerror(error), error);
}

static enum ha_status map_pages(struct gdrcopy *g, struct mapping *m, uintptr_t first, struct ha_why *why)
{
    int error = g->call.pin(g->gdr, first, m->bytes, 0, 0, &m->handle);
    if (error) return refused(why, "gdr_pin_buffer", error, m->bytes);
    error = g->call.map(g->gdr, m->handle, &m->at, m->bytes);
    if (!error) return HA_OK;
    g->call.unpin(g->gdr, m->handle);
    return refused(why, "gdr_map", error, m->bytes);
}

static enum ha_status map(struct gdrcopy *g, uintptr_t ptr, size_t bytes, void **host, struct ha_why *why)
{
    const uintptr_t first = ptr & ~(PAGE - 1);
    struct mapping *m = calloc(1, sizeof *m);
    if (!m) return ha_why(why, HA_ERROR, "GDRCopy: no host memory");
    m->bytes = ((ptr + bytes + PAGE - 1) & ~(PAGE - 1)) - first;
    const enum ha_status status = map_pages(g, m, first, why);
    if (status != HA_OK) {
        free(m);
        return status;
    }
    m->host = *host = (char *)m->at + (ptr - first);
    m->next = g->mappings;
    g->mappings = m;
    return HA_OK;
}

enum ha_status ha_cuda_map_device(struct ha_device *dev, void *ptr, size_t bytes, void **host, struct ha_why *why)
{
    enum ha_memory kind;
    const size_t room = ha_regions_room(&dev->memory.regions, ptr, &kind);
    if (!(room > 0 && kind == HA_MEM_DEVICE && bytes > 0 && bytes <= room))
        return ha_why(why, HA_ERROR, "map_device: [%p, +%zu bytes) is not within an allocation of device memory", ptr,
                      bytes);
    pthread_mutex_lock(&dev->lock);
    struct gdrcopy *g = dev->gdr;
    enum ha_status status = g ? HA_OK : gdr_make(&g, why);
    dev->gdr = g;
    if (status == HA_OK) status = map(g, (uintptr_t)ptr, bytes, host, why);
    pthread_mutex_unlock(&dev->lock);
    return status;
}

static void drop(struct gdrcopy *g, struct mapping **link)
{
    struct mapping *m = *link;
    *link = m->next;
    g->call.unmap(g->gdr, m->handle, m->at, m->bytes);
    g->call.unpin(g->gdr, m->handle);
    free(m);
}

void ha_cuda_unmap_device(struct ha_device *dev, void *host)
{
    if (!host) return;
    pthread_mutex_lock(&dev->lock);
    struct gdrcopy *g = dev->gdr;
    struct mapping **link = g ? &g->mappings : NULL;
    while (link && *link && (*link)->host != host) link = &(*link)->next;
    const bool known = link && *link;
    if (known) drop(g, link);
    pthread_mutex_unlock(&dev->lock);
    if (!known) ha_cuda_fail(dev, "unmap_device: %p was not mapped", host);
}

void ha_cuda_gdr_close(struct ha_device *dev)
{
    struct gdrcopy *g = dev->gdr;
    if (!g) return;
    while (g->mappings) drop(g, &g->mappings);
    g->call.close(g->gdr);
    dlclose(g->library);
    free(g);
    dev->gdr = NULL;
}
