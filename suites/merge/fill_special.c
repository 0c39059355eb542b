#include "suites/merge/fills.h"

static void plain(struct ha_merge_row *row)
{
    for (size_t m = 0; m < row->states; m++) ha_row_state(row, m, 2 * ha_draw_normal(row, HA_DRAW_LSE, m));
}

/* One or two tokens in each state. Every second or third state has none, but for one, another in each row, that always
 * has some. */
static void some_empty(struct ha_merge_row *row, double garbage)
{
    struct ha_tokens t;
    const size_t kept = row->index % row->states, every = 2 + row->index % 2;
    size_t end = 0;
    ha_tokens_make(&t, row, 0);
    for (size_t m = 0; m < row->states; m++) {
        if (m % every != 1 || m == kept) end += 1 + ha_draw_below(row, HA_DRAW_CUT, m, 2);
        t.end[m] = end;
    }
    t.count = end;
    ha_tokens_fill(&t, row);
    for (size_t m = 0; m < row->states; m++)
        if (row->lse[m] == -HUGE_VAL) ha_row_empty(row, m, garbage);
}

void ha_fill_some_empty(struct ha_merge_row *row) { some_empty(row, 0); }

void ha_fill_empty_with_nan(struct ha_merge_row *row)
{
    const double garbage[] = { (double)NAN, HUGE_VAL, -HUGE_VAL };
    some_empty(row, garbage[row->index % 3]);
}

/* with other states, and with empty ones alone */
void ha_fill_nan_lse(struct ha_merge_row *row)
{
    plain(row);
    if (row->index % 4 == 3)
        for (size_t m = 0; m < row->states; m++) ha_row_empty(row, m, 0);
    const size_t m = row->index % row->states;
    ha_row_state(row, m, (double)NAN);
}

void ha_fill_nan_component(struct ha_merge_row *row)
{
    plain(row);
    row->o[row->index % row->states * row->dim + ha_draw_below(row, HA_DRAW_CHOICE, 0, row->dim)] = (double)NAN;
}

/* L = 0 in one state and in all; with one key, so that the maximum is 0 too */
void ha_fill_zero_lse(struct ha_merge_row *row)
{
    plain(row);
    for (size_t m = 0; m < row->states; m++)
        if (row->index % 2 || m == row->index / 2 % row->states) {
            row->lse[m] = 0;
            row->sum[m] = 1;
        }
}

void ha_fill_tiny_lse(struct ha_merge_row *row)
{
    static const double tiny[] = { -0.0, 1e-7, -1e-7, 9e-7, 1e-30 };
    plain(row);
    for (size_t m = 0; m < row->states; m++)
        if (row->index % 3 == 2 || m % 2 == row->index % 2) {
            row->lse[m] = tiny[(m / 2 + row->index) % 5];
            row->sum[m] = 1;
        }
}

/* Every third state, and every third token of the others, is masked; what is there scores -2e4 and less. */
void ha_fill_below_mask(struct ha_merge_row *row)
{
    struct ha_tokens t;
    ha_tokens_make(&t, row, 0);
    ha_tokens_cut(&t, HA_CUT_EVEN);
    for (size_t j = 0, m = 0; j < t.count; j++) {
        while (j >= t.end[m]) m++;
        const bool masked = row->states > 1 && (m + row->index) % 3 == 1;
        t.score[j] = masked || j % 3 == 2 ? -HUGE_VAL : t.score[j] - 2e4 - 100 * (double)(row->index % 4);
    }
    ha_tokens_fill(&t, row);
    for (size_t m = 0; m < row->states; m++)
        if (row->lse[m] == -HUGE_VAL) ha_row_empty(row, m, 1e3);
}
