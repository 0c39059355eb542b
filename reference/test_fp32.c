#include "reference/test_fp32.h"

enum { LANES = 16 };

/* glibc's expf and logf are within 1 ulp; 1 ulp is at most 2u */
#define EXP 2.02 * 0x1p-24
#define SUMS(lanes, extra, ...)                            \
    {                                                      \
        lanes, extra, lanes, extra, EXP, EXP, .__VA_ARGS__ \
    }
const struct ha_test_method ha_test_method[] = {
    { "one lane", SUMS(1, 0, exact_joins = false), .fused = false },
    { "one lane, fma", SUMS(1, 0, exact_joins = false), .fused = true },
    { "16 lanes", SUMS(LANES, 4, exact_joins = false), .fused = false },
    { "16 lanes, fma, normalised chunks", SUMS(LANES, 4, exact_joins = false), .fused = true, .normalised = true },
    { "16 lanes, fma, weights in 16 bits", SUMS(LANES, 4, exact_joins = false), .fused = true, .rounded = true },
    { "one lane, levels", SUMS(1, 0, exact_joins = true), .fused = false },
    { "16 lanes, fma, levels", SUMS(LANES, 4, exact_joins = true), .fused = true },
    { "16 lanes, fma, sum of rounded weights", SUMS(LANES, 4, sum_rounded = true), .fused = true, .rounded = true },
    { "one lane, sum of rounded weights, LSE in 16 bits", SUMS(1, 0, sum_rounded = true), .rounded = true,
      .lse_rounded = true },
    { "one lane, sums cut", SUMS(1, 0, truncates = true), .cut = true },
    { "one lane, levels, LSE in 16 bits", SUMS(1, 0, exact_joins = true), .lse_rounded = true },
};
const size_t ha_test_methods = sizeof ha_test_method / sizeof ha_test_method[0];

struct ha_profile ha_test_method_profile(const struct ha_test_method *m, enum ha_dtype t)
{
    struct ha_profile p = m->profile;
    p.weight_type = m->rounded ? t : HA_F32;
    p.out_type = t;
    p.lse_type = m->lse_rounded ? t : HA_F32;
    return p;
}

static float multiply_add(bool fused, float a, float b, float c)
{
    const float product = a * b;
    return fused ? fmaf(a, b, c) : product + c;
}

/* x toward zero */
static float cut(double x)
{
    const float f = (float)x;
    return fabs((double)f) > fabs(x) ? nextafterf(f, 0) : f;
}

/* a b + c over keys, as this method does it */
static float over_keys(const struct ha_test_method *m, float a, float b, float c)
{
    return m->cut || m->plant.cut ? cut((double)a * (double)b + (double)c) : multiply_add(m->fused, a, b, c);
}

static float fold(const struct ha_test_method *m, float lane[LANES])
{
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++) lane[i] = over_keys(m, 1, lane[i + half], lane[i]);
    return lane[0];
}

/* What is planted makes of the weight of key j, with the score x below the largest; joins to another power of 2 are not
 * touched. */
static float planted(const struct ha_test_method *m, const struct ha_test_input *in, size_t j, float w, float x)
{
    const struct ha_test_plant *p = &m->plant;
    const double wave = (double)p->exp_wave * sin(9.06 * (double)x); /* once in ln 2 */
    const float left = p->lost - fabsf((float)j - (float)(in->keys / 2));
    if (j >= in->keys / 2 && left > 0) w *= left < 1 ? 1 - left : 0;
    return (float)((double)w * (1 + wave + (double)p->exp_off));
}

static float dot(const struct ha_test_method *m, const float *q, const float *k, size_t dim)
{
    float lane[LANES] = { 0 };
    for (size_t i = 0; i < dim; i++)
        lane[i % m->profile.dot_lanes] = multiply_add(m->fused, q[i], k[i], lane[i % m->profile.dot_lanes]);
    return fold(&(struct ha_test_method){ .fused = true }, lane);
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
        const float x = (w[j] - out->max) * (m->profile.exact_joins ? 0x1.62e43p-1f : 1);
        w[j] = m->profile.exact_joins ? exp2f(w[j] - out->max) : expf(w[j] - out->max);
        w[j] = planted(m, in, order[j], w[j], x);
        const float exact = w[j];
        if (m->rounded) w[j] = ha_round(w[j], in->dtype);
        if (m->plant.weight > 0) w[j] *= 1 + m->plant.weight * (2 * ha_rng_uniform(in->seed, 77, order[j]) - 1);
        float *to = &lane[j % m->profile.sum_lanes];
        *to = over_keys(m, 1, m->profile.sum_rounded ? w[j] : exact, *to);
    }
    out->sum = fold(m, lane);
    for (size_t i = 0; i < in->dim; i++) {
        float acc[LANES] = { 0 };
        for (size_t j = 0; j < n; j++) {
            float *a = &acc[j % m->profile.sum_lanes];
            *a = over_keys(m, w[j], in->v[order[j] * in->dim + i], *a);
        }
        out->acc[i] = fold(m, acc);
        if (m->normalised) out->acc[i] = out->acc[i] / out->sum * out->sum;
    }
}

