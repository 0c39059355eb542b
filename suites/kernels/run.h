#ifndef HA_CPU_RUN_H
#define HA_CPU_RUN_H

/* `habench run cpu_kernels`, `habench check cpu_kernels`; docs/kernels.md. */

#include "harness/api/kernels.h"
#include "harness/api/base.h"
#include "harness/api/exit.h"

struct ha_cpu_options {
    char **words; /* "cpu_kernels", the path of a cpu_kernels.suite, or ids: cpu_kernels:kernel=attend,dtype=f16 */
    size_t words_count;
    const char *filter;        /* -f, or NULL */
    const char *isa, *threads; /* in every point; NULL: as it says */
    const char *out_dir;       /* cpu_kernels.csv, env.json, junit.xml; NULL: none */
    uint64_t seed;
    uint64_t max_time_ns; /* 0: none */
    bool measure;         /* else: checked, and nothing is timed; a suite's points with few keys */
    bool dry_run;         /* print the ids */
    bool progress;
    /* for tests; NULL and 0: the tables of the registry, limits from this machine */
    const struct ha_kernels *kernels;
    uint64_t cap_ns; /* of measuring a point */
    size_t rotate_bytes;
};

/* Prints the tables, the goals and, as the last line, the totals; why says what is behind an exit code other than
 * HA_EXIT_OK. */
enum ha_exit ha_cpu_run(const struct ha_cpu_options *options, struct ha_why *why);
/* the ids, one a line; the filter and the words as above */
enum ha_exit ha_cpu_list_cases(const struct ha_cpu_options *options, struct ha_why *why);

#endif
