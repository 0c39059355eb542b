/* net in terms of vectors. A tile, ROWS rows x PANEL vectors of outputs, stays in registers while it goes through the
 * inputs, each of which is broadcast and meets PANEL vectors of weights. All rows pass a panel of weights before the
 * next one is read. */

#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)
#include "kernels/net.h"
#include "kernels/rows.h"
#include "kernels/specialised.h"

enum { ROWS = VECTORS == 32 ? 8 : 4, PANEL = 3 };

ALWAYS vec load_of(const float *p, size_t n) { return n == LANES ? v_load(p) : v_load_part(p, n, 0); }

/* Outputs of the rows from r on, all of the vectors but the last whole, of which the first n lanes are. Rows behind the
 * last one are the last one again. */
ALWAYS void tile(const struct ha_net_layer *l, size_t r, size_t j, size_t vectors, size_t n)
{
    const float *x[ROWS], *w = l->w + j;
    vec sum[ROWS][PANEL];
    for (size_t i = 0; i < ROWS; i++) {
        x[i] = l->x + ha_least(r + i, l->rows - 1) * l->in;
        for (size_t v = 0; v < vectors; v++)
            sum[i][v] = load_of(l->bias + j + v * LANES, v + 1 < vectors ? (size_t)LANES : n);
    }
    for (size_t k = 0; k < l->in; k++, w += l->out) {
        vec weight[PANEL];
        for (size_t v = 0; v < vectors; v++)
            weight[v] = v_hold(load_of(w + v * LANES, v + 1 < vectors ? (size_t)LANES : n));
        for (size_t i = 0; i < ROWS; i++) {
            const vec of = v_hold(v_set(x[i][k]));
            for (size_t v = 0; v < vectors; v++) sum[i][v] = v_fma(of, weight[v], sum[i][v]);
        }
    }
    for (size_t i = 0; i < ROWS; i++)
        for (size_t v = 0; v < vectors; v++) {
            float *y = l->y + ha_least(r + i, l->rows - 1) * l->out + j + v * LANES;
            const vec of = l->relu ? v_max(v_set(0), sum[i][v]) : sum[i][v]; /* a NaN stays */
            if (v + 1 < vectors || n == LANES) v_store(y, of);
            else v_store_part(y, of, n);
        }
}

static void layer(const struct ha_net_layer *l)
{
    size_t j = 0;
    for (; j + PANEL * LANES <= l->out; j += PANEL * LANES)
        for (size_t r = 0; r < l->rows; r += ROWS) tile(l, r, j, PANEL, LANES);
    for (; j + LANES <= l->out; j += LANES)
        for (size_t r = 0; r < l->rows; r += ROWS) tile(l, r, j, 1, LANES);
    for (size_t r = 0; j < l->out && r < l->rows; r += ROWS) tile(l, r, j, 1, l->out - j);
}

void HA_KERNEL(net)(const struct ha_net *n) { ha_net_each(n, layer); }
#endif
