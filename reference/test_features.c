/* The features: by hand for keys of one dimension, against formulas written apart, against binary32, and whether those
 * of another head, segment or token are told apart. */

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

/* ---- formulas written apart, in binary64 or in binary32 -----------------------------------------------------------
 */

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

/* rounded to binary32 where `single` is set, after each operation */
static bool single;
static double r(double x) { return single ? (double)(float)x : x; }

static const float *row_of(const float *rows, size_t token) { return rows + token * w.shape.head_dim; }

static double dot_of(const float *a, const float *b)
{
    double sum = 0;
    for (size_t d = 0; d < w.shape.head_dim; d++) sum = r(sum + r((double)a[d] * (double)b[d]));
    return sum;
}
static double norm_of(const float *a) { return r(sqrt(dot_of(a, a))); }

/* attention of q over tokens [first, last) of head `kv`; LSE, and |o| */
static double attend_over(const float *q, size_t kv, size_t first, size_t last, float *o)
{
    double most = -HUGE_VAL, sum = 0, acc[DIM_MAX] = { 0 };
    for (size_t j = first; j < last; j++) most = fmax(most, r(dot_of(q, row_of(w.k[kv], j)) * (double)w.shape.scale));
    for (size_t j = first; j < last; j++) {
        const double weight = r(exp(r(r(dot_of(q, row_of(w.k[kv], j)) * (double)w.shape.scale) - most)));
        sum = r(sum + weight);
        for (size_t d = 0; d < w.shape.head_dim; d++) acc[d] = r(acc[d] + r(weight * (double)row_of(w.v[kv], j)[d]));
    }
    for (size_t d = 0; d < w.shape.head_dim; d++) o[d] = (float)(first < last ? acc[d] / sum : 0);
    return first < last ? r(most + r(log(sum))) : -HUGE_VAL;
}

/* statistic 0..3 of x, in binary64 */
static double statistic(const double *x, size_t n, size_t which)
{
    double mean = 0, m[5] = { 0 };
    for (size_t i = 0; i < n; i++) mean += x[i];
    mean /= (double)(n ? n : 1);
    for (size_t p = 2; p < 5; p++) {
        for (size_t i = 0; i < n; i++) m[p] += pow(x[i] - mean, (double)p);
        m[p] /= (double)(n ? n : 1);
    }
    if (which == 0) return mean;
    if (which == 1) return m[2];
    return m[2] > 0 ? m[which + 1] / pow(m[2], which == 2 ? 1.5 : 2) : 0;
}

static double norms_statistic(const float *rows, size_t first, size_t count, size_t which)
{
    static double x[TOKENS];
    for (size_t i = 0; i < count; i++) x[i] = norm_of(row_of(rows, first + i));
    return statistic(x, count, which);
}

static void mean_of(const float *rows, float *mean, double *exact)
{
    for (size_t d = 0; d < w.shape.head_dim; d++) {
        double sum = 0;
        for (size_t i = 0; i < w.of.host; i++) sum += (double)row_of(rows, w.of.sinks + i)[d];
        exact[d] = w.of.host ? sum / (double)w.of.host : 0;
        mean[d] = (float)exact[d];
    }
}

static double merged_norm(const float *q, size_t kv, size_t last)
{
    float sink[DIM_MAX], local[DIM_MAX];
    const double a = attend_over(q, kv, 0, w.of.sinks, sink),
                 b = attend_over(q, kv, w.of.sinks + w.of.host, last, local), most = fmax(a, b);
    if (most == -HUGE_VAL) return 0;
    const double x = r(exp(r(a - most))), y = r(exp(r(b - most)));
    double squares = 0;
    for (size_t d = 0; d < w.shape.head_dim; d++) {
        const double o = r(r(r(x * (double)sink[d]) + r(y * (double)local[d])) / r(x + y));
        squares = r(squares + r(o * o));
    }
    return r(sqrt(squares));
}

static double length_of(const double *x)
{
    double sum = 0;
    for (size_t d = 0; d < w.shape.head_dim; d++) sum += x[d] * x[d];
    return sqrt(sum);
}

