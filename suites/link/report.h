#ifndef HA_LINK_REPORT_H
#define HA_LINK_REPORT_H

#include "harness/base/csv.h"
#include "suites/link/claims.h"
#include "suites/link/results.h"
#include "harness/report/table.h"

#include <stdio.h>

/* A block for each layout: methods by piece size, GB/s and the share of the ceiling, or the verdict where nothing was
 * measured. Then what is wrong, and why what is missing is missing. */
void ha_link_print_results(FILE *out, const struct ha_link_results *results);
void ha_link_print_claims(FILE *out, const struct ha_link_results *results);
struct ha_totals ha_link_totals(const struct ha_link_results *results);

/* What the rows of one run share. */
struct ha_link_origin {
    const struct ha_device_api *api;
    struct ha_device_info info;
    size_t source_bytes;
    uint64_t seed;
};
/* link.csv: a row for each result that was run or waived */
enum ha_status ha_link_csv_header(struct ha_csv *csv, struct ha_why *why);
enum ha_status ha_link_csv_row(struct ha_csv *csv, const struct ha_link_results *results,
                               const struct ha_link_result *result, const struct ha_link_origin *origin,
                               struct ha_why *why);

/* junit.xml: a verdict for each */
enum ha_status ha_link_junit(const char *folder, const struct ha_link_results *results, struct ha_why *why);

#endif
