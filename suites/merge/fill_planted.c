#include "harness/base/numeric.h"
#include "suites/merge/fills.h"

#include <string.h>

/* Every error here moves the merged LSE, which is binary32 whatever the type of o. */

static const double LN2 = 0.693147180559945309417;

/* The number that stands for a state's weight in memory, and the LSE that another number there would mean. */
static double stored(const struct ha_merge_row *row, size_t m)
{
    return row->form == HA_FORM_BASE2     ? row->lse[m] / LN2
           : row->form == HA_FORM_MAX_SUM ? row->lse[m] - log(row->sum[m])
                                          : row->lse[m];
}
static void store(struct ha_merge_row *row, size_t m, double x)
{
    row->lse[m] = row->form == HA_FORM_BASE2 ? x * LN2 : row->form == HA_FORM_MAX_SUM ? x + log(row->sum[m]) : x;
}

/* scores far from 0, so that another base makes another weight, and keys in every state */
void ha_fill_positive_lse(struct ha_merge_row *row)
{
    struct ha_tokens t;
    ha_tokens_make(&t, row, 0, HA_CUT_EVEN);
    for (size_t j = 0; j < t.count; j++) t.score[j] += 5;
    ha_tokens_fill(&t, row);
}

/* one side's LSEs in the other base, or both sides' */
void ha_plant_base_mix(struct ha_merge_row *handed, const struct ha_merge_row *other)
{
    for (size_t m = handed->index % 2 ? 0 : handed->states - 1; m < handed->states; m++)
        store(handed, m, stored(handed, m) * (handed->form == HA_FORM_BASE2 ? LN2 : 1 / LN2));
}

/* 4096 tokens. Each state's scores are shifted until what is stored lies 3/8 of a step of bf16 above one of its
 * numbers. */
void ha_fill_lse_bf16(struct ha_merge_row *row)
{
    struct ha_tokens t;
    ha_tokens_make(&t, row, HA_TOKENS_MAX, HA_CUT_EVEN);
    for (size_t m = 0; m < row->states; m++) {
        const size_t first = m ? t.end[m - 1] : 0;
        int exponent;
        ha_tokens_attend(&t, first, t.end[m], false, NULL, &row->lse[m], &row->sum[m]);
        const double x = stored(row, m), before = row->lse[m];
        (void)frexp(x, &exponent);
        const double step = ldexp(1, exponent - 8);
        store(row, m, (floor(x / step) + 0.375) * step);
        for (size_t j = first; j < t.end[m]; j++) t.score[j] += row->lse[m] - before;
    }
    ha_tokens_fill(&t, row);
}

void ha_plant_lse_bf16(struct ha_merge_row *handed, const struct ha_merge_row *other)
{
    for (size_t m = 0; m < handed->states; m++) store(handed, m, (double)ha_round((float)stored(handed, m), HA_BF16));
}

/* the tokens, with weight on the last one of state `at` */
static size_t boundary(struct ha_tokens *t, const struct ha_merge_row *row)
{
    const size_t at = row->index % (row->states - 1);
    ha_tokens_make(t, row, 0, HA_CUT_EVEN);
    t->score[t->end[at] - 1] = 2;
    return at;
}

void ha_fill_boundary_token(struct ha_merge_row *row)
{
    struct ha_tokens t;
    boundary(&t, row);
    ha_tokens_fill(&t, row);
}

/* that token is in the next state too */
void ha_plant_boundary_token(struct ha_merge_row *handed, const struct ha_merge_row *other)
{
    struct ha_tokens t;
    const size_t at = boundary(&t, handed), next = at + 1;
    ha_tokens_attend(&t, t.end[at] - 1, t.end[next], false, handed->o + next * handed->dim, &handed->lse[next],
                     &handed->sum[next]);
}

/* Heads of a group, each row at a level of its own; of every fourth the last state has no keys. */
void ha_fill_group(struct ha_merge_row *row)
{
    const double golden = 0.618033988749894848 * (double)(row->index % 1000), level = 8 * (golden - floor(golden));
    for (size_t m = 0; m < row->states; m++) ha_row_state(row, m, level + 0.5 * ha_draw_normal(row, HA_DRAW_LSE, m));
    if (row->index % 4 == 3) ha_row_empty(row, row->states - 1, 0);
}

void ha_plant_swapped_heads(struct ha_merge_row *handed, const struct ha_merge_row *other)
{
    memcpy(handed->lse, other->lse, handed->states * sizeof *handed->lse);
    memcpy(handed->sum, other->sum, handed->states * sizeof *handed->sum);
}

void ha_plant_stale(struct ha_merge_row *handed, const struct ha_merge_row *other)
{
    const size_t last = handed->states - 1;
    memcpy(handed->o + last * handed->dim, other->o + last * other->dim, handed->dim * sizeof *handed->o);
    handed->lse[last] = other->lse[last];
    handed->sum[last] = other->sum[last];
}
