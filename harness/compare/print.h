#ifndef HA_COMPARE_PRINT_H
#define HA_COMPARE_PRINT_H

/* A comparison for a reader, for a program, for a CI server: the same verdicts in all. */

#include "harness/base/json_line.h"
#include "harness/compare/compare.h"

#include <stdio.h>

/* What differs between the machines first, then a line for each thing that changed, then tables, and at last the
 * verdict in one line. */
void ha_compare_print_table(FILE *out, const struct ha_comparison *comparison);
/* JSON lines: {"row":"record"}, {"row":"environment"}, {"row":"change"}, and {"row":"verdict"} at last. index: which of
 * several new records it is, from 1. */
void ha_compare_print_json(FILE *out, const struct ha_comparison *comparison, size_t index);
/* A test case for each case, which fails with what changed in it, and one for exit, what all came to, where no case
 * says as much, or where there is more to be said of it (said: lines of clean text; NULL: nothing). count may be 0.
 * Whole, or not at all. */
enum ha_status ha_compare_junit(const char *path, const struct ha_comparison *comparison, size_t count,
                                enum ha_exit exit, const char *said, struct ha_why *why);
/* A change in words, without a line's end. */
void ha_change_line(FILE *out, const struct ha_change *change);
/* A number in a unit that suits it: "1.02 ms" of 1.02e6 ns. Returns out. */
enum { HA_AMOUNT = 64 };
const char *ha_amount(char out[HA_AMOUNT], double x, const char *unit);
/* The verdict in words, without a line's end. */
void ha_verdict_line(FILE *out, const struct ha_comparison *comparison);

#endif
