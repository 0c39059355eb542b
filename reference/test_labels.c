/* The least budgets by hand, for a few keys. */

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "reference/labels.h"

#include <math.h>

enum { TOKENS = 700, DIM = 16 };

static struct {
    struct ha_shape shape;
    struct ha_def_labelled of;
    float q[DIM], k[TOKENS * DIM], v[TOKENS * DIM]; /* exact in the type */
    char k_stored[TOKENS * DIM * 4], v_stored[TOKENS * DIM * 4];
} w;

static struct ha_why why;
static const struct ha_profile exact_sums = { .dot_lanes = 1, .sum_lanes = 1, .exp_eps = 0x1p-22, .log_eps = 0x1p-22 };

static void store(void)
{
    const size_t n = w.of.tokens * w.shape.head_dim;
    ha_store_row(w.k_stored, n, w.shape.dtype, w.k);
    ha_store_row(w.v_stored, n, w.shape.dtype, w.v);
    ha_load_row(w.k_stored, n, w.shape.dtype, w.k);
    ha_load_row(w.v_stored, n, w.shape.dtype, w.v);
}

static void world(size_t tokens, size_t first, size_t host, size_t dim, enum ha_dtype type)
{
    memset(&w, 0, sizeof w);
    w.shape = (struct ha_shape){ .q_heads = 1, .kv_heads = 1, .head_dim = dim, .dtype = type, .scale = 1 };
    w.of = (struct ha_def_labelled){ .shape = &w.shape,
                                     .q = w.q,
                                     .k = w.k_stored,
                                     .v = w.v_stored,
                                     .tokens = tokens,
                                     .first = first,
                                     .host = host,
                                     .tau = 0.1,
                                     .most = { 1, 1, 1 },
                                     .profile = &exact_sums };
}

static struct ha_def_labels labels(void)
{
    struct ha_def_labels out;
    assert_int_equal(ha_def_label(&w.of, &out, &why), HA_OK);
    return out;
}

