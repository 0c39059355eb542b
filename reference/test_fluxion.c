/* The net of Fluxion, up to what binary32 makes of it. What its definition refuses is in
 * suites/variants/test_spoiled.c. */

#include "reference/definitions.h"
#include "reference/properties.h"

#include "harness/base/rng.h"
#include "harness/base/test.h"

#include <math.h>

extern const struct ha_definition ha_definition_fluxion;

enum { F = HA_FEATURES, UNITS = 312, SEED = 13 };

/* What binary32 makes of it, its sums forwards, backwards and by halves, is within the bounds; these are narrow, and a
 * weight that is another is seen. */
static float sum_of(const float *x, size_t n, size_t stride, int order)
{
    float sum = 0;
    if (order == 2 && n > 1)
        return sum_of(x, n / 2, stride, order) + sum_of(x + n / 2 * stride, n - n / 2, stride, order);
    for (size_t i = 0; i < n; i++) sum += x[(order == 1 ? n - 1 - i : i) * stride];
    return sum;
}

static void forward(const float *const *weight, const float *const *bias, const float x[F], int order, float y[3])
{
    static const size_t width[] = { F, UNITS, UNITS, 3 };
    float in[UNITS], out[UNITS], term[UNITS + 1];
    memcpy(in, x, F * sizeof *in);
    for (size_t l = 0; l < 3; l++) {
        for (size_t j = 0; j < width[l + 1]; j++) {
            for (size_t i = 0; i < width[l]; i++)
                term[i] = (l && in[i] < 0 ? 0 : in[i]) * weight[l][i * width[l + 1] + j];
            term[width[l]] = bias[l][j];
            out[j] = sum_of(term, width[l] + 1, 1, order);
        }
        memcpy(in, out, sizeof in);
    }
    memcpy(y, in, 3 * sizeof *y);
}

TEST(test_net)
{
    static float w0[F * UNITS + UNITS + UNITS * UNITS + UNITS + UNITS * 3 + 3];
    const float *const b0 = w0 + F * UNITS, *const w1 = b0 + UNITS, *const b1 = w1 + UNITS * UNITS,
                       *const w2 = b1 + UNITS, *const b2 = w2 + UNITS * 3;
    const float *const weight[] = { w0, w1, w2 }, *const bias[] = { b0, b1, b2 };
    const struct ha_net of = { .layers = 3, .width = { F, UNITS, UNITS, 3 }, .w = w0 };
    const double narrow[] = { 5e-4, 5e-4, 5e-4 };
    ha_rng_normals(SEED, 19, 0, COUNT(w0), w0);
    for (size_t i = 0; i < COUNT(w0); i++) w0[i] *= 0.05f;
    for (size_t n = 0; n < (HA_SANITIZED ? 3 : 30); n++) {
        float x[F], y[3];
        double in[F], in_off[F], out[3], off[3];
        bool outside = false;
        ha_rng_normals(SEED, 20, n * F, F, x);
        for (size_t i = 0; i < F; i++) {
            in[i] = (double)x[i];
            in_off[i] = n % 3 ? 0 : 1e-5;
            if (n % 3 == 0) x[i] = (float)(in[i] + (i % 2 ? 0.99 : -0.99) * in_off[i]);
        }
        ha_ref_net(&of, in, in_off, out, off);
        for (int order = 0; order < 3; order++) {
            forward(weight, bias, x, order, y);
            for (size_t j = 0; j < 3; j++)
                if (!(fabs((double)y[j] - out[j]) <= off[j]))
                    fail_msg("output %zu: %.9g, not %.9g within %.2g", j, (double)y[j], out[j], off[j]);
        }
        for (size_t j = 0; j < 3; j++)
            if (!(off[j] < narrow[j])) fail_msg("output %zu: %.9g within %.2g", j, out[j], off[j]);
        x[n % F] += 0.25f;
        forward(weight, bias, x, 0, y);
        for (size_t j = 0; j < 3; j++) outside |= !(fabs((double)y[j] - out[j]) <= off[j]);
        if (!outside) fail_msg("input %zu is another, and is not seen", n % F);
    }
}

/* By hand: a unit whose sum is 0 before relu and may be off by 1 either way may be off by 2 behind a weight of 2, one
 * that is far from 0 by as much through relu, or not at all; and a sum in which 2^24 comes first loses all ones but the
 * last. */
TEST(test_net_by_hand)
{
    static const struct {
        float bias;
        double value, off;
    } unit[] = { { 0, 0, 2 }, { 8, 16, 2 }, { -8, 0, 0 } };
    const double one = 1, slack = 4e-3;
    double y, off;
    for (size_t i = 0; i < COUNT(unit); i++) {
        const float weights[] = { 1, unit[i].bias, 2, 0 };
        ha_ref_net(&(struct ha_net){ .layers = 2, .width = { 1, 1, 1 }, .w = weights }, (const double[]){ 0 }, &one, &y,
                   &off);
        if (!(y == unit[i].value && off >= unit[i].off && off <= unit[i].off + slack))
            fail_msg("unit %zu: %g within %g", i, y, off);
    }
    /* a unit of x + 8, and one of 3 x, each doubled: off by 2 and, if it is on, by 6 more */
    const float two[] = { 0, 1, 3, 8, 0, 2, 2, 0 };
    ha_ref_net(&(struct ha_net){ .layers = 2, .width = { 1, 2, 1 }, .w = two + 1 }, (const double[]){ 0 }, &one, &y,
               &off);
    if (!(y == 16 && off >= 8 && off <= 8 + 3 * slack)) fail_msg("two units: %g within %g", y, off);
    float weights[65] = { 0 }, sum = 0;
    double x[64];
    for (size_t i = 0; i < 64; i++) {
        weights[i] = 1;
        x[i] = i == 0 ? 0x1p24 : i == 63 ? -0x1p24 : 1;
        sum += (float)x[i];
    }
    ha_ref_net(&(struct ha_net){ .layers = 1, .width = { 64, 1 }, .w = weights }, x, NULL, &y, &off);
    assert_true(sum == 0 && y == 62);
    if (!(off >= 62 && off < 200)) fail_msg("%g within %g", y, off);
}

TEST(test_not_there)
{
    static const double param[16] = { 5, 20, 0, HA_DEF_BY_NET, 0.05, 0, 0.1, 0, 1 };
    const struct ha_shape shape = { .layers = 1, .batch = 1, .q_heads = 2, .kv_heads = 1, .head_dim = 8 };
    struct ha_def *def = NULL;
    struct ha_why why = { "" };
    assert_int_equal(ha_definition_fluxion.create(&def, &shape, param, NULL, &why), HA_WAIVED);
    assert_non_null(strstr(why.text, "needs a fit"));
    if (def) ha_definition_fluxion.destroy(def);
    const struct ha_def_predictor net = { .shape = shape, .predict = HA_DEF_BY_NET };
    const struct ha_def_head unobserved = { .queries = 0 };
    struct ha_def_place place = { .prefill = 3 };
    assert_int_equal(ha_def_predictor_prefill(&net, &place, &unobserved, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "observed=1"));
}
