#include "suites/variants/row.h"

enum { C = 1, S = 2, A = 4, Y = 8, ALL = C | S | A | Y }; /* cases.csv, samples.csv, accuracy.csv, summary.csv */

/* Columns are only ever appended. */
#define NUMBER(name, unit, ...)     { #name, unit, HA_FIELD_NUMBER, HA_IN(struct ha_row, name), __VA_ARGS__ },
#define PART(part, name, unit, ...) { #name, unit, HA_FIELD_NUMBER, HA_IN(struct ha_row, part.name), __VA_ARGS__ },
#define WHOLE(name, unit, ...)      { #name, unit, HA_FIELD_WHOLE, HA_IN(struct ha_row, name), __VA_ARGS__ },
#define TEXT(name, ...)             { #name, "", HA_FIELD_TEXT, HA_IN(struct ha_row, name), __VA_ARGS__ },
/* clang-format off */
const struct ha_field ha_row_fields[] = {
    NUMBER(block, "", S, "pass: one run over the context from the first step to the last")
    NUMBER(iter, "", S, "step within the pass, of role step; empty: the whole pass")
    NUMBER(step, "", A, "")
    NUMBER(layer, "", A, "")
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
    TEXT(source, C, "what the device's spans are stamped by: CUPTI, CUDA events (within so many us), the device itself")
    NUMBER(h2d_bytes, "bytes", C | Y, "of a step over the link, counted at every copy", HA_LESS)
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
    PART(counters, hit_ratio, "", C, "the variant's own count, as are the next", HA_NEITHER)
    PART(counters, cpu_ratio, "", C, "", HA_NEITHER)
    PART(counters, recalls, "", C, "", HA_NEITHER)
    PART(counters, select_ns, "ns", C, "of a step", HA_LESS)
    PART(counters, manage_ns, "ns", C, "of a step, off the critical path", HA_LESS)
    PART(counters, cpu_tokens, "tokens", C, "keys read by the CPU side, per query head and step", HA_NEITHER)
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
};
/* clang-format on */
_Static_assert(sizeof ha_row_fields / sizeof *ha_row_fields == HA_ROW_FIELDS, "HA_ROW_FIELDS");
