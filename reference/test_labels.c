/* The least budgets: by hand for a few keys, against loops that compute every attention anew, and what is left open
 * against the same rule in binary32. */

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

/* ---- against every attention anew -------------------------------------------------------------------------------- */

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

static double score_of(size_t token)
{
    double s = 0;
    for (size_t d = 0; d < w.shape.head_dim; d++)
        s += (double)w.q[d] * (double)w.k[token * w.shape.head_dim + d] * (double)w.shape.scale;
    return s;
}

static double block_score(size_t block, size_t size)
{
    const size_t dim = w.shape.head_dim;
    double s = 0;
    if (size == 1) return score_of(w.of.first + block);
    for (size_t d = 0; d < dim; d++) {
        double low = HUGE_VAL, high = -HUGE_VAL, sum = 0;
        for (size_t i = 0; i < size; i++) {
            const double x = (double)w.k[(w.of.first + block * size + i) * dim + d];
            low = fmin(low, x);
            high = fmax(high, x);
            sum += x;
        }
        const double mean = (double)ha_round((float)(sum / (double)size), w.shape.dtype), q = (double)w.q[d];
        s += w.of.mean ? q * mean : fmax(q * low, q * high);
    }
    return s * (double)w.shape.scale;
}

/* the number of blocks that come before this one */
static size_t place(const double *score, size_t blocks, size_t block)
{
    size_t before = 0;
    for (size_t i = 0; i < blocks; i++) before += score[i] > score[block] || (score[i] == score[block] && i < block);
    return before;
}

/* attention over the tokens that are used, of these weights; the mass of them */
static double attention(const double *weight, const bool *used, double *o)
{
    const size_t dim = w.shape.head_dim;
    double sum = 0, all = 0;
    for (size_t d = 0; d < dim; d++) o[d] = 0;
    for (size_t j = 0; j < w.of.tokens; j++) {
        all += weight[j];
        if (!used[j]) continue;
        sum += weight[j];
        for (size_t d = 0; d < dim; d++) o[d] += weight[j] * (double)w.v[j * dim + d];
    }
    for (size_t d = 0; d < dim && sum > 0; d++) o[d] /= sum;
    return sum / all;
}

/* error[m] over what it may be, at most 1: met; of score less than the mass over 0.95, inverted */
static void errors(size_t size, double *error)
{
    static double score[TOKENS], weight[TOKENS];
    static size_t at[TOKENS];
    bool used[TOKENS];
    double o[DIM], some[DIM], most = -HUGE_VAL;
    const size_t blocks = w.of.host / size, dim = w.shape.head_dim;
    for (size_t i = 0; i < blocks; i++) score[i] = block_score(i, size);
    for (size_t i = 0; i < blocks; i++) at[i] = place(score, blocks, i);
    for (size_t j = 0; j < w.of.tokens; j++) most = fmax(most, weight[j] = score_of(j));
    for (size_t j = 0; j < w.of.tokens; j++) weight[j] = exp(weight[j] - most);
    for (size_t j = 0; j < w.of.tokens; j++) used[j] = true;
    attention(weight, used, o);
    for (size_t m = 0; m <= blocks; m++) {
        double norm = 0, off = 0;
        for (size_t j = 0; j < w.of.tokens; j++)
            used[j] = j < w.of.first || j >= w.of.first + w.of.host || at[(j - w.of.first) / size] < m;
        const double mass = attention(weight, used, some);
        for (size_t d = 0; d < dim; d++) norm += o[d] * o[d], off += (some[d] - o[d]) * (some[d] - o[d]);
        const double of = w.of.criterion == HA_DEF_OUTPUT ? sqrt(norm) : w.of.most.value;
        error[m] = w.of.criterion == HA_DEF_SCORE ? 0.95 / mass : sqrt(off) / (w.of.tau * of);
    }
}

static const struct {
    size_t tokens, first, host;
} split[] = { { 200, 7, 128 }, { 300, 0, 256 }, { 393, 9, 384 }, { 258, 2, 256 } };

