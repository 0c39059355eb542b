#ifndef HA_VARIANTS_TABLE_H
#define HA_VARIANTS_TABLE_H

#include "harness/api/suite.h"

/* Results grouped by workload, at most 150 columns wide. */
void ha_table_print(FILE *out, const struct ha_results *results);

#endif
