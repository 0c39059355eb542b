/* The features: by hand for keys of one dimension, and whether those of another head, segment or token are told apart.
 */

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "reference/features.h"

#include <math.h>

enum { TOKENS = 420, DIM_MAX = 16, Q_HEADS = 4, KV_HEADS_MAX = 4 };

static struct {
    struct ha_shape shape;
    struct ha_def_features of;
    float q[Q_HEADS * DIM_MAX], anchor[Q_HEADS * DIM_MAX];
    float k[KV_HEADS_MAX][TOKENS * DIM_MAX], v[KV_HEADS_MAX][TOKENS * DIM_MAX]; /* exact in the type */
    char stored[2][KV_HEADS_MAX][TOKENS * DIM_MAX * 4];
    const void *k_at[KV_HEADS_MAX], *v_at[KV_HEADS_MAX];
} w;

static struct ha_why why;
static const struct ha_profile profile = { .dot_lanes = 1, .sum_lanes = 1, .exp_eps = 0x1p-22, .log_eps = 0x1p-22 };

static void store(void)
{
    for (size_t h = 0; h < w.shape.kv_heads; h++) {
        const size_t n = TOKENS * w.shape.head_dim;
        ha_store_row(w.stored[0][h], n, w.shape.dtype, w.k[h]);
        ha_store_row(w.stored[1][h], n, w.shape.dtype, w.v[h]);
        ha_load_row(w.stored[0][h], n, w.shape.dtype, w.k[h]);
        ha_load_row(w.stored[1][h], n, w.shape.dtype, w.v[h]);
        w.k_at[h] = w.stored[0][h];
        w.v_at[h] = w.stored[1][h];
    }
}

static void world(size_t q_heads, size_t kv_heads, size_t dim, enum ha_dtype type)
{
    memset(&w, 0, sizeof w);
    w.shape = (struct ha_shape){ .q_heads = q_heads, .kv_heads = kv_heads, .head_dim = dim, .dtype = type, .scale = 1 };
    w.of = (struct ha_def_features){ .shape = &w.shape,
                                     .k = w.k_at,
                                     .v = w.v_at,
                                     .q = w.q,
                                     .anchor = w.anchor,
                                     .cpu = &profile,
                                     .device = &profile,
                                     .tau = 0.1 };
}

/* All 41: of the online ones given known ones in binary32. */
static void features(struct ha_ref_score *out)
{
    double known[Q_HEADS * HA_FEATURES];
    assert_int_equal(ha_def_features_known(&w.of, out, &why), HA_OK);
    for (size_t i = 0; i < w.shape.q_heads * HA_FEATURES; i++) known[i] = (double)(float)out[i].value;
    assert_int_equal(ha_def_features_online(&w.of, known, out, &why), HA_OK);
}

static bool is_budget(size_t i) { return i >= HA_FEATURE_ANCHOR_BUDGET_16 && i <= HA_FEATURE_ANCHOR_BUDGET_128; }

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

