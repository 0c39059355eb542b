/* A merge's exp and log, seen through two states: what is left of o is one exponential, of L one logarithm. */

#include "suites/merge/work.h"

#include "harness/base/clock.h"
#include "harness/base/registry.h"
#include "harness/base/why.h"

#include <math.h>
#include <string.h>

enum { DIM = 64, ARGUMENTS_EMULATED = 64 };

/* (1, 0, ...) with L = 0 and (0, 1, ...) with L = x; row i is of argument i */
static void fill(struct ha_merge_row *row)
{
    static _Thread_local float x[HA_EPS_ARGUMENTS];
    if (row->index == 0) ha_eps_arguments(x, row->seed);
    row->o[0] = row->o[row->dim + 1] = 1;
    row->lse[1] = (double)x[row->index];
}

/* A form in which the functions can be told apart: the weights are divided by their sum. */
static bool shape_for(const struct ha_subject *subject, struct ha_merge_shape *shape)
{
    static const enum ha_form forms[] = { HA_FORM_NATURAL, HA_FORM_BASE2, HA_FORM_MAX_SUM };
    static const enum ha_layout layouts[] = { HA_LAYOUT_PACKED, HA_LAYOUT_HEADS_FIRST };
    for (size_t i = 0; i < 6; i++) {
        shape->form = forms[i / 2];
        shape->layout = layouts[i % 2];
        if (!ha_subject_unfit(subject, shape)) return true;
    }
    return false;
}

static enum ha_status look(struct ha_merge_source *s, struct ha_subject *subject, struct ha_merge_trial *trial,
                           struct ha_why *why)
{
    const bool emulated = subject->api && !strcmp(subject->api->kind, "emulated"); /* every lane is a function call */
    struct ha_merge_shape shape = {
        .states = 2, .tokens = emulated ? ARGUMENTS_EMULATED : HA_EPS_ARGUMENTS, .heads = 1, .dim = DIM
    };
    float o[DIM], lse, sum;
    if (subject->null || !shape_for(subject, &shape)) return HA_WAIVED;
    HA_TRY(ha_subject_trial(subject, trial, &shape, why));
    ha_merge_trial_fill(trial, shape.tokens, fill, NULL);
    HA_TRY(subject->run(subject, trial->batch, why));
    for (size_t r = 0; r < shape.tokens; r++) {
        ha_batch_get(trial->batch, 1, r, o, &lse, &sum);
        const double x = ha_form_decode(shape.form, lse, sum);
        ha_batch_get(trial->batch, HA_RESULT, r, o, &lse, &sum);
        ha_eps_note_merge(&s->exp, &s->log, x, (double)o[0], (double)o[1], ha_form_decode(shape.form, lse, sum),
                          s->traits.exp_eps);
    }
    if (shape.form == HA_FORM_MAX_SUM) s->log = (struct ha_eps_seen){ (double)NAN, (double)NAN, 0 };
    return HA_OK;
}

void ha_merge_source_look(struct ha_merge_source *s, struct ha_subject *subject)
{
    const struct ha_eps_seen none = { (double)NAN, (double)NAN, 0 };
    struct ha_merge_trial trial = { .batch = NULL };
    s->exp = s->log = none;
    s->traits = subject->traits;
    struct ha_why why = { "" };
    const uint64_t begin_ns = ha_now_ns();
    const enum ha_status st = look(s, subject, &trial, &why);
    s->looked = st == HA_WAIVED ? HA_OK : st;
    if (st != HA_OK) s->exp = s->log = none;
    if (st == HA_ERROR) s->lost_ns += ha_now_ns() - begin_ns;
    ha_why(&s->unseen, st, "when its exp and log were looked at: %.400s", why.text);
    ha_merge_trial_close(&trial);
    s->usual = ha_traits_usual(&s->traits, &ha_kernels_all[0]->traits, s->exp.worst, s->log.worst);
}

enum ha_status ha_merge_source_survived(const struct ha_merge_source *s, struct ha_why *why)
{
    return s->looked == HA_ERROR ? ha_why(why, HA_ERROR, "%s", s->unseen.text) : HA_OK;
}

enum ha_status ha_merge_source_holds(const struct ha_merge_source *s, struct ha_why *why)
{
    if (s->looked != HA_OK) return ha_why(why, s->looked, "%s", s->unseen.text);
    HA_TRY(ha_eps_holds("traits", "exp_eps", s->traits.exp_eps, &s->exp, why));
    return ha_eps_holds("traits", "log_eps", s->traits.log_eps, &s->log, why);
}
