#ifndef HA_ENGINE_LOOP_H
#define HA_ENGINE_LOOP_H

/* Runs a plan. The process that holds the files runs no case: a child does (serve.h), and passes rows up. Where it
 * crashes, hangs, ends or is killed, the case has its ERROR row, and a fresh child goes on with the next one. */

#include "harness/api/exit.h"
#include "harness/engine/at_once.h"
#include "harness/engine/plan.h"

/* Points that are drawn while the time is not over. One that fails, or dies, is made smaller, and the smallest runs as
 * any other. */
struct ha_random {
    uint64_t time_ns;
    struct ha_plan *plan; /* the one that is run, and grows */
    struct ha_plan_options from;
    struct ha_draw draw;
};

struct ha_run_options {
    bool measure;        /* run; else check */
    const char *out_dir; /* NULL: no files */
    bool resume;         /* go on in out_dir */
    bool named; /* out_dir is a name of the user's: a complete record keeps it, and this run has NAME-2; the end
                   says what makes a page of it */
    bool json;  /* stdout: rows as JSON lines, and nothing else */
    bool quiet; /* no progress */
    uint64_t max_time_ns;  /* of the whole run; 0: none */
    uint64_t case_time_ns; /* of one case, after which it is taken for hung; 0: ten minutes. Those of a group run in
                              turns, and none is done before the others: they have as much each, together */
    size_t processes;      /* each case in so many fresh processes, in turns; 0: all cases in one */
    uint64_t seed;
    const char *dump_dir, *exec;
    bool exhaustive, order;
    const uint64_t *faults;   /* NULL, or the seed of delays */
    const uint64_t *shuffle;  /* NULL: groups run in the plan's order; or the seed of another, drawn for each round of
                                 processes. Not with random */
    struct ha_random *random; /* or NULL */
    const struct ha_at_once *at_once; /* or NULL. Not with random */
    const char *options;              /* what a resumed run must have in common, for people to read */
};

/* Prints tables, what is wrong and why, and, as the last line, the totals. why says what is behind any other exit code
 * than HA_EXIT_OK. */
enum ha_exit ha_run(const struct ha_plan *plan, const struct ha_run_options *options, struct ha_why *why);

#endif
