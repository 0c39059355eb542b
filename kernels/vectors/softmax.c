/* softmax in terms of vectors. A row is cut into spans that stay in the cache between their maximum and their weights,
 * which are relative to it; a second pass makes them relative to the whole row. */

#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)
#include "kernels/rows.h"

#include <math.h>

enum { SPAN = 4096, SPANS = 64, SUMS = 4 };

/* numbers behind the end count as -inf: they weigh nothing */
static inline vec load_at(const float *x, size_t i, size_t n)
{
    return n - i >= LANES ? v_load(x + i) : v_load_part(x + i, n - i, -INFINITY);
}
static inline void store_at(float *x, size_t i, size_t n, vec v)
{
    if (n - i >= LANES) v_store(x + i, v);
    else v_store_part(x + i, v, n - i);
}

/* the largest number, NaN aside */
static float max_of(const float *x, size_t n)
{
    vec m[SUMS];
    for (int j = 0; j < SUMS; j++) m[j] = v_set(-INFINITY);
    size_t i = 0;
    for (; n - i >= SUMS * LANES; i += SUMS * LANES)
        for (size_t j = 0; j < SUMS; j++) m[j] = v_max(v_load(x + i + j * LANES), m[j]);
    for (; i < n; i += LANES) m[0] = v_max(load_at(x, i, n), m[0]);
    return v_max_lane(v_max(v_max(m[0], m[1]), v_max(m[2], m[3])));
}

/* x = exp(x - from), and the sum of them */
static float weigh(float *x, size_t n, float from)
{
    const vec f = v_set(from);
    vec sum[SUMS];
    for (int j = 0; j < SUMS; j++) sum[j] = v_set(0);
    size_t i = 0;
    for (; n - i >= SUMS * LANES; i += SUMS * LANES)
        for (size_t j = 0; j < SUMS; j++) {
            const vec w = v_exp(v_sub(v_load(x + i + j * LANES), f));
            v_store(x + i + j * LANES, w);
            sum[j] = v_add(sum[j], w);
        }
    for (; i < n; i += LANES) {
        const vec w = v_exp(v_sub(load_at(x, i, n), f));
        store_at(x, i, n, w);
        sum[0] = v_add(sum[0], w);
    }
    return v_sum_lanes(v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3])));
}

static void multiply(float *x, size_t n, float by)
{
    const vec b = v_set(by);
    for (size_t i = 0; i < n; i += LANES) store_at(x, i, n, v_mul(load_at(x, i, n), b));
}

/* exp(from - max) */
static float relative(float from, float max) { return from == max ? 1 : expf(from - max); }

/* A NaN is in its span's sum, and so is +inf, as NaN. A span of -inf is relative to 0, and weighs nothing. */
static float softmax_row(float *x, size_t n, bool wants_lse)
{
    float max[SPANS], sum[SPANS], top = -INFINITY, total = 0;
    const size_t span = (n + SPANS * SPAN - 1) / (SPANS * SPAN) * SPAN;
    size_t spans = 0;
    for (size_t i = 0; i < n; i += span, spans++) {
        const size_t part = ha_least(span, n - i);
        max[spans] = max_of(x + i, part);
        sum[spans] = weigh(x + i, part, max[spans] == -INFINITY ? 0 : max[spans]);
        top = max[spans] > top ? max[spans] : top;
    }
    for (size_t j = 0; j < spans; j++) total += sum[j] * relative(max[j], top);
    if (total == 0) return -INFINITY;
    for (size_t i = 0, j = 0; i < n; i += span, j++)
        multiply(x + i, ha_least(span, n - i), relative(max[j], top) / total);
    return wants_lse ? (float)((double)top + log((double)total)) : total;
}

void HA_KERNEL(softmax)(const struct ha_softmax *s)
{
    for (size_t r = 0; r < s->rows; r++) {
        const float lse = softmax_row(s->x + r * s->stride, s->n, s->lse);
        if (s->lse) s->lse[r] = lse;
    }
}
#endif
