#ifndef HA_REPORT_FOLDER_H
#define HA_REPORT_FOLDER_H

/* The folder of a run (-o DIR) and the rows of the run: env.json, the files of each suite, figures.csv, trace.json and
 * junit.xml. Nothing else writes them. Without a folder the rows are kept in memory alone, so that there is one way.
 *
 * A case is one row of its suite's file[0]; whatever else is written for it comes before that row, which commits it.
 * A run that is killed keeps every committed case. With resume, what belongs to no committed case is dropped, as are
 * cases that ended with an error, so that they are tried again.
 *
 * The first write that fails (a full disk) is said by that call and by every later one. */

#include "harness/api/exit.h"
#include "harness/api/suite.h"
#include "harness/report/env.h"

#include <stdio.h>

enum { HA_FOLDER_SCHEMA = 2 }; /* column schema_version */

/* Its texts outlive the folder. */
struct ha_folder_options {
    const char *path; /* NULL: rows in memory alone */
    bool resume;
    bool next;         /* where path has a complete record, or another run writes to it, path-2 is taken, path-3, ... */
    const char *mode;  /* "run" or "check" */
    const char *build; /* ha_version() */
    const char *options; /* whatever else must be the same on resume, for people to read: "device=host isa=best" */
    const char *command; /* as the user typed it; NULL: the command line of this process */
    const char *exec;    /* the command of --exec, or NULL */
    const char *run_id;
    const struct ha_env_suite *suite_file; /* [suite_files] that the cases are from */
    size_t suite_files;
    const struct ha_suite *const *suites; /* [suites_count] */
    size_t suites_count;
    const struct ha_env *env; /* of the machine; NULL: it is read here (ha_env_read) */
};

/* A case, for what is written about it; strings are copied where they are kept. */
struct ha_folder_case {
    const struct ha_suite *suite;
    const char *id;
    const char *from; /* column suite: the word of the command line that it is from; "": the suite by its name */
    size_t process;
    /* [suite->keys] texts of the suite's keys, "" of one that the point does not use; those with a column and the class
     * key are looked at */
    const char *const *key_value;
    double seconds; /* that it took, to be checked and measured; 0: nobody knows */
};

/* A case that has its row. It stays where it is until the folder is closed. */
struct ha_folder_entry {
    const struct ha_suite *suite;
    const char *id, *from, *class_value; /* class_value: of suite->class_key */
    size_t process;
    const void *row; /* of a case of before: only what stands in file[0] */
    double seconds;  /* that it took; 0 of a case of before */
    bool before;     /* it was there when the folder was opened */
};

/* What resume found. */
struct ha_folder_found {
    size_t kept, again; /* cases that are done; cases that ended with an error and are tried again */
    size_t dropped;     /* lines without a case, and torn ones */
    bool nothing;       /* the folder was not there, or empty */
};

struct ha_folder_totals {
    size_t passed /* suspects too */, failed, errors, waived, unchecked, not_run;
};

struct ha_folder;

/* HA_EXIT_OK. HA_EXIT_USAGE: the folder is not empty (ha_folder_take), is that of a run that differs, or another run
 * writes to it. HA_EXIT_ENVIRONMENT: it cannot be made, read or written. HA_EXIT_INTERNAL: two columns or files of the
 * suites have one name. why says which in one line; *folder is NULL then. The caller ignores SIGXFSZ, so that a limit
 * of the size of files is a failure like others. */
enum ha_exit ha_folder_open(struct ha_folder **folder, const struct ha_folder_options *options, struct ha_why *why);
/* where it is: of `next` it may be another than was asked for; NULL: in memory alone */
const char *ha_folder_path(const struct ha_folder *folder);
const struct ha_folder_found *ha_folder_found(const struct ha_folder *folder);

/* All rows: those of before, then those of this run, in the order in which they came. */
size_t ha_folder_entries(const struct ha_folder *folder);
const struct ha_folder_entry *ha_folder_entry(const struct ha_folder *folder, size_t i);
/* By its id, which is one of all suites. NULL: the case has no row. */
const struct ha_folder_entry *ha_folder_find(const struct ha_folder *folder, const char *id, size_t process);

/* A line of file[file] (1 and above) of the suite, for a case that is running. row: suite->row_bytes, copied. */
enum ha_status ha_folder_line(struct ha_folder *folder, const struct ha_folder_case *of, size_t file, const void *row,
                              struct ha_why *why);
/* The end of a case: its figures, its lines of the suite's summary files, its row. Not twice for one case. */
enum ha_status ha_folder_row(struct ha_folder *folder, const struct ha_folder_case *of, const void *row,
                             struct ha_why *why);
/* Events for trace.json: JSON objects joined by commas. Each case is a process of the trace by its id: "pid" and what
 * names a process are set here. HA_FAIL: they are no such text, and are left out. */
enum ha_status ha_folder_trace(struct ha_folder *folder, const struct ha_folder_case *of, const char *events,
                               size_t bytes, struct ha_why *why);
/* A device of the run, and again when its ceilings are known; goes to env.json. */
enum ha_status ha_folder_device(struct ha_folder *folder, const struct ha_env_device *device, struct ha_why *why);
/* A case that was to be run and was not: for the totals and junit.xml. */
enum ha_status ha_folder_not_run(struct ha_folder *folder, const struct ha_folder_case *of, const char *reason,
                                 struct ha_why *why);

/* Whether the case of this id asks the command of --exec: the key that --exec sets is "exec". */
bool ha_folder_asks_command(const struct ha_suite *suite, const char *id);
/* Of a run in memory alone: lets go of the rows that passed, and of all but one of those that were skipped for one
 * reason. The totals know of them. A folder keeps everything. */
void ha_folder_forget(struct ha_folder *folder);
/* of the whole folder: cases of before, of this run, and not run */
struct ha_folder_totals ha_folder_totals(const struct ha_folder *folder);
/* The run has come to its end: unless a case was not run, the folder is complete when it is closed (env.json). */
void ha_folder_end(struct ha_folder *folder);
/* Writes junit.xml of the whole folder, unless a write has failed; then lets go of everything. NULL is closed. */
enum ha_status ha_folder_close(struct ha_folder *folder, struct ha_why *why);

/* The row as JSON lines: {"row":"case",...} with every column that is not empty, then {"row":"figure",...} for each
 * line of figures.csv. Numbers are numbers, uint64_t exactly; infinite ones are "1e999" and "-1e999". */
enum ha_status ha_folder_json(const struct ha_folder *folder, FILE *out, const struct ha_folder_case *of,
                              const void *row, struct ha_why *why);
/* Every column of every file of these suites: file, column, unit, better, meaning. */
void ha_folder_print_fields(FILE *out, const struct ha_suite *const *suites, size_t suites_count);

#endif
