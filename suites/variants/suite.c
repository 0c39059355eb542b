/* The suite of variants: a case is a variant over a trace of steps and layers. */

#include "harness/api/suite.h"

#include "harness/base/fingerprint.h"
#include "harness/base/registry.h"
#include "harness/base/why.h"
#include "harness/engine/point.h"
#include "harness/report/env.h"
#include "harness/report/perfetto.h"
#include "suites/variants/bench.h"
#include "suites/variants/dump.h"
#include "suites/variants/fill.h"
#include "suites/variants/fit.h"

#include <math.h>
#include <stdlib.h>

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* cases.csv, samples.csv, accuracy.csv, summary.csv, counters.csv */
enum { C = 1, S = 2, A = 4, Y = 8, N = 16, ALL = C | S | A | Y | N };

/* Columns are only ever appended. */
#define NUMBER(name, unit, ...)     { #name, unit, HA_FIELD_NUMBER, HA_IN(struct ha_row, name), __VA_ARGS__ },
#define PART(part, name, unit, ...) { #name, unit, HA_FIELD_NUMBER, HA_IN(struct ha_row, part.name), __VA_ARGS__ },
#define WHOLE(name, unit, ...)      { #name, unit, HA_FIELD_WHOLE, HA_IN(struct ha_row, name), __VA_ARGS__ },
#define TEXT(name, ...)             { #name, "", HA_FIELD_TEXT, HA_IN(struct ha_row, name), __VA_ARGS__ },
/* clang-format off */
static const struct ha_field fields[] = {
    NUMBER(block, "", S, "pass: one run over the context from the first step to the last")
    NUMBER(iter, "", S, "step within the pass, of role step; empty: the whole pass")
    NUMBER(step, "", A, "")
    NUMBER(layer, "", A | N, "")
    TEXT(role, S, "of a pass: measure, warmup, traced, or full: the resident companion; step: a single step of a "
        "measured pass")
    TEXT(family, C | Y, "")
    TEXT(variant, ALL, "")
    TEXT(params, C | Y, "the variant's options that differ from their defaults")
    TEXT(contract, C | Y, "exact, bounded, statistical; unchecked: a bracketing arm whose output is not attention")
    TEXT(device, C | Y, "as asked for")
    TEXT(device_kind, ALL, "host, null, cuda, emulated or plugin; host, emulated: stand-ins in host memory, their "
        "times are this host's")
    TEXT(device_name, C, "as the device says")
    TEXT(isa, C | Y, "CPU kernel table")
    NUMBER(layers, "", C | Y, "")
    NUMBER(batch, "", C | Y, "")
    NUMBER(q_len, "tokens", C | Y, "")
    TEXT(ctx_len, C | Y, "tokens before the first step; lengths of a batch joined by +")
    NUMBER(q_heads, "", C | Y, "")
    NUMBER(kv_heads, "", C | Y, "")
    NUMBER(head_dim, "", C | Y, "")
    TEXT(kv_dtype, C | Y, "")
    TEXT(acc_dtype, C, "what sums are kept in")
    TEXT(dataset, C | Y, "")
    WHOLE(seed, "", C, "")
    NUMBER(threads, "", C | Y, "of the CPU side")
    NUMBER(numa_node, "", C, "that the process is held to; empty: not held, or only one")
    TEXT(host_mem, C, "transparent huge pages: always, madvise, never")
    NUMBER(question, "", C, "that failed: 1 arithmetic, 2 definition")
    NUMBER(err_over_bound, "", C | A | Y, "largest error / bound over all elements, at most 1; binary64 reference",
        HA_NEITHER)
    NUMBER(rel_l2, "", C | A | Y, "against full attention; binary64 reference", HA_NEITHER)
    NUMBER(rel_l2_head_max, "", C | A, "the same by head, divided by the largest head norm", HA_NEITHER)
    NUMBER(mass_min, "", C | A | Y, "least full-attention mass on the keys used", HA_NEITHER)
    NUMBER(mass_mean, "", C | A | Y, "", HA_NEITHER)
    NUMBER(cert_slack, "", C | A, "observed deviation / certificate, at most 1", HA_NEITHER)
    NUMBER(recall, "", C | A | Y, "share of the true top-k among the k keys used", HA_NEITHER)
    NUMBER(keys_mean, "tokens", C | A, "keys used by a query head", HA_NEITHER)
    NUMBER(step_ns, "ns", C | S | Y, "steps follow one another: from the second step's begin to the last one's end "
        "over their number, untraced, CLOCK_MONOTONIC_RAW; median of passes, or the pass. Of a single step (role "
        "step): from the end of the step before to its own, as the device completed it where it is in host memory, "
        "else as the host had submitted it",
        HA_LESS, .lo = offsetof(struct ha_row, step_lo_ns), .hi = offsetof(struct ha_row, step_hi_ns))
    NUMBER(step_lo_ns, "ns", C | Y, "95% interval of the median, order statistics; empty of fewer than 6 passes")
    NUMBER(step_hi_ns, "ns", C | Y, "")
    NUMBER(layer_ns, "ns", C, "step_ns / layers", HA_LESS)
    NUMBER(warmup_samples, "", C, "passes before the slope test was met")
    NUMBER(warm, "", C, "1: the slope test was met before the time was up")
    NUMBER(vs_full, "", C | Y, "step_ns / full_step_ns", HA_LESS)
    NUMBER(full_step_ns, "ns", C, "the same of `resident` over the same data in this run", HA_LESS)
    NUMBER(context_switches, "", C | S, "involuntary, of the process during a pass, its first step included; their sum "
        "over the passes; getrusage")
    NUMBER(page_faults, "", C | S, "minor and major, the same way")
    PART(footprint, process_threads, "", C, "of the process, when the last pass is over", HA_NEITHER)
    PART(footprint, process_cpu, "", C, "cores in use in a pass, by CPU time of the process; median", HA_NEITHER)
    PART(footprint, process_cpu_after, "", C, "the same 3 to 5 ms after the outputs of a pass have been read; of five "
        "passes. A device whose process works then, and not when all is over, FAILs", HA_NEITHER)
    PART(footprint, memory_grown_bytes, "bytes", C, "memory in use after the passes less before them: of the device; "
        "of one that computes on the host, of the process", HA_NEITHER)
    PART(footprint, judged_by_time, "", C, "1: cores were this process's own, so that how long uploads, readings and "
        "the first step took was evidence of a true time; 0: they were not, or not for 0.2 s, and it was none",
        HA_NEITHER)
    PART(ratios, gpu_kernel_idle, "", C | Y, "1 - |K| / W, W from the second step of a traced pass to its last; spans",
        HA_LESS)
    PART(ratios, gpu_idle, "", C | Y, "1 - |K u C| / W; spans", HA_LESS)
    PART(ratios, cpu_idle, "", C | Y, "1 - compute time of the pool / (threads x W); stamped inside the parallel "
        "regions", HA_LESS)
    PART(ratios, overlap, "", C | Y, "|P n (K u C)| / min(|P|, |K u C|); spans", HA_MORE)
    NUMBER(overlap_eff, "", C, "slowest arm run alone / step, at most 1; needs the family's *_only arms of the same "
        "shape earlier in the run", HA_MORE)
    NUMBER(perturb, "", C, "traced / untraced - 1; beyond 0.05 either way the span ratios are those of other steps "
        "than were timed, and marked ~ in the table", HA_NEITHER)
    NUMBER(spans_dropped, "", C, "lost by what stamps them, or for want of memory; above 0 the span ratios are empty")
    NUMBER(outputs_kept, "", C, "steps of a timed pass whose outputs are all kept, of which one that is drawn is "
        "checked: the last ones, where those of all steps would be more than 64 MiB")
    TEXT(source, C, "what the device's spans are stamped by: CUPTI, CUDA events (within so many us), the device itself")
    NUMBER(h2d_bytes, "bytes", C | Y, "of a step over the link, counted at every copy, and what CPU threads stored",
        HA_LESS)
    NUMBER(d2h_bytes, "bytes", C | Y, "", HA_LESS)
    NUMBER(zero_copy_bytes, "bytes", C, "of a step, read by kernels from mapped memory; the device's own count",
        HA_LESS)
    PART(ratios, h2d_link_GBps, "10^9 bytes/s", C | Y, "bytes / time in which such copies ran; spans", HA_MORE)
    PART(ratios, d2h_link_GBps, "10^9 bytes/s", C, "", HA_MORE)
    NUMBER(h2d_eff_GBps, "10^9 bytes/s", C, "h2d_bytes / step_ns", HA_MORE)
    NUMBER(d2h_eff_GBps, "10^9 bytes/s", C, "", HA_MORE)
    NUMBER(link_share, "", C, "h2d_link_GBps / the ceiling probed in this run, the best reading", HA_MORE)
    NUMBER(floor_ns, "ns", C, "slowest of bytes / probed ceiling: keys and values (and weights, with load=layer) read "
        "by each side at least once, copies each way; empty where they are not more than the caches hold that this "
        "process has a share of")
    NUMBER(floor_ratio, "", C | Y, "floor_ns / step_ns; above 1: the probe was disturbed", HA_MORE)
    NUMBER(kv_gpu_bytes, "bytes", C | Y, "K and V on the device, peak, counted by the arenas", HA_LESS)
    NUMBER(kv_cpu_bytes, "bytes", C | Y, "the same in host memory", HA_LESS)
    NUMBER(meta_gpu_bytes, "bytes", C, "what the variant keeps beside K and V", HA_LESS)
    NUMBER(meta_cpu_bytes, "bytes", C, "", HA_LESS)
    PART(counters, hit_ratio, "", C, "the variant's own count", HA_NEITHER)
    PART(counters, cpu_ratio, "", C, "keys read by the CPU side, of all keys; both are recounted from those that are "
        "reported; of the checked pass where the device alone knows how long its lists are", HA_NEITHER)
    PART(counters, recalls, "", C, "over layers; recounted from what is reported of each step", HA_NEITHER)
    PART(counters, select_ns, "ns", C, "of a step", HA_LESS)
    PART(counters, manage_ns, "ns", C, "of a step, off the critical path", HA_LESS)
    PART(counters, cpu_tokens, "tokens", C, "keys read by the CPU side, per query head, layer and step", HA_NEITHER)
    TEXT(load, C | Y, "attention; layer: with the products of each layer around it, in every time of this row")
    TEXT(model, C | Y, "whose shape it is; empty: none was named")
    PART(condition, sm_clock_MHz, "MHz", C, "of the device's meters, as are the next: read right after the last timed "
        "step of each untraced pass; the least")
    PART(condition, memory_clock_MHz, "MHz", C, "the least")
    PART(condition, temperature_C, "C", C, "the most")
    PART(condition, power_W, "W", C, "mean of those readings", HA_NEITHER)
    PART(condition, energy_step_J, "J", C, "of an untraced pass / its steps; empty unless the counter moved in every "
        "pass", HA_LESS)
    PART(condition, link_gen, "", C, "PCIe generation, under load; the least")
    PART(condition, link_width, "lanes", C, "the least")
    { "throttle", "", HA_FIELD_TEXT, HA_IN(struct ha_row, condition.throttle), C | Y,
        "why clocks were held down at any of those readings; none" },
    TEXT(disturbed, C | Y, "what else used the cores while passes were measured: load, steal, throttled, shared (a "
        "core was at half its speed); empty: nothing was seen")
    TEXT(team, C | Y, "whose threads the CPU side has: openmp, own")
    NUMBER(exp_eps, "", C, "largest relative error of the device's exp that was seen in attention over this type when "
        "it was opened; env.json has what it claims", HA_NEITHER)
    NUMBER(log_eps, "", C, "the same of its log", HA_NEITHER)
    NUMBER(sensitivity, "", C | Y, "least relative error of o that is seen in every row of the first step, layer and "
        "sequence, by what the device claims; it was planted there, and seen", HA_NEITHER)
    NUMBER(sensitivity_lse, "", C | Y, "the same of the sum of the weights, exp(LSE)", HA_NEITHER)
    NUMBER(sensitivity_times, "", C, "the worse of both over that by claims like those of our kernels, in the "
        "row where it is largest; above 8 the case fails", HA_NEITHER)
    TEXT(repeat, C | Y, "the same input again, under load, in memory that held something else: same; differs: other "
        "bits, which is a failure; may vary, varies: the same and other bits of a device that does not promise the "
        "same")
    NUMBER(bias, "", C | A, "mean error of the LSE over what independent roundings make of it; column p_value has how "
        "likely that is", HA_NEITHER)
    NUMBER(rms, "", C | A, "root mean square of the errors of o, or of the LSE if that is larger, beyond what may "
        "have one sign, over the same; up to 1 is explained", HA_NEITHER)
    PART(ratios, merge_share, "", C, "time in which a device kernel of the name merge runs, of W; spans", HA_LESS)
    NUMBER(kept_least, "", C, "share of the tokens in host memory that the CPU side keeps for a query head: the least "
        "over layers of the counter of that name (counters.csv)", HA_NEITHER)
    NUMBER(kept_most, "", C, "the most, the same way", HA_NEITHER)
    TEXT(counter, N, "what the variant counts in that layer: its page in docs/variants says what it is")
    NUMBER(value, "", N, "of the checked pass, or where steps are timed of the last one that is not traced: over its "
        "steps, or after the last of them; what is only counted where selections are recorded is of the former")
    PART(ratios, launch_gap_ns, "ns", C | Y, "of a step: idle device while the host had not yet enqueued what ran "
        "next; spans of the device; empty where it does not say when that was", HA_LESS)
    TEXT(fit, C | Y, "what the variant has learnt offline (habench fit); empty: nothing")
    TEXT(fit_text, C | Y, "what that was learnt from: own: a text of this case, of which it is no evidence; other")
    NUMBER(steps, "", C, "of a pass")
    NUMBER(tokens_per_s, "tokens/s", C, "batch x q_len / step_ns: through the layers of this case", HA_MORE)
    PART(ratios, attend_share, "", C, "time in which a device kernel of the name attend runs, of W; spans", HA_NEITHER)
    NUMBER(cosine, "", C, "cosine of the predicted and the true query: mean over layers of the counter of that name "
        "(counters.csv), as are the next", HA_NEITHER)
    NUMBER(cosine_least, "", C, "the least", HA_NEITHER)
    NUMBER(changed, "", C, "share of the chosen blocks that the step before had not chosen", HA_NEITHER)
    NUMBER(cpu_of_budget, "", C, "tokens that the CPU side attends over, of the budget", HA_NEITHER)
    NUMBER(recall_interval, "steps", C, "from one recall of a layer to the next", HA_NEITHER)
    NUMBER(rel_l2_wo, "", C | A | Y, "as rel_l2, behind the output projection W_O; empty: the dataset has none",
        HA_NEITHER)
    NUMBER(heads_off, "", C | A, "share of the outputs, one for each query, head, layer and step, that are off by more "
        "than 0.2 of their own length, against full attention", HA_NEITHER)
    NUMBER(select_share, "", C, "select_ns / step_ns", HA_LESS)
    NUMBER(choice_share, "", C, "of what the CPU's threads compute in a step what selecting takes of each: select_ns / "
        "((1 - cpu_idle) x step_ns); empty where they do not select in the step", HA_NEITHER)
    PART(ratios, predict_share, "", C, "time in which a device kernel of the name features or net runs, of W; spans",
        HA_LESS)
    NUMBER(streaming, "", C, "share of the query heads that stream: mean over layers of the counter streaming_heads "
        "(counters.csv), as are the next, of groups_scheduled, budget_mean, block_mean and line_r2", HA_NEITHER)
    NUMBER(scheduled, "", C, "share of the KV heads that are tasks", HA_NEITHER)
    NUMBER(budget_read, "", C, "share of the tokens in host memory that a query head that reads has read", HA_NEITHER)
    NUMBER(block_mean, "tokens", C, "block size of the tasks", HA_NEITHER)
    NUMBER(line_r2, "", C, "R2 of the line of least budgets over log2 of the block size, of heads that have not one "
        "budget for all; where they are found out (predict=oracle)", HA_NEITHER)
    NUMBER(manage_share, "", C, "manage_ns / step_ns", HA_LESS)
    PART(ratios, lookup_share, "", C, "time in which a device kernel of the name similarity runs, of W; spans", HA_LESS)
    NUMBER(similar, "", C, "similarity of a look-up's queries and the labels, where there were labels: mean over "
        "layers of the counter similarity (counters.csv), as are the next, of those of their names", HA_NEITHER)
    NUMBER(overlap_low, "", C, "of a new choice the share that the choice before it had, where the similarity was from "
        "0.4 to below 0.6", HA_NEITHER)
    NUMBER(overlap_high, "", C, "the same where it was at least 0.8", HA_NEITHER)
    NUMBER(score_error, "", C | A, "what scores are off by, times the scale: root mean square over queries and the "
        "keys that were weighed; where they are not the query's own over the keys (quantised keys, a predicted query)",
        HA_NEITHER)
    NUMBER(score_rise, "", C, "that of the later half of the layers over that of the earlier", HA_NEITHER)
    NUMBER(kept_share, "", C, "of the keys that could be chosen those that were: mean over layers of the counter of "
        "that name (counters.csv)", HA_NEITHER)
    NUMBER(kept_first, "", C, "the same in the first layer", HA_NEITHER)
    NUMBER(graph, "", C | Y, "1: a step's work on the device was captured as a graph and launched at once; 0: each "
        "operation by itself")
    NUMBER(load_share, "", C, "of the cores' time while passes were measured, used by other processes; see disturbed")
    NUMBER(steal_share, "", C, "the same, taken by the hypervisor for other guests")
    NUMBER(slow_share, "", C, "share of the looks around passes that found a core below 0.85 of its best speed")
    PART(followed, loss, "nats", C, "dataset=model: -log p of the next token, with this attention in every layer; "
        "mean over tokens", HA_NEITHER)
    PART(followed, full_loss, "nats", C, "the same with full attention", HA_NEITHER)
    PART(followed, loss_change, "nats", C, "loss - full_loss", HA_NEITHER)
    PART(followed, loss_change_se, "nats", C, "its standard error over tokens", HA_NEITHER)
    PART(followed, kl, "nats", C, "divergence (Kullback, Leibler) of the next token's distribution from that with full "
        "attention; mean over tokens", HA_NEITHER)
    PART(followed, top1, "", C, "share of the tokens whose likeliest next token is that of full attention", HA_NEITHER)
};
/* clang-format on */

