/* Identities of attention that the oracle must satisfy. */

#include "reference/test_inputs.h"

static const struct ha_profile profile = {
    .dot_lanes = 16, .dot_extra = 4, .sum_lanes = 16, .sum_extra = 4, .exp_eps = 0x1p-23, .log_eps = 0x1p-23
};
static const struct ha_merge_bound natural = { .exp_eps = 0x1p-23, .log_eps = 0x1p-23 };
static const size_t sizes[] = { 1, 2, 7, 8, 9, 100, 2500 };
enum { SIZES = sizeof sizes / sizeof sizes[0], DIM = 20 };

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * fmax(1, fmax(fabs(a), fabs(b)));
}

static struct ha_ref_state attend_rows(const struct ha_test_input *in, const struct ha_rows *rows)
{
    const struct ha_bound b = ha_bound_attend(&profile, in->dim, rows->keys, 1);
    return ha_test_attend(in, rows, &b);
}

static struct ha_ref_state attend_part(const struct ha_test_input *in, size_t first, size_t keys)
{
    struct ha_rows rows = in->rows;
    rows.k = (const char *)rows.k + first * rows.k_stride_bytes;
    rows.v = (const char *)rows.v + first * rows.v_stride_bytes;
    rows.keys = keys;
    return attend_rows(in, &rows);
}

static struct ha_ref_state attend(const struct ha_test_input *in) { return attend_rows(in, &in->rows); }

TEST(test_constant_values)
{
    for (size_t f = 0; f < ha_test_families; f++)
        for (size_t s = 0; s < SIZES; s++) {
            struct ha_test_input in = ha_test_input(f, sizes[s], DIM, HA_F32, s);
            for (size_t i = 0; i < in.keys * DIM; i++) in.v[i] = 0.7f;
            ha_test_input_store(&in);
            const struct ha_ref_state got = attend(&in);
            for (size_t i = 0; i < DIM; i++) assert_true(near(got.o[i], (double)0.7f, 1e-15));
            for (size_t i = 0; i < DIM; i++)
                assert_true(near(got.v_min[i], (double)0.7f, 1e-3) && near(got.v_max[i], (double)0.7f, 1e-3)
                            && got.v_min[i] < got.o[i] && got.o[i] < got.v_max[i]);
            ha_test_release();
        }
}

TEST(test_parts_merge_to_whole)
{
    for (size_t f = 0; f < ha_test_families; f++)
        for (size_t s = 0; s < SIZES; s++)
            for (size_t parts = 1; parts <= 4; parts++) {
                const struct ha_test_input in = ha_test_input(f, sizes[s], DIM, HA_F32, s);
                struct ha_ref_state whole = attend(&in), merged = ha_test_state(DIM), part[4];
                for (size_t p = 0; p < parts; p++) {
                    const size_t begin = in.keys * p / parts, end = in.keys * (p + 1) / parts; /* may be empty */
                    part[p] = attend_part(&in, begin, end - begin);
                }
                ha_ref_merge(part, parts, &natural, &merged);
                /* the ulps of a large LSE are relative errors of the weights */
                const double slack = 1e-13 + 0x1p-50 * fabs(whole.lse);
                assert_true(near(merged.lse, whole.lse, 1e-14) && merged.keys == in.keys);
                for (size_t i = 0; i < DIM; i++) {
                    double lo = HUGE_VAL, hi = -HUGE_VAL;
                    for (size_t j = 0; j < in.keys; j++) {
                        lo = fmin(lo, (double)in.v[j * DIM + i]);
                        hi = fmax(hi, (double)in.v[j * DIM + i]);
                    }
                    const double size = fmax(fabs(lo), fabs(hi));
                    const bool same = fabs(merged.o[i] - whole.o[i]) <= slack * size;
                    assert_true(same && merged.v_min[i] < whole.o[i] && whole.o[i] < merged.v_max[i]);
                    assert_true(merged.v_min[i] > lo - 1e-3 * size && merged.v_max[i] < hi + 1e-3 * size);
                    assert_true(merged.bound[i] > 0);
                }
                ha_test_release();
            }
}