static void check_labels(size_t *streaming, size_t *full)
{
    static double error[TOKENS];
    const struct ha_def_labels got = labels();
    for (size_t i = 0; i < HA_DEF_SIZES; i++) {
        const size_t blocks = w.of.host / ha_def_size(i);
        size_t m = 0;
        errors(ha_def_size(i), error);
        while (m < blocks && !(error[m] <= 1)) m++;
        if (got.budget[i] != (double)m / (double)blocks)
            fail_msg("criterion %d, mean %d, type %d: budget(%zu) is %.9g, not %zu / %zu", (int)w.of.criterion,
                     w.of.mean, (int)w.shape.dtype, ha_def_size(i), got.budget[i], m, blocks);
        *full += i < 3 && m == blocks;
    }
    *streaming += got.s;
}

TEST(against_brute_force)
{
    size_t streaming = 0, full = 0, cases = 0;
    for (size_t i = 0; i < (test_small ? 1 : COUNT(split)); i++)
        for (int criterion = 0; criterion < 3; criterion++)
            for (int type = 0; type < HA_DTYPE_COUNT; type++)
                for (int mean = 0; mean < 2; mean++, cases++) {
                    random_world(split[i].tokens, split[i].first, split[i].host, (enum ha_dtype)type, 1000 + cases);
                    w.of.criterion = (enum ha_def_criterion)criterion;
                    w.of.mean = mean;
                    check_labels(&streaming, &full);
                }
    assert_true(full < 2 * cases); /* of three small sizes each */
    assert_true(streaming < cases / 2);
    if (!test_small) assert_true(streaming > 0);
}

/* ---- what is left open ------------------------------------------------------------------------------------------- */

/* What binary64 says for certain is what brute force says, and little of ordinary data is left open. */
TEST(what_is_met)
{
    static double error[TOKENS];
    static uint8_t met[TOKENS];
    size_t open = 0, all = 0, wide = 0, sizes = 0, cases = 0;
    for (int criterion = 0; criterion < 3; criterion++)
        for (int type = 0; type < HA_DTYPE_COUNT; type++)
            for (int mean = 0; mean < 2; mean++, cases++) {
                random_world(300, 11, 256, (enum ha_dtype)type, 100 + cases);
                w.of.criterion = (enum ha_def_criterion)criterion;
                w.of.mean = mean;
                const struct ha_def_labels got = labels();
                for (size_t i = 0; i < HA_DEF_SIZES; i++, sizes++) {
                    const size_t blocks = 256 / ha_def_size(i), m = (size_t)(got.budget[i] * (double)blocks + 0.5);
                    errors(ha_def_size(i), error);
                    assert_int_equal(ha_def_label_met(&w.of, i, met, &why), HA_OK);
                    for (size_t j = 0; j < blocks; j++) {
                        if (met[j] != HA_DEF_MAYBE && (met[j] == HA_DEF_IN) != (error[j] <= 1))
                            fail_msg("%zu blocks of %zu: %s, error over what it may be %.9g", j, ha_def_size(i),
                                     met[j] == HA_DEF_IN ? "met" : "not met", error[j]);
                        open += met[j] == HA_DEF_MAYBE;
                        all++;
                    }
                    assert_true(ha_def_label_may(met, blocks, m));
                    assert_true(ha_def_label_least(met, blocks) <= m && ha_def_label_most(met, blocks) >= m);
                    wide += ha_def_label_least(met, blocks) != ha_def_label_most(met, blocks);
                }
            }
    if (open * 100 > all) fail_msg("%zu of %zu are left open", open, all);
    if (wide * 10 > sizes) fail_msg("%zu of %zu budgets are left open", wide, sizes);
}