/* One dimension, scale 1; sink: a key of 0; host: 64 keys of 1 and 64 of -1; local: two of 0 and, since, another. */
TEST(by_hand)
{
    const double e = exp(1), host = 64 * (e + 1 / e), all = (9 + 2 * host) / (3 + host);
    struct ha_ref_score got[HA_FEATURES];
    world(1, 1, 1, HA_F32);
    w.of.layer = 7;
    w.of.sinks = 1;
    w.of.host = 128;
    w.of.prefill = 131;
    w.of.tokens = 132;
    w.anchor[0] = 1;
    w.q[0] = -2;
    for (size_t i = 0; i < 128; i++) {
        w.k[0][1 + i] = i % 2 ? 1 : -1;
        w.v[0][1 + i] = 2;
    }
    w.v[0][0] = 3;
    w.v[0][129] = 1;
    w.v[0][130] = 5;
    w.v[0][131] = 9;
    store();
    features(got);
    const double want[HA_FEATURES] = {
        [HA_FEATURE_LAYER] = 7,
        [HA_FEATURE_HEAD] = 0,
        [HA_FEATURE_HOST_KEYS] = 128,
        [HA_FEATURE_DEVICE_KEYS] = 4,
        [HA_FEATURE_K_NORM_SINK] = 0,
        [HA_FEATURE_V_NORM_SINK] = 3,
        [HA_FEATURE_K_MEAN_NORM] = 0,
        [HA_FEATURE_V_MEAN_NORM] = 2,
        [HA_FEATURE_K_NORM_MEAN] = 1,
        [HA_FEATURE_V_NORM_MEAN] = 2,
        [HA_FEATURE_ANCHOR_SCORE_VARIANCE] = 1,
        [HA_FEATURE_ANCHOR_SCORE_KURTOSIS] = 1,
        [HA_FEATURE_LSE_SINK] = 0,
        [HA_FEATURE_LSE_HOST] = log(128) + 2, /* |q|^2 / 2 */
        [HA_FEATURE_LSE_LOCAL] = log(3),
        [HA_FEATURE_ANCHOR_LSE_HOST] = log(host),
        [HA_FEATURE_ANCHOR_LSE_LOCAL] = log(2),
        [HA_FEATURE_O_NORM_SINK] = 3,
        [HA_FEATURE_O_NORM_LOCAL] = 5,
        [HA_FEATURE_ANCHOR_O_NORM_SINK] = 3,
        [HA_FEATURE_ANCHOR_O_NORM_HOST] = 2,
        [HA_FEATURE_ANCHOR_O_NORM_LOCAL] = 3,
        [HA_FEATURE_Q_NORM] = 2,
        [HA_FEATURE_ANCHOR_Q_NORM] = 1,
        [HA_FEATURE_Q_COSINE] = -1,
        /* all - 3 is too much, and (9 + host / 4) / (3 + host / 8) near enough */
        [HA_FEATURE_ANCHOR_BUDGET_16] = 1. / 8,
        [HA_FEATURE_ANCHOR_BUDGET_32] = 1. / 4,
        [HA_FEATURE_ANCHOR_BUDGET_64] = 1. / 2,
        [HA_FEATURE_ANCHOR_BUDGET_128] = 1,
        [HA_FEATURE_O_NORM_MAX] = 4.5,
        [HA_FEATURE_ANCHOR_O_NORM_MAX] = 3,
    };
    assert_true(3 - all > 0.1 * all && (9 + host / 4) / (3 + host / 8) - all < 0.1 * all);
    for (size_t i = 0; i < HA_FEATURES; i++) {
        /* norms that are all one number, of whose rounding nothing is known; and blocks of equal scores */
        const bool flat = is_budget(i) || i == HA_FEATURE_K_NORM_SKEWNESS || i == HA_FEATURE_K_NORM_KURTOSIS
                          || i == HA_FEATURE_V_NORM_SKEWNESS || i == HA_FEATURE_V_NORM_KURTOSIS;
        if (!(fabs(got[i].value - want[i]) < 1e-12) || !(got[i].low <= got[i].value && got[i].high >= got[i].value)
            || (got[i].high - got[i].low > 1e-3 && !flat))
            fail_msg("%s is %.15g in [%.15g, %.15g], not %.15g", ha_feature_name(i), got[i].value, got[i].low,
                     got[i].high, want[i]);
    }
}

/* ---- what is not there ------------------------------------------------------------------------------------------- */

static void random_world(size_t kv_heads, enum ha_dtype type, uint64_t seed)
{
    world(Q_HEADS, kv_heads, DIM_MAX, type);
    w.shape.scale = 0.25f;
    w.of.layer = seed % 5;
    w.of.sinks = 6;
    w.of.host = 256;
    w.of.prefill = 300 + seed % 7;
    w.of.tokens = w.of.prefill + 1 + seed % 50;
    w.of.criterion = (enum ha_def_criterion)(seed % 3);
    for (size_t i = 0; i < Q_HEADS * DIM_MAX; i++) {
        w.q[i] = 2 * ha_rng_normal(seed, 0, i);
        w.anchor[i] = 0.5f * w.q[i] + 1.5f * ha_rng_normal(seed, 1, i);
    }
    for (size_t i = 0; i < kv_heads * TOKENS * DIM_MAX; i++) {
        const size_t head = i / (TOKENS * DIM_MAX), at = i % (TOKENS * DIM_MAX);
        w.k[head][at] = ha_rng_normal(seed, 2, i) * (at / DIM_MAX % 3 ? 1 : 1.5f) + (at % 5 == 0);
        w.v[head][at] = ha_rng_normal(seed, 3, i) + (at % 7 == 0);
    }
    store();
}

