#include "suites/merge/test_trial.h"

#include "harness/base/rng.h"
#include "kernels/c/ops.h"

#include <math.h>

struct ha_why why;

void near_rows(struct ha_merge_row *row)
{
    const uint64_t stream = 2 * row->index;
    for (size_t m = 0; m < row->states; m++) {
        row->lse[m] = 2 * (double)ha_rng_normal(row->seed, stream, m);
        row->sum[m] = 1 + 7 * (double)ha_rng_uniform(row->seed, stream, 100 + m);
        for (size_t i = 0; i < row->dim; i++)
            row->o[m * row->dim + i] = (double)ha_rng_normal(row->seed, stream + 1, m * row->dim + i);
    }
}

void some_empty(struct ha_merge_row *row)
{
    near_rows(row);
    for (size_t m = 0; m < row->states; m++)
        row->lse[m] = row->states > 1 && (row->index + m) % 5 == 4 ? -HUGE_VAL : 5 * row->lse[m];
}

struct ha_merge_trial trial_open(struct ha_subject *subject, const struct ha_merge_shape *shape, ha_merge_fill *fill)
{
    struct ha_merge_trial t = { .batch = NULL };
    const enum ha_status st = subject ? ha_subject_trial(subject, &t, shape, &why)
                                      : ha_merge_trial_open(&t, shape, NULL, &why);
    if (st != HA_OK) fail_msg("%s", why.text);
    ha_merge_trial_fill(&t, 7, fill, NULL);
    return t;
}

void trial_merge(const struct ha_merge_trial *t)
{
    for (size_t i = 0; i < t->batch->calls_count; i++) ha_c_merge(&t->batch->calls[i]);
}

struct ha_judgement trial_judge(struct ha_merge_trial *t, const struct ha_merge_traits *traits)
{
    const struct ha_judgement j = ha_merge_trial_judge(t, HA_MUST_BOUND, traits);
    if (j.status != HA_OK) fail_msg("%s", ha_judgement_say(&j, t->rows.dim).text);
    return j;
}

const struct ha_merge_shape few_rows = { .states = 3, .tokens = 4, .heads = 2, .dim = 64 };

enum ha_status asked_once(struct ha_subject *subject, struct ha_judgement *j)
{
    struct ha_merge_trial t = trial_open(subject, &few_rows, some_empty);
    struct ha_why astray;
    const enum ha_status st = subject->run(subject, t.batch, &why);
    if (ha_batch_intact(t.batch, &astray) != HA_OK) fail_msg("%s", astray.text);
    if (st == HA_OK) *j = ha_merge_trial_judge(&t, HA_MUST_BOUND, &subject->traits);
    ha_merge_trial_close(&t);
    return st;
}

double merges_right(struct ha_subject *subject, const struct ha_merge_shape *shape)
{
    struct ha_merge_trial t = trial_open(subject, shape, some_empty);
    if (subject->run(subject, t.batch, &why) != HA_OK || ha_batch_intact(t.batch, &why) != HA_OK)
        fail_msg("%s", why.text);
    const double ratio = trial_judge(&t, &subject->traits).ratio;
    ha_merge_trial_close(&t);
    return ratio;
}

size_t each_shape(struct ha_merge_shape s, void (*f)(const struct ha_merge_shape *))
{
    const size_t count = HA_FORM_COUNT * HA_DTYPE_COUNT * HA_ORDER_COUNT * HA_ALIAS_COUNT * HA_LAYOUT_COUNT;
    for (size_t i = 0; i < count; i++) {
        size_t k = i;
        s.form = (enum ha_form)(k % HA_FORM_COUNT), k /= HA_FORM_COUNT;
        s.dtype = (enum ha_dtype)(k % HA_DTYPE_COUNT), k /= HA_DTYPE_COUNT;
        s.order = (enum ha_order)(k % HA_ORDER_COUNT), k /= HA_ORDER_COUNT;
        s.alias = (enum ha_alias)(k % HA_ALIAS_COUNT), k /= HA_ALIAS_COUNT;
        s.layout = (enum ha_layout)k;
        f(&s);
    }
    return count;
}

void says(const char *words)
{
    if (!strstr(why.text, words) || strchr(why.text, '\n'))
        fail_msg("'%s' lacks '%s', or is not one line", why.text, words);
}