/* The least number of blocks, all of it in binary32, sums in order. */
static size_t least_in_binary32(size_t size)
{
    const size_t dim = w.shape.head_dim, blocks = w.of.host / size;
    static float weight[TOKENS];
    static double score[TOKENS];
    static size_t at[TOKENS];
    float most = -INFINITY, o[DIM] = { 0 }, sum = 0, norm = 0;
    for (size_t j = 0; j < w.of.tokens; j++) {
        float s = 0;
        for (size_t d = 0; d < dim; d++) s += w.q[d] * w.k[j * dim + d];
        weight[j] = s * w.shape.scale;
        most = fmaxf(most, weight[j]);
    }
    for (size_t i = 0; i < blocks && size == 1; i++) score[i] = (double)weight[w.of.first + i];
    for (size_t i = 0; i < blocks && size > 1; i++) {
        float s = 0;
        for (size_t d = 0; d < dim; d++) {
            float low = INFINITY, high = -INFINITY, mean = 0;
            for (size_t t = w.of.first + i * size; t < w.of.first + (i + 1) * size; t++) {
                low = fminf(low, w.k[t * dim + d]);
                high = fmaxf(high, w.k[t * dim + d]);
                mean += w.k[t * dim + d];
            }
            mean = ha_round(mean / (float)size, w.shape.dtype);
            s += w.of.mean ? w.q[d] * mean : fmaxf(w.q[d] * low, w.q[d] * high);
        }
        score[i] = (double)(s * w.shape.scale);
    }
    for (size_t i = 0; i < blocks; i++) at[i] = place(score, blocks, i);
    for (size_t j = 0; j < w.of.tokens; j++) sum += weight[j] = expf(weight[j] - most);
    for (size_t d = 0; d < dim; d++) {
        for (size_t j = 0; j < w.of.tokens; j++) o[d] += weight[j] * w.v[j * dim + d];
        o[d] /= sum;
        norm += o[d] * o[d];
    }
    const float limit = (float)w.of.tau * (w.of.criterion == HA_DEF_OUTPUT ? sqrtf(norm) : (float)w.of.most.value);
    for (size_t m = 0; m < blocks; m++) {
        float part = 0, acc[DIM] = { 0 }, off = 0;
        for (size_t j = 0; j < w.of.tokens; j++) {
            const bool device = j < w.of.first || j >= w.of.first + w.of.host;
            if (!device && at[(j - w.of.first) / size] >= m) continue;
            part += weight[j];
            for (size_t d = 0; d < dim; d++) acc[d] += weight[j] * w.v[j * dim + d];
        }
        for (size_t d = 0; d < dim; d++) off += (acc[d] / part - o[d]) * (acc[d] / part - o[d]);
        if (w.of.criterion == HA_DEF_SCORE ? part / sum >= 0.95f : sqrtf(off) <= limit) return m;
    }
    return blocks;
}

/* Until half of the blocks are just enough, or just not: by tau, or by the scale. */
static bool go_to_the_limit(size_t size)
{
    static double error[TOKENS];
    const size_t half = w.of.host / size / 2;
    w.of.tau = 0.1;
    w.shape.scale = 0.25f;
    errors(size, error);
    if (w.of.criterion != HA_DEF_SCORE) {
        w.of.tau *= error[half];
        return w.of.tau > 0;
    }
    float low = 0, high = 2;
    for (size_t i = 0; i < 30; i++) {
        w.shape.scale = (low + high) / 2;
        errors(size, error);
        *(error[half] <= 1 ? &high : &low) = w.shape.scale;
    }
    return true;
}

/* Near a tie: K of one exponent alone, so that scores repeat; every other value the opposite, so that which of two
 * blocks comes first is seen; and a criterion that binary64 just meets. */
TEST(binary32_is_allowed)
{
    static uint8_t met[TOKENS];
    size_t differ[3] = { 0 };
    for (size_t seed = 0; seed < (test_small ? 12 : 60); seed++) {
        random_world(260, 3, 256, (enum ha_dtype)(seed % 3), seed);
        w.of.criterion = (enum ha_def_criterion)(seed / 3 % 3);
        w.of.mean = seed % 2;
        for (size_t i = 0; i < 260 * DIM && seed % 4 == 0; i++) w.k[i] = rintf(w.k[i]);
        store();
        for (size_t i = 0; i < HA_DEF_SIZES; i++) {
            const size_t blocks = 256 / ha_def_size(i);
            if (!go_to_the_limit(ha_def_size(i))) continue;
            const struct ha_def_labels got = labels();
            const size_t m = least_in_binary32(ha_def_size(i));
            assert_int_equal(ha_def_label_met(&w.of, i, met, &why), HA_OK);
            if (!ha_def_label_may(met, blocks, m))
                fail_msg("seed %zu, blocks of %zu: %zu in binary32, %.9g in binary64, %zu to %zu may be", seed,
                         ha_def_size(i), m, got.budget[i] * (double)blocks, ha_def_label_least(met, blocks),
                         ha_def_label_most(met, blocks));
            differ[w.of.criterion] += (double)m / (double)blocks != got.budget[i];
        }
    }
    /* else nothing was near */
    for (size_t i = 0; i < 3 && !test_small; i++) assert_true(differ[i] > 0);
}

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