/* q = 0: every weight is 1/n. Integers with small sums: the result is exact, and so is ln n. */
TEST(test_exact_inputs)
{
    struct ha_test_input in = ha_test_input(0, 256, DIM, HA_F16, 1);
    memset(in.q, 0, DIM * sizeof *in.q);
    double want[DIM] = { 0 };
    for (size_t x = 0; x < in.keys * DIM; x++) {
        in.v[x] = (float)ha_rng_below(9, 0, x, 65) - 32;
        want[x % DIM] += (double)in.v[x] / 256;
    }
    ha_test_input_store(&in);
    const struct ha_ref_state got = attend(&in);
    assert_true(got.lse == log(256));
    for (size_t i = 0; i < DIM; i++) assert_true(got.o[i] == want[i]);
}

/* One-hot values read the weights out; one key of overwhelming score is read exactly. */
TEST(test_one_hot)
{
    struct ha_test_input in = ha_test_input(0, DIM, DIM, HA_F32, 5);
    for (size_t j = 0; j < DIM; j++)
        for (size_t i = 0; i < DIM; i++) in.v[j * DIM + i] = i == j ? 1 : 0;
    ha_test_input_store(&in);
    double p[DIM];
    const double lse = ha_ref_weights(in.q, DIM, (double)in.scale, &in.rows, in.dtype, p);
    struct ha_ref_state got = attend(&in);
    assert_true(near(lse, got.lse, 1e-15));
    for (size_t i = 0; i < DIM; i++) assert_true(near(got.o[i], p[i], 1e-15));

    in = ha_test_input(0, 50, 4, HA_F32, 5);
    for (size_t i = 0; i < 4; i++) in.q[i] = 100, in.k[17 * 4 + i] = 100;
    ha_test_input_store(&in);
    got = attend(&in);
    for (size_t i = 0; i < 4; i++) assert_true(got.o[i] == (double)in.v[17 * 4 + i]);
}

static const float zero[DIM] = { 0 };

TEST(test_no_keys)
{
    const struct ha_test_input in = ha_test_input(0, 3, DIM, HA_F32, 0);
    const struct ha_ref_state none = attend_part(&in, 0, 0);
    assert_true(none.lse == -HUGE_VAL && none.lse_bound == 0);
    for (size_t i = 0; i < DIM; i++) assert_true(none.o[i] == 0 && none.bound[i] == 0);
    assert_true(ha_ref_ratio(zero, -INFINITY, &none, NULL) == 0);
    assert_true(ha_ref_ratio(zero, INFINITY, &none, NULL) == HUGE_VAL);
}

TEST(test_infinite_and_nan)
{
    struct ha_test_input in = ha_test_input(0, 9, DIM, HA_F32, 0);
    for (size_t i = 0; i < DIM; i++) in.q[i] = 1;
    in.k[0] = -INFINITY; /* key 0 scores -inf: as if it were not there */
    ha_test_input_store(&in);
    const struct ha_ref_state with = attend(&in), without = attend_part(&in, 1, 8), alone = attend_part(&in, 0, 1);
    assert_true(with.lse == without.lse);
    for (size_t i = 0; i < DIM; i++) assert_true(near(with.o[i], without.o[i], 1e-15) && with.bound[i] < 1e-5);
    assert_true(alone.lse == -HUGE_VAL && alone.o[0] == 0 && alone.bound[0] == 0);

    const float bad[] = { NAN, INFINITY };
    for (size_t i = 0; i < 2; i++) {
        in.k[0] = bad[i];
        ha_test_input_store(&in);
        const struct ha_ref_state all = attend(&in), one = attend_part(&in, 0, 1);
        assert_true(isnan(all.o[0]) && isnan(all.lse) && isnan(one.o[0]) && isnan(one.lse));
        assert_true(ha_ref_ratio(zero, 0, &all, NULL) == HUGE_VAL);
    }
}

