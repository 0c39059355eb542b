/* Rows that were judged right, looked at once more: what the profile lets pass there, and are the errors roundings? */

#include "suites/merge/attention_parts.h"

#include "harness/base/registry.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>

/* Of a problem: rows whose sensitivity is asked, if not fewer than heads; numbers of K that the rows of a head are of
 * which are held against chance, if more than one. */
enum { SENSED = 256, HELD_NUMBERS = 1 << 14 };

/* ---- a head ------------------------------------------------------------------------------------------------------ */

static enum ha_status sense_row(struct ha_attention_look *l, const struct ha_problem *p, const struct ha_attend *a,
                                const struct ha_answer *answer, size_t r, size_t seq, size_t kv_head,
                                struct ha_why *why)
{
    const struct ha_ref_state *want = &answer->state[r];
    const struct ha_ref_sense s = ha_ref_sensitivity(want);
    const size_t t = r / a->group, g = r % a->group;
    float copy[HA_REF_DIM_MAX];
    if (isnan(want->lse)) return HA_OK;
    if (!ha_ref_sees(a->o + t * a->q_token_stride + g * a->q_head_stride,
                     a->lse[t * a->lse_token_stride + g * a->lse_head_stride], want, copy))
        return ha_problem_fail(
            p, why, "sequence %zu, token %zu, head %zu: an error just above the bound was planted, and was not seen",
            seq, t, kv_head * p->group + g);
    if (!(fmax(s.o, s.lse) > l->most)) return HA_OK;
    l->most = fmax(s.o, s.lse);
    l->sense = s;
    l->seq = seq;
    l->kv_head = kv_head;
    l->token = t;
    l->head = g;
    return HA_OK;
}

enum ha_status ha_attention_look(struct ha_attention_look *l, const struct ha_problem *p, size_t i, size_t seq,
                                 size_t kv_head, const struct ha_answer *answer, struct ha_why *why)
{
    struct ha_rows runs[HA_RUNS_MAX];
    const struct ha_attend a = ha_problem_attend(p, p->host, i, seq, kv_head, runs);
    const struct ha_rows rows = ha_problem_all(p, seq, kv_head);
    const size_t heads = p->batch * p->kv_heads, most = (SENSED + heads - 1) / heads,
                 every = (answer->count + most - 1) / most;
    for (size_t r = 0; r < answer->count; r += every) HA_TRY(sense_row(l, p, &a, answer, r, seq, kv_head, why));
    if (p->made_up) return HA_OK;
    return ha_answer_hold(answer, &a, &rows, HELD_NUMBERS / (rows.keys * a.head_dim + 1) + 1, &l->rows, &l->weights,
                          why);
}

/* ---- a problem --------------------------------------------------------------------------------------------------- */

/* The least sensitive row, answered once more by the usual claims. */
static enum ha_status set_beside(struct ha_attention_look *l, const struct ha_problem *p,
                                 const struct ha_profile *usual, struct ha_why *why)
{
    struct ha_rows runs[HA_RUNS_MAX];
    struct ha_attend one = ha_problem_attend(p, p->host, 0, l->seq, l->kv_head, runs);
    struct ha_rows seen = ha_problem_all(p, l->seq, l->kv_head);
    struct ha_answer answer;
    const size_t hidden = one.causal ? one.q_len - 1 - l->token : 0;
    one.q += l->token * one.q_token_stride + l->head * one.q_head_stride;
    one.q_len = one.group = 1;
    one.causal = false;
    one.weights = NULL;
    seen.keys -= hidden < seen.keys ? hidden : seen.keys;
    HA_TRY(ha_answer_make(&answer, &one, &seen, usual, 0, why));
    const struct ha_ref_sense of = ha_ref_sensitivity(&answer.state[0]);
    ha_answer_free(&answer);
    l->times = ha_ref_insensitivity(&l->sense, &of);
    if (l->times <= HA_SENSE_MOST) return HA_OK;
    return ha_problem_fail(
        p, why,
        "sequence %zu, token %zu, head %zu: by its profile o may be off by %.3g of itself and exp(LSE) "
        "by %.3g, %.3g times as much as by that of our kernels (%.3g and %.3g), and more than %d is "
        "too much",
        l->seq, l->token, l->kv_head * p->group + l->head, l->sense.o, l->sense.lse, l->times, of.o, of.lse,
        HA_SENSE_MOST);
}

enum ha_status ha_attention_looked(struct ha_attention_look *l, const struct ha_problem *p,
                                   struct ha_attention_bench *b, struct ha_attention_result *out, struct ha_why *why)
{
    ha_suspect_add(&out->suspect, &l->rows, "shape %zu, %s, head_dim %zu", p->id, ha_dtype_name(p->dtype), p->head_dim);
    ha_suspect_add(&out->suspect, &l->weights, "weights of shape %zu, %s", p->id, ha_dtype_name(p->dtype));
    if (!(l->most >= 0)) return HA_OK;
    if (!isnan(l->sense.o)) b->sensed_o[b->sensed_os++] = l->sense.o;
    if (!isnan(l->sense.lse)) b->sensed_lse[b->sensed_lses++] = l->sense.lse;
    const enum ha_status status = set_beside(l, p, &b->usual[p->dtype], why);
    out->sense.times = fmax(out->sense.times, l->times);
    return status;
}

enum ha_status ha_problem_look(const struct ha_problem *p, size_t i, struct ha_attention_bench *bench,
                               const struct ha_wanted *want, struct ha_attention_result *out, struct ha_why *why)
{
    struct ha_attention_look l = { .sense = { (double)NAN, (double)NAN }, .most = -1, .times = (double)NAN };
    if (p->nan.place != HA_NAN_NOWHERE) return HA_OK;
    for (size_t b = 0; b < p->batch; b++)
        for (size_t h = 0; h < p->kv_heads; h++)
            HA_TRY(ha_attention_look(&l, p, i, b, h, &want->of[b * p->kv_heads + h], why));
    return ha_attention_looked(&l, p, bench, out, why);
}
