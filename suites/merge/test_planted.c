/* Faults of streams, events, flags, graphs and merges, planted in a device (suites/defects), each of which a stage has
 * to see. HA_DEFECT_OF names the device; without it, it is the embedded one. */

#include "harness/base/test.h"
#include "harness/base/test_beside.h"
#include "suites/merge/stage.h"

static const struct {
    const char *defect;
    enum ha_stage stage;
    const char *says;
} planted[] = {
    { "merge_early", HA_STAGE_STREAM, "late producer on the same stream" },
    { "merge_unjoined", HA_STAGE_STREAM, "late producer on the same stream" },
    { "copy_up_early", HA_STAGE_STREAM, "late producer on the same stream" },
    { "copy_back_early", HA_STAGE_STREAM, "late producer on the same stream" },
    { "wait_ignored", HA_STAGE_STREAM, "late producer on another stream" },
    { "event_early", HA_STAGE_STREAM, "late producer on another stream" },
    { "graph_old_data", HA_STAGE_STREAM, "graph, first launch" },
    { "graph_once", HA_STAGE_STREAM, "graph, second launch" },
    { "merge_last_lost", HA_STAGE_STREAM, "late producer on the same stream" },
    { "merge_last_twice", HA_STAGE_STREAM, "late producer on the same stream" },
    { "flag_wait: dropped", HA_STAGE_FLAG, "data before flag" },
    { "merge_early", HA_STAGE_FLAG, "data before flag" },
    { "flag_reset", HA_STAGE_FLAG, "graph behind a flag that it resets, second launch" },
    { "flag_graph", HA_STAGE_FLAG, "graph behind a flag that it resets, second launch" },
    { "merge_early", HA_STAGE_SPLIT, "runs merged" },
    { "merge_unjoined", HA_STAGE_SPLIT, "runs merged" },
    { "wait_ignored", HA_STAGE_SPLIT, "runs merged" },
    { "event_early", HA_STAGE_SPLIT, "runs merged" },
    { "attend_unjoined", HA_STAGE_SPLIT, "runs merged" },
    { "merge_last_lost", HA_STAGE_SPLIT, "runs merged" },
    { "merge_last_twice", HA_STAGE_SPLIT, "runs merged" },
    { "graph_once", HA_STAGE_SPLIT, "from a graph" },
};

static struct ha_why why;

static enum ha_status run(const char *defect, enum ha_stage stage)
{
    struct ha_subject x;
    struct ha_judgement j = { 0 };
    size_t c = 0;
    while (ha_merge_cases[c].stage != stage) c++;
    assert_int_equal(setenv("HA_DEFECT", defect, 1), 0);
    if (ha_subject_plugin(&x, beside("../defects.so"), 60000000000, &why) != HA_OK) fail_msg("%s", why.text);
    why.text[0] = '\0';
    const enum ha_status st = ha_merge_stage(&ha_merge_cases[c], &x, HA_FORM_NATURAL, HA_F32, 1, &j, &why);
    ha_subject_close(&x);
    return st;
}

TEST(nothing_planted_passes)
{
    if (HA_TSAN)
        skip(); /* which finds data races before a stage does, and ends a process that makes threads after a fork */
    const enum ha_stage stages[] = { HA_STAGE_STREAM, HA_STAGE_FLAG, HA_STAGE_SPLIT };
    for (size_t i = 0; i < COUNT(stages); i++)
        if (run("control", stages[i]) != HA_OK || why.text[0]) fail_msg("stage %d: '%s'", (int)stages[i], why.text);
}

TEST(each_is_seen)
{
    if (HA_TSAN) skip(); /* as above */
    for (size_t i = 0; i < COUNT(planted); i++) {
        const enum ha_status st = run(planted[i].defect, planted[i].stage);
        if (st != HA_FAIL || !strstr(why.text, planted[i].says))
            fail_msg("%s, stage %d: status %d '%s', and not '%s'", planted[i].defect, (int)planted[i].stage, (int)st,
                     why.text, planted[i].says);
    }
}
