#ifndef HA_JUNIT_H
#define HA_JUNIT_H

#include "harness/report/row.h"

/* Writes OUT/junit.xml: a test suite for each suite x variant, in which the correctness of a
 * case and its timing are two test cases. rows: all of the run; bench: it had timings. */
enum ha_status ha_junit_write(const char *folder, const struct ha_row *rows, size_t count, bool bench,
                              struct ha_why *why);

#endif
