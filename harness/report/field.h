#ifndef HA_REPORT_FIELD_H
#define HA_REPORT_FIELD_H

/* Values of a row by the table of its suite: as text, from text, as a figure. */

#include "harness/api/suite.h"

/* Zeros, and NaN for every number, the ends of intervals and the samples: not run, nothing measured. */
void ha_fields_clear(const struct ha_suite *suite, void *row);
/* Of a row whose bytes came from elsewhere: every text ends and can be printed. false: it has no verdict. */
bool ha_fields_mend(const struct ha_suite *suite, void *row);
/* As snprintf. Empty: not measured (NaN, ""). Numbers read back as the same number; texts are clean (base/text.h). */
size_t ha_field_print(const struct ha_field *field, const void *row, char *out, size_t size);
/* What print wrote. HA_ERROR: it is no such value, too large for a uint64_t, or too long for the text. */
enum ha_status ha_field_parse(const struct ha_field *field, void *row, const char *text, struct ha_why *why);

/* NaN: not measured, or a text */
double ha_field_value(const struct ha_field *field, const void *row);
/* an end of an interval, field->lo or field->hi; NaN: it has none */
double ha_field_end(size_t end, const void *row);
/* Is it a figure (figures.csv) with a value in this row? */
bool ha_field_figure(const struct ha_field *field, const void *row);
/* "less", "more", "neither"; "" of what is no figure */
const char *ha_better_name(enum ha_better better);

#endif
