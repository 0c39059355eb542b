#ifndef HA_CEILINGS_PARTS_H
#define HA_CEILINGS_PARTS_H

/* What the files that measure ceilings share. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/pool.h"
#include "harness/measure/ceilings.h"
#include "harness/measure/paired.h"

/* SLACK: bytes behind each half of a buffer, so that a source can begin elsewhere */
enum { HA_CEILING_TAGS = 8, HA_CEILING_TAG = 64, HA_CEILING_SLACK = 256 << 10 };

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
    unsigned char *pinned, *mapped; /* [2][link_bytes + SLACK]; mapped: NULL where it is of no use */
    unsigned char *memory;          /* [2][device_bytes + SLACK] of the device */
    uint32_t *sum;                  /* of the device */
    uint32_t *flag;                 /* [3] mapped: to the device, back, and that it has come so far; or NULL */
    size_t buffer_bytes, link_bytes, device_bytes;
    double work_ns; /* what one sample may take */
    size_t pair;    /* of cores, the next to be measured */
    /* of ceilings_proof.c */
    uint64_t secret, drawn;
    void *bounce;        /* [HA_CEILING_TAG] pinned */
    size_t from;         /* bytes behind which sources of copies begin, another number for each sample */
    struct ha_why doubt; /* the first one; empty: none */
    struct ha_ceiling_tag {
        size_t at;
        unsigned char bytes[HA_CEILING_TAG];
    } tag[2][HA_CEILING_TAGS];
    uint32_t read_sum, sum_before; /* of the words of the memory that is read; what *sum held */
    float launch_x;
    size_t launch_n;                     /* numbers of a blend */
    size_t launches;                     /* of which each adds launch_x */
    double first_ns, again_ns, least_ns; /* a look at what was made, another; a sample: the least of each */
    double idle_ns;                      /* a look before anything large was copied; 0: none yet */
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
/* The copies of a ceiling, by a copy engine or a kernel, one on each stream. Returns how many: 0 for a ceiling that
 * copies nothing. */
struct ha_ceiling_way {
    unsigned char *dst, *src;
    enum ha_direction dir;
};
size_t ha_ceiling_ways(const struct ha_ceiling_bench *b, enum ha_ceiling which, struct ha_ceiling_way way[2]);
struct ha_ceiling_load {
    ha_ceiling_work *work;
    size_t bytes, times;
};
/* limit bytes, or fewer where they took much longer than work_ns, and more than once where they took much less; false:
 * this device cannot. */
bool ha_ceiling_fit(struct ha_ceiling_bench *b, ha_ceiling_work *work, size_t limit, struct ha_ceiling_load *load);
/* bytes per nanosecond */
double ha_ceiling_rate(const struct ha_ceiling_load *load, double ns);
/* How long it takes, ns; NaN: the device has failed. */
double ha_ceiling_time(struct ha_ceiling_bench *b, const struct ha_ceiling_load *load);

/* ---- whether it was done (ceilings_proof.c): what is not to be believed is said in b->doubt ------------------------
 */

/* Of a sample that is known to have been done, or in doubt; NaN: the device has failed. */
double ha_ceiling_proven_rate(struct ha_ceiling_bench *b, enum ha_ceiling which, const struct ha_ceiling_load *load);
/* A secret is drawn from the operating system, and by it random words for all host memory that is copied. */
void ha_ceiling_draw(struct ha_ceiling_bench *b);
/* one launch of the kernel of ha_ceiling_launch (ceilings_device.c) */
bool ha_ceiling_blend(struct ha_ceiling_bench *b);
/* false */
bool ha_ceiling_doubt(struct ha_ceiling_bench *b, enum ha_ceiling which, const char *what);
/* Before the samples of a ceiling; around each, whose sources have other bytes each time (false: the device has
 * failed); behind the last one. */
void ha_ceiling_proof_new(struct ha_ceiling_bench *b);
bool ha_ceiling_proof_begin(struct ha_ceiling_bench *b, enum ha_ceiling which, const struct ha_ceiling_load *load);
void ha_ceiling_proof_end(struct ha_ceiling_bench *b, enum ha_ceiling which, const struct ha_ceiling_load *load,
                          double sample_ns);
void ha_ceiling_proof_close(struct ha_ceiling_bench *b, enum ha_ceiling which, const struct ha_ceiling_load *load);
/* around the samples of ha_ceiling_launch, ha_ceiling_enqueue: a number that is blended */
bool ha_ceiling_launch_begin(struct ha_ceiling_bench *b);
void ha_ceiling_launch_end(struct ha_ceiling_bench *b, enum ha_ceiling which);
/* Do spans of copies and of a read last about as long as these take? */
void ha_ceiling_spans(struct ha_ceiling_bench *b);
/* Is there as much memory as the device says? host_bytes: of this host; 0: nobody knows */
void ha_ceiling_memory(struct ha_ceiling_bench *b, uint64_t host_bytes);

/* Device meters while the device reads its memory for some 100 ms. */
struct ha_device_meters ha_ceiling_meters(struct ha_ceiling_bench *b);

#endif
