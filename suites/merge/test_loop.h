#ifndef HA_MERGE_TEST_LOOP_H
#define HA_MERGE_TEST_LOOP_H

/* Runs the suite in this process, as the engine does it in another. */

#include "harness/engine/machine.h"
#include "harness/engine/plan.h"
#include "suites/merge/result.h"

struct loop {
    struct ha_plan plan;
    struct ha_machine *machine;
    void *run;
    struct ha_merge_result *row; /* [entries]; HA_NOT_RUN stays where check gave no verdict */
    struct ha_results results;
    struct ha_entry *entry;
    size_t groups;
    uint64_t deadline_ns;
};

/* Plans the words, which are separated by blanks; fails the test where that is wrong. */
void loop_plan(struct loop *loop, const char *words);
/* All groups; config may be NULL. */
void loop_run(struct loop *loop, const struct ha_suite_config *config);
/* the row of that id, or the test fails */
const struct ha_merge_result *loop_row(const struct loop *loop, const char *id);
void loop_close(struct loop *loop);

#endif
