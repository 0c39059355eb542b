/* What the stages share. */

#include "suites/merge/stage.h"

#include "harness/base/why.h"

#include <stdio.h>

enum ha_status ha_stage_open(struct ha_stage_run *s, const struct ha_room *room)
{
    HA_TRY(ha_merge_trial_open(&s->trial, &s->shape, room, s->why));
    ha_merge_trial_fill(&s->trial, s->seed, s->c->fill, NULL);
    return HA_OK;
}

enum ha_status ha_stage_judge(struct ha_stage_run *s, const char *what)
{
    const struct ha_judgement j = ha_merge_trial_judge(&s->trial, s->c->must, &s->subject->traits);
    ha_judgement_join(s->j, &j);
    if (j.status == HA_OK) {
        const enum ha_status st = ha_batch_intact(s->trial.batch, s->why);
        return st == HA_OK ? HA_OK : ha_why_prefix(s->why, st, "%s", what);
    }
    char element[32] = "LSE";
    if (j.element < s->shape.dim) snprintf(element, sizeof element, "element %zu", j.element);
    return ha_why(s->why, HA_FAIL, "%s: row %zu, %s: got %.9g, want %.9g within %.3g (%s)", what, j.row, element, j.got,
                  j.want, j.bound, j.against ? j.against : "");
}

enum ha_status ha_stage_did(struct ha_stage_run *s, enum ha_status status, const char *what)
{
    if (status == HA_OK) return HA_OK;
    const char *failure = s->subject->api->failure(s->subject->device);
    return ha_why(s->why, HA_ERROR, "%s: %.300s", what, failure ? failure : "the device gives no reason");
}