static void is(const struct ha_def_labels *got, double one, double b16, double b32, double b64, double b128)
{
    const double want[HA_DEF_SIZES] = { one, b16, b32, b64, b128 };
    for (size_t i = 0; i < HA_DEF_SIZES; i++)
        if (got->budget[i] != want[i])
            fail_msg("budget(%zu) is %.9g, not %.9g", ha_def_size(i), got->budget[i], want[i]);
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

/* One key on the device, of weight 1 and value 0, and 128 on the host, most of which weigh nothing. */
static void few_keys(void)
{
    world(129, 0, 128, 1, HA_F32);
    w.q[0] = 1;
    for (size_t i = 0; i < 128; i++) w.k[i] = -200;
}
static void weighs(size_t key, double weight, float value)
{
    w.k[key] = (float)log(weight);
    w.v[key] = value;
}

TEST(by_hand)
{
    few_keys();
    weighs(5, 3, 1);
    store();
    /* o = 3/4; without key 5 it is 0 */
    struct ha_def_labels got = labels();
    is(&got, 1. / 128, 1. / 8, 1. / 4, 1. / 2, 1);
    assert_false(got.s);
    assert_true(fabs(got.k - 1482. / (126 * 128)) < 1e-15);
    /* of 128ths, 1, 16, 32, 64 and 128: squares of 247/21 x less 15, 31, 63 and 127 are 3852.9, about the mean 48.2
     * 10144.8 */
    assert_true(fabs(got.r2 - 0.6202136) < 1e-6);
    w.of.most.value = 8; /* 3/4 < 0.8 */
    got = labels();
    is(&got, 0, 0, 0, 0, 0);
    assert_true(got.s && !(fabs(got.k) > 0) && isnan(got.r2));
    w.of.criterion = HA_DEF_OUTPUT; /* of 3/4 itself */
    w.of.tau = 0.99;
    got = labels();
    is(&got, 1. / 128, 1. / 8, 1. / 4, 1. / 2, 1);
    w.of.tau = 1.01;
    got = labels();
    assert_true(got.s);
    w.of.criterion = HA_DEF_SCORE; /* the device has 1/4 of the mass, and less than 1/20 is too little to be missed */
    got = labels();
    is(&got, 1. / 128, 1. / 8, 1. / 4, 1. / 2, 1);
    weighs(5, 0.05, 1);
    store();
    got = labels();
    assert_true(got.s);
    weighs(5, 0.06, 1);
    store();
    got = labels();
    assert_false(got.s);
}

TEST(two_keys_by_hand)
{
    few_keys();
    weighs(5, 3, 1);
    weighs(70, 1, -1);
    store();
    /* o = 2/5, of the device 0, with key 5 3/4 */
    w.of.most.value = 0.4;
    struct ha_def_labels got = labels();
    is(&got, 2. / 128, 2. / 8, 2. / 4, 1, 1);
    w.of.most.value = 3.6; /* 7/20 is enough, 2/5 is not */
    got = labels();
    is(&got, 1. / 128, 1. / 8, 1. / 4, 1. / 2, 1);
    /* the least that is enough, though what comes next is not */
    weighs(5, 1, 1);
    weighs(70, 1, -1);
    store();
    w.of.most.value = 1;
    got = labels();
    assert_true(got.s);
    /* of equal scores the first: 2/3 of both, 1 of key 5, 0 of key 70 */
    weighs(5, 1, 2);
    weighs(70, 1, 0);
    store();
    w.of.most.value = 4;
    got = labels();
    is(&got, 1. / 128, 1. / 8, 1. / 4, 1. / 2, 1);
    weighs(5, 1, 0);
    weighs(70, 1, 2);
    store();
    got = labels();
    is(&got, 2. / 128, 2. / 8, 2. / 4, 1, 1);
}

TEST(nothing_on_a_side)
{
    few_keys();
    w.of.tokens = 1;
    w.of.host = 0;
    store();
    struct ha_def_labels got = labels();
    is(&got, 0, 0, 0, 0, 0);
    assert_true(got.s);
    uint8_t met[2] = { 9, 9 };
    assert_int_equal(ha_def_label_met(&w.of, 4, met, &why), HA_OK);
    assert_true(met[0] == HA_DEF_IN && met[1] == 9);
    /* no key on the device: attention over none is 0 */
    few_keys();
    weighs(5, 3, 1);
    store();
    w.of.tokens = 128;
    got = labels();
    is(&got, 1. / 128, 1. / 8, 1. / 4, 1. / 2, 1);
    w.of.most.value = 11;
    got = labels();
    assert_true(got.s);
    uint8_t all[129];
    assert_int_equal(ha_def_label_met(&w.of, 0, all, &why), HA_OK);
    assert_int_equal(ha_def_label_met(&w.of, 0, all, &why), HA_OK);
    w.of.most = (struct ha_ref_score){ 11, 11, 11 };
    assert_int_equal(ha_def_label_met(&w.of, 0, all, &why), HA_OK);
    assert_int_equal(all[0], HA_DEF_IN);
    w.of.criterion = HA_DEF_SCORE;
    got = labels();
    assert_false(got.s);
    assert_int_equal(ha_def_label_met(&w.of, 0, all, &why), HA_OK);
    assert_int_equal(all[0], HA_DEF_OUT);
    assert_int_equal(all[1], HA_DEF_IN);
}

/* Weights that binary64 does not hold beside the largest one. */
TEST(far_below)
{
    few_keys();
    weighs(128, 1, 3);
    w.k[5] = 2000;
    w.v[5] = 1;
    store();
    const struct ha_def_labels got = labels();
    is(&got, 1. / 128, 1. / 8, 1. / 4, 1. / 2, 1);
    w.of.most.value = 30;
    assert_true(labels().s);
}

/* ---- what is left open ------------------------------------------------------------------------------------------- */

/* Two blocks of equal keys and other values: either may be taken first, and only where that matters is it left open. */
TEST(a_tie_is_open)
{
    uint8_t met[129];
    few_keys();
    weighs(5, 1, 2);
    weighs(70, 1, 0);
    store();
    w.of.most = (struct ha_ref_score){ 4, 4, 4 };
    assert_int_equal(ha_def_label_met(&w.of, 0, met, &why), HA_OK);
    assert_int_equal(met[0], HA_DEF_OUT);
    assert_int_equal(met[1], HA_DEF_MAYBE);
    assert_int_equal(met[2], HA_DEF_IN);
    assert_true(ha_def_label_may(met, 128, 1) && ha_def_label_may(met, 128, 2) && !ha_def_label_may(met, 128, 3));
    assert_true(!ha_def_label_may(met, 128, 0) && !ha_def_label_may(met, 128, 129));
    assert_int_equal(ha_def_label_least(met, 128), 1);
    assert_int_equal(ha_def_label_most(met, 128), 2);
    weighs(70, 1.01, 0); /* no tie any more: key 70 comes first, and is not enough */
    store();
    assert_int_equal(ha_def_label_met(&w.of, 0, met, &why), HA_OK);
    assert_int_equal(met[1], HA_DEF_OUT);
    /* which of the many keys that weigh nothing comes first says nothing */
    for (size_t m = 2; m < 129; m++) assert_int_equal(met[m], HA_DEF_IN);
}

static double random_number(uint64_t seed, uint64_t stream, size_t i) { return (double)ha_rng_normal(seed, stream, i); }

/* Some keys weigh much, of every fourth world those on the device; and values have a mean, so that o is not small. */
static void random_world(size_t tokens, size_t first, size_t host, enum ha_dtype type, uint64_t seed)
{
    const double sharp = 0.5 + 3 * (double)ha_rng_uniform(seed, 9, 0);
    world(tokens, first, host, DIM, type);
    w.shape.scale = 0.25f;
    for (size_t d = 0; d < DIM; d++) w.q[d] = (float)(sharp * random_number(seed, 0, d));
    for (size_t i = 0; i < tokens * DIM; i++) {
        const bool device = i / DIM < first || i / DIM >= first + host;
        w.k[i] = (float)random_number(seed, 1, i) + (device && seed % 4 == 0 ? w.q[i % DIM] : 0);
        w.v[i] = (float)(random_number(seed, 2, i) + (i % DIM < 4));
    }
    w.of.most = (struct ha_ref_score){ 1.5, 1.5, 1.5 };
    store();
}

/* Another number of blocks than the least is refused, but where it is open. */
TEST(others_are_refused)
{
    static uint8_t met[TOKENS];
    size_t refused = 0, tried = 0;
    for (size_t seed = 0; seed < 30; seed++) {
        random_world(300, 11, 256, HA_F16, seed);
        w.of.criterion = (enum ha_def_criterion)(seed % 3);
        const struct ha_def_labels got = labels();
        for (size_t i = 0; i < HA_DEF_SIZES; i++) {
            const size_t blocks = 256 / ha_def_size(i), m = (size_t)(got.budget[i] * (double)blocks + 0.5);
            assert_int_equal(ha_def_label_met(&w.of, i, met, &why), HA_OK);
            refused += !ha_def_label_may(met, blocks, m + 1);
            refused += m == 0 || !ha_def_label_may(met, blocks, m - 1);
            tried += 2;
        }
    }
    if (refused * 20 < tried * 19) fail_msg("%zu of %zu refused", refused, tried);
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

TEST(norm)
{
    few_keys();
    weighs(5, 3, -2);
    store();
    struct ha_ref_score norm;
    assert_int_equal(ha_def_label_norm(&w.of, &norm, &why), HA_OK);
    assert_true(fabs(norm.value - 1.5) < 1e-7); /* log 3 is rounded */
    assert_true(norm.low < norm.value && norm.value - norm.low < 1e-4 && norm.high > norm.value
                && norm.high - norm.value < 1e-4);
    /* scores of which nothing is known in binary32 */
    for (size_t i = 0; i < 129; i++) w.k[i] = 0x1p40f * (i % 2 ? 1 : -1);
    store();
    assert_int_equal(ha_def_label_norm(&w.of, &norm, &why), HA_OK);
    assert_true(!(norm.low > 0) && isinf(norm.high));
}

TEST(line)
{
    /* on a line: 0.1 + x/20 */
    double budget[HA_DEF_SIZES] = { 0.1, 0.3, 0.35, 0.4, 0.45 };
    assert_true(fabs(ha_def_slope(budget) - 0.05) < 1e-15 && fabs(ha_def_line(budget) - 1) < 1e-12);
    budget[4] = 0.5; /* 7 * 0.05 / 126 more; what is left: 1/360, off 4, 5, 6 and 7 by k x less */
    const double k = 0.05 + 0.35 / 126, mean = 0.33;
    double left = 0, all = 0;
    for (size_t i = 0; i < HA_DEF_SIZES; i++) {
        const double x = i ? (double)i + 3 : 0;
        left += (budget[i] - 0.1 - k * x) * (budget[i] - 0.1 - k * x);
        all += (budget[i] - mean) * (budget[i] - mean);
    }
    assert_true(fabs(ha_def_slope(budget) - k) < 1e-15 && fabs(ha_def_line(budget) - (1 - left / all)) < 1e-12);
}
