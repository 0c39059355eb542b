#include "suites/merge/fills.h"

void ha_fill_tokens(struct ha_merge_row *row)
{
    struct ha_tokens t;
    ha_tokens_make(&t, row, 0);
    ha_tokens_fill(&t, row);
}

void ha_fill_splits(struct ha_merge_row *row)
{
    struct ha_tokens t;
    const size_t m = row->states, n = ha_tokens_enough(m);
    switch (row->index % 5) {
    case 0: /* {0, 1, n - 1} */
        ha_tokens_make(&t, row, n);
        ha_tokens_cut(&t, HA_CUT_EDGE);
        break;
    case 1: /* {1, 1, ...} */
        ha_tokens_make(&t, row, m);
        ha_tokens_cut(&t, HA_CUT_ONES);
        break;
    case 2: /* does not divide n */
        ha_tokens_make(&t, row, m > 1 ? n / m * m + 1 : n);
        ha_tokens_cut(&t, HA_CUT_EVEN);
        break;
    case 3: /* more states than tokens */
        ha_tokens_make(&t, row, (m + 1) / 2);
        ha_tokens_cut(&t, HA_CUT_EVEN);
        break;
    default: ha_tokens_make(&t, row, n);
    }
    ha_tokens_fill(&t, row);
}

/* rows 6i .. 6i + 5: the six orders of three states */
void ha_fill_orders_of_three(struct ha_merge_row *row)
{
    const uint64_t index = row->index;
    row->index /= 6;
    ha_fill_tokens(row);
    ha_row_swap(row, 0, index % 3);
    if (index / 3 % 2) ha_row_swap(row, 1, 2);
    row->index = index;
}

/* rows 2i and 2i + 1: two states in either order */
void ha_fill_either_order(struct ha_merge_row *row)
{
    const uint64_t index = row->index;
    row->index /= 2;
    ha_fill_tokens(row);
    if (index % 2) ha_row_swap(row, 0, 1);
    row->index = index;
}

void ha_fill_single_tokens(struct ha_merge_row *row)
{
    struct ha_tokens t;
    ha_tokens_make(&t, row, row->states);
    ha_tokens_cut(&t, HA_CUT_ONES);
    ha_tokens_fill(&t, row);
}

/* The first state selects all of its tokens, the others those with the larger scores. */
void ha_fill_sparse_union(struct ha_merge_row *row)
{
    struct ha_tokens t;
    ha_tokens_make(&t, row, 2 * ha_tokens_enough(row->states));
    ha_tokens_cut(&t, HA_CUT_EVEN);
    for (size_t j = t.end[0]; j < t.count; j++) t.dropped[j] = t.score[j] < 0.5 * (double)(row->index % 4) - 0.5;
    ha_tokens_fill(&t, row);

    double lse, sum;
    float v[HA_REF_DIM_MAX];
    ha_tokens_attend(&t, 0, t.count, true, row->full_o, &lse, &sum);
    const double lost = -expm1(row->whole_lse - lse);
    for (size_t i = 0; i < row->dim; i++) row->full_slack[i] = 0;
    for (size_t j = 0; j < t.count; j++) {
        if (!t.dropped[j]) continue;
        ha_draw_values(row, j, v);
        for (size_t i = 0; i < row->dim; i++)
            row->full_slack[i] = fmax(row->full_slack[i], lost * fabs((double)v[i] - row->whole_o[i]));
    }
    row->full = true;
}

/* Scores are q.k; the first half of the states takes the query itself, the others the one predicted for them, both
 * from the same input by the same map. */
void ha_fill_predicted_query(struct ha_merge_row *row)
{
    enum { DIM = 32, INPUT = 8, QUERY = 1 << 20 };
    struct ha_tokens t;
    double q[2][DIM] = { { 0 } };
    float k[DIM];
    for (size_t side = 0; side < 2; side++)
        for (size_t i = 0; i < DIM; i++)
            for (size_t l = 0; l < INPUT; l++)
                q[side][i] += ha_draw_normal(row, HA_DRAW_CHOICE, QUERY + l)
                              * ha_draw_normal(row, HA_DRAW_CHOICE, QUERY + INPUT * (i + 1) + l);
    ha_tokens_make(&t, row, 0);
    for (size_t j = 0, m = 0; j < t.count; j++) {
        while (j >= t.end[m]) m++;
        t.score[j] = 0;
        ha_rng_normals(row->seed, ha_draw_stream(row->index, HA_DRAW_SCORE), j * HA_DRAW_ROW, DIM, k);
        for (size_t i = 0; i < DIM; i++)
            t.score[j] += q[m >= (row->states + 1) / 2][i] * (double)k[i] / sqrt(INPUT * DIM);
    }
    ha_tokens_fill(&t, row);
}
