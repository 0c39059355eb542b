#include "reference/test_designs.h"

#include <limits.h>

#define U 0x1p-24
enum { ALL = 1 << 20, WARPS_MOST = 8, KEYS_MOST = 4096 };

/* glibc's expf and logf are within 1 ulp; an ulp is at most 2 u. A pairwise sum of 4,096 terms has 12 additions on each
 * path, a compensated one costs two roundings, and one in binary64 the last. */
#define WHOLE .join_keys = UINT_MAX
#define EXP   2.02 * U
const struct ha_test_design ha_test_design[] = {
    { "online, a key at a time", { 1, 0, 1, 0, EXP, EXP, .join_keys = 1 }, .tile = 1 },
    { "online, 16 keys at a time", { 1, 0, 1, 0, EXP, EXP, .join_keys = 16 }, .tile = 16 },
    { "online, 64 keys, weights in 16 bits", { 1, 0, 1, 0, EXP, EXP, .join_keys = 64 }, .tile = 64, .rounded = true },
    { "8 warps, joined", { 1, 0, 1, 0, EXP, EXP, .join_keys = 1 }, .tile = 1, .warps = WARPS_MOST },
    { "log2 e folded", { 1, 0, 1, 0, EXP, 5 * U, WHOLE }, .base2 = true },
    { "log2 e folded, online", { 1, 0, 1, 0, EXP, 5 * U, .join_keys = 32 }, .tile = 32, .base2 = true },
    { "scaled query", { 1, 1, 1, 0, EXP, EXP, WHOLE }, .in_query = true },
    { "pairwise sums", { ALL, 12, ALL, 12, EXP, EXP, WHOLE }, HA_TEST_PAIRWISE, HA_TEST_PAIRWISE, .tile = 0 },
    { "compensated sums", { ALL, 4, ALL, 4, EXP, EXP, WHOLE }, HA_TEST_COMPENSATED, HA_TEST_COMPENSATED, .tile = 0 },
    { "sums in binary64", { ALL, 1, ALL, 1, EXP, EXP, WHOLE }, HA_TEST_BINARY64, HA_TEST_BINARY64, .tile = 0 },
    { "sums cut, 16 keys at a time",
      { 1, 0, 1, 0, EXP, EXP, .join_keys = 16, .truncates = true },
      HA_TEST_CUT,
      HA_TEST_CUT,
      .tile = 16 },
    { "shares of the sum", { 1, 0, 1, 1, EXP, EXP, WHOLE }, .shares = true },
    { "shares of the sum in 16 bits", { 1, 0, 1, 1, EXP, EXP, WHOLE }, .shares = true, .rounded = true },
    { "operands of 11 bits, 64 keys at a time",
      { 1, 0, 1, 0, EXP, EXP, .join_keys = 64, .operand_eps = 0x1p-11 },
      .tile = 64,
      .tf32 = true },
    { "scores in f16", { 1, 0, 1, 0, EXP, EXP, WHOLE, .logit_type = HA_F16 }, .half = true },
    { "scores in f16 of operands of 11 bits, online",
      { 1, 0, 1, 0, EXP, EXP, .join_keys = 32, .operand_eps = 0x1p-11, .logit_type = HA_F16 },
      .tile = 32,
      .tf32 = true,
      .half = true },
    { "a cubic 2^x", { 1, 0, 1, 0, 0x1p-10, 5 * U, WHOLE }, .base2 = true, .cubic = true },
    { "fast exp and log", { 1, 0, 1, 0, 0x1p-17, 0x1p-12, WHOLE }, .fast = true },
};
const size_t ha_test_designs = COUNT(ha_test_design);