enum { CHECKED_STEPS_BENCH = 2, SAMPLES_FILE = 1, ACCURACY_FILE, SUMMARY_FILE, COUNTERS_FILE };
static const uint64_t time_cap_ns = 4000000000;

struct run {
    struct ha_suite_config config;
    struct ha_shared shared;
    struct ha_known known;
    struct ha_env env;
    /* the case at hand */
    const struct ha_case *c;
    const char *id;
    struct ha_row *row;
    struct ha_session session;
    struct ha_check check;
    struct ha_dump dump;
};

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static bool is_graph(const struct ha_row *row) { return row->graph > 0; }

/* Step times that are there already go on to be what later cases are set beside: of steps without graphs, as the
 * companion's are, so that the rows of one workload are set beside one time. */
static void remember(struct run *r, const struct ha_results *before)
{
    for (size_t i = 0; i < before->entries; i++) {
        const struct ha_row *row = before->entry[i].row;
        if (row && ha_passed(row->head.verdict) && !isnan(row->step_ns) && !*row->params && !is_graph(row))
            ha_known_add(&r->known, row, row->variant, row->family, row->step_ns);
    }
}

static enum ha_status begin(void **run, const struct ha_suite_config *config, const struct ha_results *before,
                            struct ha_why *why)
{
    struct run *r = *run = calloc(1, sizeof *r);
    if (!r) return ha_why(why, HA_ERROR, "out of memory");
    r->config = *config;
    ha_env_read(&r->env);
    remember(r, before);
    HA_TRY(ha_shared_open(&r->shared, config->machine, config->measure, why));
    r->shared.order = config->order;
    r->shared.faults = config->faults;
    return HA_OK;
}

