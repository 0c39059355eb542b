#ifndef HA_TUNE_FILE_H
#define HA_TUNE_FILE_H

/* Plans as files: CSV, a row for each choice (docs/kernels.md#plans). A file may have rows of many CPUs: those of this
 * one are taken. */

#include "harness/base/tuning.h"

#define HA_PLAN_FILE "plan.csv" /* in the folder of a run: the plan that it had */

/* The plan for this CPU in a file; from: the first word of its name. HA_FAIL: the file has none for this CPU; HA_ERROR:
 * it cannot be read, or is no plan. why names the file, the line and the mend. */
enum ha_status ha_tune_read(struct ha_tuning *out, const char *path, const char *from, struct ha_why *why);
/* Could a plan be written there? Asked before one is measured. */
enum ha_status ha_tune_writable(const char *path, struct ha_why *why);
/* Whole or not at all. */
enum ha_status ha_tune_write(const struct ha_tuning *tuning, const char *path, struct ha_why *why);

/* Where a user's plans are: one file for each CPU and build, under $XDG_CACHE_HOME or ~/.cache. HA_WAIVED: neither is
 * known. */
enum ha_status ha_tune_cache_path(char path[4096], struct ha_why *why);

/* Which plan this run has, and makes it the one in use: `asked` (a path, or "constants"), else $HABENCH_PLAN, the
 * user's, one that is shipped for this CPU, the last quick choice, or, where `measures`, a new one, which is kept
 * beside the user's. A plan that is asked for and cannot be had is an error; another that is damaged is said and left.
 */
enum ha_status ha_tune_find(const char *asked, bool measures, struct ha_why *why);
/* The same with plans that are shipped in this folder; NULL: none are. */
enum ha_status ha_tune_find_in(const char *shipped, const char *asked, bool measures, struct ha_why *why);

#endif
