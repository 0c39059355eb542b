#include "kernels/c/ops.h"
#include "kernels/rows.h"

#include <math.h>

enum { STATES = 64, DIM = 256 };

static float lse_of(const struct ha_merge *m, size_t state, size_t r)
{
    return m->states[state].lse[r * m->states[state].lse_stride];
}

/* w[i] = exp(L - max) of states first + i; returns how many */
static size_t weigh(const struct ha_merge *m, size_t r, size_t first, float max, float *w)
{
    const size_t n = ha_least(STATES, m->states_count - first);
    for (size_t i = 0; i < n; i++) w[i] = expf(lse_of(m, first + i, r) - max);
    return n;
}

/* The weights are divided by their sum before they are used, so that states near FLT_MAX do not
 * overflow; products are added uncontracted, so that two states commute bitwise. The accumulator
 * starts at -0, the neutral element: one state alone is copied, its -0 too. */
static void merge_row(const struct ha_merge *m, size_t r)
{
    float *o = m->o + r * m->o_stride, *lse = m->lse + r * m->lse_stride, max = -INFINITY, sum = 0, w[STATES];
    for (size_t s = 0; s < m->states_count; s++) {
        const float l = lse_of(m, s, r);
        max = l > max || isnan(l) ? l : max;
    }
    if (max == -INFINITY) {
        for (size_t i = 0; i < m->dim; i++) o[i] = 0;
        *lse = -INFINITY;
        return;
    }
    for (size_t first = 0; first < m->states_count; first += STATES) {
        const size_t n = weigh(m, r, first, max, w);
        for (size_t s = 0; s < n; s++) sum += w[s];
    }
    for (size_t d = 0; d < m->dim; d += DIM) {
        const size_t dim = ha_least(DIM, m->dim - d);
        float acc[DIM];
        for (size_t i = 0; i < dim; i++) acc[i] = -0.0f;
        for (size_t first = 0; first < m->states_count; first += STATES) {
            const size_t n = m->states_count <= STATES ? m->states_count : weigh(m, r, first, max, w);
            for (size_t s = 0; s < n; s++) {
                if (lse_of(m, first + s, r) == -INFINITY) continue;
                const float share = w[s] / sum, *x = m->states[first + s].o + r * m->states[first + s].o_stride + d;
                for (size_t i = 0; i < dim; i++) acc[i] += share * x[i];
            }
        }
        for (size_t i = 0; i < dim; i++) o[d + i] = acc[i];
    }
    /* log 1 is not added: it would turn -0 into 0 */
    *lse = sum == 1 ? max : max + logf(sum);
}

void ha_c_merge(const struct ha_merge *m)
{
    for (size_t r = 0; r < m->rows; r++) merge_row(m, r);
}