static void end(void *run)
{
    struct run *r = run;
    ha_shared_close(&r->shared);
    ha_known_free(&r->known);
    free(r);
}

/* ---- lines of further files -------------------------------------------------------------------------------------- */

static void layer_done(void *arg, size_t step, size_t layer, const struct ha_accuracy *a)
{
    const struct run *r = arg;
    struct ha_row row = *r->row;
    row.step = (double)step;
    row.layer = (double)layer;
    ha_fill_accuracy(&row, a);
    r->config.engine.line(r->config.engine.arg, ACCURACY_FILE, &row);
}

static void sample(void *arg, const struct ha_sample *s)
{
    const struct run *r = arg;
    struct ha_row row = *r->row;
    snprintf(row.role, sizeof row.role, "%s", s->role);
    row.block = (double)s->block;
    row.iter = s->iter;
    row.step_ns = s->step_ns;
    row.context_switches = s->context_switches;
    row.page_faults = s->page_faults;
    r->config.engine.line(r->config.engine.arg, SAMPLES_FILE, &row);
}

static void say_counted(const struct run *r, const struct ha_counted *c)
{
    for (size_t i = 0; i < c->count; i++) {
        struct ha_row row = *r->row;
        snprintf(row.counter, sizeof row.counter, "%s", c->of[i].name);
        row.layer = (double)c->of[i].layer;
        row.value = c->of[i].value;
        r->config.engine.line(r->config.engine.arg, COUNTERS_FILE, &row);
    }
}

