#ifndef HA_FILL_H
#define HA_FILL_H

#include "harness/api/suite.h"
#include "harness/measure/ceilings.h"
#include "suites/variants/bench.h"

/* One line of results. Numbers that were not measured are NaN, texts empty; both are written
 * as an empty field, never as 0. What each means stands in the field table, suite.c. */

struct ha_row {
    struct ha_result head;
    double block, iter, step, layer;
    char role[16];
    char counter[48];
    double value;
    /* independents */
    char family[32], variant[48], params[160], contract[16], device[256], device_kind[16], device_name[96], isa[32];
    double layers, batch, q_len, steps;
    char ctx_len[160];
    double q_heads, kv_heads, head_dim;
    char kv_dtype[8], acc_dtype[8], dataset[256];
    uint64_t seed;
    double threads, numa_node;
    char host_mem[16];
    /* outcome */
    double question;
    /* questions 1 and 3 */
    double err_over_bound, rel_l2, rel_l2_wo, rel_l2_head_max, mass_min, mass_mean, cert_slack, recall, keys_mean;
    /* time */
    double step_ns, step_lo_ns, step_hi_ns, layer_ns, tokens_per_s, warmup_samples, warm, vs_full, full_step_ns;
    double context_switches, page_faults;
    struct ha_footprint footprint;
    /* idle, overlap, link */
    struct ha_ratios ratios;
    double overlap_eff, perturb, spans_dropped, outputs_kept;
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
    double load_share, steal_share, slow_share;
    double exp_eps, log_eps;
    double bias, rms, kept_least, kept_most;
    double cosine, cosine_least, changed, cpu_of_budget, recall_interval;
    double sensitivity, sensitivity_lse, sensitivity_times;
    char repeat[16];
    char fit[256], fit_text[8];
    double heads_off, select_share, choice_share, manage_share;
    double streaming, scheduled, budget_read, block_mean, line_r2;
    double similar, overlap_low, overlap_high;
    double score_error, score_rise, kept_share, kept_first;
    double graph;
    struct ha_followed followed; /* NaN where no model decodes */
};

extern const struct ha_suite ha_suite_variants;
/* What a row's workload is called: all keys but the variant and its options; the caller frees it. NULL: no memory. */
char *ha_row_workload(const struct ha_row *row);
/* table.c: results by workload and family, at most 150 columns wide; a line for each column; what the rows show */
void ha_table_print(FILE *out, const struct ha_results *results);

/* ---- from what ran to the columns of a row ---------------------------------------------------------------------- */

/* exact, bounded, statistical; or unchecked */
const char *ha_contract_word(const struct ha_variant *variant);
/* what stands in the case; what a dataset fixes is 0 until the session */
void ha_fill_case(struct ha_row *row, const struct ha_case *c);
void ha_fill_session(struct ha_row *row, const struct ha_session *session);
void ha_fill_accuracy(struct ha_row *row, const struct ha_accuracy *a);
void ha_fill_check(struct ha_row *row, const struct ha_check *check);
/* The columns that are a counter, over layers. */
void ha_fill_counted(struct ha_row *row, const struct ha_counted *counted);
/* slowest_arm_ns: NaN if it was not run */
void ha_fill_bench(struct ha_row *row, const struct ha_bench *bench, const struct ha_ceilings *ceilings,
                   double slowest_arm_ns);

/* The time of the slowest part of a step, each its bytes over its ceiling. A ceiling is the highest of its readings,
 * because disturbance only lowers them. Where the device's memory is the host's, both sides' reads share one ceiling.
 */
double ha_floor_ns(const struct ha_ceilings *ceilings, bool in_host, double device_bytes, double host_bytes,
                   double h2d_bytes, double d2h_bytes);
/* Of the bytes that a step reads in one memory, those that come out of it and not out of caches of so many bytes. A
 * step reads each byte once, so that between two visits of a byte lie all others of that step: all come from memory
 * where they are more than the caches hold, else none. */
double ha_floor_fetched(double bytes, double cache_bytes);

/* Step times measured earlier in this run, that later cases over the same workload are set beside. */

struct ha_known_step;
struct ha_known {
    struct ha_known_step *step;
    size_t count, capacity;
};

/* row names the workload and the device; variant and family are those that were measured */
void ha_known_add(struct ha_known *known, const struct ha_row *row, const char *variant, const char *family,
                  double step_ns);
/* the latest of the variant, of that family or, NULL, of any; NaN if there is none */
double ha_known_step(const struct ha_known *known, const struct ha_row *row, const char *variant, const char *family);
/* The slowest of the arms copy_only, device_only and cpu_only of the row's family that its own trace has a
 * part of: a variant that copies nothing is not held against the copy arm. NaN if none was run. */
double ha_known_slowest_arm(const struct ha_known *known, const struct ha_row *row, const struct ha_usage *usage);
void ha_known_free(struct ha_known *known);

#endif
