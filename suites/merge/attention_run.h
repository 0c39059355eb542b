#ifndef HA_MERGE_ATTENTION_RUN_H
#define HA_MERGE_ATTENTION_RUN_H

/* All cases of attention's own (o, LSE), as a table: a line for each case, a column for each subject. */

#include "suites/merge/attention.h"
#include "suites/merge/report.h"

struct ha_attention_run {
    const struct ha_attention_subject *subject;
    size_t subjects;
    uint64_t seed;
    void (*progress)(void *arg, size_t done, size_t of);
    void *arg;
};
/* Prints to stdout and adds the verdicts; `ha_stop` ends it after a case. A subject that does not answer is given up
 * after ha_merge_patience_ns. */
enum ha_status ha_attention_run(const struct ha_attention_run *run, struct ha_merge_results *results,
                                struct ha_why *why);

#endif
