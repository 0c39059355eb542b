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

enum ha_status ha_merge_stage(const struct ha_merge_case *c, struct ha_subject *subject, enum ha_form form,
                              enum ha_dtype dtype, uint64_t seed, struct ha_judgement *j, struct ha_why *why)
{
    static enum ha_status (*const stages[])(struct ha_stage_run *) = {
        [HA_STAGE_HUGE] = ha_stage_huge,
        [HA_STAGE_STREAM] = ha_stage_stream,
        [HA_STAGE_FLAG] = ha_stage_flag,
    };
    struct ha_stage_run s = { .c = c, .subject = subject, .seed = seed, .j = j, .why = why };
    s.shape = (struct ha_merge_shape){
        .states = c->states_min,
        .tokens = 3,
        .heads = 4,
        .dim = HA_STAGE_DIM,
        .form = form,
        .dtype = dtype,
        .plus_inf = c->plus_inf,
        .layout = subject->traits.lse_order == HA_LSE_HEADS_TOKENS ? HA_LAYOUT_HEADS_FIRST : HA_LAYOUT_PACKED,
    };
    why->text[0] = 0;
    if (c->stage == HA_STAGE_PLAIN || c->stage > HA_STAGE_FLAG || s.shape.states > HA_STAGE_STATES_MAX)
        return ha_why(why, HA_ERROR, "case %s is no stage of at most %d states", c->name, HA_STAGE_STATES_MAX);
    const char *unfit = ha_subject_unfit(subject, &s.shape);
    if (unfit) return ha_why(why, HA_WAIVED, "%s", unfit);
    const enum ha_status st = stages[c->stage](&s);
    if (st == HA_FAIL) j->status = HA_FAIL;
    return st;
}
