#include "suites/kernels/results.h"

#include <math.h>

void ha_cpu_result_clear(struct ha_cpu_result *r)
{
    const double none = (double)NAN;
    const struct ha_estimate no = { none, none, none };
    *r = (struct ha_cpu_result){
        .threads = none,
        .samples = none,
        .retried = none,
        .readings = none,
        .err_over_bound = none,
        .bytes = none,
        .flop = none,
        .ratio = no,
        .floor = no,
        .whole_over_dense = no,
        .choice_share = no,
        .GBps = none,
        .ceiling_GBps = none,
        .ceiling_1_GBps = none,
        .peak_GFLOPps = none,
        .scale = none,
        .huge_share = none,
        .node_share = none,
        .wake_ns = none,
    };
    for (size_t i = 0; i < HA_CPU_PARTS; i++) r->part_ns[i] = no;
}

const char *ha_cpu_ceiling_state(const struct ha_cpu_result *r)
{
    static const double linear = 0.8;
    return !(r->threads > 1) || isnan(r->scale) ? "" : r->scale > linear ? "harder" : "easier";
}