static enum ha_status trace(const struct run *r, const struct ha_bench *b, struct ha_why *why)
{
    char *events = NULL;
    size_t bytes = 0;
    const enum ha_status status = ha_perfetto_events(&events, &bytes, b->timeline, b->traced, why);
    if (status == HA_OK) r->config.engine.trace(r->config.engine.arg, events, bytes);
    free(events);
    return status;
}

/* ---- a case ------------------------------------------------------------------------------------------------------ */

static enum ha_status open_case(void *run, struct ha_group *g, struct ha_why *why)
{
    struct run *r = run;
    r->c = g->point[0];
    r->id = g->id[0];
    r->row = g->row[0];
    snprintf(r->row->host_mem, sizeof r->row->host_mem, "%s", r->env.huge_pages);
    if (r->env.numa_node >= 0) r->row->numa_node = r->env.numa_node;
    ha_fill_case(r->row, r->c);
    HA_TRY(ha_session_open(&r->session, &r->shared, r->c, NULL, why));
    ha_fill_session(r->row, &r->session);
    return HA_OK;
}

/* The bounds that the outputs were held to came from what the device claims: it must be true. */
static enum ha_status claims_hold(struct run *r, struct ha_why *why)
{
    const struct ha_session *s = &r->session;
    struct ha_why reason;
    if (ha_eps_check(ha_machine_eps(r->shared.machine), &s->info, s->workload->shape.dtype, &reason) == HA_OK)
        return HA_OK;
    r->check.question = 1;
    return ha_why(why, HA_FAIL, "question 1 (arithmetic): the device claims too little: %s; habench check '%s'",
                  reason.text, r->id);
}

