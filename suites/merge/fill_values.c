#include "suites/merge/fills.h"

/* Token j has a 1 in component j and scores 0: o of a state is 1/n_m in its own components. Unequal parts. */
void ha_fill_one_hot(struct ha_merge_row *row)
{
    struct ha_tokens t;
    const size_t part[] = { 1, 2, 5 }, n = row->dim / part[row->index % 3];
    ha_tokens_make(&t, row, n ? n : 1);
    for (size_t m = 0; m < row->states; m++) {
        const size_t first = m ? t.end[m - 1] : 0, keys = t.end[m] - first;
        ha_row_keys(row, m, keys);
        for (size_t j = first; j < t.end[m]; j++) row->o[m * row->dim + j] = 1 / (double)keys;
    }
    for (size_t i = 0; i < row->dim; i++) row->whole_o[i] = i < t.count ? 1 / (double)t.count : 0;
    row->whole_lse = log((double)t.count);
    row->whole = true;
}

/* each component a constant of its own, under every pattern of scores */
void ha_fill_constant_v(struct ha_merge_row *row)
{
    struct ha_tokens t;
    ha_tokens_make(&t, row, 0);
    ha_tokens_scores(&t, (enum ha_scores)(row->index % HA_SCORES_COUNT));
    ha_tokens_fill(&t, row);
    for (size_t i = 0; i < row->dim; i++) {
        row->whole_o[i] = ha_draw_value(row, HA_TOKENS_MAX, i);
        for (size_t m = 0; m < row->states; m++)
            if (row->lse[m] > -HUGE_VAL) row->o[m * row->dim + i] = row->whole_o[i];
    }
}

/* o and -o in turn at equal LSE; an odd one out is 0 */
void ha_fill_cancellation(struct ha_merge_row *row)
{
    const double scale = row->dtype == HA_F16 ? 1e4
                         : row->index % 2     ? 1e30
                                              : 1e4,
                 lse = ha_draw_normal(row, HA_DRAW_LSE, 0);
    for (size_t m = 0; m < row->states; m++) {
        ha_row_state(row, m, lse);
        row->sum[m] = 1;
        const double sign = m % 2 ? -scale : m + 1 == row->states ? 0 : scale;
        float v[HA_REF_DIM_MAX];
        ha_draw_values(row, m / 2, v);
        for (size_t i = 0; i < row->dim; i++) row->o[m * row->dim + i] = sign * (double)v[i];
    }
}

/* One state has ordinary values and nearly all the weight; the values of the others are so large that they still count.
 */
void ha_fill_huge_in_light_state(struct ha_merge_row *row)
{
    const double below = row->dtype == HA_F16 ? 8 : 60, huge = row->dtype == HA_F16 ? 1.3e4 : 1e30,
                 plain = row->dtype == HA_F16 ? 1 : 1e3;
    for (size_t m = 0; m < row->states; m++) {
        const bool light = m != row->index % row->states;
        ha_row_state(row, m, light ? -below : 0);
        ha_row_values(row, m, light ? huge : plain);
    }
}

/* 65504 is taken to the last bit: what rounding adds in binary32 is less than binary16 can tell. */
void ha_fill_near_max(struct ha_merge_row *row)
{
    const double top = ha_draw_largest(row->dtype);
    for (size_t m = 0; m < row->states; m++) {
        ha_row_state(row, m, row->index % 2 ? ha_draw_normal(row, HA_DRAW_LSE, m) : 0);
        for (size_t i = 0; i < row->dim; i++) row->o[m * row->dim + i] = i % 2 && m % 2 ? -top : top;
    }
}

/* of either size around the smallest normal of binary16, 2^-14 */
void ha_fill_subnormal(struct ha_merge_row *row)
{
    for (size_t m = 0; m < row->states; m++) {
        ha_row_state(row, m, ha_draw_normal(row, HA_DRAW_LSE, m));
        ha_row_values(row, m, row->index % 2 ? 0x1p-14 : 0x1p-20);
    }
}

/* n equal scores and one value everywhere, cut into parts at random; computed without a loop over n */
static void same_everywhere(struct ha_merge_row *row, size_t n, double v)
{
    struct ha_tokens t = { .row = row, .count = n };
    ha_tokens_cut(&t, HA_CUT_RANDOM);
    for (size_t m = 0; m < row->states; m++) {
        const size_t keys = t.end[m] - (m ? t.end[m - 1] : 0);
        ha_row_keys(row, m, keys);
        if (keys > 0) ha_row_constant(row, m, v);
    }
    for (size_t i = 0; i < row->dim; i++) row->whole_o[i] = v;
    row->whole_lse = log((double)n);
    row->whole = true;
}

void ha_fill_million_ties(struct ha_merge_row *row) { same_everywhere(row, 1000000, 0.1); }

void ha_fill_many_terms(struct ha_merge_row *row)
{
    same_everywhere(row, row->index % 2 ? 1000 : 4096, row->index % 2 ? 100 : 1);
}
