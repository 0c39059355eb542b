#include "suites/merge/fills.h"

#include <string.h>

size_t ha_tokens_enough(size_t states)
{
    const size_t n = 3 * states + 1;
    return n < 48 ? 48 : n;
}

void ha_tokens_make(struct ha_tokens *t, const struct ha_merge_row *row, size_t count)
{
    t->row = row;
    t->count = count ? count : ha_tokens_enough(row->states);
    memset(t->dropped, 0, t->count * sizeof *t->dropped);
    ha_tokens_scores(t, HA_SCORES_NORMAL);
    ha_tokens_cut(t, HA_CUT_RANDOM);
}

void ha_tokens_scores(struct ha_tokens *t, enum ha_scores scores)
{
    const double peak = ha_draw_uniform(t->row, HA_DRAW_CHOICE, 0) * (double)t->count;
    for (size_t j = 0; j < t->count; j++) {
        const double x = ha_draw_normal(t->row, HA_DRAW_SCORE, j), step = 20.0 / (double)t->count;
        double s = x;
        switch (scores) {
        case HA_SCORES_NORMAL: break;
        case HA_SCORES_WIDE: s = 100 * ha_draw_uniform(t->row, HA_DRAW_SCORE, j) - 50; break;
        case HA_SCORES_RISING: s = step * (double)j; break;
        case HA_SCORES_FALLING: s = -step * (double)j; break;
        case HA_SCORES_TIES: s = rint(x); break;
        case HA_SCORES_PEAK: s = x + (j == (size_t)peak ? 15 : 0); break;
        }
        t->score[j] = s;
    }
}

void ha_tokens_cut(struct ha_tokens *t, enum ha_cut cut)
{
    double total = 0, so_far = 0;
    for (size_t m = 0; m < t->row->states; m++) total += ha_draw_uniform(t->row, HA_DRAW_CUT, m);
    for (size_t m = 0; m < t->row->states; m++) {
        so_far += ha_draw_uniform(t->row, HA_DRAW_CUT, m);
        size_t end = t->count;
        switch (cut) {
        case HA_CUT_EVEN: end = t->count * (m + 1) / t->row->states; break;
        case HA_CUT_RANDOM: end = (size_t)(so_far / total * (double)t->count); break;
        case HA_CUT_ONES: end = m + 1; break;
        case HA_CUT_EDGE: end = m == 0 ? 0 : m == 1 ? 1 : t->count; break;
        }
        t->end[m] = end < t->count && m + 1 < t->row->states ? end : t->count;
    }
}

void ha_tokens_attend(const struct ha_tokens *t, size_t first, size_t last, bool all, double *o, double *lse,
                      double *sum)
{
    double max = -HUGE_VAL;
    for (size_t i = 0; i < t->row->dim; i++) o[i] = 0;
    *lse = -HUGE_VAL;
    *sum = 1;
    for (size_t j = first; j < last; j++)
        if (all || !t->dropped[j]) max = fmax(max, t->score[j]);
    if (max == -HUGE_VAL) return;

    float v[HA_TOKENS_DIM_MAX];
    *sum = 0;
    for (size_t j = first; j < last; j++) {
        if ((t->dropped[j] && !all) || t->score[j] == -HUGE_VAL) continue;
        const double w = exp(t->score[j] - max);
        *sum += w;
        ha_rng_normals(t->row->seed, ha_draw_stream(t->row->index, HA_DRAW_VALUE), j * HA_DRAW_ROW, t->row->dim, v);
        for (size_t i = 0; i < t->row->dim; i++) o[i] += w * (double)v[i];
    }
    for (size_t i = 0; i < t->row->dim; i++) o[i] /= *sum;
    *lse = max + log(*sum);
}

void ha_tokens_fill(const struct ha_tokens *t, struct ha_merge_row *row)
{
    double sum;
    for (size_t m = 0; m < t->row->states; m++)
        ha_tokens_attend(t, m ? t->end[m - 1] : 0, t->end[m], false, row->o + m * row->dim, &row->lse[m], &row->sum[m]);
    ha_tokens_attend(t, 0, t->count, false, row->whole_o, &row->whole_lse, &sum);
    row->whole = true;
}
