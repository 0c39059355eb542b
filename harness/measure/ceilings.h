#ifndef HA_CEILINGS_H
#define HA_CEILINGS_H

/* The ceilings of this machine: what floors, link shares and reports are measured against. */

#include "harness/api/device.h"
#include "harness/api/kernels.h"

/* The median and the spread (smallest, largest) of repeated measurements. NaN: could not be measured. */
struct ha_reading {
    double median, lo, hi;
    size_t samples;
};

enum ha_ceiling {
    HA_CEIL_READ_1,
    HA_CEIL_READ_ALL, /* host memory, GB/s: one thread, and all */
    HA_CEIL_COPY_ALL, /* memcpy, bytes copied per second, all threads */
    HA_CEIL_FLOPS_1,
    HA_CEIL_FLOPS_ALL, /* multiply-adds of floats in registers, GFLOP/s, one thread and all */
    HA_CEIL_H2D,
    HA_CEIL_D2H,
    HA_CEIL_BOTH, /* the link, GB/s, by its copy engines; both ways at once, summed */
    HA_CEIL_KERNEL_H2D,
    HA_CEIL_KERNEL_D2H,
    HA_CEIL_KERNEL_BOTH, /* the link, by kernels that read or write mapped memory */
    HA_CEIL_DEVICE_READ, /* device memory, GB/s, by a kernel */
    HA_CEIL_D2D,         /* inside the device, bytes copied per second */
    HA_CEIL_LAUNCH,      /* ns: enqueue of an empty operation until the host sees it done */
    HA_CEIL_ENQUEUE,     /* ns: the enqueue alone, until it returns */
    HA_CEIL_SYNC,        /* ns: waiting for a stream that has nothing to do */
    HA_CEIL_FLAG,        /* ns: host writes a flag, the device answers with another */
    HA_CEIL_CORES,     /* ns: a line of cache from core to core, one way: the median pair, the nearest, the farthest */
    HA_CEIL_POOL,      /* ns: wake-up and join of all CPU threads, right after another */
    HA_CEIL_POOL_IDLE, /* the same after five milliseconds without work */
    HA_CEIL_CLOCK,     /* ns: smallest step of the clock */
};
enum { HA_CEILINGS = HA_CEIL_CLOCK + 1 };

struct ha_ceilings {
    struct ha_reading of[HA_CEILINGS];
    double device_cache_bytes;      /* of its memory, by its fact l2_bytes; 0: it does not say */
    struct ha_device_meters meters; /* read while the device read its memory; NaN and "" where it has none */
};

struct ha_paired_memory;
/* Is there a link, by the kind of the device? One whose memory is this host's has none, and neither has one that moves
 * nothing. */
bool ha_has_link(const char *device_kind);
/* The host's by these kernels' read and flops: the best that this CPU has. brief: about a second in all; else about
 * five. An emulated device is always measured briefly. memory: of the host, which is read (paired.h); NULL: the call
 * makes its own. HA_FAIL: what the device did while the clock ran, or what its spans or its memory are said to be, is
 * not so. */
enum ha_status ha_ceilings_measure(struct ha_ceilings *out, const struct ha_device_api *api, struct ha_device *device,
                                   const struct ha_kernels *kernels, struct ha_paired_memory *memory, bool brief,
                                   struct ha_why *why);
const char *ha_ceiling_name(enum ha_ceiling which);
const char *ha_ceiling_unit(enum ha_ceiling which);

/* all NaN and empty where the device has no meters */
struct ha_device_meters ha_meters_read(const struct ha_device_api *api, struct ha_device *device, bool want_link_GBps);

#endif
