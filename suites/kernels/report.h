#ifndef HA_CPU_REPORT_H
#define HA_CPU_REPORT_H

#include "harness/base/csv.h"
#include "suites/kernels/plan.h"
#include "harness/report/table.h"

/* A table for each section: the keys that differ in it, then what was found. Then what is wrong, and why what is
 * missing is missing. */
void ha_cpu_print_plan(FILE *out, const struct ha_cpu_plan *plan);
/* the share of the ceiling along the axis of each section that has one */
void ha_cpu_print_scaling(FILE *out, const struct ha_cpu_plan *plan);
struct ha_totals ha_cpu_totals(const struct ha_cpu_plan *plan);

/* cpu_kernels.csv: a row for each result that was run or waived */
enum ha_status ha_cpu_csv_header(struct ha_csv *csv, struct ha_why *why);
enum ha_status ha_cpu_csv_row(struct ha_csv *csv, const struct ha_cpu_result *result, uint64_t seed,
                              struct ha_why *why);
/* junit.xml: a verdict for each */
enum ha_status ha_cpu_junit(const char *folder, const struct ha_cpu_plan *plan, struct ha_why *why);

#endif
