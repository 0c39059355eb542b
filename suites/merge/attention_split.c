#include "suites/merge/attention_parts.h"

#include "harness/base/try.h"
#include "harness/base/why.h"
#include "suites/merge/batch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define U 0x1p-24

/* What one problem needs beside the block. wanted[runs_count] is of all runs together. */
struct split {
    struct ha_problem *p;
    struct ha_attention_bench *bench;
    struct ha_wanted wanted[HA_RUNS_MAX + 1];
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
        HA_TRY(ha_wanted_make(&s->wanted[i], &part, &s->bench->profile[part.dtype], why));
        HA_TRY(ha_attention_attend(s->bench, &part, i, why));
    }
    HA_TRY(ha_wanted_make(&s->wanted[p->runs_count], p, &s->bench->profile[p->dtype], why));
    HA_TRY(ha_attention_pull(s->bench, p->out_at, p->end_at, why));
    for (size_t i = 0; i < p->runs_count; i++) {
        const struct ha_problem part = part_of(p, i);
        char what[48];
        snprintf(what, sizeof what, "run %zu alone: ", i);
        for (size_t r = 0; r < rows; r++) {
            s->lse[i * rows + r] = *ha_problem_lse(p, i, r);
            HA_TRY(ha_row_judge(&part, r, what, ha_problem_o(p, i, r), s->lse[i * rows + r],
                                ha_wanted_state(&s->wanted[i], p, r), out, why));
        }
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
static enum ha_status judge_row(struct split *s, const struct ha_merge_bound *bound, size_t r,
                                struct ha_attention_result *out, struct ha_why *why)
{
    const struct ha_problem *p = s->p;
    const size_t dim = p->head_dim, runs = p->runs_count;
    const struct ha_ref_state *whole = ha_wanted_state(&s->wanted[runs], p, r);
    struct ha_ref_state part[HA_RUNS_MAX];
    for (size_t i = 0; i < runs; i++) {
        part[i] = *ha_wanted_state(&s->wanted[i], p, r);
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
    return ha_row_judge(p, r, what, ha_problem_o(p, runs, r), (float)lse, &want, out, why);
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
    HA_TRY(ha_attention_push(s->bench, p->out_at, p->end_at, why));
    HA_TRY(ha_attention_merge(s->bench, &args, why));
    HA_TRY(ha_attention_pull(s->bench, p->out_at, p->end_at, why));
    const struct ha_merge_bound bound = ha_bound_merge(&s->bench->traits, form, HA_F32);
    for (size_t r = 0; r < rows; r++) HA_TRY(judge_row(s, &bound, r, out, why));
    return HA_OK;
}

static enum ha_status run(struct split *s, struct ha_attention_result *out, struct ha_why *why)
{
    const struct ha_merge_traits *t = &s->bench->traits;
    HA_TRY(ha_attention_push(s->bench, 0, s->p->end_at, why));
    HA_TRY(attend_parts(s, out, why));
    for (unsigned form = 0; form < HA_FORM_COUNT; form++)
        if (t->forms >> form & 1u) HA_TRY(merge_parts(s, (enum ha_form)form, out, why));
    return HA_OK;
}

static bool merges(const struct ha_attention_bench *bench)
{
    const struct ha_attention_subject *s = bench->subject;
    return (s->kernels ? s->kernels->merge != NULL : s->api->merge != NULL) && bench->traits.forms != 0
           && bench->traits.dtypes >> HA_F32 & 1u && bench->traits.states_max != 1;
}

enum ha_status ha_problem_split(struct ha_problem *p, struct ha_attention_bench *bench, struct ha_attention_result *out,
                                struct ha_why *why)
{
    if (!merges(bench)) return ha_why(why, HA_WAIVED, "%s: no merge of f32 states is offered", bench->subject->name);
    if (bench->traits.states_max > 0 && p->runs_count > bench->traits.states_max) return HA_OK;
    struct split s = { .p = p, .bench = bench };
    s.lse = malloc(p->runs_count * ha_problem_rows(p) * sizeof *s.lse);
    s.merged = malloc(4 * p->head_dim * sizeof *s.merged);
    const enum ha_status status = s.lse && s.merged ? run(&s, out, why) : ha_why(why, HA_ERROR, "no memory");
    for (size_t i = 0; i <= HA_RUNS_MAX; i++) ha_wanted_free(&s.wanted[i]);
    free(s.lse);
    free(s.merged);
    return status;
}