static void join(const struct ha_test_method *m, struct chunk *all, const struct chunk *next, size_t dim)
{
    const float max = all->max > next->max ? all->max : next->max;
    const float a = m->profile.exact_joins ? exp2f(all->max - max) : expf(all->max - max),
                b = m->profile.exact_joins ? exp2f(next->max - max) : expf(next->max - max);
    all->sum = multiply_add(m->fused, all->sum, a, next->sum * b);
    for (size_t i = 0; i < dim; i++) all->acc[i] = multiply_add(m->fused, all->acc[i], a, next->acc[i] * b);
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
    const float lse = m->profile.exact_joins ? (float)((double)all->max * 0x1.62e42fefa39efp-1 + log((double)all->sum))
                                             : all->max + logf(all->sum);
    const float stored = m->lse_rounded ? ha_round(lse, in->dtype) : lse;
    return isfinite(stored) ? stored : lse;
}

/* ---- merges ----------------------------------------------------------------------------- */

#define NATURAL HA_FORM_NATURAL
#define BASE2   HA_FORM_BASE2
#define MAX_SUM HA_FORM_MAX_SUM
const struct ha_test_merge_method ha_test_merge_method[] = {
    { "natural, quotient", NATURAL, HA_TEST_QUOTIENT, false, 0 },
    { "natural, quotient, fma", NATURAL, HA_TEST_QUOTIENT, true, 0 },
    { "natural, reciprocal", NATURAL, HA_TEST_RECIPROCAL, false, 0 },
    { "natural, shares", NATURAL, HA_TEST_SHARES, false, 0 },
    { "natural, online", NATURAL, HA_TEST_ONLINE, false, 1 },
    { "base 2, quotient", BASE2, HA_TEST_QUOTIENT, true, 0 },
    { "base 2, shares", BASE2, HA_TEST_SHARES, false, 0 },
    { "base 2, online", BASE2, HA_TEST_ONLINE, true, 1 },
    { "direct", HA_FORM_DIRECT, HA_TEST_AS_THEY_ARE, false, 0 },
    { "direct, fma", HA_FORM_DIRECT, HA_TEST_AS_THEY_ARE, true, 0 },
    { "max and sum, quotient", MAX_SUM, HA_TEST_QUOTIENT, false, 0 },
    { "max and sum, shares", MAX_SUM, HA_TEST_SHARES, false, 0 },
    { "max and sum, online", MAX_SUM, HA_TEST_ONLINE, true, 1 },
};
const size_t ha_test_merge_methods = sizeof ha_test_merge_method / sizeof ha_test_merge_method[0];

static float power(enum ha_form form, float x) { return form == BASE2 ? exp2f(x) : expf(x); }
static float logarithm(enum ha_form form, float x) { return form == BASE2 ? log2f(x) : logf(x); }

static float off(float x, float ulps) { return x * (1 + ulps * 0x1p-23f); }

static void merge_online(const struct ha_test_merge_method *way, const struct ha_test_stored *s, size_t count,
                         size_t dim, struct ha_test_stored *all)
{
    for (size_t k = 0; k < count; k++) {
        if (s[k].lse == -INFINITY) continue;
        const float max = s[k].lse > all->lse ? s[k].lse : all->lse;
        const float scale = power(way->form, all->lse - max), e = power(way->form, s[k].lse - max);
        const float w = way->form == MAX_SUM ? s[k].sum * e : e;
        all->sum = multiply_add(way->fused, all->sum, scale, w);
        for (size_t i = 0; i < dim; i++) all->o[i] = multiply_add(way->fused, all->o[i], scale, w * s[k].o[i]);
        all->lse = max;
    }
    for (size_t i = 0; i < dim; i++) all->o[i] /= all->sum;
}

