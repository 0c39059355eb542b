#ifndef HA_REPORT_FOLDER_PARTS_H
#define HA_REPORT_FOLDER_PARTS_H

/* What the files of folder*.c share. */

#include "harness/base/csv.h"
#include "harness/report/folder.h"

/* ---- columns (folder_columns.c) ------------------------------------------------------------------------------ */

enum { HA_FIGURES = HA_SUITE_FILES }; /* figures.csv, as a file of every suite */

struct ha_column {
    const char *name, *unit, *doc;
    bool number;                  /* its values are; a key's may be a word, too */
    int head;                     /* one of those that the folder writes for every suite, or -1 */
    size_t key;                   /* of the suite, or SIZE_MAX */
    const struct ha_field *field; /* of the suite, or NULL */
};
struct ha_columns {
    struct ha_column *at;
    size_t count;
};
/* Of file[file] of the suite, or of HA_FIGURES (suite NULL). */
enum ha_status ha_columns_make(struct ha_columns *out, const struct ha_suite *suite, size_t file, struct ha_why *why);
void ha_columns_free(struct ha_columns *columns);
/* SIZE_MAX: there is none */
size_t ha_columns_find(const struct ha_columns *columns, const char *name);

/* A line that is being made: its texts, one after the other. */
struct ha_line {
    char *text;
    size_t used, room;
    size_t *begin; /* [fields] in text */
    const char **field;
    size_t fields, fields_room;
    bool no_memory;
};
void ha_line_free(struct ha_line *line);
/* The line of a case; figure: the field of which it is, in figures.csv. false: no memory. */
bool ha_line_make(struct ha_line *line, const struct ha_folder *folder, const struct ha_columns *columns,
                  const struct ha_folder_case *of, const void *row, const struct ha_field *figure);

/* ---- the folder ---------------------------------------------------------------------------------------------- */

struct ha_folder_file {
    const char *name; /* NULL: the suite has no such file */
    char path[4096];
    struct ha_columns columns;
    struct ha_csv *csv; /* opened with its first line */
    bool there;         /* a run that goes on has found lines in it; else it is new */
};

struct ha_folder_suite {
    const struct ha_suite *suite;
    struct ha_folder_file file[HA_SUITE_FILES];
    size_t class_key; /* SIZE_MAX: none */
};

struct ha_folder_missing {
    struct ha_folder_entry *of; /* row NULL */
    char *reason;
};

struct ha_folder_trace {
    int fd; /* -1: not open */
    char path[4096];
    uint64_t end;  /* of its events; behind it stands what makes it complete */
    bool any;      /* it has an event: the next needs a comma */
    size_t cases;  /* numbered from 1: each is a process of the trace */
    char *last_id; /* of the last one; and its process */
    size_t last_process;
};

struct ha_folder {
    char *path; /* NULL: in memory alone */
    const char *mode, *build, *run_id;
    char *exec; /* or NULL */
    int fd;     /* of the folder, locked; -1 */
    struct ha_env_file *env;
    struct ha_folder_suite *suite;
    size_t suites;
    struct ha_folder_file figures;
    struct ha_folder_trace trace;
    struct ha_folder_entry **entry;
    size_t entries, entries_room;
    void *tree; /* of entries by id and process (tsearch) */
    struct ha_folder_missing *missing;
    size_t missings, missings_room;
    struct ha_folder_found found;
    struct ha_folder_totals forgotten;
    struct ha_line line;
    bool ended;            /* ha_folder_end */
    enum ha_status status; /* the first failure ... */
    struct ha_why failure; /* ... and its reason */
};

/* (folder_entries.c) NULL: it is none of the run */
struct ha_folder_suite *ha_folder_suite(const struct ha_folder *folder, const struct ha_suite *suite);
/* An entry of its own, with a copy of row. NULL: no memory. */
struct ha_folder_entry *ha_folder_entry_make(const struct ha_folder_case *of, const char *class_value, const void *row,
                                             bool before);
void ha_folder_entry_free(struct ha_folder_entry *entry); /* NULL: nothing */
/* A copy without what cannot stand in a line. NULL: no memory. */
char *ha_folder_text(const char *text);
/* It becomes the folder's; its row is among those that are found. */
enum ha_status ha_folder_add(struct ha_folder *folder, struct ha_folder_entry *entry, struct ha_why *why);
/* It is no longer found, and is freed; folder->entry still names it. */
void ha_folder_drop(struct ha_folder *folder, struct ha_folder_entry *entry);
/* why says what failed: from now on every call fails with it, and with what is to be done. */
enum ha_status ha_folder_fail(struct ha_folder *folder, struct ha_why *why);
/* HA_OK: nothing has failed so far. */
enum ha_status ha_folder_failed(const struct ha_folder *folder, struct ha_why *why);
/* By somebody else, who need not have asked what is written there. */
bool ha_folder_is_removed(const struct ha_folder *folder);

/* Reads what is there and drops what belongs to no case (folder_resume.c). HA_FAIL: it is not ours. */
enum ha_status ha_folder_resume(struct ha_folder *folder, struct ha_why *why);
enum ha_status ha_folder_trace_resume(struct ha_folder *folder, struct ha_why *why); /* folder_trace.c */
void ha_folder_trace_close(struct ha_folder *folder);
enum ha_status ha_folder_junit(const struct ha_folder *folder, struct ha_why *why); /* folder_junit.c */

#endif
