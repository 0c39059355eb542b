#ifndef HA_TIMELINE_H
#define HA_TIMELINE_H

#include "harness/api/device.h"

/* The spans of a traced pass, and what they say about a step. Within a step's window W:
 *   K  device kernels (and copies inside the device), without those that only wait
 *   C  copies over the link, either way
 *   P  attention on the CPU: work of the pool. What runs in the background and host functions of the device are none.
 */

/* Sets of moments as sorted, disjoint intervals: what idle and overlap are computed from. */

struct ha_interval {
    uint64_t begin_ns, end_ns;
};

/* Sorts x and joins what touches, in place; empty intervals vanish. Returns how many remain. */
size_t ha_interval_union(struct ha_interval *x, size_t count);
/* of unions */
uint64_t ha_interval_length(const struct ha_interval *x, size_t count);
uint64_t ha_interval_common(const struct ha_interval *a, size_t a_count, const struct ha_interval *b, size_t b_count);

enum ha_origin { HA_FROM_DEVICE, HA_FROM_POOL, HA_FROM_WORKER };
enum { HA_ORIGIN_COUNT = 3 };

struct ha_timeline_span {
    struct ha_span span;
    enum ha_origin origin;
};

struct ha_timeline;

enum ha_status ha_timeline_create(struct ha_timeline **timeline, struct ha_why *why);
/* Where the spans of an origin go. Thread-safe. */
const struct ha_span_sink *ha_timeline_sink(struct ha_timeline *timeline, enum ha_origin origin);
void ha_timeline_clear(struct ha_timeline *timeline);
/* Only while nothing is traced. */
size_t ha_timeline_count(const struct ha_timeline *timeline);
const struct ha_timeline_span *ha_timeline_at(const struct ha_timeline *timeline, size_t i);
/* spans lost for want of memory since the last clear */
size_t ha_timeline_dropped(const struct ha_timeline *timeline);
void ha_timeline_destroy(struct ha_timeline *timeline);

/* Sums over the windows that were added. Bytes of a span that straddles a window's edge count
 * by the share of its time inside. */
struct ha_usage {
    uint64_t wall_ns, kernel_ns, copy_ns, device_ns /* |K u C| */, cpu_ns /* |P| */, overlap_ns /* |P n (K u C)| */;
    uint64_t h2d_ns, d2h_ns, merge_ns, attend_ns /* device kernels named "merge", "attend" */;
    uint64_t predict_ns; /* those named "features" or "net" */
    uint64_t lookup_ns;  /* those named "similarity" */
    uint64_t pool_ns;    /* over all threads of the pool */
    double h2d_bytes, d2h_bytes, zero_copy_bytes;
    double launch_gap_ns; /* idle device while the host had not yet enqueued what ran next; NaN: nobody knows */
    size_t windows;
    size_t steps; /* in them: the caller's count, not this file's */
};

enum ha_status ha_timeline_measure(const struct ha_timeline *timeline, struct ha_interval window, struct ha_usage *sum,
                                   struct ha_why *why);

/* The columns. NaN where there is nothing to divide by. */
struct ha_ratios {
    double gpu_kernel_idle, gpu_idle, cpu_idle, overlap, h2d_link_GBps, d2h_link_GBps, merge_share, attend_share;
    double predict_share, lookup_share;
    double launch_gap_ns; /* of a step */
};
struct ha_ratios ha_usage_ratios(const struct ha_usage *sum, size_t threads);
/* The median of each over steps, as the step's time is one: a single step that was interrupted for long
 * would outweigh all others in a ratio of sums. Steps without a value do not count. */
enum ha_status ha_usage_medians(const struct ha_usage *steps, size_t count, size_t threads, struct ha_ratios *out,
                                struct ha_why *why);

#endif
