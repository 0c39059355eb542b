#include "kernels/c/attend.h"
#include "kernels/c/ops.h"
#include "kernels/rows.h"

#include <math.h>
#include <string.h>

/* 2^n of an integer n <= 0 or NaN; what is below binary32 is 0 */
static float power(float n) { return n >= -149 ? scalbnf(1, (int)n) : isnan(n) ? n : 0; }

static void scale(float *acc, const float *part, size_t n, float x, float y)
{
    for (size_t i = 0; i < n; i++) acc[i] = acc[i] * x + part[i] * y;
}

/* The side with the smaller level is scaled by a power of two, the other not. A NaN in a sum stays, and its level and
 * acc do not matter then; an empty side changes nothing. */
void ha_attend_blend(const struct ha_attend_state *to, const struct ha_attend_state *from, size_t r, size_t dim)
{
    float *level = &to->level[r], *sum = &to->sum[r], *acc = to->acc + r * dim;
    const float other = from->level[r], *part = from->acc + r * dim;
    if (isnan(*sum) || (other == -INFINITY && from->sum[r] == 0)) return;
    if (isnan(from->sum[r]) || *level == -INFINITY) {
        *level = other;
        *sum = from->sum[r];
        memcpy(acc, part, dim * sizeof *acc);
        return;
    }
    const float top = other > *level ? other : *level, x = power(*level - top), y = power(other - top);
    scale(acc, part, dim, x, y);
    *sum = *sum * x + from->sum[r] * y;
    *level = top;
}

void ha_attend_finish(const struct ha_attend *a, const struct ha_attend_state *s, size_t first, size_t rows)
{
    const double ln2 = 0x1.62e42fefa39efp-1;
    for (size_t r = 0; r < rows; r++) {
        const size_t t = (first + r) / a->group, g = (first + r) % a->group;
        const float *acc = s->acc + r * a->head_dim, sum = s->sum[r];
        float *o = a->o + t * a->q_token_stride + g * a->q_head_stride;
        const bool none = sum == 0;
        for (size_t i = 0; i < a->head_dim; i++) o[i] = none ? 0 : acc[i] / sum;
        const double lse = none ? -HUGE_VAL : isnan(sum) ? (double)sum : (double)s->level[r] * ln2 + log((double)sum);
        a->lse[t * a->lse_token_stride + g * a->lse_head_stride] = (float)lse;
    }
}

void ha_attend_share(const struct ha_attend *a, const struct ha_attend_plan *p, size_t first, size_t end,
                     const struct ha_attend_state *s, size_t r, float level, float sum, const float *from, float *to)
{
    size_t piece = 0;
    for (struct ha_attend_piece x = { .first = first }; ha_attend_next(a, p, end, &x); piece++) {
        const float of = s->pieces[piece * s->rows + r];
        if (of == -INFINITY && !isnan(sum)) continue; /* zeros already, or not even written */
        const float by = isnan(sum) ? sum : power(of - level);
        const bool add = from != to;
        for (size_t j = x.first; j < x.first + x.keys; j++) {
            const float w = from[j] * by / sum;
            to[j] = add ? to[j] + w : w;
        }
    }
}

size_t ha_c_attend_state_bytes(const struct ha_attend *a)
{
    const struct ha_attend_plan p = ha_attend_plan(a);
    size_t bytes = 0;
    ha_attend_state(a, &p, a->q_len * a->group, NULL, &bytes);
    return bytes;
}

bool ha_c_attend_splits(const struct ha_attend *a) { return !a->weights || a->q_len == 1; }

static struct ha_attend_state state_of(const struct ha_attend_join *j, const struct ha_attend_plan *p, size_t part)
{
    size_t bytes = 0;
    return ha_attend_state(j->attend, p, j->attend->q_len * j->attend->group, j->parts[part].state, &bytes);
}

/* Neighbours first, then pairs of them: a key's path through `count` parts is log2 count additions (reference/bound.c).
 */
void ha_c_attend_join(const struct ha_kernels *self, const struct ha_attend_join *j)
{
    const struct ha_attend *a = j->attend;
    const struct ha_attend_plan p = ha_attend_plan(a);
    const size_t rows = a->q_len * a->group;
    for (size_t step = 1; step < j->count; step *= 2)
        for (size_t i = 0; i + step < j->count; i += 2 * step) {
            const struct ha_attend_state to = state_of(j, &p, i), from = state_of(j, &p, i + step);
            for (size_t r = 0; r < rows; r++) ha_attend_blend(&to, &from, r, a->head_dim);
        }
    const struct ha_attend_state all = state_of(j, &p, 0);
    ha_attend_finish(a, &all, 0, rows);
    for (size_t i = 0; p.direct && i < j->count; i++) {
        const struct ha_attend_state s = state_of(j, &p, i);
        const size_t first = j->parts[i].first, end = ha_least(first + j->parts[i].keys, p.keys);
        for (size_t r = 0; r < rows; r++) {
            float *w = a->weights + r * a->weights_stride;
            ha_attend_share(a, &p, first, end, &s, r, all.level[r], all.sum[r], w, w);
        }
    }
}
