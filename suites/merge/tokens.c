#include "suites/merge/fills.h"

#include <string.h>

size_t ha_tokens_enough(size_t states)
{
    const size_t n = 3 * states + 1;
    return n < 48 ? 48 : n;
}

void ha_tokens_make(struct ha_tokens *t, const struct ha_merge_row *row, size_t count, enum ha_cut cut)
{
    t->row = row;
    t->count = count ? count : ha_tokens_enough(row->states);
    memset(t->dropped, 0, t->count * sizeof *t->dropped);
    ha_tokens_scores(t, 0);
    ha_tokens_cut(t, cut);
}

void ha_tokens_scores(struct ha_tokens *t, uint64_t i)
{
    enum { NORMAL, WIDE, RISING, FALLING, TIES, PEAK, PATTERNS };
    const double peak = ha_draw_uniform(t->row, HA_DRAW_CHOICE, 0) * (double)t->count;
    for (size_t j = 0; j < t->count; j++) {
        const double x = ha_draw_normal(t->row, HA_DRAW_SCORE, j), step = 20.0 / (double)t->count;
        double s = x;
        switch (i % PATTERNS) {
        case NORMAL: break;
        case WIDE: s = 100 * ha_draw_uniform(t->row, HA_DRAW_SCORE, j) - 50; break;
        case RISING: s = step * (double)j; break;
        case FALLING: s = -step * (double)j; break;
        case TIES: s = rint(x); break;
        case PEAK: s = x + (j == (size_t)peak ? 15 : 0); break;
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

/* One query over some tokens, as far as they have been added. */
struct sum {
    double max, *o, *lse, *sum;
};

static bool left_out(const struct ha_tokens *t, size_t j, bool all)
{
    return (t->dropped[j] && !all) || t->score[j] == -HUGE_VAL;
}

static struct sum begin(const struct ha_tokens *t, size_t first, size_t last, bool all, double *o, double *lse,
                        double *sum)
{
    double max = -HUGE_VAL;
    for (size_t j = first; j < last; j++)
        if (!left_out(t, j, all)) max = fmax(max, t->score[j]);
    for (size_t i = 0; o && i < t->row->dim; i++) o[i] = 0;
    *lse = -HUGE_VAL;
    *sum = max == -HUGE_VAL ? 1 : 0;
    return (struct sum){ max, o, lse, sum };
}

static void add(const struct sum *s, double score, const float *v, size_t dim)
{
    const double w = exp(score - s->max);
    *s->sum += w;
    for (size_t i = 0; s->o && i < dim; i++) s->o[i] += w * (double)v[i];
}

static void end(const struct sum *s, size_t dim)
{
    if (s->max == -HUGE_VAL) return;
    for (size_t i = 0; s->o && i < dim; i++) s->o[i] /= *s->sum;
    *s->lse = s->max + log(*s->sum);
}

void ha_tokens_attend(const struct ha_tokens *t, size_t first, size_t last, bool all, double *o, double *lse,
                      double *sum)
{
    float v[HA_REF_DIM_MAX];
    const struct sum s = begin(t, first, last, all, o, lse, sum);
    for (size_t j = first; j < last; j++) {
        if (left_out(t, j, all)) continue;
        if (o) ha_draw_values(t->row, j, v);
        add(&s, t->score[j], v, t->row->dim);
    }
    end(&s, t->row->dim);
}

/* The values of a token are drawn once, for its state and for the whole. */
void ha_tokens_fill(const struct ha_tokens *t, struct ha_merge_row *row)
{
    float v[HA_REF_DIM_MAX];
    double sum;
    const struct sum whole = begin(t, 0, t->count, false, row->whole_o, &row->whole_lse, &sum);
    for (size_t m = 0, j = 0; m < row->states; m++) {
        const struct sum part = begin(t, j, t->end[m], false, row->o + m * row->dim, &row->lse[m], &row->sum[m]);
        for (; j < t->end[m]; j++) {
            if (left_out(t, j, false)) continue;
            ha_draw_values(row, j, v);
            add(&part, t->score[j], v, row->dim);
            add(&whole, t->score[j], v, row->dim);
        }
        end(&part, row->dim);
    }
    end(&whole, row->dim);
    row->whole = true;
}
