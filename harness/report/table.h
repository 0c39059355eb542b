#ifndef HA_TABLE_H
#define HA_TABLE_H

#include "harness/report/row.h"

#include <stdio.h>

struct ha_totals {
    size_t passed, failed, waived, errors;
};
struct ha_totals ha_table_totals(const struct ha_row *rows, size_t count);

/* The end of a run for a reader: results grouped by workload, at most 150 columns wide, then what
 * failed and how to run it again, then what was waived and why. */
void ha_table_print(FILE *out, const struct ha_row *rows, size_t count, bool bench);
/* The last line, which scripts read: `N passed, N failed, N skipped`; an error has failed. */
void ha_table_print_totals(FILE *out, const struct ha_totals *totals);

#endif
