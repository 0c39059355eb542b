/* A problem is asked of the subject and judged against the oracle: every result within its bound, every other byte as
 * it was. */

#include "suites/merge/attention_parts.h"

#include "harness/base/rng.h"
#include "harness/base/why.h"
#include "suites/merge/batch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AXES_STREAM = 300 };
static const double U = 0x1p-24;

/* ---- the oracle's answers ---------------------------------------------------------------------------------------- */

struct wanted {
    struct ha_answer *of; /* [batch][kv_heads] */
    size_t count;
};

static void wanted_free(struct wanted *want)
{
    for (size_t i = 0; i < want->count; i++) ha_answer_free(&want->of[i]);
    free(want->of);
    *want = (struct wanted){ 0 };
}

static enum ha_status wanted_make(struct wanted *want, const struct ha_problem *p, const struct ha_profile *profile,
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
                wanted_free(want);
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

/* row r of [batch][q_len][heads] */
struct place {
    size_t seq, token, head;
};
static struct place place_of(const struct ha_problem *p, size_t r)
{
    const size_t heads = ha_problem_heads(p), query = r / heads;
    return (struct place){ query / p->q_len, query % p->q_len, r % heads };
}

static const struct ha_ref_state *wanted_state(const struct wanted *want, const struct ha_problem *p, size_t r)
{
    const struct place x = place_of(p, r);
    return &want->of[x.seq * p->kv_heads + x.head / p->group].state[x.token * p->group + x.head % p->group];
}

/* ---- the judge ------------------------------------------------------------------------------------------------ */

static enum ha_status judge_row(const struct ha_problem *p, size_t r, const char *what, const float *o, float lse,
                                const struct ha_ref_state *want, struct ha_attention_result *out, struct ha_why *why)
{
    const struct place x = place_of(p, r);
    size_t at;
    const double ratio = ha_ref_ratio(o, lse, want, &at);
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

/* What attention hands over is of the types that its profile names. */
static enum ha_status judge_types(const struct ha_problem *p, size_t r, const struct ha_profile *profile,
                                  const float *o, float lse, struct ha_why *why)
{
    const struct place x = place_of(p, r);
    size_t at;
    if (ha_ref_fits(o, p->head_dim, lse, profile, &at)) return HA_OK;
    const bool is_o = at < p->head_dim;
    return ha_problem_fail(p, why,
                           "sequence %zu, token %zu, head %zu: %s is %.9g, which its profile: %s %s cannot hold", x.seq,
                           x.token, x.head, is_o ? "o" : "LSE", (double)(is_o ? o[at] : lse),
                           is_o ? "out_type" : "lse_type", ha_dtype_name(is_o ? profile->out_type : profile->lse_type));
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
    return judge_row(p, r, "beside NaN in V: ", rest, lse, want, out, why);
}

/* What is judged is poison afterwards. */
static enum ha_status judge_weights(const struct ha_problem *p, const struct wanted *want, size_t seq, size_t kv_head,
                                    struct ha_why *why)
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

/* Once more at copy i of the outputs, all of whose rows were judged right. Where a NaN was put in, the rows that the
 * oracle has answered are others. */
static enum ha_status look(const struct ha_problem *p, size_t i, struct ha_attention_bench *bench,
                           const struct wanted *want, struct ha_attention_result *out, struct ha_why *why)
{
    struct ha_attention_look l = { .sense = { (double)NAN, (double)NAN }, .most = -1, .times = (double)NAN };
    if (p->nan.place != HA_NAN_NOWHERE) return HA_OK;
    for (size_t b = 0; b < p->batch; b++)
        for (size_t h = 0; h < p->kv_heads; h++)
            HA_TRY(ha_attention_look(&l, p, i, b, h, &want->of[b * p->kv_heads + h], why));
    return ha_attention_looked(&l, p, bench, out, why);
}

/* Copy 0 of the outputs against the oracle; every byte of the outputs that is no result must be as it was. */
static enum ha_status judge(const struct ha_problem *p, struct ha_attention_bench *bench, const struct wanted *want,
                            struct ha_attention_result *out, struct ha_why *why)
{
    for (size_t r = 0; r < ha_problem_rows(p); r++) {
        const float *o = ha_problem_o(p, 0, r), *lse = ha_problem_lse(p, 0, r);
        const struct ha_ref_state *state = wanted_state(want, p, r);
        HA_TRY(touched(p, r) ? judge_nan(p, r, o, *lse, state, out, why)
                             : judge_row(p, r, "", o, *lse, state, out, why));
        HA_TRY(judge_types(p, r, &bench->profile[p->dtype], o, *lse, why));
    }
    HA_TRY(look(p, 0, bench, want, out, why));
    for (size_t r = 0; r < ha_problem_rows(p); r++) {
        memset(ha_problem_o(p, 0, r), 0xFF, p->head_dim * sizeof(float));
        memset(ha_problem_lse(p, 0, r), 0xFF, sizeof(float));
    }
    for (size_t b = 0; p->weights && b < p->batch; b++)
        for (size_t h = 0; h < p->kv_heads; h++) HA_TRY(judge_weights(p, want, b, h, why));
    return judge_gaps(p, why);
}

/* ---- each run attended by itself, then all merged ---------------------------------------------------------------- */

/* What one problem needs beside the block. wanted[runs_count] is of all runs together. */
struct split {
    struct ha_problem *p;
    struct ha_attention_bench *bench;
    struct wanted wanted[HA_RUNS_MAX + 1];
    float *lse;     /* [runs][rows] the natural LSE that the subject returned, rows [tokens][heads] */
    double *merged; /* [4][head_dim] of the oracle's merge */
};

/* Run i alone; only the last one holds the query tokens. */
static struct ha_problem part_of(const struct ha_problem *p, size_t i)
{
    struct ha_problem part = *p;
    part.first_run = i;
    part.runs_count = i + 1;
    part.causal = p->causal && i + 1 == p->runs_count;
    return part;
}

/* Each run by itself, judged like any other attention. */
static enum ha_status attend_parts(struct split *s, struct ha_attention_result *out, struct ha_why *why)
{
    const struct ha_problem *p = s->p;
    const size_t rows = ha_problem_rows(p);
    for (size_t i = 0; i < p->runs_count; i++) {
        const struct ha_problem part = part_of(p, i);
        HA_TRY(wanted_make(&s->wanted[i], &part, &s->bench->profile[part.dtype], why));
        HA_TRY(ha_attention_attend(s->bench, &part, i, why));
    }
    HA_TRY(wanted_make(&s->wanted[p->runs_count], p, &s->bench->profile[p->dtype], why));
    HA_TRY(ha_attention_move(s->bench, p->out_at, p->end_at, HA_D2H, why));
    for (size_t i = 0; i < p->runs_count; i++) {
        const struct ha_problem part = part_of(p, i);
        char what[48];
        snprintf(what, sizeof what, "run %zu alone: ", i);
        for (size_t r = 0; r < rows; r++) {
            s->lse[i * rows + r] = *ha_problem_lse(p, i, r);
            HA_TRY(judge_row(&part, r, what, ha_problem_o(p, i, r), s->lse[i * rows + r],
                             wanted_state(&s->wanted[i], p, r), out, why));
            HA_TRY(
                judge_types(&part, r, &s->bench->profile[p->dtype], ha_problem_o(p, i, r), s->lse[i * rows + r], why));
        }
        HA_TRY(look(&part, i, s->bench, &s->wanted[i], out, why));
    }
    return HA_OK;
}

static struct ha_merge_state state_at(const struct split *s, size_t i, enum ha_form form)
{
    const struct ha_problem *p = s->p;
    char *base = s->bench->there;
    const bool heads_first = s->bench->traits.lse_order == HA_LSE_HEADS_TOKENS;
    return (struct ha_merge_state){
        .o = base + p->o_at + i * p->o_step,
        .lse = (float *)(void *)(base + p->lse_at + i * p->lse_step),
        .sum = form == HA_FORM_MAX_SUM ? (float *)(void *)(base + p->sum_at + i * p->lse_step) : NULL,
        .o_token_stride = p->q_token,
        .o_head_stride = p->q_head,
        .lse_token_stride = heads_first ? 1 : ha_problem_heads(p),
        .lse_head_stride = heads_first ? p->q_len : 1,
    };
}

/* The number of row r in copy i, in the order of state_at. */
static float *lse_in(const struct split *s, size_t at, size_t i, size_t r)
{
    const struct ha_problem *p = s->p;
    const size_t heads = ha_problem_heads(p);
    const size_t n = s->bench->traits.lse_order == HA_LSE_HEADS_TOKENS ? r % heads * p->q_len + r / heads : r;
    return (float *)(void *)(p->host + at + i * p->lse_step) + n;
}

/* Attention over all keys, with the bound of a merge of the parts' own bounds and of storing their L. */
static enum ha_status judge_merged(struct split *s, const struct ha_merge_bound *bound, size_t r,
                                   struct ha_attention_result *out, struct ha_why *why)
{
    const struct ha_problem *p = s->p;
    const size_t dim = p->head_dim, runs = p->runs_count;
    const struct ha_ref_state *whole = wanted_state(&s->wanted[runs], p, r);
    struct ha_ref_state part[HA_RUNS_MAX];
    for (size_t i = 0; i < runs; i++) {
        part[i] = *wanted_state(&s->wanted[i], p, r);
        if (bound->form == HA_FORM_BASE2 && part[i].lse != -HUGE_VAL)
            part[i].lse_bound += U * (fabs(part[i].lse) + part[i].lse_bound);
    }
    struct ha_ref_state want = {
        .o = s->merged, .bound = s->merged + dim, .v_min = s->merged + 2 * dim, .v_max = s->merged + 3 * dim, .dim = dim
    };
    ha_ref_merge(part, runs, bound, &want);
    want.o = whole->o;
    want.lse = whole->lse;

    const double lse = ha_form_decode(bound->form, *lse_in(s, p->lse_at, runs, r), *lse_in(s, p->sum_at, runs, r));
    if (lse != -HUGE_VAL) want.lse_bound += U * fabs(lse); /* the judge takes a float */
    char what[48];
    snprintf(what, sizeof what, "%zu runs merged (%s): ", runs, ha_form_name(bound->form));
    return judge_row(p, r, what, ha_problem_o(p, runs, r), (float)lse, &want, out, why);
}

static enum ha_status merge_parts(struct split *s, enum ha_form form, struct ha_attention_result *out,
                                  struct ha_why *why)
{
    const struct ha_problem *p = s->p;
    const size_t runs = p->runs_count, rows = ha_problem_rows(p);
    for (size_t i = 0; i < runs; i++)
        for (size_t r = 0; r < rows; r++) {
            /* with (max, sum) any split of L is a state; that into L and 1 costs no rounding */
            *lse_in(s, p->lse_at, i, r) = ha_form_encode(form, (double)s->lse[i * rows + r], 1);
            *lse_in(s, p->sum_at, i, r) = 1;
        }
    memset(p->host + p->o_at + runs * p->o_step, 0xFF, p->o_step);
    memset(p->host + p->lse_at + runs * p->lse_step, 0xFF, p->lse_step);
    memset(p->host + p->sum_at + runs * p->lse_step, 0xFF, p->lse_step);
    struct ha_merge_state states[HA_RUNS_MAX];
    for (size_t i = 0; i < runs; i++) states[i] = state_at(s, i, form);
    const struct ha_merge args = {
        .form = form,
        .dtype = HA_F32,
        .states = states,
        .states_count = runs,
        .tokens = p->q_len,
        .heads = ha_problem_heads(p),
        .dim = p->head_dim,
        .out = state_at(s, runs, form),
    };
    HA_TRY(ha_attention_move(s->bench, p->out_at, p->end_at, HA_H2D, why));
    HA_TRY(ha_attention_merge(s->bench, &args, why));
    HA_TRY(ha_attention_move(s->bench, p->out_at, p->end_at, HA_D2H, why));
    const struct ha_merge_bound bound = ha_bound_merge(&s->bench->traits, form, HA_F32);
    for (size_t r = 0; r < rows; r++) HA_TRY(judge_merged(s, &bound, r, out, why));
    return HA_OK;
}

static enum ha_status run(struct split *s, struct ha_attention_result *out, struct ha_why *why)
{
    const struct ha_merge_traits *t = &s->bench->traits;
    HA_TRY(ha_attention_move(s->bench, 0, s->p->end_at, HA_H2D, why));
    HA_TRY(attend_parts(s, out, why));
    for (unsigned form = 0; form < HA_FORM_COUNT; form++)
        if (t->forms >> form & 1u) HA_TRY(merge_parts(s, (enum ha_form)form, out, why));
    return HA_OK;
}

static enum ha_status split_and_merge(struct ha_problem *p, struct ha_attention_bench *bench,
                                      struct ha_attention_result *out, struct ha_why *why)
{
    const struct ha_attention_subject *by = bench->subject;
    const struct ha_merge_traits *t = &bench->traits;
    const bool has_merge = by->kernels ? by->kernels->merge != NULL : by->api->merge != NULL;
    if (!has_merge || !t->forms || !(t->dtypes >> HA_F32 & 1u) || t->states_max == 1)
        return ha_why(why, HA_WAIVED, "%s: no merge of f32 states is offered", by->name);
    if (t->states_max > 0 && p->runs_count > t->states_max) return HA_OK;
    struct split s = { .p = p, .bench = bench };
    s.lse = malloc(p->runs_count * ha_problem_rows(p) * sizeof *s.lse);
    s.merged = malloc(4 * p->head_dim * sizeof *s.merged);
    const enum ha_status status = s.lse && s.merged ? run(&s, out, why) : ha_why(why, HA_ERROR, "no memory");
    for (size_t i = 0; i <= HA_RUNS_MAX; i++) wanted_free(&s.wanted[i]);
    free(s.lse);
    free(s.merged);
    return status;
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
static enum ha_status ask(struct ha_problem *p, struct ha_attention_bench *bench, const struct wanted *want,
                          const char *before, struct ha_attention_result *out, struct ha_why *why)
{
    HA_TRY(ha_attention_move(bench, 0, p->end_at, HA_H2D, why));
    HA_TRY(ha_attention_attend(bench, p, 0, why));
    HA_TRY(ha_attention_move(bench, 0, p->end_at, HA_D2H, why));
    HA_TRY(judge(p, bench, want, out, why));
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
    if (c->split) return split_and_merge(p, bench, out, why);
    struct wanted want = { 0 };
    HA_TRY(wanted_make(&want, p, &bench->profile[p->dtype], why));
    if (c->spoil) c->spoil(p);
    char *before = malloc(p->out_at);
    if (before) memcpy(before, p->host, p->out_at);
    const enum ha_status status = before ? ask(p, bench, &want, before, out, why) : ha_why(why, HA_ERROR, "no memory");
    free(before);
    wanted_free(&want);
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
    }
    free(bench.sensed_o);
    free(pairs);
    ha_attention_close(&bench);
    return status;
}
