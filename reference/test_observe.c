/* Weights in binary32 are within the tolerance of ha_ref_observe, and the tolerance is not far too wide. */

#include "reference/definitions.h"
#include "reference/test_inputs.h"

enum { KEYS_MAX = 3000, QUERIES = 11 };

/* The mean over the queries, everything rounded to binary32, sums in order. Returns how many queries see a key. */
static size_t weigh(const struct ha_test_input *in, const struct ha_def_head *h, const uint32_t *token, size_t keys,
                    float *mean)
{
    static float w[KEYS_MAX];
    size_t sighted = 0;
    for (size_t j = 0; j < keys; j++) mean[j] = 0;
    for (size_t c = 0; c < h->queries; c++) {
        float max = -INFINITY, sum = 0;
        size_t visible = 0;
        for (; visible < keys && token[visible] <= h->tokens - h->queries + c; visible++) {
            float s = 0;
            for (size_t i = 0; i < in->dim; i++) s += h->q[c * in->dim + i] * in->k[token[visible] * in->dim + i];
            w[visible] = s * in->scale;
            max = w[visible] > max ? w[visible] : max;
        }
        for (size_t j = 0; j < visible; j++) sum += w[j] = expf(w[j] - max);
        for (size_t j = 0; j < visible; j++) mean[j] += w[j] / sum;
        sighted += visible > 0;
    }
    for (size_t j = 0; j < keys; j++) mean[j] /= (float)h->queries;
    return sighted;
}

static const struct ha_profile one_lane = { .dot_lanes = 1, .sum_lanes = 1, .exp_eps = 2.02 * 0x1p-24 };

/* Which keys: all tokens; the last few, which some queries do not see; every second, by a list. */
enum keys { ALL, LAST, LISTED, WAYS };

static void check(const struct ha_test_input *in, enum keys way)
{
    static float got[KEYS_MAX];
    static struct ha_ref_weight want[KEYS_MAX];
    static uint32_t token[KEYS_MAX];
    static float q[QUERIES * 128];
    const struct ha_shape shape = {
        .q_heads = 1, .kv_heads = 1, .head_dim = in->dim, .dtype = in->dtype, .scale = in->scale
    };
    const struct ha_def_head h = { .tokens = in->keys,
                                   .k = in->k_stored,
                                   .q = q,
                                   .queries = in->keys < QUERIES ? in->keys : QUERIES,
                                   .observer = &one_lane };
    const size_t first = way == LAST && in->keys > 5 ? in->keys - 5 : 0,
                 keys = way == LISTED ? (in->keys + 1) / 2 : in->keys - first;
    struct ha_why why;
    for (size_t j = 0; j < keys; j++) token[j] = (uint32_t)(way == LISTED ? 2 * j : first + j);
    for (size_t x = 0; x < h.queries * in->dim; x++) q[x] = in->q[x % in->dim] * (x / in->dim % 2 ? 1 : -0.5f);
    assert_int_equal(ha_ref_observe(&shape, &h, way == LISTED ? token : NULL, first, keys, want, &why), HA_OK);
    const size_t sighted = weigh(in, &h, token, keys, got);
    double sum = 0;
    for (size_t j = 0; j < keys; j++) {
        sum += want[j].value;
        if (!(fabs((double)got[j] - want[j].value) <= want[j].tol))
            fail_msg("%s, keys %d: weight %zu is %g, computed %g, tolerance %g", ha_test_input_says(in), (int)way, j,
                     want[j].value, (double)got[j], want[j].tol);
        if (!strcmp(in->family, "iid")) assert_true(want[j].tol <= 1e-3 * want[j].value);
    }
    /* a query that sees nothing adds 0 */
    assert_true(fabs(sum - (double)sighted / (double)h.queries) < 1e-12);
}

TEST(test_tolerance)
{
    static const struct {
        size_t keys, dim;
    } shape[] = { { 1, 8 }, { 30, 128 }, { 500, 64 }, { 2000, 16 } };
    for (size_t f = 0; f < ha_test_families; f++)
        for (size_t s = 0; s < (test_small ? 2 : 4); s++)
            for (enum ha_dtype type = 0; (int)type < HA_DTYPE_COUNT; type++) {
                const struct ha_test_input in = ha_test_input(f, shape[s].keys, shape[s].dim, type, 3 * f + s);
                for (enum keys way = 0; way < WAYS; way++) check(&in, way);
                ha_test_release();
            }
}

/* How far off a weight may be comes from who computes it: a worse exp, or rounding to 16 bits, is allowed for, and no
 * more than that. */
TEST(test_of_whom)
{
    const struct ha_shape shape = { .q_heads = 1, .kv_heads = 1, .head_dim = 64, .dtype = HA_F32, .scale = 0.125f };
    const struct ha_test_input in = ha_test_input(0, 100, 64, HA_F32, 1);
    struct ha_profile rough = one_lane, rounded = one_lane;
    rough.exp_eps = 0x1p-16;
    rounded.weight_type = HA_BF16;
    rounded.sum_rounded = true;
    const struct ha_profile *const who[] = { &one_lane, &rough, &rounded };
    static struct ha_ref_weight weight[3][100];
    struct ha_why why;
    for (size_t i = 0; i < 3; i++) {
        const struct ha_def_head h = { .tokens = 100, .k = in.k_stored, .q = in.q, .queries = 1, .observer = who[i] };
        assert_int_equal(ha_ref_observe(&shape, &h, NULL, 0, 100, weight[i], &why), HA_OK);
    }
    for (size_t j = 0; j < 100; j++) {
        const double w = weight[0][j].value;
        assert_true(weight[1][j].tol > weight[0][j].tol + 0x1p-17 * w
                    && weight[1][j].tol < weight[0][j].tol + 0x1p-12 * w);
        assert_true(weight[2][j].tol > weight[0][j].tol + 0x1p-9 * w
                    && weight[2][j].tol < weight[0][j].tol + 0x1p-6 * w);
    }
    ha_test_release();
}

TEST(test_nothing)
{
    struct ha_ref_weight weight = { 9, 9 };
    const float number = 1;
    const struct ha_shape shape = { .q_heads = 1, .kv_heads = 1, .head_dim = 1, .scale = 1 };
    const struct ha_def_head h = { .tokens = 1, .k = &number, .q = &number, .queries = 0 };
    struct ha_why why;
    assert_int_equal(ha_ref_observe(&shape, &h, NULL, 0, 1, &weight, &why), HA_OK);
    assert_true(weight.value == 0 && weight.tol == 0);
}