/* A group is bitwise its members one by one; rows that a query does not see may hold anything. */
TEST(test_group)
{
    enum { KEYS = 45, QUERIES = 40 };
    struct ha_test_input in = ha_test_input(0, KEYS, DIM, HA_F32, 2);
    for (size_t i = (KEYS - 1) * DIM; i < KEYS * DIM; i++) in.k[i] = in.v[i] = NAN;
    ha_test_input_store(&in);
    static float q[QUERIES][DIM];
    static struct ha_bound bound[QUERIES];
    static struct ha_ref_query query[QUERIES];
    static struct ha_ref_state states[QUERIES];
    static double work[QUERIES * (2 * KEYS + DIM)];
    for (size_t c = 0; c < QUERIES; c++) {
        ha_rng_normals(c, 9, 0, DIM, q[c]);
        states[c] = ha_test_state(DIM);
        const size_t visible = c % KEYS;
        bound[c] = ha_bound_attend(&profile, DIM, visible, 1);
        query[c] = (struct ha_ref_query){ q[c], visible, 0, &bound[c], &states[c] };
    }
    ha_ref_attend_group(query, QUERIES, DIM, (double)in.scale, &in.rows, in.dtype, work);
    for (size_t c = 0; c < QUERIES; c++) {
        in.q = q[c];
        const struct ha_ref_state one = attend_part(&in, 0, query[c].visible);
        assert_true(one.lse == states[c].lse && one.lse_bound == states[c].lse_bound && one.keys == states[c].keys);
        assert_memory_equal(one.o, states[c].o, 4 * DIM * sizeof *one.o); /* o, bound, v_min, v_max */
    }
}

/* Quality against full and partial attention computed by other means. */
TEST(test_quality)
{
    enum { KEYS = 60, CHOSEN = 17 };
    for (size_t f = 0; f < ha_test_families; f++) {
        const struct ha_test_input in = ha_test_input(f, KEYS, DIM, HA_F32, f);
        uint32_t token[KEYS];
        for (size_t j = 0; j < KEYS; j++) token[j] = (uint32_t)(j * 7 % KEYS);
        double work[2 * KEYS], p[KEYS], mass = 0, diff2 = 0, norm2 = 0, slack = 0;
        ha_ref_weights(in.q, DIM, (double)in.scale, &in.rows, in.dtype, p);
        for (size_t j = 0; j < CHOSEN; j++) mass += p[token[j]];
        struct ha_rows chosen = in.rows;
        chosen.index = token;
        chosen.keys = CHOSEN;
        const struct ha_ref_state all = attend(&in), part = attend_rows(&in, &chosen);
        float got[DIM];
        for (size_t i = 0; i < DIM; i++) {
            got[i] = (float)part.o[i];
            diff2 += ((double)got[i] - all.o[i]) * ((double)got[i] - all.o[i]);
            norm2 += all.o[i] * all.o[i];
            double dropped = 0, reach = 0;
            for (size_t j = CHOSEN; j < KEYS; j++) {
                dropped += p[token[j]];
                if (p[token[j]] > 0) reach = fmax(reach, fabs((double)in.v[token[j] * DIM + i] - part.o[i]));
            }
            /* relative to the certificate only where the deviation is more than rounding */
            if (dropped * reach > 1e-9 * fabs(all.o[i]))
                slack = fmax(slack, fabs(all.o[i] - part.o[i]) / (dropped * reach));
        }
        struct ha_ref_quality quality;
        ha_ref_quality(in.q, DIM, (double)in.scale, &in.rows, in.dtype, got, token, CHOSEN, work, &quality);
        assert_memory_equal(work, p, sizeof p);
        assert_true(near(quality.mass, mass, 1e-13) && near(quality.norm2, norm2, 1e-12));
        assert_true(fabs(quality.diff2 - diff2) <= 1e-9 * (diff2 + norm2));
        assert_true(quality.cert_slack <= 1 && quality.cert_slack >= 0 && slack <= 1 + 1e-6);
        assert_true(quality.cert_slack >= slack * (1 - 1e-5));
        if (f == 0) assert_true(slack > 0.01 && mass > 0.1 && mass < 0.9 && quality.diff2 > 0);

        /* everything chosen: nothing is lost, named twice or not */
        for (size_t i = 0; i < DIM; i++) got[i] = (float)all.o[i];
        uint32_t twice[2 * KEYS];
        for (size_t j = 0; j < 2 * KEYS; j++) twice[j] = token[j % KEYS];
        ha_ref_quality(in.q, DIM, (double)in.scale, &in.rows, in.dtype, got, twice, 2 * KEYS, work, &quality);
        assert_true(quality.mass == 1 && quality.cert_slack == 0 && quality.diff2 <= 1e-13 * norm2);
        assert_true(near(quality.norm2, norm2, 1e-12) && (quality.norm2 > 0) == (norm2 > 0));
        ha_ref_quality(in.q, DIM, (double)in.scale, &in.rows, in.dtype, got, token, 0, work, &quality);
        assert_true(quality.mass == 0 && quality.cert_slack <= 1);
        ha_test_release();
    }
}
/* By hand, where all scores are 0: two keys, one dropped, one left out, one weighed too much. */
TEST(test_certificate_by_hand)
{
    static const float k[2] = { 0, 0 }, v[2] = { 3, -1 }, q[1] = { 1 };
    const struct ha_rows rows = { .k = k, .v = v, .k_stride_bytes = 4, .v_stride_bytes = 4, .keys = 2 };
    const double e = 0.25, tilted[2] = { e, -e }, even[2] = { 0, 0 };
    const uint32_t token[2] = { 0, 1 };
    const bool second[2] = { false, true };
    double work[4];
    const struct {
        struct ha_ref_weighed set;
        double is, may;
    } cases[] = {
        { { token, even, NULL, 2 }, 0, 1 },
        { { token, even, NULL, 1 }, 3 - 1, 0.5 * 4 },     /* |v - o_S| is 4 */
        { { token, even, second, 2 }, 1.5 - 1, 0.5 * 1 }, /* o is 1 */
        { { token, tilted, NULL, 2 }, 1 + 2 * tanh(e) - 1, expm1(2 * e) * 2 },
        { { token, tilted, second, 2 }, 3 / (1 + exp(-2 * e)) - 1, expm1(2 * e) * 2 + exp(2 * e) * 0.5 },
        { { token, tilted, NULL, 1 }, 2, 0.5 * 4 }, /* alone: its weight is 1 whatever its score */
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        double off2;
        const double got = ha_ref_certificate(q, 1, 1, &rows, HA_F32, &cases[i].set, work, &off2);
        assert_true(off2 == (cases[i].set.score == tilted ? e * e : 0));
        if (!(fabs(got - cases[i].is / cases[i].may) < 1e-12))
            fail_msg("%zu: %.17g, want %.17g", i, got, cases[i].is / cases[i].may);
    }
}

