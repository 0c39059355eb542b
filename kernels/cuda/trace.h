#ifndef HA_KERNELS_CUDA_TRACE_H
#define HA_KERNELS_CUDA_TRACE_H

/* cupti.c and match.c, seen from trace.c. CUPTI is one for the process, and its callbacks take no argument: one device
 * at a time is traced by it. Its records are read through declarations of our own, of fields that have had their place
 * since CUDA 11.6, the first whose CUPTI takes a clock; where the toolkit's header is at hand, the compiler compares.
 */

#include "kernels/cuda/cuda.h"

/* ---- cupti.c: what ran on the device */

enum ha_cupti_what { HA_CUPTI_KERNEL, HA_CUPTI_COPY, HA_CUPTI_SET };
struct ha_cupti_record {
    uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC_RAW */
    uint64_t bytes;            /* of a copy */
    uint64_t queue;            /* of its stream, or of the graph that launched it */
    enum ha_cupti_what what;
    enum ha_span_kind kind; /* KERNEL, WAIT, H2D, D2H, D2D */
    const char *operation;  /* that the kernel belongs to, static; NULL: not one of ours */
};

struct ha_cupti;

/* HABENCH_CUPTI: a path, "off", or unset: wherever the loader and the usual places of the toolkit have it. HA_WAIVED:
 * there is none; HA_ERROR: the one that was named is of no use. Measures nothing yet. */
enum ha_status ha_cupti_open(struct ha_cupti **cupti, struct ha_why *why);
void ha_cupti_close(struct ha_cupti *cupti);

enum ha_status ha_cupti_start(struct ha_cupti *cupti, struct ha_why *why);
/* Ends it and gives what was recorded since, in order of queue and time; valid until the next start. The device has to
 * be synchronised before. lost: records that CUPTI dropped, or stamped by no clock or by another one. */
const struct ha_cupti_record *ha_cupti_stop(struct ha_cupti *cupti, size_t *count, uint64_t *lost);

/* The queue of records of a stream, or of what launches of a graph run; 0: CUPTI does not say. */
uint64_t ha_cupti_stream(struct ha_cupti *cupti, cudaStream_t stream);
uint64_t ha_cupti_graph(struct ha_cupti *cupti, cudaGraphExec_t graph);
/* The operation whose kernel is called so in the object file, or NULL. */
const char *ha_cupti_operation(const char *function);

/* ---- match.c: whose records they are */

/* An operation, with what it has enqueued: what CUPTI must have recorded. */
struct ha_cuda_enqueued {
    uint64_t queue;
    const struct ha_cuda_span *span;
    const void *of;   /* the caller's */
    uint32_t kernels; /* of ours; of a graph: its nodes that leave a record */
    /* out: records [first, first + count) are its own. shared: those after the first may be of the operations that
     * follow, of the same name, and which is whose cannot be known. */
    size_t first, count;
    bool shared;
    size_t order; /* match.c's */
};
/* Operations in the order of their enqueues, records as ha_cupti_stop gives them; records of other queues are nobody's,
 * and those behind the last operation that begin when the trace had ended.
 * Sorts the operations by queue. From the first operation of a queue on whose records are not what it enqueued, no
 * operation of that queue has any. Gives the spans lost by that: of those operations, or as many as there are records
 * that nobody enqueued, whichever is more. */
uint64_t ha_cuda_match(struct ha_cuda_enqueued *operations, size_t count, const struct ha_cupti_record *records,
                       size_t records_count, uint64_t ended_ns);

#endif
