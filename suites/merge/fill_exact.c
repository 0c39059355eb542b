#include "suites/merge/fills.h"

/* The largest power of two of the states hold 2^k keys each, scores 0, and integers; the others hold no keys. A
 * sum over all states, and over any of them, stays within 256, and so within the 8 bits of bf16. */
void ha_fill_equal_scores(struct ha_merge_row *row)
{
    size_t used = 1;
    while (used * 2 <= row->states) used *= 2;
    const size_t most = used >= 32 ? 256 / used : 8;
    const size_t keys = (size_t)1 << ha_draw_below(row, HA_DRAW_CHOICE, 0, 8);
    for (size_t i = 0; i < row->dim; i++) row->whole_o[i] = 0;
    for (size_t m = 0; m < row->states; m++) {
        ha_row_keys(row, m, m < used ? keys : 0);
        for (size_t i = 0; m < used && i < row->dim; i++) {
            const double v = (double)ha_draw_below(row, HA_DRAW_VALUE, m * HA_DRAW_ROW + i, 2 * most + 1)
                             - (double)most;
            row->o[m * row->dim + i] = v;
            row->whole_o[i] += v / (double)used;
        }
    }
    row->whole_lse = log((double)(keys * used));
    row->whole = true;
}

/* Row 2i + 1 holds the states of row 2i in another order; empty ones stay where they are. */
void ha_fill_permuted(struct ha_merge_row *row)
{
    const uint64_t index = row->index;
    row->index /= 2;
    ha_fill_equal_scores(row);
    size_t used = 0;
    while (used < row->states && row->lse[used] > -HUGE_VAL) used++;
    for (size_t m = used; index % 2 && m > 1; m--) ha_row_swap(row, m - 1, ha_draw_below(row, HA_DRAW_CHOICE, m, m));
    row->index = index;
}

/* LSEs and values of every magnitude that a state copied may have */
static void any_state(struct ha_merge_row *row, size_t m)
{
    static const double lse[] = { 3, -2.5, 0, 1e4, -1e4, 1e-7, 88.7, -104 }, scale[] = { 1, 1e-3, 1e3 };
    ha_row_state(row, m, lse[row->index % 8] * (1 + ha_draw_uniform(row, HA_DRAW_LSE, 0) / 16));
    ha_row_values(row, m, scale[row->index % 3]);
}

void ha_fill_one_state(struct ha_merge_row *row) { any_state(row, 0); }

void ha_fill_empty_and_state(struct ha_merge_row *row)
{
    for (size_t m = 0; m < row->states; m++) ha_row_empty(row, m, 0);
    any_state(row, row->index % row->states);
}

/* The o of an empty state must not be read, so it may hold anything. */
void ha_fill_all_empty(struct ha_merge_row *row)
{
    for (size_t m = 0; m < row->states; m++) ha_row_empty(row, m, row->index % 2 ? 1e3 : 0);
}
