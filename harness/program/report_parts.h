#ifndef HA_PROGRAM_REPORT_PARTS_H
#define HA_PROGRAM_REPORT_PARTS_H

/* What the formats of `habench report` share. */

#include "harness/program/commands.h"

#include <stdio.h>

/* The records (folders with an env.json) at or below a folder: itself; those of a night; those of a folder of nights.
 */
struct ha_record_paths {
    size_t count;
    char **path; /* sorted by name in each folder */
};
/* HA_ERROR: the folder is not there, or holds none. Free with ha_record_paths_free, also then. */
enum ha_status ha_record_paths_find(const char *folder, struct ha_record_paths *out, struct ha_why *why);
void ha_record_paths_free(struct ha_record_paths *paths);
/* The last by name of several nights in a folder: what is compared with the others. false: it holds no two of them. */
bool ha_newest_night(const char *folder, char path[4096]);

/* Runs `habench compare BASE NEW... --format json` over the folders, or over one folder of nights and its newest, into
 * a file of its own without a name. *rows NULL: there is nothing to compare, or it printed nothing; then note says why
 * ("" where it is a single record). HA_ERROR: interrupted, or no file can be made. */
enum ha_status ha_report_compare(const struct ha_options *o, FILE **rows, char note[512], struct ha_why *why);

/* Is each word a folder of records? Asked before anything else. */
enum ha_status ha_report_are_records(const struct ha_options *o, struct ha_why *why);

/* The formats; what is written to out may fail, which its owner sees. */
enum ha_exit ha_report_csv(const struct ha_options *o, FILE *out, struct ha_why *why);
enum ha_exit ha_report_json(const struct ha_options *o, FILE *out, struct ha_why *why);
enum ha_exit ha_report_md(const struct ha_options *o, FILE *out, struct ha_why *why);
enum ha_exit ha_report_openmetrics(const struct ha_options *o, FILE *out, struct ha_why *why);

#endif
