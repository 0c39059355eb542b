/* Which weights reach p, and sums of V by them, in plain words. */

#include "reference/rows.h"

#include "harness/base/numeric.h"

#include <stdlib.h>
#include <string.h>

struct element {
    uint64_t weight;
    size_t i;
};

static int by_weight(const void *a, const void *b)
{
    const struct element *x = a, *y = b;
    if (x->weight != y->weight) return x->weight > y->weight ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

/* Sorts them; how many are the shortest prefix that reaches p, or all. */
static size_t choose(const struct ha_topp *t, struct element *e)
{
    for (size_t i = 0; i < t->n; i++) {
        e[i] = (struct element){ 0, i };
        for (size_t r = 0; r < t->rows; r++) {
            const float x = t->x[r * t->stride + i];
            if (isnan(x)) return 0;
            e[i].weight += (uint64_t)floor(ldexp((double)x, HA_TOPP_BITS));
        }
    }
    qsort(e, t->n, sizeof *e, by_weight);
    uint64_t left = (uint64_t)ceil(ldexp((double)t->rows * t->p, HA_TOPP_BITS));
    size_t keys = 0;
    for (; keys < t->n && left > 0; keys++) left -= e[keys].weight < left ? e[keys].weight : left;
    return keys;
}

static bool are_these(const struct ha_topp *t, const struct element *e, size_t keys)
{
    bool right = *t->keys == keys;
    for (size_t i = 0; i < keys && right; i++) {
        right = t->index[i] == e[i].i;
        for (size_t r = 0; r < t->rows && right; r++) {
            unsigned char want[sizeof(float)];
            ha_store(want, 0, t->w_type, t->x[r * t->stride + e[i].i]);
            const size_t size = ha_dtype_bytes(t->w_type);
            right = memcmp((const char *)t->w + (r * t->w_stride + i) * size, want, size) == 0;
        }
    }
    return right;
}

/* The first `keys` elements by their place. */
static void order(const struct ha_topp *t, struct element *e, size_t keys, bool *chosen)
{
    for (size_t i = 0; i < keys; i++) chosen[e[i].i] = true;
    for (size_t i = 0, to = 0; i < t->n; i++)
        if (chosen[i]) e[to++].i = i;
}

double ha_ref_judge_topp(const struct ha_topp *t)
{
    struct element *e = malloc((t->n + 1) * sizeof *e);
    bool *chosen = calloc(t->n + 1, sizeof *chosen), right = false;
    if (e && chosen) {
        const size_t keys = choose(t, e);
        order(t, e, keys, chosen);
        right = are_these(t, e, keys);
    }
    free(e);
    free(chosen);
    return right ? 0 : HUGE_VAL;
}

/* A term passes one product and the additions that are declared, of which each may underflow. A sum that is no finite
 * number is what binary64 makes of it. */
double ha_ref_judge_weighted_sum(const struct ha_weighted_sum *s, struct ha_chances *chances)
{
    const size_t keys = s->rows.keys;
    const double h = HA_SUM_KEYS + ceil((double)keys / HA_SUM_KEYS) + 1;
    double worst = 0;
    for (size_t r = 0; r < s->q_rows; r++) {
        struct ha_ref_dots dots = { 0 };
        for (size_t d = 0; d < s->head_dim; d++) {
            double sum = 0, size = 0, squares = 0;
            for (size_t i = 0; i < keys; i++) {
                const size_t at = s->rows.index ? s->rows.index[i] : i;
                const double x = (double)ha_load(s->w, r * s->w_stride + i, s->w_type)
                                 * (double)ha_load((const char *)s->rows.v + at * s->rows.v_stride_bytes, d, s->dtype);
                sum += x;
                size += fabs(x);
                squares += x * x;
            }
            const double got = (double)s->o[r * s->o_stride + d], error = fabs(got - sum);
            if (!isfinite(sum)) {
                if (isnan(sum) ? !isnan(got) : got != sum) return HUGE_VAL;
                continue;
            }
            const double terms = (double)ha_ref_smaller(keys, (size_t)h),
                         bound = 1.001 * (ha_ref_gamma(terms) * size + (double)keys * HA_REF_ETA),
                         ratio = error == 0 ? 0 : error / bound;
            worst = isnan(ratio) ? HUGE_VAL : fmax(worst, ratio);
            ha_ref_dots_add(&dots, got - sum, sum, squares, terms, HA_F32, 0);
        }
        const struct ha_chance of = ha_ref_chance_dots(&dots);
        if (chances) ha_chances_add(chances, 0, sqrt(dots.error2), &of);
    }
    return worst;
}
