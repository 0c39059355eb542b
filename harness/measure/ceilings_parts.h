#ifndef HA_CEILINGS_PARTS_H
#define HA_CEILINGS_PARTS_H

/* What the files that measure ceilings share. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/pool.h"
#include "harness/measure/ceilings.h"
#include "harness/measure/paired.h"

struct ha_ceiling_bench {
    const struct ha_device_api *api;
    struct ha_device *device;
    const struct ha_kernels *kernels;
    struct ha_pool *pool;
    struct ha_paired *memory_read;
    struct ha_arena *host;
    struct ha_device_arena *arena;
    struct ha_stream *stream[2];
    unsigned char *buffer;          /* [buffer_bytes] of the host, for copies */
    unsigned char *pinned, *mapped; /* [2][link_bytes]; mapped: NULL where it is of no use */
    unsigned char *memory;          /* [2][device_bytes] of the device */
    uint32_t *sum;                  /* of the device */
    uint32_t *flag;                 /* [3] mapped: to the device, back, and that it has come so far; or NULL */
    size_t buffer_bytes, link_bytes, device_bytes;
    double work_ns; /* what one sample may take */
    size_t pair;    /* of cores, the next to be measured */
};

/* One sample; NaN: this device cannot. */
typedef double ha_ceiling_sample(struct ha_ceiling_bench *b);
ha_ceiling_sample ha_ceiling_read_one, ha_ceiling_read_all, ha_ceiling_copy_all, ha_ceiling_flops_one,
    ha_ceiling_flops_all, ha_ceiling_tick, ha_ceiling_cores, ha_ceiling_wake,
    ha_ceiling_wake_idle;                                                                  /* ceilings_host.c */
ha_ceiling_sample ha_ceiling_launch, ha_ceiling_enqueue, ha_ceiling_sync, ha_ceiling_flag; /* ceilings_device.c */

/* Work for the device: enqueues the transfer of so many bytes. */
typedef bool ha_ceiling_work(struct ha_ceiling_bench *b, size_t bytes);
ha_ceiling_work ha_ceiling_h2d, ha_ceiling_d2h, ha_ceiling_both, ha_ceiling_kernel_h2d, ha_ceiling_kernel_d2h,
    ha_ceiling_kernel_both, ha_ceiling_device_read, ha_ceiling_d2d;
struct ha_ceiling_load {
    ha_ceiling_work *work;
    size_t bytes, times;
};
/* limit bytes, or fewer where they took much longer than work_ns, and more than once where they took much less; false:
 * this device cannot. */
bool ha_ceiling_fit(struct ha_ceiling_bench *b, ha_ceiling_work *work, size_t limit, struct ha_ceiling_load *load);
/* bytes per nanosecond; NaN: the device has failed */
double ha_ceiling_rate(struct ha_ceiling_bench *b, const struct ha_ceiling_load *load);
/* Device meters while the device reads its memory for some 100 ms. */
struct ha_device_meters ha_ceiling_meters(struct ha_ceiling_bench *b);

#endif
