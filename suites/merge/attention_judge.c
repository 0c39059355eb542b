#include "suites/merge/attention_parts.h"

#include "harness/base/numeric.h"
#include "harness/base/try.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define U   0x1p-24
#define ETA 0x1p-126

static size_t row_of(const struct ha_problem *p, size_t seq, size_t token, size_t head)
{
    return (seq * p->q_len + token) * ha_problem_heads(p) + head;
}

static struct ha_bound bound_of(const struct ha_problem *p, const struct ha_profile *profile, size_t seq, size_t token)
{
    return ha_bound_attend(profile, p->head_dim, ha_problem_visible(p, seq, token), p->runs_count - p->first_run);
}

/* the rows that share one KV head */
static void answer(const struct ha_problem *p, const struct ha_profile *profile, size_t seq, size_t kv_head,
                   struct ha_ref_state *state, struct ha_ref_query *query, struct ha_bound *bound, double *work)
{
    const struct ha_rows rows = ha_problem_all(p, p->host, seq, kv_head);
    size_t count = 0;
    for (size_t t = 0; t < p->q_len; t++) {
        bound[t] = bound_of(p, profile, seq, t);
        for (size_t g = 0; g < p->group; g++) {
            const size_t head = kv_head * p->group + g;
            query[count++] = (struct ha_ref_query){
                .q = ha_problem_q(p, seq, t, head),
                .visible = ha_problem_visible(p, seq, t),
                .bound = &bound[t],
                .out = &state[row_of(p, seq, t, head)],
            };
        }
    }
    ha_ref_attend_group(query, count, p->head_dim, (double)p->scale, &rows, p->dtype, work);
}

enum ha_status ha_wanted_make(struct ha_wanted *want, const struct ha_problem *p, const struct ha_profile *profile,
                              struct ha_why *why)
{
    const size_t rows = ha_problem_rows(p), dim = p->head_dim, shared = p->q_len * p->group;
    size_t keys = 0;
    for (size_t b = 0; b < p->batch; b++) keys = ha_problem_keys(p, b) > keys ? ha_problem_keys(p, b) : keys;
    want->state = malloc(rows * sizeof *want->state);
    double *memory = malloc(rows * 4 * dim * sizeof *memory), *work = malloc(shared * (2 * keys + dim) * sizeof *work);
    struct ha_ref_query *query = malloc(shared * sizeof *query);
    struct ha_bound *bound = malloc(p->q_len * sizeof *bound);
    want->memory = memory;
    const bool room = want->state && memory && work && query && bound;
    for (size_t r = 0; room && r < rows; r++) {
        double *d = memory + r * 4 * dim;
        want->state[r] = (struct ha_ref_state){
            .o = d, .bound = d + dim, .v_min = d + 2 * dim, .v_max = d + 3 * dim, .dim = dim
        };
    }
    for (size_t b = 0; room && b < p->batch; b++)
        for (size_t h = 0; h < p->kv_heads; h++) answer(p, profile, b, h, want->state, query, bound, work);
    for (size_t r = 0; room && p->exact && r < rows; r++) memset(want->state[r].bound, 0, dim * sizeof(double));
    free(work);
    free(query);
    free(bound);
    if (!room) ha_wanted_free(want);
    return room ? HA_OK : ha_why(why, HA_ERROR, "no memory for the oracle");
}