/* Of drawn data and scores that are off by any amount it is never more than 1; where nothing is off it is the one that
 * ha_ref_quality gives. */
TEST(test_certificate)
{
    enum { KEYS = 60, CHOSEN = 17 };
    for (size_t f = 0; f < ha_test_families; f++) {
        const struct ha_test_input in = ha_test_input(f, KEYS, DIM, HA_F32, f);
        uint32_t token[CHOSEN];
        double score[CHOSEN], work[2 * KEYS], one;
        bool left_out[CHOSEN] = { false };
        float got[DIM] = { 0 };
        struct ha_ref_quality quality;
        for (size_t j = 0; j < CHOSEN; j++) token[j] = (uint32_t)(j * 7 % KEYS);
        for (size_t wrong = 0; wrong < 4; wrong++) {
            for (size_t j = 0; j < CHOSEN; j++) {
                struct ha_rows row = in.rows;
                row.index = &token[j];
                row.keys = 1;
                score[j] = ha_ref_weights(in.q, DIM, (double)in.scale, &row, in.dtype, &one)
                           + (wrong % 2 ? 0.1 * (double)ha_rng_normal(3, f, j) : 0);
                left_out[j] = wrong > 1 && j % 3 == 0;
            }
            const struct ha_ref_weighed set = { token, score, left_out, CHOSEN };
            const double slack = ha_ref_certificate(in.q, DIM, (double)in.scale, &in.rows, in.dtype, &set, work, &one);
            if (!(slack <= 1) && !isnan(slack)) fail_msg("family %zu, wrong %zu: %.17g", f, wrong, slack);
            if (f == 0) assert_true(slack > 0.01);
            ha_ref_quality(in.q, DIM, (double)in.scale, &in.rows, in.dtype, got, token, CHOSEN, work, &quality);
            if (wrong == 0 && quality.mass > 1e-6) assert_true(near(slack, quality.cert_slack, 1e-6));
        }
        ha_test_release();
    }
}