static enum ha_status check_case(void *run, struct ha_group *g, struct ha_why *why)
{
    struct run *r = run;
    const bool is_attention = ha_session_checked(&r->session), dumps = r->config.dump_dir && is_attention;
    const size_t passes = ha_repeat_passes(r->c, r->id); /* with faults one at least: between two their delays differ */
    r->check = (struct ha_check){ .session = &r->session,
                                  .id = r->id,
                                  .layer_done = layer_done,
                                  .arg = r,
                                  .dump = dumps ? &r->dump : NULL,
                                  .steps = r->config.measure && !dumps ? CHECKED_STEPS_BENCH : 0,
                                  .repeats = r->config.measure ? 0
                                             : passes          ? passes
                                                               : r->config.faults != NULL };
    struct ha_why reason;
    enum ha_status dumped = dumps ? ha_dump_open(&r->dump, &r->session, r->config.dump_dir, r->id, &reason) : HA_OK;
    if (dumped != HA_OK) r->check.dump = NULL;
    enum ha_status status = ha_check_run(&r->check, why);
    if (status == HA_OK && is_attention) status = claims_hold(r, why);
    ha_fill_check(r->row, &r->check);
    if (r->check.dump && status != HA_WAIVED) dumped = ha_dump_write(&r->dump, r->id, &reason);
    if (dumped != HA_OK && status == HA_OK) status = ha_why(why, HA_ERROR, "%s", reason.text);
    ha_fill_counted(r->row, &r->check.counted);
    if (status == HA_OK && !r->config.measure) say_counted(r, &r->check.counted);
    g->right[0] = status == HA_OK && is_attention;
    if (g->right[0] && !ha_repeat_unpromised(&r->session)) ha_fingerprint_print(r->check.outputs, r->row->head.outputs);
    if (status != HA_OK || is_attention) return status;
    r->row->head.verdict = HA_UNCHECKED;
    snprintf(r->row->head.reason, sizeof r->row->head.reason, "%s",
             r->session.variant->checked ? "a device of the kind null computes nothing"
                                         : "a bracketing arm: its output is not attention");
    return HA_OK;
}

