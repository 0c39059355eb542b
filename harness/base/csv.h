#ifndef HA_BASE_CSV_H
#define HA_BASE_CSV_H

#include "harness/api/base.h"

/* RFC 4180 through libcsv. A row is one write(2), at the end of the file: a stopped run keeps every
 * complete row. The first write error (a full disk) is kept and returned by every later call; a
 * row that was cut by it is taken back. */

struct ha_csv;

/* Makes the file, or goes on at the end of what is there; exclusive: there must be none, and no link. Nobody
 * else writes into it until it is closed: a row fails where its size is another, or where it was removed. */
enum ha_status ha_csv_open(struct ha_csv **csv, const char *path, bool exclusive, struct ha_why *why);
/* A field that is NULL or "" is empty (not measured), written without quotes. */
enum ha_status ha_csv_row(struct ha_csv *csv, const char *const *fields, size_t count, struct ha_why *why);
enum ha_status ha_csv_close(struct ha_csv *csv, struct ha_why *why);

/* Reads a whole file; row(arg, line where it begins, fields, count) for each row; a non-OK return
 * stops and is returned. Empty lines are no rows. Fields are valid during the call. */
enum ha_status ha_csv_read(const char *path, enum ha_status (*row)(void *arg, size_t line, char **fields, size_t count),
                           void *arg, struct ha_why *why);

/* "%.17g" in the C locale; empty string for NaN; infinite: "1e999", "-1e999", numbers to every reader of CSV */
void ha_csv_number(char out[32], double x);
/* what ha_csv_number wrote, and "inf" and "-inf" of older builds, and nothing else; an empty string is NaN */
bool ha_csv_number_parse(const char *text, double *x);

#endif
