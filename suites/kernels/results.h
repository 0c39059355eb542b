#ifndef HA_CPU_RESULTS_H
#define HA_CPU_RESULTS_H

/* The figures of a run of the CPU kernels. */

#include "harness/measure/sampling.h"
#include "suites/kernels/keys.h"

enum { HA_CPU_PARTS = 5 };
enum {
    HA_CPU_WHOLE = 0,
    HA_CPU_SCORES,
    HA_CPU_CHOICE,
    HA_CPU_CHOSEN,
    HA_CPU_DENSE
}; /* of a sparse step; others are whole only */

struct ha_cpu_result {
    char isa[24];                     /* the table that `best` was */
    double err_over_bound;            /* NaN: not checked */
    double threads, samples, retried; /* retried: samples thrown away because a thread lost its core or half of it */
    double bytes, flop; /* of one run; bytes: of K and V where it reads them, else all that it reads and writes */
    struct ha_estimate part_ns[HA_CPU_PARTS], ratio, floor, whole_over_dense, choice_share;
    double GBps, ceiling_GBps, ceiling_1_GBps, peak_GFLOPps; /* medians */
    double scale;                  /* ceiling with all threads / (threads x with one): 1 with one thread */
    double huge_share, node_share; /* of the KV: on huge pages; on the NUMA node that has most of it */
    double wake_ns;                /* an empty run of the pool */
    double readings;               /* of memory between two samples */
    bool disturbed;                /* fewer samples than wanted kept their cores: the others are in it too */
};

/* nothing was measured */
void ha_cpu_result_clear(struct ha_cpu_result *result);
/* "harder" above 0.8 of linear, "easier" below it, "" with one thread */
const char *ha_cpu_ceiling_state(const struct ha_cpu_result *result);

#endif
