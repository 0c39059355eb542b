#include "reference/test_fp32.h"

enum { LANES = 16 };

/* glibc's expf and logf are within 1 ulp; 1 ulp is at most 2u */
#define EXP 2.02 * 0x1p-24
#define SUMS(lanes, extra, exact)                                  \
    {                                                              \
        lanes, extra, lanes, extra, EXP, EXP, .exact_joins = exact \
    }
const struct ha_test_method ha_test_method[] = {
    { "one lane", SUMS(1, 0, false), false, false, false },
    { "one lane, fma", SUMS(1, 0, false), true, false, false },
    { "16 lanes", SUMS(LANES, 4, false), false, false, false },
    { "16 lanes, fma, normalised chunks", SUMS(LANES, 4, false), true, true, false },
    { "16 lanes, fma, weights in 16 bits", SUMS(LANES, 4, false), true, false, true },
    { "one lane, levels", SUMS(1, 0, true), false, false, false },
    { "16 lanes, fma, levels", SUMS(LANES, 4, true), true, false, false },
};
const size_t ha_test_methods = sizeof ha_test_method / sizeof ha_test_method[0];

static float multiply_add(const struct ha_test_method *m, float a, float b, float c)
{
    const float product = a * b;
    return m->fused ? fmaf(a, b, c) : product + c;
}

static float fold(float lane[LANES])
{
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

static float dot(const struct ha_test_method *m, const float *q, const float *k, size_t dim)
{
    float lane[LANES] = { 0 };
    for (size_t i = 0; i < dim; i++)
        lane[i % m->profile.dot_lanes] = multiply_add(m, q[i], k[i], lane[i % m->profile.dot_lanes]);
    return fold(lane);
}

struct chunk {
    float max, sum, acc[HA_TEST_DIM_MAX]; /* max: the level, with levels */
};

/* over the rows order[0 .. n) */
static void attend_chunk(const struct ha_test_method *m, const struct ha_test_input *in, const uint32_t *order,
                         size_t n, struct chunk *out)
{
    static float w[HA_CHUNK_KEYS];
    const float scale = m->profile.exact_joins ? (float)((double)in->scale * 0x1.71547652b82fep+0) : in->scale;
    out->max = -INFINITY;
    for (size_t j = 0; j < n; j++) {
        w[j] = dot(m, in->q, in->k + order[j] * in->dim, in->dim) * scale;
        out->max = w[j] > out->max ? w[j] : out->max;
    }
    /* any that is allowed: from just above the largest to 8 below it */
    if (m->profile.exact_joins) out->max = ceilf(out->max) - (float)((n + order[0]) % 9);
    float lane[LANES] = { 0 };
    for (size_t j = 0; j < n; j++) {
        w[j] = m->profile.exact_joins ? exp2f(w[j] - out->max) : expf(w[j] - out->max);
        lane[j % m->profile.sum_lanes] += w[j];
        if (m->rounded) w[j] = ha_round(w[j], in->dtype);
    }
    out->sum = fold(lane);
    for (size_t i = 0; i < in->dim; i++) {
        float acc[LANES] = { 0 };
        for (size_t j = 0; j < n; j++) {
            float *a = &acc[j % m->profile.sum_lanes];
            *a = multiply_add(m, w[j], in->v[order[j] * in->dim + i], *a);
        }
        out->acc[i] = fold(acc);
        if (m->normalised) out->acc[i] = out->acc[i] / out->sum * out->sum;
    }
}

static void join(const struct ha_test_method *m, struct chunk *all, const struct chunk *next, size_t dim)
{
    const float max = all->max > next->max ? all->max : next->max;
    const float a = m->profile.exact_joins ? exp2f(all->max - max) : expf(all->max - max),
                b = m->profile.exact_joins ? exp2f(next->max - max) : expf(next->max - max);
    all->sum = multiply_add(m, all->sum, a, next->sum * b);
    for (size_t i = 0; i < dim; i++) all->acc[i] = multiply_add(m, all->acc[i], a, next->acc[i] * b);
    all->max = max;
}

/* rows order[at .. last), a chunk at a time; runs end where end says */
static void attend_keys(const struct ha_test_method *m, const struct ha_test_input *in, const uint32_t *order,
                        const size_t *end, size_t at, size_t last, struct chunk *all)
{
    struct chunk next;
    for (bool any = false; at < last; any = true) {
        while (*end <= at) end++;
        const size_t stop = *end < last ? *end : last, n = stop - at < HA_CHUNK_KEYS ? stop - at : HA_CHUNK_KEYS;
        attend_chunk(m, in, order + at, n, any ? &next : all);
        if (any) join(m, all, &next, in->dim);
        at += n;
    }
}

float ha_test_fp32_attend(const struct ha_test_method *m, const struct ha_test_input *in, const uint32_t *order,
                          const size_t *end, size_t runs, float *o)
{
    enum { PARTS = 64 };
    static struct chunk part[PARTS];
    const size_t keys = end[runs - 1];
    size_t parts = 0;
    if (!m->profile.exact_joins) attend_keys(m, in, order, end, 0, keys, &part[0]);
    for (size_t at = 0; m->profile.exact_joins && at < keys; parts++) {
        /* one long part and short ones, here or there, have the longest paths */
        const size_t n = parts == keys % 3 ? 12 * HA_SPLIT_KEYS : HA_SPLIT_KEYS,
                     stop = at + n < keys && parts + 1 < PARTS ? at + n : keys;
        attend_keys(m, in, order, end, at, stop, &part[parts]);
        at = stop;
    }
    for (size_t step = 1; step < parts; step *= 2)
        for (size_t i = 0; i + step < parts; i += 2 * step) join(m, &part[i], &part[i + step], in->dim);
    const struct chunk *all = &part[0];
    for (size_t i = 0; i < in->dim; i++) o[i] = all->acc[i] / all->sum;
    return m->profile.exact_joins ? (float)((double)all->max * 0x1.62e42fefa39efp-1 + log((double)all->sum))
                                  : all->max + logf(all->sum);
}