/* A feature of a query head, but for the budgets, from `known`. o is rounded to binary32 in either case. */
static double formula(size_t i, size_t head, const struct ha_ref_score *known)
{
    static double x[TOKENS];
    const size_t dim = w.shape.head_dim, kv = head / ha_shape_group(&w.shape), local = w.of.sinks + w.of.host;
    const float *q = w.q + head * dim, *anchor = w.anchor + head * dim;
    float o[DIM_MAX], mean[DIM_MAX];
    double exact[DIM_MAX], most = 0;
    const double norm = norm_of(q), scale = (double)w.shape.scale;
    switch (i) {
    case HA_FEATURE_LAYER: return (double)w.of.layer;
    case HA_FEATURE_HEAD: return (double)head;
    case HA_FEATURE_HOST_KEYS: return (double)w.of.host;
    case HA_FEATURE_DEVICE_KEYS: return (double)(w.of.tokens - w.of.host);
    case HA_FEATURE_K_NORM_SINK: return norms_statistic(w.k[kv], 0, w.of.sinks, 0);
    case HA_FEATURE_V_NORM_SINK: return norms_statistic(w.v[kv], 0, w.of.sinks, 0);
    case HA_FEATURE_K_MEAN_NORM: mean_of(w.k[kv], mean, exact); return single ? norm_of(mean) : length_of(exact);
    case HA_FEATURE_V_MEAN_NORM: mean_of(w.v[kv], mean, exact); return single ? norm_of(mean) : length_of(exact);
    case HA_FEATURE_SCORE_MEAN:
    case HA_FEATURE_LSE_HOST: {
        double product = 0;
        mean_of(w.k[kv], mean, exact);
        for (size_t d = 0; d < dim; d++) product += (double)q[d] * exact[d];
        if (single) product = dot_of(q, mean);
        const double of_q = norm > 0 ? r(r(scale * product) / norm) : 0;
        if (i == HA_FEATURE_SCORE_MEAN) return of_q;
        if (!w.of.host) return -HUGE_VAL;
        const double variance = (double)(float)known[HA_FEATURE_ANCHOR_SCORE_VARIANCE].value;
        return r(r(r(log((double)w.of.host)) + r(norm * of_q)) + r(r(0.5 * r(norm * norm)) * variance));
    }
    case HA_FEATURE_LSE_SINK: return attend_over(q, kv, 0, w.of.sinks, o);
    case HA_FEATURE_LSE_LOCAL: return attend_over(q, kv, local, w.of.tokens, o);
    case HA_FEATURE_ANCHOR_LSE_SINK: return attend_over(anchor, kv, 0, w.of.sinks, o);
    case HA_FEATURE_ANCHOR_LSE_HOST: return attend_over(anchor, kv, w.of.sinks, local, o);
    case HA_FEATURE_ANCHOR_LSE_LOCAL: return attend_over(anchor, kv, local, w.of.prefill, o);
    case HA_FEATURE_O_NORM_SINK: attend_over(q, kv, 0, w.of.sinks, o); return norm_of(o);
    case HA_FEATURE_O_NORM_LOCAL: attend_over(q, kv, local, w.of.tokens, o); return norm_of(o);
    case HA_FEATURE_ANCHOR_O_NORM_SINK: attend_over(anchor, kv, 0, w.of.sinks, o); return norm_of(o);
    case HA_FEATURE_ANCHOR_O_NORM_HOST: attend_over(anchor, kv, w.of.sinks, local, o); return norm_of(o);
    case HA_FEATURE_ANCHOR_O_NORM_LOCAL: attend_over(anchor, kv, local, w.of.prefill, o); return norm_of(o);
    case HA_FEATURE_Q_NORM: return norm;
    case HA_FEATURE_ANCHOR_Q_NORM: return norm_of(anchor);
    case HA_FEATURE_Q_COSINE:
        return norm > 0 && norm_of(anchor) > 0 ? r(dot_of(q, anchor) / r(norm * norm_of(anchor))) : 0;
    case HA_FEATURE_O_NORM_MAX:
    case HA_FEATURE_ANCHOR_O_NORM_MAX: {
        const bool now = i == HA_FEATURE_O_NORM_MAX;
        for (size_t h = 0; h < w.shape.q_heads; h++)
            most = fmax(most, merged_norm((now ? w.q : w.anchor) + h * dim, h / ha_shape_group(&w.shape),
                                          now ? w.of.tokens : w.of.prefill));
        return most;
    }
    default: break;
    }
    if (i < HA_FEATURE_V_NORM_MEAN) return norms_statistic(w.k[kv], w.of.sinks, w.of.host, i - HA_FEATURE_K_NORM_MEAN);
    if (i < HA_FEATURE_SCORE_MEAN) return norms_statistic(w.v[kv], w.of.sinks, w.of.host, i - HA_FEATURE_V_NORM_MEAN);
    for (size_t j = 0; j < w.of.host; j++) {
        const double score = r(dot_of(anchor, row_of(w.k[kv], w.of.sinks + j)) * scale);
        x[j] = norm_of(anchor) > 0 ? r(score / norm_of(anchor)) : 0;
    }
    return statistic(x, w.of.host, i - HA_FEATURE_ANCHOR_SCORE_MEAN);
}

