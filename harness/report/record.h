#ifndef HA_RECORD_H
#define HA_RECORD_H

/* The files of a run: OUT/ cases.csv samples.csv accuracy.csv summary.csv, all written from one
 * table of fields. Rows are complete lines, flushed as they come. */

#include "harness/report/row.h"

#include <stdio.h>

enum ha_file { HA_FILE_CASES, HA_FILE_SAMPLES, HA_FILE_ACCURACY, HA_FILE_SUMMARY };
enum { HA_FILE_COUNT = 4 };

struct ha_record;

/* Makes the folder. Results that are already there are an error, unless resume: then rows are
 * appended, a line that was cut short is dropped first, and columns that differ are an error. */
enum ha_status ha_record_open(struct ha_record **record, const char *folder, bool resume, struct ha_why *why);
enum ha_status ha_record_row(struct ha_record *record, enum ha_file file, const struct ha_row *row, struct ha_why *why);
/* the verdict that a resumed folder holds for a case, "" if none */
const char *ha_record_verdict(const struct ha_record *record, const char *case_id);
/* which process of this folder this is: 0, or one more than the largest there */
double ha_record_process(const struct ha_record *record);
enum ha_status ha_record_close(struct ha_record *record, struct ha_why *why);

/* every column: name, unit, files, meaning */
void ha_record_print_fields(FILE *out);

/* The fields of a file as text, for tests: count, name of field i, text of row's field i. */
size_t ha_record_fields(enum ha_file file);
const char *ha_record_field_name(enum ha_file file, size_t i);
/* storage for numbers: text; returns text, a pointer into row, or NULL for an empty field */
const char *ha_record_field_text(enum ha_file file, size_t i, const struct ha_row *row, char text[32]);

#endif
