#ifndef HA_MERGE_FAILURE_H
#define HA_MERGE_FAILURE_H

/* What a person needs of a failure: the element, the smallest row that still fails, and a file of it. */

#include "suites/merge/work.h"

#include <stdio.h>

/* Runs the cell's task again with that subject, shrinks the row, and prints all of it. id: of that task and row. dir:
 * where the replay file goes; NULL: it is not written. */
void ha_merge_failure_print(FILE *out, const struct ha_merge_suite *suite, const struct ha_merge_source *source,
                            const struct ha_merge_cell *cell, const char *id, const char *dir);

#endif
