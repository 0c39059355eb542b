/* What the oracle says of a problem, and the rows that are held against it. */

#include "suites/merge/attention_parts.h"

#include "harness/base/fingerprint.h"
#include "harness/base/why.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the oracle's answers ---------------------------------------------------------------------------------------- */

void ha_wanted_free(struct ha_wanted *want)
{
    for (size_t i = 0; i < want->count; i++) ha_answer_free(&want->of[i]);
    free(want->of);
    *want = (struct ha_wanted){ 0 };
}

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

const struct ha_ref_state *ha_wanted_state(const struct ha_wanted *want, const struct ha_problem *p, size_t r)
{
    const struct ha_place x = ha_problem_place(p, r);
    return &want->of[x.seq * p->kv_heads + x.head / p->group].state[x.token * p->group + x.head % p->group];
}

bool ha_attention_promises(const struct ha_attention_bench *b)
{
    bool varies = b->traits.varies;
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) varies |= b->profile[t].varies;
    return !varies;
}

/* ---- the judge ------------------------------------------------------------------------------------------------ */

enum ha_status ha_problem_judge(const struct ha_problem *p, size_t r, const char *what, const float *o, float lse,
                                const struct ha_ref_state *want, struct ha_attention_result *out, struct ha_why *why)
{
    const struct ha_place x = ha_problem_place(p, r);
    size_t at;
    const double ratio = ha_ref_ratio(o, lse, want, &at);
    const uint64_t h = ha_fingerprint_mix(HA_FINGERPRINT_BEGIN, (uint64_t)p->id << 32 | r);
    out->outputs += ha_fingerprint_floats(ha_fingerprint_floats(h, o, want->dim), &lse, 1);
    out->rows++;
    if (!(ratio <= out->ratio)) out->ratio = ratio;
    if (ratio <= 1) return HA_OK;
    const bool is_o = at < want->dim;
    char element[32] = "LSE";
    if (is_o) snprintf(element, sizeof element, "o[%zu]", at);
    return ha_problem_fail(p, why, "%ssequence %zu, token %zu, head %zu: %s %.9g, want %.9g, bound %.3g", what, x.seq,
                           x.token, x.head, element, (double)(is_o ? o[at] : lse), is_o ? want->o[at] : want->lse,
                           is_o ? want->bound[at] : want->lse_bound);
}

enum ha_status ha_problem_judge_types(const struct ha_problem *p, size_t r, const struct ha_profile *profile,
                                      const float *o, float lse, struct ha_why *why)
{
    const struct ha_place x = ha_problem_place(p, r);
    size_t at;
    if (ha_ref_fits(o, p->head_dim, lse, profile, &at)) return HA_OK;
    const bool is_o = at < p->head_dim;
    return ha_problem_fail(p, why,
                           "sequence %zu, token %zu, head %zu: %s is %.9g, which its profile: %s %s cannot hold", x.seq,
                           x.token, x.head, is_o ? "o" : "LSE", (double)(is_o ? o[at] : lse),
                           is_o ? "out_type" : "lse_type", ha_dtype_name(is_o ? profile->out_type : profile->lse_type));
}
