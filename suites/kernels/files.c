#include "suites/kernels/report.h"

#include "harness/base/why.h"
#include "harness/report/junit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Behind the keys, in this order. */
static const struct {
    const char *name;
    size_t offset; /* of a double of the result */
} numbers[] = {
#define AT(member) offsetof(struct ha_cpu_result, member)
#define FIGURE(name, member) \
    { name, AT(member.median) }, { name "_lo", AT(member.lo) }, { name "_hi", AT(member.hi) }
    { "err_over_bound", AT(err_over_bound) },
    FIGURE("ns", part_ns[HA_CPU_WHOLE]),
    { "bytes", AT(bytes) },
    { "flop", AT(flop) },
    { "GBps", AT(GBps) },
    FIGURE("ratio", ratio),
    FIGURE("floor", floor),
    { "ceiling_GBps", AT(ceiling_GBps) },
    { "ceiling_1_GBps", AT(ceiling_1_GBps) },
    { "peak_GFLOPps", AT(peak_GFLOPps) },
    { "scale", AT(scale) },
    { "huge_share", AT(huge_share) },
    { "node_share", AT(node_share) },
    { "wake_ns", AT(wake_ns) },
    FIGURE("scores_ns", part_ns[HA_CPU_SCORES]),
    FIGURE("choice_ns", part_ns[HA_CPU_CHOICE]),
    FIGURE("chosen_ns", part_ns[HA_CPU_CHOSEN]),
    FIGURE("dense_ns", part_ns[HA_CPU_DENSE]),
    FIGURE("whole_over_dense", whole_over_dense),
    FIGURE("choice_share", choice_share),
#undef FIGURE
#undef AT
};
static const char *const head[] = { "schema_version", "id",       "section", "verdict",
                                    "reason",         "isa_used", "state",   "disturbed" };
static const char *const counts[] = { "threads_used", "samples", "retried", "seed" };
enum {
    HEAD = sizeof head / sizeof *head,
    COUNTS = sizeof counts / sizeof *counts,
    NUMBERS = sizeof numbers / sizeof *numbers
};
enum { COLUMNS = HEAD + HA_CPU_KEYS + COUNTS + NUMBERS };

enum ha_status ha_cpu_csv_header(struct ha_csv *csv, struct ha_why *why)
{
    const char *name[COLUMNS];
    size_t n = 0;
    for (size_t i = 0; i < HEAD; i++) name[n++] = head[i];
    for (int k = 0; k < HA_CPU_KEYS; k++) name[n++] = ha_cpu_key_name((enum ha_cpu_key)k);
    for (size_t i = 0; i < COUNTS; i++) name[n++] = counts[i];
    for (size_t i = 0; i < NUMBERS; i++) name[n++] = numbers[i].name;
    return ha_csv_row(csv, name, COLUMNS, why);
}

enum ha_status ha_cpu_csv_row(struct ha_csv *csv, const struct ha_cpu_result *r, uint64_t seed, struct ha_why *why)
{
    char id[HA_CPU_ID_MAX], key[HA_CPU_KEYS][HA_CPU_VALUE_MAX], count[COUNTS][32], text[NUMBERS][32];
    const bool timed = r->samples > 0;
    const double whole[COUNTS] = { r->threads, r->samples, r->retried, (double)seed };
    ha_cpu_point_print(&r->point, id);
    const char *row[COLUMNS] = { "1",
                                 id,
                                 r->section,
                                 ha_cpu_state_name(r->state),
                                 r->reason,
                                 r->isa,
                                 ha_cpu_ceiling_state(r),
                                 !timed         ? ""
                                 : r->disturbed ? "yes"
                                                : "no" };
    size_t n = HEAD;
    for (int k = 0; k < HA_CPU_KEYS; k++) {
        *key[k] = 0;
        if (ha_cpu_key_used(&r->point, (enum ha_cpu_key)k)) ha_cpu_value_print(&r->point, (enum ha_cpu_key)k, key[k]);
        row[n++] = key[k];
    }
    for (size_t i = 0; i < COUNTS; i++) {
        ha_csv_number(count[i], whole[i]);
        row[n++] = i && i < 3 && !timed ? "" : count[i];
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        double x;
        memcpy(&x, (const char *)r + numbers[i].offset, sizeof x);
        ha_csv_number(text[i], x);
        row[n++] = text[i];
    }
    return ha_csv_row(csv, row, COLUMNS, why);
}

enum ha_status ha_cpu_junit(const char *folder, const struct ha_cpu_plan *plan, struct ha_why *why)
{
    struct ha_row *rows = calloc(plan->results + 1, sizeof *rows);
    size_t count = 0;
    if (!rows) return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < plan->results; i++) {
        const struct ha_cpu_result *r = &plan->result[i];
        struct ha_row *row = &rows[count];
        if (r->state == HA_CPU_NOT_RUN) continue;
        ha_row_clear(row);
        ha_cpu_point_print(&r->point, row->case_id);
        strcpy(row->suite, "cpu_kernels");
        strcpy(row->variant, ha_cpu_kernel_name(r->point.kernel));
        strcpy(row->verdict, ha_cpu_state_name(r->state));
        strcpy(row->reason, r->reason);
        count++;
    }
    const enum ha_status status = ha_junit_write(folder, rows, count, false, why);
    free(rows);
    return status;
}
