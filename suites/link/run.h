#ifndef HA_LINK_RUN_H
#define HA_LINK_RUN_H

/* `habench run link`, `habench check link`, `habench list cases link`; docs/link.md. */

#include "suites/link/bench.h"
#include "harness/measure/ceilings.h"
#include "harness/api/base.h"
#include "harness/api/exit.h"

struct ha_link_options {
    char **words; /* "link", or ids: link:method=kernel,piece=4K */
    size_t words_count;
    const char *filter;   /* -f, or NULL */
    const char *device;   /* NULL: the embedded one */
    const char *isa;      /* of the kernels that it may compute with */
    const char *out_dir;  /* link.csv, env.json, junit.xml; NULL: none */
    uint64_t seed;        /* of the random order */
    uint64_t max_time_ns; /* 0: none */
    bool measure;         /* else: the methods are checked, and nothing is timed */
    bool dry_run;         /* print the ids */
    bool progress;
    /* for tests; NULL and zeros: the device of that name, ceilings measured in this run, limits from this machine */
    const struct ha_device_api *api;
    const struct ha_ceilings *ceilings;
    struct ha_link_limits limits;
};

/* Prints the tables, the claims and, as the last line, the totals; why says what is behind an exit code other than
 * HA_EXIT_OK. */
enum ha_exit ha_link_run(const struct ha_link_options *options, struct ha_why *why);
/* the ids, one a line; the filter and the words as above */
enum ha_exit ha_link_list_cases(const struct ha_link_options *options, struct ha_why *why);

#endif
