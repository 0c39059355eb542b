#ifndef HA_LSE_MERGE_FILLS_H
#define HA_LSE_MERGE_FILLS_H

/* The rows of the cases, and the errors planted in them; what they draw and write. Cases whose number has several parts
 * go through them by the row's index. Everything random follows from a row's (seed, index). */

#include "suites/merge/merge_suite.h"
#include "harness/base/rng.h"

#include <float.h>
#include <math.h>

ha_merge_fill ha_fill_tokens; /* some tokens, cut at random */
/* fill_planted.c: rows that an error shows in, and the errors */
ha_merge_fill ha_fill_positive_lse, ha_fill_lse_bf16, ha_fill_boundary_token, ha_fill_group;
ha_merge_plant ha_plant_base_mix, ha_plant_lse_bf16, ha_plant_boundary_token, ha_plant_swapped_heads, ha_plant_stale;

/* ---- what they draw and write */

enum ha_draw { HA_DRAW_SCORE, HA_DRAW_VALUE, HA_DRAW_CUT, HA_DRAW_LSE, HA_DRAW_SUM, HA_DRAW_CHOICE };
enum { HA_DRAW_KINDS = 8, HA_DRAW_ROW = 1024 }; /* counters of a state's or a token's values lie this far apart */

static inline uint64_t ha_draw_stream(uint64_t index, enum ha_draw what) { return index * HA_DRAW_KINDS + what; }
static inline double ha_draw_normal(const struct ha_merge_row *r, enum ha_draw what, size_t i)
{
    return (double)ha_rng_normal(r->seed, ha_draw_stream(r->index, what), i);
}
static inline double ha_draw_uniform(const struct ha_merge_row *r, enum ha_draw what, size_t i)
{
    return (double)ha_rng_uniform(r->seed, ha_draw_stream(r->index, what), i);
}
static inline size_t ha_draw_below(const struct ha_merge_row *r, enum ha_draw what, size_t i, size_t n)
{
    return (size_t)ha_rng_below(r->seed, ha_draw_stream(r->index, what), i, n);
}

/* Near the largest number of a type; to the last bit in binary16. */
static inline double ha_draw_largest(enum ha_dtype t) { return t == HA_F16 ? 65504 : 0.9 * (double)FLT_MAX; }

/* The components of state m, or of a token, before they are scaled: normal. */
static inline void ha_draw_values(const struct ha_merge_row *r, size_t m, float v[HA_REF_DIM_MAX])
{
    ha_rng_normals(r->seed, ha_draw_stream(r->index, HA_DRAW_VALUE), m * HA_DRAW_ROW, r->dim, v);
}
/* one of them */
static inline double ha_draw_value(const struct ha_merge_row *r, size_t m, size_t i)
{
    return ha_draw_normal(r, HA_DRAW_VALUE, m * HA_DRAW_ROW + i);
}

static inline void ha_row_values(struct ha_merge_row *r, size_t m, double scale)
{
    float v[HA_REF_DIM_MAX];
    ha_draw_values(r, m, v);
    for (size_t i = 0; i < r->dim; i++) r->o[m * r->dim + i] = scale * (double)v[i];
}

static inline void ha_row_constant(struct ha_merge_row *r, size_t m, double x)
{
    for (size_t i = 0; i < r->dim; i++) r->o[m * r->dim + i] = x;
}

/* A state with this LSE, normal values, and a sum between 1 and 8. */
static inline void ha_row_state(struct ha_merge_row *r, size_t m, double lse)
{
    r->lse[m] = lse;
    r->sum[m] = 1 + 7 * ha_draw_uniform(r, HA_DRAW_SUM, m);
    ha_row_values(r, m, 1);
}

static inline void ha_row_empty(struct ha_merge_row *r, size_t m, double garbage)
{
    r->lse[m] = -HUGE_VAL;
    r->sum[m] = 1;
    ha_row_constant(r, m, garbage);
}

/* `keys` tokens of score 0, none of them with a value yet */
static inline void ha_row_keys(struct ha_merge_row *r, size_t m, size_t keys)
{
    ha_row_empty(r, m, 0);
    if (keys == 0) return;
    r->lse[m] = log((double)keys);
    r->sum[m] = (double)keys;
}

static inline void ha_row_swap(struct ha_merge_row *r, size_t a, size_t b)
{
    const double lse = r->lse[a], sum = r->sum[a];
    r->lse[a] = r->lse[b];
    r->lse[b] = lse;
    r->sum[a] = r->sum[b];
    r->sum[b] = sum;
    for (size_t i = 0; i < r->dim; i++) {
        const double o = r->o[a * r->dim + i];
        r->o[a * r->dim + i] = r->o[b * r->dim + i];
        r->o[b * r->dim + i] = o;
    }
}

/* ---- tokens.c: states from tokens. Scores and values drawn from a row's (seed, index), cut into parts, and attention
 * over each part and over all of them, all in binary64. */

enum { HA_TOKENS_MAX = 4096, HA_TOKENS_STATES_MAX = 512 };

struct ha_tokens {
    const struct ha_merge_row *row;
    size_t count;
    double score[HA_TOKENS_MAX];      /* -inf: masked */
    bool dropped[HA_TOKENS_MAX];      /* not selected: in no state */
    size_t end[HA_TOKENS_STATES_MAX]; /* state m holds the tokens [end[m - 1], end[m]) */
};

/* EDGE: {0, 1, n - 1}, as far as there are states */
enum ha_cut { HA_CUT_EVEN, HA_CUT_RANDOM, HA_CUT_ONES, HA_CUT_EDGE };

/* `count` tokens (at most HA_TOKENS_MAX; 0: ha_tokens_enough) for a row, with normal scores. */
void ha_tokens_make(struct ha_tokens *t, const struct ha_merge_row *row, size_t count, enum ha_cut cut);
/* other scores: normal, wide, rising, falling, with ties, with a peak, as i goes on */
void ha_tokens_scores(struct ha_tokens *t, uint64_t i);
void ha_tokens_cut(struct ha_tokens *t, enum ha_cut cut);
/* As many as show the cut between `states` parts: some for each. */
size_t ha_tokens_enough(size_t states);

/* One query over the tokens [first, last), dropped ones only where all is set. o: [dim], or NULL; no token gives (0,
 * -inf, 1). */
void ha_tokens_attend(const struct ha_tokens *t, size_t first, size_t last, bool all, double *o, double *lse,
                      double *sum);
/* Every state of the row, and the whole. */
void ha_tokens_fill(const struct ha_tokens *t, struct ha_merge_row *row);

#endif