static enum ha_status measure_case(void *run, struct ha_group *g, struct ha_why *why)
{
    struct run *r = run;
    struct ha_session *s = &r->session;
    const struct ha_variant *full = ha_variant_find(HA_COMPANION);
    const struct ha_ceilings *ceilings;
    HA_TRY(ha_machine_ceilings(r->shared.machine, &ceilings, why));
    struct ha_bench b = { .session = s,
                          .check = &r->check,
                          .ceilings = ceilings,
                          .sample = sample,
                          .arg = r,
                          .meeting = g->meeting,
                          .time_cap_ns = g->cap_ns < time_cap_ns ? g->cap_ns : time_cap_ns };
    b.full_ns = ha_known_step(&r->known, r->row, HA_COMPANION, NULL);
    /* Where the device cannot hold all of K and V there is nothing to set the case beside. Where others measure at once
     * its passes would not load what theirs do. */
    const bool own = full == s->variant && !s->graph;
    if (full && isnan(b.full_ns) && !own && !g->meeting && ha_session_takes(s, full, NULL) == HA_OK) b.full = full;
    enum ha_status status = ha_bench_run(&b, why);
    if (status == HA_OK) {
        if (own) b.full_ns = b.step_ns;
        ha_fill_bench(r->row, &b, ceilings, ha_known_slowest_arm(&r->known, r->row, &b.usage));
        if (!s->graph) ha_known_add(&r->known, r->row, s->variant->name, s->variant->family, b.step_ns);
        if (b.full) ha_known_add(&r->known, r->row, b.full->name, b.full->family, b.full_ns);
        status = ha_counted_add(&b.counted, &r->check.counted, why);
        ha_fill_counted(r->row, &b.counted);
        say_counted(r, &b.counted);
        if (status == HA_OK) status = trace(r, &b, why);
    }
    ha_bench_free(&b);
    return status;
}

