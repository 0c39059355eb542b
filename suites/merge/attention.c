/* A problem is asked of the subject and judged against the oracle: every result within its bound, every other byte as
 * it was. */

#include "suites/merge/attention_parts.h"

#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AXES_STREAM = 300 };

/* ---- the judge ------------------------------------------------------------------------------------------------ */

/* Does the NaN that was put in reach this row? */
static bool touched(const struct ha_problem *p, size_t r)
{
    const struct ha_place x = ha_problem_place(p, r);
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
    const struct ha_place x = ha_problem_place(p, r);
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
    return ha_problem_judge(p, r, "beside NaN in V: ", rest, lse, want, out, why);
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

/* Copy 0 of the outputs against the oracle; every byte of the outputs that is no result must be as it was. */
static enum ha_status attention_judge(const struct ha_problem *p, struct ha_attention_bench *bench,
                                      const struct ha_wanted *want, struct ha_attention_result *out, struct ha_why *why)
{
    for (size_t r = 0; r < ha_problem_rows(p); r++) {
        const float *o = ha_problem_o(p, 0, r), *lse = ha_problem_lse(p, 0, r);
        const struct ha_ref_state *state = ha_wanted_state(want, p, r);
        HA_TRY(touched(p, r) ? judge_nan(p, r, o, *lse, state, out, why)
                             : ha_problem_judge(p, r, "", o, *lse, state, out, why));
        HA_TRY(ha_problem_judge_types(p, r, &bench->profile[p->dtype], o, *lse, why));
    }
    HA_TRY(ha_problem_look(p, 0, bench, want, out, why));
    for (size_t r = 0; r < ha_problem_rows(p); r++) {
        memset(ha_problem_o(p, 0, r), 0xFF, p->head_dim * sizeof(float));
        memset(ha_problem_lse(p, 0, r), 0xFF, sizeof(float));
    }
    for (size_t b = 0; p->weights && b < p->batch; b++)
        for (size_t h = 0; h < p->kv_heads; h++) HA_TRY(judge_weights(p, want, b, h, why));
    return judge_gaps(p, why);
}

/* ---- a case ----------------------------------------------------------------------------------------------------- */

/* The axes that every case runs through: types and head dimensions in turn, the rest drawn. */
static struct ha_problem problem_of(const struct ha_attention_case *c, size_t id, uint64_t seed)
{
    static const size_t dims[] = { 64, 80, 96, 128, 256 }, groups[] = { 1, 2, 8 };
    const size_t dim = dims[id / HA_DTYPE_COUNT % 5];
    return (struct ha_problem){
        .case_name = c->name,
        .id = id,
        .seed = seed,
        .data = id,
        .dtype = (enum ha_dtype)(id % HA_DTYPE_COUNT),
        .head_dim = dim,
        .batch = 1,
        .kv_heads = 1,
        .group = groups[ha_rng_below(seed, AXES_STREAM, id, 3)],
        .q_len = 1,
        .copies = 1,
        .scale = 1 / sqrtf((float)dim),
    };
}

/* before: what the block holds in front of the outputs, which is only read */
static enum ha_status ask(struct ha_problem *p, struct ha_attention_bench *bench, const struct ha_wanted *want,
                          const char *before, struct ha_attention_result *out, struct ha_why *why)
{
    HA_TRY(ha_attention_move(bench, 0, p->end_at, HA_H2D, why));
    HA_TRY(ha_attention_attend(bench, p, 0, why));
    HA_TRY(ha_attention_move(bench, 0, p->end_at, HA_D2H, why));
    HA_TRY(attention_judge(p, bench, want, out, why));
    return memcmp(before, p->host, p->out_at) == 0 ? HA_OK : ha_problem_fail(p, why, "q, K or V was written");
}

static enum ha_status solve(const struct ha_attention_case *c, struct ha_problem *p, struct ha_attention_bench *bench,
                            struct ha_attention_result *out, struct ha_why *why)
{
    p->indexed = p->indexed && (bench->subject->kernels || bench->stream);
    if (bench->head_dim_max && p->head_dim > bench->head_dim_max) return HA_OK;
    if (c->split) p->copies = p->runs_count + 1;
    HA_TRY(ha_problem_lay(p, bench, why));
    if (c->fill) c->fill(p);
    if (c->split) return ha_attention_split(p, bench, out, why);
    struct ha_wanted want = { 0 };
    HA_TRY(ha_wanted_make(&want, p, &bench->profile[p->dtype], why));
    if (c->spoil) c->spoil(p);
    char *before = malloc(p->out_at);
    if (before) memcpy(before, p->host, p->out_at);
    const enum ha_status status = before ? ask(p, bench, &want, before, out, why) : ha_why(why, HA_ERROR, "no memory");
    free(before);
    ha_wanted_free(&want);
    return status;
}

/* shapes: NULL, or of each problem */
static enum ha_status solve_all(const struct ha_attention_case *c, const struct ha_attention_shape *shapes,
                                size_t count, struct ha_attention_bench *bench, uint64_t seed,
                                struct ha_attention_result *out, struct ha_why *why)
{
    for (size_t id = 0; id < count; id++) {
        struct ha_problem p = problem_of(c, id, seed);
        if (shapes) ha_problem_shape(&p, &shapes[id]);
        else c->shape(&p);
        HA_TRY(solve(c, &p, bench, out, why));
    }
    return HA_OK;
}

enum ha_status ha_attention_check(const struct ha_attention_subject *subject, size_t i, uint64_t seed,
                                  const struct ha_attention_shape *one, struct ha_attention_result *out,
                                  struct ha_why *why)
{
    const struct ha_attention_case *c = &ha_attention_cases[i];
    struct ha_attention_bench bench;
    struct ha_attention_shape *pairs = NULL;
    size_t count = c->list == HA_ATTENTION_ONE ? 1 : c->shapes;
    *out = (struct ha_attention_result){ .sense = { (double)NAN, (double)NAN, (double)NAN } };
    HA_TRY(ha_attention_open(&bench, subject, seed, why));
    enum ha_status status = c->list == HA_ATTENTION_PAIRS ? ha_attention_pairs(&pairs, &count, why) : HA_OK;
    const size_t looks = HA_RUNS_MAX * count; /* a split shape's runs are looked at one by one */
    bench.sensed_o = calloc(2 * looks + 1, sizeof *bench.sensed_o);
    if (status == HA_OK && !bench.sensed_o) status = ha_why(why, HA_ERROR, "no memory");
    if (status == HA_OK) {
        bench.sensed_lse = bench.sensed_o + looks;
        status = solve_all(c, pairs ? pairs : c->list ? one : NULL, count, &bench, seed, out, why);
        out->sense.o = ha_merge_median(bench.sensed_o, bench.sensed_os);
        out->sense.lse = ha_merge_median(bench.sensed_lse, bench.sensed_lses);
        if (!ha_attention_promises(&bench)) out->outputs = 0;
    }
    free(bench.sensed_o);
    free(pairs);
    ha_attention_close(&bench);
    return status;
}