/* No sink, no host segment, no local tokens; a query of zeros; K all alike. */
TEST(nothing_there)
{
    struct ha_ref_score got[Q_HEADS * HA_FEATURES];
    for (size_t what = 0; what < 5; what++) {
        random_world(2, HA_F16, what);
        if (what == 0) w.of.sinks = 0;
        if (what == 1) w.of.host = 0;
        if (what == 2) w.of.sinks = 44, w.of.prefill = 300;
        if (what == 3) memset(w.q, 0, sizeof w.q), memset(w.anchor, 0, sizeof w.anchor);
        for (size_t i = 0; i < TOKENS * DIM_MAX && what == 4; i++) w.k[0][i] = w.k[1][i] = 1.5f;
        store();
        features(got);
        if (what == 0) assert_true(got[HA_FEATURE_ANCHOR_LSE_SINK].low == -HUGE_VAL);
        if (what == 1) assert_true(got[HA_FEATURE_LSE_HOST].high == -HUGE_VAL);
        if (what == 2) assert_true(got[HA_FEATURE_ANCHOR_LSE_LOCAL].high == -HUGE_VAL);
        if (what == 4)
            assert_true(got[HA_FEATURE_K_NORM_VARIANCE].value < 1e-20 && got[HA_FEATURE_K_NORM_SKEWNESS].low <= 0
                        && got[HA_FEATURE_K_NORM_SKEWNESS].high >= 0);
    }
}

/* ---- of another one ---------------------------------------------------------------------------------------------- */

/* Which features change with what is taken for what. */
enum { OTHER_HEAD, OTHER_KV_HEAD, SEGMENT, TOKEN, ANCHOR, CHANGES };
static bool changes(size_t i, size_t what)
{
    const bool of_rows = i >= HA_FEATURE_K_NORM_SINK && i <= HA_FEATURE_V_NORM_KURTOSIS;
    if (is_budget(i) || i < HA_FEATURE_HEAD) return false; /* budgets are few numbers, and may be the same */
    if (what == OTHER_HEAD || what == OTHER_KV_HEAD)
        return i == HA_FEATURE_HEAD || (of_rows && what == OTHER_KV_HEAD)
               || (i >= HA_FEATURE_SCORE_MEAN && i < HA_FEATURE_ANCHOR_BUDGET_16);
    if (what == SEGMENT)
        return of_rows || (i >= HA_FEATURE_SCORE_MEAN && i < HA_FEATURE_Q_NORM) || i == HA_FEATURE_O_NORM_MAX
               || i == HA_FEATURE_ANCHOR_O_NORM_MAX;
    if (what == TOKEN) return ha_feature_online(i);
    return !ha_feature_online(i) && i >= HA_FEATURE_ANCHOR_SCORE_MEAN;
}

/* Those of a wrong head, of a segment one token further on, of another query or anchor. */
TEST(others_are_told_apart)
{
    static struct ha_ref_score got[Q_HEADS * HA_FEATURES], other[Q_HEADS * HA_FEATURES];
    size_t same[CHANGES] = { 0 }, tried[CHANGES] = { 0 };
    for (uint64_t seed = 0; seed < (test_small ? 3 : 9); seed++)
        for (size_t what = 0; what < CHANGES; what++) {
            random_world(2, (enum ha_dtype)(seed % 3), seed);
            features(got);
            if (what == SEGMENT) w.of.sinks++;
            if (what == TOKEN) w.of.tokens--;
            for (size_t i = 0; i < Q_HEADS * DIM_MAX && what == TOKEN; i++) w.q[i] = ha_rng_normal(seed, 7, i);
            for (size_t i = 0; i < Q_HEADS * DIM_MAX && what == ANCHOR; i++) w.anchor[i] = ha_rng_normal(seed, 7, i);
            features(other);
            for (size_t h = 0; h < Q_HEADS; h++)
                for (size_t i = 0; i < HA_FEATURES; i++) {
                    const size_t from = what == OTHER_HEAD ? h ^ 1 : what == OTHER_KV_HEAD ? h ^ 2 : h;
                    const double x = other[from * HA_FEATURES + i].value;
                    if (!changes(i, what)) continue;
                    same[what] += x >= got[h * HA_FEATURES + i].low && x <= got[h * HA_FEATURES + i].high;
                    tried[what]++;
                }
        }
    for (size_t what = 0; what < CHANGES; what++)
        if (same[what] * 100 > tried[what] || tried[what] == 0)
            fail_msg("change %zu: %zu of %zu are not told apart", what, same[what], tried[what]);
}
