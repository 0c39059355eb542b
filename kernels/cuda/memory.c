#include "kernels/cuda/cuda.h"

#include "harness/base/arena.h"
#include "harness/base/why.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static const size_t huge_page = (size_t)2 << 20;

/* ---- the four ways to memory */

static enum ha_status region_huge(struct ha_region *r, struct ha_why *why)
{
    r->mapping_bytes = (r->bytes + huge_page - 1) / huge_page * huge_page;
    char *all = mmap(NULL, r->mapping_bytes + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return ha_why(why, HA_ERROR, "cuda device: no address space for %zu bytes of %s memory", r->bytes,
                      ha_memory_name(r->kind));
    size_t before = (huge_page - (uintptr_t)all % huge_page) % huge_page;
    if (before) munmap(all, before);
    munmap(all + before + r->mapping_bytes, huge_page - before);
    r->base = all + before;
    madvise(r->base, r->mapping_bytes, MADV_HUGEPAGE); /* advice: without it the pages are small ones */
    cudaError_t error = cudaHostRegister(r->base, r->mapping_bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (error == cudaSuccess) return HA_OK;
    munmap(r->base, r->mapping_bytes);
    return ha_cuda_why(why, error, "cudaHostRegister", "memory with huge pages");
}

static enum ha_status region_make(struct ha_device *dev, struct ha_region *r, struct ha_why *why)
{
    const size_t bytes = r->bytes ? r->bytes : 1;
    char what[96];
    void *ptr = NULL;
    snprintf(what, sizeof what, "%zu bytes of %s memory asked for", r->bytes, ha_memory_name(r->kind));
    if (r->kind == HA_MEM_DEVICE) {
        size_t free_bytes, total;
        cudaError_t error = cudaMemGetInfo(&free_bytes, &total);
        if (error != cudaSuccess) return ha_cuda_why(why, error, "cudaMemGetInfo", what);
        if (bytes > free_bytes && ha_cuda_workspaces_free(dev)) cudaMemGetInfo(&free_bytes, &total);
        if (bytes > free_bytes)
            return ha_why(why, HA_ERROR, "cuda device: %s, %zu free; use a smaller case", what, free_bytes);
        error = cudaMalloc(&ptr, bytes);
        if (error != cudaSuccess) return ha_cuda_why(why, error, "cudaMalloc", what);
    } else {
        const uint64_t available = ha_memory_available();
        /* pages that are pinned cannot be given back: the kernel would end some process instead */
        if (available && bytes > available - available / 16)
            return ha_why(why, HA_ERROR,
                          "cuda device: %s, %" PRIu64 " available; use a smaller case, or set " HA_MEMORY_UNCHECKED
                          " where the system gives more as needed",
                          what, available);
        if (dev->memory.huge_pages && bytes >= huge_page) return region_huge(r, why);
        cudaError_t error = cudaHostAlloc(
            &ptr, bytes, cudaHostAllocPortable | (r->kind == HA_MEM_MAPPED ? cudaHostAllocMapped : 0u));
        if (error != cudaSuccess) return ha_cuda_why(why, error, "cudaHostAlloc", what);
    }
    r->base = ptr;
    return HA_OK;
}

static void region_end(struct ha_device *dev, const struct ha_region *r, const char *what)
{
    if (r->kind == HA_MEM_DEVICE) ha_cuda_check(dev, cudaFree(r->base), "cudaFree", what);
    else if (!r->mapping_bytes) ha_cuda_check(dev, cudaFreeHost(r->base), "cudaFreeHost", what);
    else {
        ha_cuda_check(dev, cudaHostUnregister(r->base), "cudaHostUnregister", what);
        munmap(r->base, r->mapping_bytes);
    }
}

enum ha_status ha_cuda_mem_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                 struct ha_why *why)
{
    struct ha_region region = { .bytes = bytes, .kind = kind };
    if (ha_cuda_failed(dev)) return ha_why(why, HA_ERROR, "cuda device: it has failed before: %.400s", dev->failure);
    ha_cuda_enter();
    HA_TRY(region_make(dev, &region, why));
    if (!ha_regions_add(&dev->memory.regions, region)) {
        region_end(dev, &region, "mem_alloc");
        return ha_why(why, HA_ERROR, "cuda device: no host memory for the list of allocations");
    }
    *ptr = region.base;
    return HA_OK;
}

void ha_cuda_mem_free(struct ha_device *dev, enum ha_memory kind, void *ptr)
{
    struct ha_region region;
    if (!ptr) return;
    if (!ha_regions_take(&dev->memory.regions, kind, ptr, &region)) {
        ha_cuda_fail(dev, "mem_free: %p is not an allocation of %s memory", ptr, ha_memory_name(kind));
        return;
    }
    ha_cuda_enter();
    if (kind == HA_MEM_MAPPED) ha_cuda_watch_passed(dev);
    region_end(dev, &region, "mem_free");
}

void ha_cuda_memory_close(struct ha_device *dev)
{
    ha_cuda_workspaces_free(dev);
    for (size_t i = 0; i < dev->memory.regions.count; i++) region_end(dev, &dev->memory.regions.list[i], "close");
    ha_regions_end(&dev->memory.regions);
}

enum ha_place ha_cuda_operand(struct ha_stream *stream, const char *operation, const char *role, const void *ptr,
                              size_t bytes, unsigned allowed)
{
    struct ha_why why;
    const enum ha_place place = ha_regions_place(&stream->device->memory.regions, role, ptr, bytes, allowed, &why);
    if (!place) ha_cuda_fail_on(stream, operation, "%s", why.text);
    return place;
}
