#include "suites/variants/row.h"

#include <stddef.h>

enum { C = 1, S = 2, A = 4, Y = 8, ALL = C | S | A | Y }; /* cases.csv, samples.csv, accuracy.csv, summary.csv */

/* Columns are only ever appended. */
const struct ha_field ha_row_fields[] = {
#define AT(member)                     offsetof(struct ha_row, member)
#define SIZE(member)                   sizeof((struct ha_row *)0)->member
#define NUMBER(name, unit, files, doc) { #name, unit, HA_FIELD_NUMBER, AT(name), 0, files, HA_NO_FIGURE, 0, 0, doc },
#define WHOLE(name, unit, files, doc)  { #name, unit, HA_FIELD_WHOLE, AT(name), 0, files, HA_NO_FIGURE, 0, 0, doc },
#define FIGURE(name, unit, files, better, doc) \
    { #name, unit, HA_FIELD_NUMBER, AT(name), 0, files, HA_##better, 0, 0, doc },
#define SPAN(name, low, high, unit, files, better, doc) \
    { #name, unit, HA_FIELD_NUMBER, AT(name), 0, files, HA_##better, AT(low), AT(high), doc },
#define TEXT(name, files, doc) { #name, "", HA_FIELD_TEXT, AT(name), SIZE(name), files, HA_NO_FIGURE, 0, 0, doc },
    /* clang-format off */
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
        "times are this"
        " host's")
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
    FIGURE(err_over_bound, "", C | A | Y, NEITHER, "largest error / bound over all elements, at most 1; binary64 "
        "reference")
    FIGURE(rel_l2, "", C | A | Y, NEITHER, "against full attention; binary64 reference")
    FIGURE(rel_l2_head_max, "", C | A, NEITHER, "the same by head, divided by the largest head norm")
    FIGURE(mass_min, "", C | A | Y, NEITHER, "least full-attention mass on the keys used")
    FIGURE(mass_mean, "", C | A | Y, NEITHER, "")
    FIGURE(cert_slack, "", C | A, NEITHER, "observed deviation / certificate, at most 1")
    FIGURE(recall, "", C | A | Y, NEITHER, "share of the true top-k among the k keys used")
    FIGURE(keys_mean, "tokens", C | A, NEITHER, "keys used by a query head")
    SPAN(step_ns, step_lo_ns, step_hi_ns, "ns", C | S | Y, LESS, "steps follow one another: from the second step's "
        "begin to the last one's end over their number, "
        "untraced, CLOCK_MONOTONIC_RAW; median of passes, or the pass. Of a single step (role step): from the"
        " end of the step before to its own, as the device completed it where it is in host memory, else as "
        "the host had submitted it")
    NUMBER(step_lo_ns, "ns", C | Y, "95% interval of the median, order statistics; empty of fewer than 6 passes")
    NUMBER(step_hi_ns, "ns", C | Y, "")
    FIGURE(layer_ns, "ns", C, LESS, "step_ns / layers")
    NUMBER(warmup_samples, "", C, "passes before the slope test was met")
    NUMBER(warm, "", C, "1: the slope test was met before the time was up")
    FIGURE(vs_full, "", C | Y, LESS, "step_ns / full_step_ns")
    FIGURE(full_step_ns, "ns", C, LESS, "the same of `resident` over the same data in this run")
    NUMBER(context_switches, "", C | S, "involuntary, of the process during a pass, its first step included; their "
        "sum over the passes; "
        "getrusage")
    NUMBER(page_faults, "", C | S, "minor and major, the same way")
    FIGURE(gpu_kernel_idle, "", C | Y, LESS, "1 - |K| / W, W from the second step of a traced pass to its last; spans")
    FIGURE(gpu_idle, "", C | Y, LESS, "1 - |K u C| / W; spans")
    FIGURE(cpu_idle, "", C | Y, LESS, "1 - compute time of the pool / (threads x W); stamped inside the parallel "
        "regions")
    FIGURE(overlap, "", C | Y, MORE, "|P n (K u C)| / min(|P|, |K u C|); spans")
    FIGURE(overlap_eff, "", C, MORE, "slowest arm run alone / step, at most 1; needs the family's *_only arms of "
        "the same shape earlier in"
        " the run")
    FIGURE(perturb, "", C, NEITHER, "traced / untraced - 1; beyond 0.05 either way the span ratios are those of "
        "other steps than were "
        "timed, and marked ~ in the table")
    NUMBER(spans_dropped, "", C, "lost by what stamps them, or for want of memory; above 0 the span ratios are empty")
    TEXT(source, C, "what the device's spans are stamped by: CUPTI, CUDA events (within so many us), the device itself")
    FIGURE(h2d_bytes, "bytes", C | Y, LESS, "of a step over the link, counted at every copy")
    FIGURE(d2h_bytes, "bytes", C | Y, LESS, "")
    FIGURE(zero_copy_bytes, "bytes", C, LESS, "of a step, read by kernels from mapped memory; the device's own count")
    FIGURE(h2d_link_GBps, "10^9 bytes/s", C | Y, MORE, "bytes / time in which such copies ran; spans")
    FIGURE(d2h_link_GBps, "10^9 bytes/s", C, MORE, "")
    FIGURE(h2d_eff_GBps, "10^9 bytes/s", C, MORE, "h2d_bytes / step_ns")
    FIGURE(d2h_eff_GBps, "10^9 bytes/s", C, MORE, "")
    FIGURE(link_share, "", C, MORE, "h2d_link_GBps / the ceiling probed in this run, the best reading")
    NUMBER(floor_ns, "ns", C, "slowest of bytes / probed ceiling: keys and values (and weights, with load=layer) "
        "read by each side "
        "at least once, copies each way; empty where they are not more than the caches hold that this process"
        " has a share of")
    FIGURE(floor_ratio, "", C | Y, MORE, "floor_ns / step_ns; above 1: the probe was disturbed")
    FIGURE(kv_gpu_bytes, "bytes", C | Y, LESS, "K and V on the device, peak, counted by the arenas")
    FIGURE(kv_cpu_bytes, "bytes", C | Y, LESS, "the same in host memory")
    FIGURE(meta_gpu_bytes, "bytes", C, LESS, "what the variant keeps beside K and V")
    FIGURE(meta_cpu_bytes, "bytes", C, LESS, "")
    FIGURE(hit_ratio, "", C, NEITHER, "the variant's own count, as are the next")
    FIGURE(cpu_ratio, "", C, NEITHER, "")
    FIGURE(recalls, "", C, NEITHER, "")
    FIGURE(select_ns, "ns", C, LESS, "of a step")
    FIGURE(manage_ns, "ns", C, LESS, "of a step, off the critical path")
    FIGURE(cpu_tokens, "tokens", C, NEITHER, "keys read by the CPU side, per query head and step")
    TEXT(load, C | Y, "attention; layer: with the products of each layer around it, in every time of this row")
    TEXT(model, C | Y, "whose shape it is; empty: none was named")
    NUMBER(sm_clock_MHz, "MHz", C, "of the device's meters, as are the next: read right after the last timed step "
        "of each untraced pass;"
        " the least")
    NUMBER(memory_clock_MHz, "MHz", C, "the least")
    NUMBER(temperature_C, "C", C, "the most")
    FIGURE(power_W, "W", C, NEITHER, "mean of those readings")
    FIGURE(energy_step_J, "J", C, LESS, "of an untraced pass / its steps; empty unless the counter moved in every pass")
    NUMBER(link_gen, "", C, "PCIe generation, under load; the least")
    NUMBER(link_width, "lanes", C, "the least")
    TEXT(throttle, C | Y, "why clocks were held down at any of those readings; none")
    TEXT(disturbed, C | Y, "what else used the cores while passes were measured: load, steal, throttled, shared (a "
        "core was at "
        "half its speed); empty: nothing was seen")
    TEXT(team, C | Y, "whose threads the CPU side has: openmp, own")
/* clang-format on */
#undef NUMBER
#undef WHOLE
#undef FIGURE
#undef SPAN
#undef TEXT
#undef SIZE
#undef AT
};
_Static_assert(sizeof ha_row_fields / sizeof *ha_row_fields == HA_ROW_FIELDS, "HA_ROW_FIELDS");