void ha_wanted_free(struct ha_wanted *want)
{
    free(want->state);
    free(want->memory);
    *want = (struct ha_wanted){ 0 };
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

/* Softmax weights of one head averaged over the query tokens, and what they may be off by: theta of the oracle's
 * bound for the weight before it is divided, the LSE's bound for the sum, a rounding for each step after that. A key
 * that no token sees, and one whose scores are -inf, weighs exactly 0. */
static void wanted_weights(const struct ha_problem *p, const struct ha_profile *profile, const struct ha_wanted *want,
                           size_t seq, size_t head, double *weight, double *slack)
{
    const struct ha_rows rows = ha_problem_all(p, p->host, seq, head / p->group);
    const double tokens = (double)p->q_len;
    float k[HA_REF_DIM_MAX];
    for (size_t j = 0; j < rows.keys; j++) {
        weight[j] = slack[j] = 0;
        const size_t at = rows.index ? rows.index[j] : j;
        ha_load_row((const char *)rows.k + at * rows.k_stride_bytes, p->head_dim, p->dtype, k);
        for (size_t t = 0; t < p->q_len; t++) {
            if (j >= ha_problem_visible(p, seq, t)) continue;
            const struct ha_bound b = bound_of(p, profile, seq, t);
            const struct ha_ref_state *state = &want->state[row_of(p, seq, t, head)];
            const float *q = ha_problem_q(p, seq, t, head);
            double s = 0, a = 0;
            for (size_t d = 0; d < p->head_dim; d++)
                s += (double)q[d] * (double)k[d], a += fabs((double)q[d] * (double)k[d]);
            s *= (double)p->scale, a *= fabs((double)p->scale);
            if (s == -HUGE_VAL) continue;
            const double w = exp(s - state->lse);
            const double eps = (b.h_dot + b.kappa_s) * U * a + b.kappa_t * U * (state->lse - s)
                               + (1 + b.rescales) * b.exp_eps + state->lse_bound + (b.rescales + tokens + 4) * U;
            weight[j] += w / tokens;
            slack[j] += ((w == 0 ? 0 : w * expm1(eps)) + 4 * ETA) / tokens;
        }
        if (p->exact) slack[j] = weight[j] * (p->q_len == 1 ? 0x1p-40 : (tokens + 1) * U); /* 2^-40: of binary64 */
    }
}

static enum ha_status judge_weights(const struct ha_problem *p, const struct ha_profile *profile,
                                    const struct ha_wanted *want, size_t seq, size_t head, double *weight,
                                    double *slack, struct ha_why *why)
{
    const float *got = ha_problem_weights(p, seq, head);
    double sum = 0, due = 0, sum_slack = 0;
    wanted_weights(p, profile, want, seq, head, weight, slack);
    for (size_t j = 0; j < ha_problem_keys(p, seq); j++) {
        const double off = fabs((double)got[j] - weight[j]);
        if (!(off <= slack[j] || slack[j] == HUGE_VAL))
            return ha_problem_fail(p, why, "sequence %zu, head %zu: weight of key %zu is %.9g, want %.9g, bound %.3g",
                                   seq, head, j, (double)got[j], weight[j], slack[j]);
        sum += (double)got[j];
        sum_slack += slack[j] + 0x1p-40 * weight[j];
    }
    for (size_t t = 0; t < p->q_len; t++)
        due += want->state[row_of(p, seq, t, head)].lse == -HUGE_VAL ? 0 : 1 / (double)p->q_len;
    if (fabs(sum - due) <= sum_slack) return HA_OK;
    return ha_problem_fail(p, why, "sequence %zu, head %zu: weights add up to %.9g, want %.9g, bound %.3g", seq, head,
                           sum, due, sum_slack);
}

static enum ha_status judge_all_weights(const struct ha_problem *p, const struct ha_profile *profile,
                                        const struct ha_wanted *want, struct ha_why *why)
{
    double *weight = malloc(2 * (p->weights_stride + 1) * sizeof *weight);
    enum ha_status status = weight ? HA_OK : ha_why(why, HA_ERROR, "no memory for weights");
    for (size_t b = 0; b < p->batch; b++)
        for (size_t h = 0; status == HA_OK && h < ha_problem_heads(p); h++)
            status = judge_weights(p, profile, want, b, h, weight, weight + p->weights_stride + 1, why);
    free(weight);
    return status;
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
                                const struct ha_profile *profile, struct ha_attention_result *out, struct ha_why *why)
{
    for (size_t b = 0; b < p->batch; b++)
        for (size_t t = 0; t < p->q_len; t++)
            for (size_t h = 0; h < ha_problem_heads(p); h++) {
                const float *o = ha_problem_o(p, 0, b, t, h), lse = *ha_problem_lse(p, 0, b, t, h);
                const struct ha_ref_state *state = &want->state[row_of(p, b, t, h)];
                HA_TRY(touched(p, b, t, h) ? judge_nan(p, b, t, h, o, lse, state, out, why)
                                           : ha_row_judge(p, b, t, h, "", o, lse, state, out, why));
            }
    if (p->weights) HA_TRY(judge_all_weights(p, profile, want, why));
    return judge_gaps(p, why);
}
