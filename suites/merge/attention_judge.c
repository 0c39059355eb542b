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

/* row r of [batch][q_len][heads] */
struct place {
    size_t seq, token, head;
};
static struct place place_of(const struct ha_problem *p, size_t r)
{
    const size_t heads = ha_problem_heads(p), query = r / heads;
    return (struct place){ query / p->q_len, query % p->q_len, r % heads };
}

const struct ha_ref_state *ha_wanted_state(const struct ha_wanted *want, const struct ha_problem *p, size_t r)
{
    const struct place x = place_of(p, r);
    return &want->of[x.seq * p->kv_heads + x.head / p->group].state[x.token * p->group + x.head % p->group];
}

enum ha_status ha_row_judge(const struct ha_problem *p, size_t r, const char *what, const float *o, float lse,
                            const struct ha_ref_state *want, struct ha_attention_result *out, struct ha_why *why)
{
    const struct place x = place_of(p, r);
    size_t at;
    const double ratio = ha_ref_ratio(o, lse, want, &at);
    out->rows++;
    if (!(ratio <= out->ratio)) out->ratio = ratio;
    if (ratio <= 1) return HA_OK;
    if (at == want->dim)
        return ha_problem_fail(p, why, "%ssequence %zu, token %zu, head %zu: LSE %.9g, want %.9g, bound %.3g", what,
                               x.seq, x.token, x.head, (double)lse, want->lse, want->lse_bound);
    return ha_problem_fail(p, why, "%ssequence %zu, token %zu, head %zu: o[%zu] %.9g, want %.9g, bound %.3g", what,
                           x.seq, x.token, x.head, at, (double)o[at], want->o[at], want->bound[at]);
}

/* Does the NaN that was put in reach this row? */
static bool touched(const struct ha_problem *p, size_t r)
{
    const struct place x = place_of(p, r);
    if (p->nan.place == HA_NAN_NOWHERE || p->nan.seq != x.seq || p->nan.kv_head != x.head / p->group) return false;
    if (p->nan.place == HA_NAN_Q) return p->nan.token == x.token && p->nan.kv_head * p->group == x.head;
    const size_t lacks = x.seq * p->skip,
                 visible = ha_problem_keys(p, x.seq) - (p->causal ? p->q_len - 1 - x.token : 0);
    return p->nan.key >= lacks && p->nan.key - lacks < visible;
}

static enum ha_status judge_nan(const struct ha_problem *p, size_t r, const float *o, float lse,
                                const struct ha_ref_state *want, struct ha_attention_result *out, struct ha_why *why)
{
    const char *const of[] = { [HA_NAN_K] = "K", [HA_NAN_V] = "V", [HA_NAN_Q] = "q" };
    const struct place x = place_of(p, r);
    const bool one = p->nan.place == HA_NAN_V;
    for (size_t d = one ? p->nan.dim : 0; d < (one ? p->nan.dim + 1 : p->head_dim); d++)
        if (!isnan(o[d]))
            return ha_problem_fail(p, why, "sequence %zu, token %zu, head %zu: NaN in %s gave o[%zu] %.9g", x.seq,
                                   x.token, x.head, of[p->nan.place], d, (double)o[d]);
    if (!one) {
        out->rows++;
        return isnan(lse) ? HA_OK
                          : ha_problem_fail(p, why, "sequence %zu, token %zu, head %zu: NaN in %s gave LSE %.9g", x.seq,
                                            x.token, x.head, of[p->nan.place], (double)lse);
    }
    float rest[HA_REF_DIM_MAX];
    memcpy(rest, o, p->head_dim * sizeof *rest);
    rest[p->nan.dim] = (float)want->o[p->nan.dim];
    return ha_row_judge(p, r, "beside NaN in V: ", rest, lse, want, out, why);
}

/* What is judged is poison afterwards. */
static enum ha_status judge_weights(const struct ha_problem *p, const struct ha_wanted *want, size_t seq,
                                    size_t kv_head, struct ha_why *why)
{
    struct ha_rows runs[HA_RUNS_MAX];
    const struct ha_attend a = ha_problem_attend(p, p->host, 0, seq, kv_head, runs);
    const struct ha_answer_error e = ha_answer_judge_weights(&want->of[seq * p->kv_heads + kv_head], &a);
    const size_t head = kv_head * p->group + e.row, keys = ha_problem_keys(p, seq);
    for (size_t g = 0; g < p->group; g++) memset(a.weights + g * a.weights_stride, 0xFF, keys * sizeof(float));
    if (e.ratio <= 1) return HA_OK;
    if (e.at == keys)
        return ha_problem_fail(p, why, "sequence %zu, head %zu: weights add up to %.9g, want %.9g, bound %.3g", seq,
                               head, e.got, e.want, e.bound);
    return ha_problem_fail(p, why, "sequence %zu, head %zu: weight of key %zu is %.9g, want %.9g, bound %.3g", seq,
                           head, e.at, e.got, e.want, e.bound);
}

/* With the results taken out of the outputs, what is left must still be poison. */
static enum ha_status judge_gaps(const struct ha_problem *p, struct ha_why *why)
{
    size_t i = p->out_at;
    while (i < p->end_at && (unsigned char)p->host[i] == 0xFF) i++;
    if (i == p->end_at) return HA_OK;
    const size_t from = i < p->lse_at ? p->o_at : i < p->sum_at ? p->lse_at : p->weights_at;
    return ha_problem_fail(p, why, "byte %td of %s was written, which is no result", (ptrdiff_t)(i - from),
                           from == p->o_at     ? "o"
                           : from == p->lse_at ? "LSE"
                                               : "weights");
}

enum ha_status ha_problem_judge(const struct ha_problem *p, const struct ha_wanted *want,
                                struct ha_attention_result *out, struct ha_why *why)
{
    for (size_t r = 0; r < ha_problem_rows(p); r++) {
        float *o = ha_problem_o(p, 0, r), *lse = ha_problem_lse(p, 0, r);
        const struct ha_ref_state *state = ha_wanted_state(want, p, r);
        HA_TRY(touched(p, r) ? judge_nan(p, r, o, *lse, state, out, why)
                             : ha_row_judge(p, r, "", o, *lse, state, out, why));
        memset(o, 0xFF, p->head_dim * sizeof *o);
        memset(lse, 0xFF, sizeof *lse);
    }
    for (size_t b = 0; p->weights && b < p->batch; b++)
        for (size_t h = 0; h < p->kv_heads; h++) HA_TRY(judge_weights(p, want, b, h, why));
    return judge_gaps(p, why);
}
