#ifndef HA_KERNELS_HOST_TEST_BLOCKS_H
#define HA_KERNELS_HOST_TEST_BLOCKS_H

/* Operands of what a device computes: blocks that are full of a poison where nothing was put. */

#include "kernels/host/test_fixture.h"

#include "harness/base/numeric.h"
#include "harness/base/rng.h"

enum { POISON = 0xFF };

/* every other block in mapped memory */
static __attribute__((unused)) void *block(size_t bytes)
{
    static size_t count;
    return memset(device_alloc(dev, count++ % 2 ? HA_MEM_MAPPED : HA_MEM_DEVICE, bytes + 1), POISON, bytes);
}
static __attribute__((unused)) void *device_block(size_t bytes)
{
    return memset(device_alloc(dev, HA_MEM_DEVICE, bytes + 1), POISON, bytes);
}
static inline void release_memory(void)
{
    for (size_t i = device_owned; i-- > 0;)
        if (device_own[i].thing == DEVICE_MEMORY) device_release_at(i);
}
static inline void normals(void *out, size_t n, enum ha_dtype dtype, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) ha_store(out, i, dtype, ha_rng_normal(seed, dtype, i));
}
static inline bool poisoned(const void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)p)[i] != POISON) return false;
    return true;
}

#endif