static void merge_flat(const struct ha_test_merge_method *way, const struct ha_test_stored *s, size_t count, size_t dim,
                       const struct ha_test_flaw *flaw, struct ha_test_stored *all)
{
    static _Thread_local float w[HA_TEST_MERGE_STATES];
    for (size_t k = 0; k < count; k++) all->lse = s[k].lse > all->lse ? s[k].lse : all->lse;
    for (size_t k = 0; k < count; k++) {
        w[k] = s[k].lse == -INFINITY ? 0 : power(way->form, s[k].lse - all->lse);
        if (way->form == MAX_SUM && w[k] > 0) w[k] *= s[k].sum;
        w[k] = off(w[k], k % 2 ? -flaw->weight : flaw->weight);
        all->sum += w[k];
    }
    all->sum = off(all->sum, flaw->sum);
    const float lse = all->lse + logarithm(way->form, all->sum);
    for (size_t k = 0; k < count; k++) {
        if (s[k].lse == -INFINITY) continue;
        if (way->way == HA_TEST_SHARES) w[k] /= all->sum;
        if (way->way == HA_TEST_AS_THEY_ARE)
            w[k] = off(power(way->form, s[k].lse - lse), k % 2 ? -flaw->weight : flaw->weight);
        for (size_t i = 0; i < dim; i++) all->o[i] = multiply_add(way->fused, w[k], s[k].o[i], all->o[i]);
    }
    for (size_t i = 0; i < dim; i++) {
        if (way->way == HA_TEST_QUOTIENT) all->o[i] /= all->sum;
        if (way->way == HA_TEST_RECIPROCAL) all->o[i] *= 1 / all->sum;
    }
}

void ha_test_fp32_merge(const struct ha_test_merge_method *way, const struct ha_test_stored *states, size_t count,
                        size_t dim, enum ha_dtype dtype, const struct ha_test_flaw *flaw, struct ha_test_stored *out)
{
    struct ha_test_stored all = { .lse = -INFINITY };
    size_t used = 0, last = 0;
    for (size_t k = 0; k < count; k++)
        if (states[k].lse != -INFINITY) used++, last = k;
    if (used == 1) all = states[last];
    if (used > 1) {
        if (way->way == HA_TEST_ONLINE) merge_online(way, states, count, dim, &all);
        else merge_flat(way, states, count, dim, flaw ? flaw : &(struct ha_test_flaw){ 0, 0 }, &all);
        if (way->form != MAX_SUM) all.lse += logarithm(way->form, all.sum);
        for (size_t i = 0; i < dim; i++) all.o[i] = ha_round(all.o[i], dtype);
    }
    *out = all;
}

/* glibc's expf and exp2f are within 0.51 ulp, logf and log2f within 0.82; an ulp is at most 2u */
struct ha_merge_bound ha_test_merge_bound(const struct ha_test_merge_method *way, enum ha_dtype dtype)
{
    const struct ha_merge_traits traits = { .exp_eps = 1.02 * 0x1p-24,
                                            .log_eps = 1.64 * 0x1p-24,
                                            .rescales = way->rescales };
    return ha_bound_merge(&traits, way->form, dtype);
}

struct ha_ref_state ha_test_merge_state(const struct ha_test_stored *s, enum ha_form form, size_t dim, double *o,
                                        double *bound)
{
    for (size_t i = 0; i < dim; i++) {
        o[i] = (double)s->o[i];
        bound[i] = 0;
    }
    struct ha_ref_state out = {
        .o = o, .bound = bound, .lse = (double)s->lse, .dim = dim, .keys = s->lse == -INFINITY ? 0u : 1u
    };
    if (form == BASE2) out.lse *= log(2);
    out.max = out.lse;
    out.sum = form == MAX_SUM ? (double)s->sum : 1;
    if (form == MAX_SUM && out.keys) out.lse += log(out.sum);
    return out;
}

static double ratio(double error, double bound)
{
    return error == 0 || bound == HUGE_VAL ? 0 : error / bound >= 0 ? error / bound : HUGE_VAL;
}

struct ha_test_ratio ha_test_merge_ratio(const struct ha_test_stored *got, enum ha_form form,
                                         const struct ha_ref_state *want)
{
    struct ha_test_ratio r = { 0, 0 };
    for (size_t i = 0; i < want->dim; i++) r.o = fmax(r.o, ratio(fabs((double)got->o[i] - want->o[i]), want->bound[i]));
    if (want->lse == -HUGE_VAL) r.lse = got->lse == -INFINITY ? 0 : HUGE_VAL;
    else if (form == MAX_SUM)
        r.lse = ratio(fabs((double)got->lse - want->max + log((double)got->sum / want->sum)), want->lse_bound);
    else r.lse = ratio(fabs((double)got->lse * (form == BASE2 ? log(2) : 1) - want->lse), want->lse_bound);
    return r;
}