struct ha_profile ha_test_design_profile(const struct ha_test_design *d, enum ha_dtype t)
{
    struct ha_profile p = d->profile;
    p.weight_type = d->rounded ? t : HA_F32;
    return p;
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static float toward_zero(double x)
{
    const float f = (float)x;
    return fabs((double)f) > fabs(x) ? nextafterf(f, 0) : f;
}

static float pairwise(const float *x, size_t n)
{
    return n == 1 ? *x : pairwise(x, n / 2) + pairwise(x + n / 2, n - n / 2);
}

static float add_up(enum ha_test_adding how, const float *x, size_t n)
{
    float sum = 0, lost = 0;
    double exact = 0;
    switch (how) {
    case HA_TEST_IN_TURN:
        for (size_t i = 0; i < n; i++) sum += x[i];
        return sum;
    case HA_TEST_PAIRWISE: return pairwise(x, n);
    case HA_TEST_COMPENSATED:
        for (size_t i = 0; i < n; i++) {
            const float y = x[i] - lost, t = sum + y;
            lost = (t - sum) - y;
            sum = t;
        }
        return sum;
    case HA_TEST_CUT:
        for (size_t i = 0; i < n; i++) sum = toward_zero((double)sum + (double)x[i]);
        return sum;
    case HA_TEST_BINARY64:
        for (size_t i = 0; i < n; i++) exact += (double)x[i];
        return (float)exact;
    }
    return NAN;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

struct partial {
    float max, sum, acc[HA_TEST_DIM_MAX];
};

/* of TF32, rounded to nearest; ties away from 0 */
static float operand(const struct ha_test_design *d, float x)
{
    int e;
    if (!d->tf32 || !isfinite(x)) return x;
    const double m = frexp((double)x, &e);
    return (float)ldexp(round(ldexp(m, 11)), e - 11);
}

/* 2^x = 2^n p(f), |f| <= 1/2: within 2^-10 */
static float cubic(float x)
{
    const float n = rintf(x), f = x - n;
    return ldexpf(1 + f * (0.6931472f + f * (0.2402265f + f * 0.0555041f)), (int)fmaxf(n, -200));
}

static float power(const struct ha_test_design *d, float x)
{
    if (d->cubic) return cubic(x);
    const float w = d->base2 ? exp2f(x) : expf(x);
    return d->fast ? (float)((double)w * (1 + 0.9 * 0x1p-17 * sin(9.06 * (double)x))) : w;
}

static float score(const struct ha_test_design *d, const struct ha_test_input *in, const float *q, size_t j)
{
    float t[HA_TEST_DIM_MAX];
    const float scale = d->base2 ? (float)((double)in->scale * 0x1.71547652b82fep+0) : in->scale;
    for (size_t i = 0; i < in->dim; i++)
        t[i] = operand(d, d->in_query ? q[i] * scale : q[i]) * operand(d, in->k[j * in->dim + i]);
    const float s = add_up(d->dot, t, in->dim);
    const float all = d->in_query ? s : s * scale;
    return d->half ? ha_round(all, HA_F16) : all;
}

/* the keys first, first + step, ... of a tile, after what came before */
static void add_tile(const struct ha_test_design *d, const struct ha_test_input *in, const float *s, size_t first,
                     size_t step, size_t n, struct partial *p)
{
    static float w[KEYS_MOST], t[KEYS_MOST];
    float max = p->max;
    for (size_t j = 0; j < n; j++) max = fmaxf(max, s[first + j * step]);
    const float before = p->max == -INFINITY ? 0 : power(d, p->max - max);
    for (size_t j = 0; j < n; j++) w[j] = power(d, s[first + j * step] - max);
    p->sum = p->sum * before + add_up(d->sum, w, n);
    p->max = max;
    for (size_t j = 0; j < n; j++) {
        if (d->shares) w[j] /= p->sum;
        if (d->rounded) w[j] = ha_round(w[j], in->dtype);
    }
    for (size_t i = 0; i < in->dim; i++) {
        for (size_t j = 0; j < n; j++) t[j] = operand(d, w[j]) * operand(d, in->v[(first + j * step) * in->dim + i]);
        p->acc[i] = p->acc[i] * before + add_up(d->sum, t, n);
    }
}

static void join(const struct ha_test_design *d, struct partial *a, const struct partial *b, size_t dim)
{
    if (b->max == -INFINITY) return;
    const float max = fmaxf(a->max, b->max), x = power(d, a->max - max), y = power(d, b->max - max);
    a->sum = a->sum * x + b->sum * y;
    for (size_t i = 0; i < dim; i++) a->acc[i] = a->acc[i] * x + b->acc[i] * y;
    a->max = max;
}

float ha_test_design_attend(const struct ha_test_design *d, const struct ha_test_input *in, const float *q, size_t keys,
                            float *o)
{
    static float s[KEYS_MOST];
    static struct partial part[WARPS_MOST];
    const size_t warps = d->warps ? d->warps : 1;
    for (size_t j = 0; j < keys; j++) s[j] = score(d, in, q, j);
    for (size_t w = 0; w < warps; w++) {
        const size_t n = keys > w ? (keys - w + warps - 1) / warps : 0, tile = d->tile ? d->tile : n;
        memset(&part[w], 0, sizeof part[w]);
        part[w].max = -INFINITY;
        for (size_t j = 0; j < n; j += tile)
            add_tile(d, in, s, w + j * warps, warps, n - j < tile ? n - j : tile, &part[w]);
        if (w) join(d, &part[0], &part[w], in->dim);
    }
    const struct partial *all = &part[0];
    for (size_t i = 0; i < in->dim; i++) o[i] = d->shares ? all->acc[i] : all->acc[i] / all->sum;
    if (d->base2) return (all->max + log2f(all->sum)) * 0x1.62e43p-1f;
    const float log_sum = logf(all->sum);
    return all->max + (d->fast ? log_sum * (1 + 0.9f * 0x1p-12f) : log_sum);
}
