#include "suites/merge/attention_parts.h"

#include "harness/base/try.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum ha_status ha_wanted_make(struct ha_wanted *want, const struct ha_problem *p, const struct ha_profile *profile,
                              struct ha_why *why)
{
    want->of = calloc(p->batch * p->kv_heads, sizeof *want->of);
    if (!want->of) return ha_why(why, HA_ERROR, "no memory for the oracle");
    for (size_t b = 0; b < p->batch; b++)
        for (size_t h = 0; h < p->kv_heads; h++) {
            struct ha_rows runs[HA_RUNS_MAX];
            const struct ha_attend a = ha_problem_attend(p, p->host, 0, b, h, runs);
            const struct ha_rows rows = ha_problem_all(p, b, h);
            struct ha_answer *answer = &want->of[want->count++];
            const enum ha_status status = ha_answer_make(answer, &a, &rows, profile, 0, why);
            if (status != HA_OK) {
                ha_wanted_free(want);
                return status;
            }
            for (size_t r = 0; p->exact && r < answer->count; r++)
                memset(answer->state[r].bound, 0, p->head_dim * sizeof(double));
            const double exact = p->q_len == 1 ? 0x1p-40 : (double)(p->q_len + 1) * 0x1p-24; /* 2^-40: of binary64 */
            for (size_t j = 0; p->exact && p->weights && j < p->group * answer->keys; j++)
                answer->slack[j] = answer->weight[j] * exact;
        }
    return HA_OK;
}

void ha_wanted_free(struct ha_wanted *want)
{
    for (size_t i = 0; i < want->count; i++) ha_answer_free(&want->of[i]);
    free(want->of);
    *want = (struct ha_wanted){ 0 };
}

const struct ha_ref_state *ha_wanted_state(const struct ha_wanted *want, const struct ha_problem *p, size_t seq,
                                           size_t token, size_t head)
{
    return &want->of[seq * p->kv_heads + head / p->group].state[token * p->group + head % p->group];
}

enum ha_status ha_row_judge(const struct ha_problem *p, size_t seq, size_t token, size_t head, const char *what,
                            const float *o, float lse, const struct ha_ref_state *want, struct ha_attention_result *out,
                            struct ha_why *why)
{
    size_t at;
    const double ratio = ha_ref_ratio(o, lse, want, &at);
    out->rows++;
    if (!(ratio <= out->ratio)) out->ratio = ratio;
    if (ratio <= 1) return HA_OK;
    if (at == want->dim)
        return ha_problem_fail(p, why, "%ssequence %zu, token %zu, head %zu: LSE %.9g, want %.9g, bound %.3g", what,
                               seq, token, head, (double)lse, want->lse, want->lse_bound);
    return ha_problem_fail(p, why, "%ssequence %zu, token %zu, head %zu: o[%zu] %.9g, want %.9g, bound %.3g", what, seq,
                           token, head, at, (double)o[at], want->o[at], want->bound[at]);
}

/* Does the NaN that was put in reach this row? */
static bool touched(const struct ha_problem *p, size_t seq, size_t token, size_t head)
{
    if (p->nan.place == HA_NAN_NOWHERE || p->nan.seq != seq || p->nan.kv_head != head / p->group) return false;
    if (p->nan.place == HA_NAN_Q) return p->nan.token == token && p->nan.kv_head * p->group == head;
    const size_t lacks = seq * p->skip;
    return p->nan.key >= lacks && p->nan.key - lacks < ha_problem_visible(p, seq, token);
}

