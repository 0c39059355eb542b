#ifndef HA_REPORT_ROW_H
#define HA_REPORT_ROW_H

/* Rows: the head that each begins with, with its verdict; values by the table of the suite: as text, from text, as
 * figures. */

#include "harness/api/suite.h"

/* The head that every row begins with. */
static inline struct ha_result *ha_result_of(void *row) { return row; }
static inline const struct ha_result *ha_result_in(const void *row) { return row; }

/* A verdict of its own for row i, from a status that is not HA_OK; it stays. */
void ha_result_set(const struct ha_group *group, size_t i, enum ha_status status, const struct ha_why *why);
/* A row of a suite as it counts in a run that asks so many: p is corrected for that (Bonferroni), and a pass may become
 * SUSPECT, for its suspicion. Not twice. */
void ha_result_suspect(struct ha_result *result, double asked);
/* The same of one of which so many others came before, where nobody knows how many will: 2 k (1 + ln k)^2 for the k-th.
 * The reciprocals of all add up to less than 1. */
double ha_result_asked(size_t before);
/* "pass", "fail", "waived", "error", "unchecked", "suspect", "not run" */
const char *ha_verdict_name(enum ha_verdict verdict);
/* The same as tables show them: FAIL, ERROR and SUSPECT stand out. */
const char *ha_verdict_shown(enum ha_verdict verdict);
/* the verdict of that name; HA_NOT_RUN where there is none */
enum ha_verdict ha_verdict_of(const char *name);

/* What became of a planted defect, of whose case the head says what it came to: seen or alive, in which case (where, or
 * "") and how that failed (said). */
void ha_planted_print(FILE *out, const struct ha_result *head, const char *name, const char *what, const char *seen,
                      const char *alive, const char *where, const char *said);

/* The fields of a row: the suite's, and behind them those that every row has (struct ha_result), which are of file[0]
 * alone. */
size_t ha_fields_all(const struct ha_suite *suite);
const struct ha_field *ha_field_at(const struct ha_suite *suite, size_t i); /* i < ha_fields_all */

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
/* The first time of a row (ns), or rate (per second, negative), that is a figure of its suite; NaN: it has none. */
double ha_fields_speed(const struct ha_suite *suite, const void *row);
/* Is it a figure (figures.csv) with a value in this row? */
bool ha_field_figure(const struct ha_field *field, const void *row);
/* "less", "more", "neither"; "" of what is no figure */
const char *ha_better_name(enum ha_better better);

#endif
