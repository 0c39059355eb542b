#ifndef HA_MERGE_RUN_H
#define HA_MERGE_RUN_H

/* `habench check lse_merge`. */

#include "harness/api/base.h"
#include "harness/api/exit.h"

struct ha_merge_options {
    char **words; /* "lse_merge", or ids: lse_merge:case=...,by=...; */
    size_t words_count;
    const char *filter;  /* -f: parts of the id that must occur, key=value among them; NULL: all */
    const char *isa;     /* NULL: every kernel table that this CPU has */
    const char *device;  /* NULL: the embedded one; a path: the plugin is the only subject */
    const char *exec;    /* NULL, or the command that is the only subject */
    const char *replay;  /* NULL, or the file to judge */
    const char *out_dir; /* for junit.xml and the replay files of failures; NULL: no junit.xml, and the others go to
                            lse_merge.failures */
    uint64_t seed;
    uint64_t max_time_ns; /* 0: none */
    bool exhaustive;      /* go on with random cases: 10 million for each form and type, or until max_time or Ctrl-C */
    bool dry_run;         /* print the ids */
    bool progress;
};

/* Prints the report, the totals as its last line; why says what is behind an exit code other than HA_EXIT_OK. */
enum ha_exit ha_merge_run(const struct ha_merge_options *options, struct ha_why *why);

/* the cases, the forms and the gallery, for `habench list cases lse_merge` and `habench list defects` */
void ha_merge_list_cases(void);
void ha_merge_list_defects(void);

#endif
