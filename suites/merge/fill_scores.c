#include "suites/merge/fills.h"

/* The states take the two LSEs in turn; rows go through the pairs, each both ways round. */
static void in_turn(struct ha_merge_row *row, const double pair[][2], size_t count)
{
    const double *two = pair[row->index % count];
    for (size_t m = 0; m < row->states; m++) ha_row_state(row, m, two[(m + row->index / count) % 2]);
}

void ha_fill_large_lse(struct ha_merge_row *row)
{
    static const double pair[][2] = { { 100, 99 }, { 1000, 999 } };
    in_turn(row, pair, 2);
}

void ha_fill_negative_lse(struct ha_merge_row *row)
{
    static const double pair[][2] = { { -120, -121 }, { -1000, -1001 } };
    in_turn(row, pair, 2);
}

/* around the smallest normal, the smallest subnormal, and 0 */
void ha_fill_gaps(struct ha_merge_row *row)
{
    static const double pair[][2] = { { 0, -88 }, { 0, -94 }, { 0, -104 }, { 0, -150 } };
    in_turn(row, pair, 4);
}

/* Only one state has the largest LSE: so far from 0 the ln 2 that a second one adds would be lost in rounding. */
void ha_fill_extreme_lse(struct ha_merge_row *row)
{
    const double far = row->index % 2 ? 1e30 : (double)FLT_MAX;
    for (size_t m = 0; m < row->states; m++) {
        ha_row_state(row, m, m == row->index / 2 % row->states ? far : -far);
        row->sum[m] = 1;
    }
}

void ha_fill_both_low(struct ha_merge_row *row)
{
    static const double pair[][2] = { { -6e4, -6e4 }, { -1e5, -1e5 }, { -6e4, -60001 }, { -1e5, -100002 } };
    in_turn(row, pair, 4);
}

/* scores in steps of 2^-fraction, which binary32 holds with the offset too */
static void offset_scores(struct ha_merge_row *row, double offset, int fraction)
{
    struct ha_tokens t;
    ha_tokens_make(&t, row, 0);
    for (size_t j = 0; j < t.count; j++) t.score[j] = ldexp(rint(ldexp(t.score[j], fraction)), -fraction) + offset;
    ha_tokens_fill(&t, row);
}

void ha_fill_common_offset(struct ha_merge_row *row) { offset_scores(row, row->index % 2 ? -3e5 : 3e5, 5); }

/* rows 2i and 2i + 1 are the same but for the offset */
void ha_fill_offset_or_none(struct ha_merge_row *row)
{
    const uint64_t index = row->index;
    row->index /= 2;
    offset_scores(row, index % 2 ? 1e4 : 0, 10);
    row->index = index;
}

/* One token at 20.1 in the first state (or the last); 10^6 at 0 shared by the others. Each side holds one value. */
void ha_fill_sink(struct ha_merge_row *row)
{
    const size_t sink = row->index % 2 ? row->states - 1 : 0, others = row->states - 1, tokens = 1000000;
    const double weight = exp(20.1), all = weight + (double)tokens;
    float v[2][HA_REF_DIM_MAX];
    for (size_t side = 0; side < 2; side++) ha_draw_values(row, side, v[side]);
    for (size_t m = 0; m < row->states; m++) {
        const size_t k = m - (m > sink), keys = m == sink ? 1 : tokens * (k + 1) / others - tokens * k / others;
        ha_row_keys(row, m, keys);
        if (m == sink) row->lse[m] = 20.1;
        for (size_t i = 0; i < row->dim; i++) row->o[m * row->dim + i] = (double)v[m == sink][i];
    }
    for (size_t i = 0; i < row->dim; i++)
        row->whole_o[i] = (weight * (double)v[1][i] + (double)tokens * (double)v[0][i]) / all;
    row->whole_lse = log(all);
    row->whole = true;
}

void ha_fill_dominant_token(struct ha_merge_row *row)
{
    struct ha_tokens t;
    const size_t n = ha_tokens_enough(row->states), others = row->states - 1;
    const bool last = row->index % 2;
    ha_tokens_make(&t, row, n);
    for (size_t m = 0; m < row->states; m++)
        t.end[m] = last ? (m < others ? (n - 1) * (m + 1) / others : n) : 1 + (n - 1) * m / others;
    t.score[last ? n - 1 : 0] += 12 + 4 * (double)(row->index / 2 % 3);
    ha_tokens_fill(&t, row);
}

void ha_fill_increasing(struct ha_merge_row *row)
{
    static const double step[] = { 0.25, 3, 1e-3, 40 };
    const double by = step[row->index / 2 % 4] * (row->index % 2 ? -1 : 1);
    for (size_t m = 0; m < row->states; m++) ha_row_state(row, m, by * (double)m);
}
