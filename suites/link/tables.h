#ifndef HA_LINK_TABLES_H
#define HA_LINK_TABLES_H

/* The end of a run for a reader, once for each device, instruction set and seed. */

#include "suites/link/claims.h"
#include "suites/link/suite.h"

/* A block for each layout: methods by piece size, GB/s and the share of the ceiling, or the verdict where nothing was
 * measured. Then what the methods are. */
void ha_link_print(FILE *out, const struct ha_results *results);
/* the claims; there is no verdict of the whole */
bool ha_link_conclude(FILE *out, const struct ha_results *results, struct ha_why *why);

#endif