static void close_case(void *run, struct ha_group *g)
{
    struct run *r = run;
    ha_check_free(&r->check);
    ha_dump_free(&r->dump);
    ha_session_close(&r->session);
}

/* Is the file there, and can it be read? It is opened once, with nothing asked of its shape. */
/* Whether it is for this model, too: of data that cannot be opened they say so themselves. */
static enum ha_status look_at_fit(const struct ha_case *c, struct ha_why *why)
{
    struct ha_workload *w = NULL;
    struct ha_fit *fit;
    struct ha_why of_data;
    if (ha_case_has_fit(c)) ha_workload_open(&w, c, &of_data);
    const enum ha_status status = ha_fit_of_name(&fit, c, w, why);
    ha_fit_close(fit);
    ha_workload_close(w);
    return status;
}

static enum ha_status look(const void *point, struct ha_why *why)
{
    const struct ha_case *c = point;
    const char *file;
    HA_TRY(look_at_fit(c, why));
    const struct ha_dataset *dataset = ha_case_dataset(c, &file);
    if (!dataset->needs_file) return HA_OK;
    HA_TRY(dataset->find(file, why));
    if (dataset->follow) return HA_OK; /* to open it reads all weights of a model */
    const size_t one = dataset->fixes_lengths ? 0 : 1;
    struct ha_shape shape = { .batch = one, .dtype = c->shape.dtype, .q_len = one };
    struct ha_source *source;
    if (dataset->open(dataset, &source, &shape, 1, c->seed, file, why) != HA_OK) return HA_FAIL;
    dataset->close(source);
    return HA_OK;
}

