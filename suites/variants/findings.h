#ifndef HA_VARIANTS_FINDINGS_H
#define HA_VARIANTS_FINDINGS_H

/* The lines below the table of a run: which rows were disturbed more than the others, and three sentences on what the
 * rows show. */

#include "suites/variants/fill.h"

/* Sets mark[i] where row[i] was disturbed more than the rows of this run commonly were: it has more than twice the
 * upper quartile of a cause (an order statistic, rounded down). A cause that all rows have alike marks none of them. */
void ha_findings_mark(const struct ha_row *const *row, size_t rows, bool *mark);

/* One line for all rows that were disturbed: how many, and the median of each cause over the rows that have it. Prints
 * nothing where no row was. mark: of ha_findings_mark. */
void ha_findings_print_disturbed(FILE *out, const struct ha_row *const *row, size_t rows, const bool *mark);

/* The fastest variant of each workload whose output is within 5% of full attention's; what the CPU side takes; which
 * cases were waived, and why. A sentence without a row that it could be about is left out. */
void ha_findings_print(FILE *out, const struct ha_results *results);

#endif