/* o is rounded to binary32 in `formula` whether or not all is */
static void check_formulas(const struct ha_ref_score *got)
{
    for (size_t i = 0; i < w.shape.q_heads * HA_FEATURES; i++) {
        const size_t head = i / HA_FEATURES, at = i % HA_FEATURES;
        if (is_budget(at)) continue;
        single = false;
        const double want = formula(at, head, got + head * HA_FEATURES);
        single = true;
        const double binary32 = (double)(float)formula(at, head, got + head * HA_FEATURES);
        if (isinf(want) ? got[i].value != want : !(fabs(got[i].value - want) <= 1e-6 * (0.01 + fabs(want))))
            fail_msg("head %zu: %s is %.15g, not %.15g", head, ha_feature_name(at), got[i].value, want);
        if (!(binary32 >= got[i].low && binary32 <= got[i].high))
            fail_msg("head %zu: %s is %.9g in binary32, [%.9g, %.9g] may be", head, ha_feature_name(at), binary32,
                     got[i].low, got[i].high);
    }
}

/* the rule is test_labels.c's */
static void check_budgets(const struct ha_ref_score *got)
{
    static uint8_t met[Q_HEADS * TOKENS];
    struct ha_ref_score most = { 0, 0, 0 }, norm;
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t h = 0; h < w.shape.q_heads; h++) {
            const size_t kv = h / ha_shape_group(&w.shape);
            const struct ha_def_labelled of = { .shape = &w.shape,
                                                .q = w.anchor + h * w.shape.head_dim,
                                                .k = w.k_at[kv],
                                                .v = w.v_at[kv],
                                                .tokens = w.of.prefill,
                                                .first = w.of.sinks,
                                                .host = w.of.host,
                                                .criterion = w.of.criterion,
                                                .tau = w.of.tau,
                                                .mean = w.of.mean,
                                                .most = most,
                                                .profile = &profile };
            struct ha_def_labels labels;
            if (pass == 0) {
                assert_int_equal(ha_def_label_norm(&of, &norm, &why), HA_OK);
                if (norm.value > most.value) most = norm;
                continue;
            }
            assert_int_equal(ha_def_label(&of, &labels, &why), HA_OK);
            for (size_t i = 1; i < HA_DEF_SIZES; i++) {
                const struct ha_ref_score *f = &got[h * HA_FEATURES + HA_FEATURE_ANCHOR_BUDGET_16 + i - 1];
                const size_t blocks = w.of.host / ha_def_size(i);
                assert_true(f->value == labels.budget[i] && f->low <= f->value && f->high >= f->value);
                if (blocks == 0) continue;
                assert_int_equal(ha_def_features_met(&w.of, i, met, &why), HA_OK);
                const uint8_t *own = met + h * (blocks + 1);
                assert_true(f->low == (double)(float)((double)ha_def_label_least(own, blocks) / (double)blocks));
                assert_true(ha_def_label_may(own, blocks, (size_t)(f->value * (double)blocks + 0.5)));
            }
        }
}

TEST(formulas)
{
    struct ha_ref_score got[Q_HEADS * HA_FEATURES];
    static const size_t kv_heads[] = { 2, 4, 1 };
    for (uint64_t seed = 0; seed < (test_small ? 3 : 12); seed++) {
        random_world(kv_heads[seed % 3], (enum ha_dtype)(seed / 3 % 3), seed);
        w.of.mean = seed % 2;
        features(got);
        check_formulas(got);
        check_budgets(got);
    }
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
        check_budgets(got);
        if (what < 4) check_formulas(got);
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