static enum ha_status judge_nan(const struct ha_problem *p, size_t seq, size_t token, size_t head, const float *o,
                                float lse, const struct ha_ref_state *want, struct ha_attention_result *out,
                                struct ha_why *why)
{
    const char *const of[] = { [HA_NAN_K] = "K", [HA_NAN_V] = "V", [HA_NAN_Q] = "q" };
    const bool one = p->nan.place == HA_NAN_V;
    for (size_t d = one ? p->nan.dim : 0; d < (one ? p->nan.dim + 1 : p->head_dim); d++)
        if (!isnan(o[d]))
            return ha_problem_fail(p, why, "sequence %zu, token %zu, head %zu: NaN in %s gave o[%zu] %.9g", seq, token,
                                   head, of[p->nan.place], d, (double)o[d]);
    if (!one) {
        out->rows++;
        return isnan(lse) ? HA_OK
                          : ha_problem_fail(p, why, "sequence %zu, token %zu, head %zu: NaN in %s gave LSE %.9g", seq,
                                            token, head, of[p->nan.place], (double)lse);
    }
    float rest[HA_REF_DIM_MAX];
    memcpy(rest, o, p->head_dim * sizeof *rest);
    rest[p->nan.dim] = (float)want->o[p->nan.dim];
    return ha_row_judge(p, seq, token, head, "beside NaN in V: ", rest, lse, want, out, why);
}

static enum ha_status judge_weights(const struct ha_problem *p, const struct ha_wanted *want, size_t seq,
                                    size_t kv_head, struct ha_why *why)
{
    struct ha_rows runs[HA_RUNS_MAX];
    const struct ha_attend a = ha_problem_attend(p, p->host, 0, seq, kv_head, runs);
    const struct ha_answer_error e = ha_answer_judge_weights(&want->of[seq * p->kv_heads + kv_head], &a);
    const size_t head = kv_head * p->group + e.row;
    if (e.ratio <= 1) return HA_OK;
    if (e.at == ha_problem_keys(p, seq))
        return ha_problem_fail(p, why, "sequence %zu, head %zu: weights add up to %.9g, want %.9g, bound %.3g", seq,
                               head, e.got, e.want, e.bound);
    return ha_problem_fail(p, why, "sequence %zu, head %zu: weight of key %zu is %.9g, want %.9g, bound %.3g", seq,
                           head, e.at, e.got, e.want, e.bound);
}

/* The results are taken out of the outputs; what is left must still be poison. */
static enum ha_status judge_gaps(const struct ha_problem *p, struct ha_why *why)
{
    for (size_t b = 0; b < p->batch; b++)
        for (size_t h = 0; h < ha_problem_heads(p); h++) {
            for (size_t t = 0; t < p->q_len; t++) {
                memset(ha_problem_o(p, 0, b, t, h), 0xFF, p->head_dim * sizeof(float));
                memset(ha_problem_lse(p, 0, b, t, h), 0xFF, sizeof(float));
            }
            if (p->weights) memset(ha_problem_weights(p, b, h), 0xFF, ha_problem_keys(p, b) * sizeof(float));
        }
    for (size_t i = p->out_at; i < p->end_at; i++)
        if ((unsigned char)p->host[i] != 0xFF)
            return ha_problem_fail(p, why, "byte %zd of %s was written, which is no result",
                                   (ptrdiff_t)(i
                                               - (i < p->lse_at   ? p->o_at
                                                  : i < p->sum_at ? p->lse_at
                                                                  : p->weights_at)),
                                   i < p->lse_at   ? "o"
                                   : i < p->sum_at ? "LSE"
                                                   : "weights");
    return HA_OK;
}

enum ha_status ha_problem_judge(const struct ha_problem *p, const struct ha_wanted *want,
                                struct ha_attention_result *out, struct ha_why *why)
{
    for (size_t b = 0; b < p->batch; b++)
        for (size_t t = 0; t < p->q_len; t++)
            for (size_t h = 0; h < ha_problem_heads(p); h++) {
                const float *o = ha_problem_o(p, 0, b, t, h), lse = *ha_problem_lse(p, 0, b, t, h);
                const struct ha_ref_state *state = ha_wanted_state(want, p, b, t, h);
                HA_TRY(touched(p, b, t, h) ? judge_nan(p, b, t, h, o, lse, state, out, why)
                                           : ha_row_judge(p, b, t, h, "", o, lse, state, out, why));
            }
    for (size_t b = 0; p->weights && b < p->batch; b++)
        for (size_t h = 0; h < p->kv_heads; h++) HA_TRY(judge_weights(p, want, b, h, why));
    return judge_gaps(p, why);
}
