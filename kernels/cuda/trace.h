#ifndef HA_KERNELS_CUDA_TRACE_H
#define HA_KERNELS_CUDA_TRACE_H

/* cupti.c, seen from trace.c. CUPTI is one for the process, and its callbacks take no argument: one device at a time is
 * traced by it. Its records are read through declarations of our own, of the fields that have had their place since
 * CUDA 9; where the toolkit's header is at hand, the compiler compares. */

#include "kernels/cuda/cuda.h"

/* What ran on the device. */
struct ha_cupti_record {
    uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC_RAW */
    uint64_t bytes;            /* of a copy */
    uint64_t id;               /* that was pushed by the thread that enqueued it; 0: none */
    enum ha_span_kind kind;    /* KERNEL, WAIT, H2D, D2H, D2D */
    uint32_t stream, correlation;
    const char *name; /* of the operation that the kernel belongs to, static; NULL: not one of ours */
};

struct ha_cupti;

/* HABENCH_CUPTI: a path, "off", or unset: wherever the loader and the usual places of the toolkit have it. HA_WAIVED:
 * there is none; HA_ERROR: the one that was named is of no use. Loading it measures nothing yet. */
enum ha_status ha_cupti_open(struct ha_cupti **cupti, struct ha_why *why);
void ha_cupti_close(struct ha_cupti *cupti);

enum ha_status ha_cupti_start(struct ha_cupti *cupti, struct ha_why *why);
/* Ends it and gives what was recorded since, in order of time; valid until the next start. The device has to be
 * synchronised before. lost: records that CUPTI dropped, or could not stamp. */
const struct ha_cupti_record *ha_cupti_stop(struct ha_cupti *cupti, size_t *count, uint64_t *lost);

/* What the calling thread enqueues from push to pop carries the id, not 0. */
void ha_cupti_push(struct ha_cupti *cupti, uint64_t id);
void ha_cupti_pop(struct ha_cupti *cupti);
/* The number of a stream in records, or UINT32_MAX. */
uint32_t ha_cupti_stream(struct ha_cupti *cupti, cudaStream_t stream);

#endif