static enum ha_status fit(const void *point, const char *id, const char *path, FILE *out, struct ha_why *why)
{
    return ha_fit_learn(point, id, path, out, why);
}

/* ---- habench list ------------------------------------------------------------------------------------------------ */

static void print_variants(FILE *out)
{
    for (size_t i = 0; i < ha_variants_count; i++) {
        const struct ha_variant *v = ha_variants_all[i];
        fprintf(out, "%-12s %-14s %-11s %s (%s)\n", v->name, v->family, ha_contract_word(v), v->doc, v->source);
        for (size_t k = 0; k < v->params_count; k++) {
            const struct ha_param *p = &v->params[k];
            char value[HA_VALUE_MAX], min[HA_VALUE_MAX], max[HA_VALUE_MAX];
            ha_param_print(p, p->value, value);
            ha_number_print(p->min, min);
            ha_number_print(p->max, max);
            fprintf(out, "    %-14s %-6s %s (", p->name, value, p->doc);
            for (size_t w = 0; p->word && p->word(w); w++) fprintf(out, "%s%s", w ? ", " : "", p->word(w));
            if (p->word) fprintf(out, ")\n");
            else fprintf(out, "%s to %s%s)\n", min, max, p->power_of_2 ? ", a power of 2" : "");
        }
    }
}

static void print_models(FILE *out)
{
    for (const struct ha_model *m = ha_models; m < ha_models + HA_MODELS_COUNT; m++)
        fprintf(
            out,
            "%-15s %2zu layers, heads %zu/%zu x %zu, hidden %zu, feed-forward %zu%s, %.4g million parameters (%s)\n",
            m->name, m->layers, m->q_heads, m->kv_heads, m->head_dim, m->hidden, m->feed_forward,
            m->gated ? " gated" : "", (double)m->parameters / 1e6, m->source);
}

/* The products of attention, which the check does in binary64, and memory: a case at either limit takes some seconds.
 * Of a bracketing arm there is nothing to find. */
static double cost(const void *point)
{
    static const double most_products = 2e9, most_bytes = 1e9;
    const struct ha_case *c = point;
    const struct ha_shape *s = &c->shape;
    const struct ha_variant *v = ha_variant_find(c->variant);
    const struct ha_memory_need need = ha_memory_estimate(s);
    double pairs = 0;
    for (size_t b = 0; b < s->batch; b++)
        pairs += (double)(s->steps * s->q_len) * (double)(s->ctx[b] + s->steps * s->q_len);
    const double products = pairs * (double)(s->layers * s->q_heads * s->head_dim),
                 bytes = (double)(need.data_bytes + need.variant_bytes + need.device_io_bytes + need.host_io_bytes);
    if (!v || !v->checked) return (double)INFINITY;
    return fmax(products / most_products, bytes / most_bytes);
}

static const struct ha_list lists[] = { { "variants", print_variants }, { "models", print_models } };

const struct ha_suite ha_suite_variants = {
    .name = "variants",
    .attends = true,
    .doc = "attention variants over a trace of steps and layers, beside full attention",
    .key = ha_case_keys,
    .keys = HA_CASE_KEYS,
    .head = "variant",
    .class_key = "variant",
    .field = fields,
    .fields = sizeof fields / sizeof *fields,
    .file = { "cases.csv", "samples.csv", "accuracy.csv", "summary.csv", "counters.csv" },
    .summary = 1u << SUMMARY_FILE,
    .point_bytes = sizeof(struct ha_case),
    .row_bytes = sizeof(struct ha_row),
    .list = lists,
    .lists = sizeof lists / sizeof *lists,
    .options = " dump order faults ",
    .more = ha_case_param,
    .more_name = ha_case_param_name,
    .settle = ha_case_settle,
    .cost = cost,
    .look = look,
    .fit = fit,
    .begin = begin,
    .open = open_case,
    .check = check_case,
    .measure = measure_case,
    .close = close_case,
    .end = end,
    .print = ha_table_print,
    .says_waived = true,
};
