#ifndef HA_COMPARE_HISTORY_PRINT_H
#define HA_COMPARE_HISTORY_PRINT_H

/* A history for a reader, and for a program. */

#include "harness/compare/history.h"

#include <stdio.h>

/* A line for each figure that has changed, the newest change first; then each curve, a line for each night. HA_ERROR:
 * no memory. */
enum ha_status ha_history_print_table(FILE *out, const struct ha_history *history, struct ha_why *why);
/* JSON lines: {"row":"history"} for each night of each curve, and {"row":"histories"} at last. HA_ERROR: no memory. */
enum ha_status ha_history_print_json(FILE *out, const struct ha_history *history, struct ha_why *why);

#endif
