#ifndef HA_VARIANTS_ROW_H
#define HA_VARIANTS_ROW_H

/* One line of results. Numbers that were not measured are NaN, texts empty; both are written
 * as an empty field, never as 0. What each means stands in the field table, suite.c. */

#include "harness/api/suite.h"
#include "harness/api/variant.h"
#include "harness/measure/condition.h"
#include "harness/measure/timeline.h"

struct ha_row {
    struct ha_result head;
    double block, iter, step, layer;
    char role[16];
    /* independents */
    char family[32], variant[48], params[160], contract[16], device[256], device_kind[16], device_name[96], isa[32];
    double layers, batch, q_len;
    char ctx_len[160];
    double q_heads, kv_heads, head_dim;
    char kv_dtype[8], acc_dtype[8], dataset[256];
    uint64_t seed;
    double threads, numa_node;
    char host_mem[16];
    /* outcome */
    double question;
    /* questions 1 and 3 */
    double err_over_bound, rel_l2, rel_l2_head_max, mass_min, mass_mean, cert_slack, recall, keys_mean;
    /* time */
    double step_ns, step_lo_ns, step_hi_ns, layer_ns, warmup_samples, warm, vs_full, full_step_ns;
    double context_switches, page_faults;
    /* idle, overlap, link */
    struct ha_ratios ratios;
    double overlap_eff, perturb, spans_dropped;
    char source[32];
    double h2d_bytes, d2h_bytes, zero_copy_bytes, h2d_eff_GBps, d2h_eff_GBps, link_share;
    double floor_ns, floor_ratio;
    /* memory */
    double kv_gpu_bytes, kv_cpu_bytes, meta_gpu_bytes, meta_cpu_bytes;
    /* what the variant counts */
    struct ha_counters counters;
    /* what runs around the attention */
    char load[16], model[32], team[16];
    /* the device's meters */
    struct ha_condition condition;
    char disturbed[48];
};

extern const struct ha_suite ha_suite_variants;
/* table.c: results grouped by workload, at most 150 columns wide */
void ha_table_print(FILE *out, const struct ha_results *results);

#endif
