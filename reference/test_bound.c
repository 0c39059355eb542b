/* No wrong result is within the bound, and what it is made of. That it holds for honest designs is in test_alarms.c. */

#include "reference/test_fp32.h"

enum { KEYS_MAX = 2 * HA_CHUNK_KEYS + 2000 };

static void natural_order(uint32_t *order, size_t n)
{
    for (size_t j = 0; j < n; j++) order[j] = (uint32_t)j;
}

/* A result that is not attention over these keys, with the bound of a 16-lane kernel. */
static double ratio_of(const struct ha_test_input *in, const struct ha_test_input *wrong, const uint32_t *order,
                       size_t n, double lse_factor)
{
    const struct ha_test_method *m = &ha_test_method[2];
    const struct ha_bound b = ha_bound_attend(&m->profile, in->dim, in->keys, 1);
    const struct ha_ref_state want = ha_test_attend(in, &in->rows, &b);
    float o[HA_TEST_DIM_MAX];
    const float lse = ha_test_fp32_attend(m, wrong, order, &n, 1, o) * (float)lse_factor;
    return ha_ref_ratio(o, lse, &want, NULL);
}

TEST(test_wrong_results)
{
    static uint32_t order[KEYS_MAX];
    for (uint64_t seed = 0; seed < 4; seed++) {
        const struct ha_test_input in = ha_test_input(0, 4096, 64, HA_F16, seed);
        struct ha_test_input other = in;
        other.scale *= 1.01f;
        natural_order(order, in.keys);
        assert_true(ratio_of(&in, &in, order, in.keys, 1) <= 1);
        assert_true(ratio_of(&in, &in, order + 1, in.keys - 1, 1) > 2); /* first token dropped */
        assert_true(ratio_of(&in, &in, order, in.keys - 1, 1) > 2);     /* last token dropped */
        order[in.keys] = HA_CHUNK_KEYS;
        assert_true(ratio_of(&in, &in, order, in.keys + 1, 1) > 2);      /* a token counted twice */
        assert_true(ratio_of(&in, &in, order, in.keys, 1 / log(2)) > 2); /* base-2 LSE */
        assert_true(ratio_of(&in, &other, order, in.keys, 1) > 2);       /* scale off by 1% */
        order[0] = 1;
        assert_true(ratio_of(&in, &in, order, in.keys, 1) > 2); /* a row read twice, another never */
        ha_test_release();
    }
}

/* Scores so large that Theta >= 1: L is known but for some units, and o is the value of the key with the largest one.
 */
TEST(test_wrong_at_huge_scores)
{
    static uint32_t order[KEYS_MAX];
    natural_order(order, KEYS_MAX);
    for (uint64_t seed = 0; seed < 8; seed++) {
        const struct ha_test_input in = ha_test_input(0, 1000, 64, HA_F32, seed);
        for (size_t i = 0; i < in.dim; i++) in.q[i] *= 1e7f;
        const struct ha_test_method *m = &ha_test_method[2];
        const struct ha_bound b = ha_bound_attend(&m->profile, in.dim, in.keys, 1);
        const struct ha_ref_state want = ha_test_attend(&in, &in.rows, &b);
        float o[HA_TEST_DIM_MAX];
        const float lse = ha_test_fp32_attend(m, &in, order, &in.keys, 1, o);
        assert_true(want.lse > 9e4 && want.lse_bound > 1 && want.lse_bound < 100);
        assert_true(ha_ref_ratio(o, lse, &want, NULL) <= 1);
        size_t at;
        assert_true(ha_ref_ratio(o, 0, &want, &at) > 1 && at == in.dim);
        assert_true(ha_ref_ratio(o, lse + 1000, &want, &at) > 1 && at == in.dim);
        for (size_t j = 0; j < in.keys; j++) {
            const float *v = in.v + j * in.dim;
            if (memcmp(v, o, in.dim * sizeof *v) != 0) assert_true(ha_ref_ratio(v, lse, &want, NULL) > 1);
        }
        for (size_t i = 0; i < in.dim; i++) {
            const float right = o[i];
            o[i] = right + 1e-3f;
            assert_true(ha_ref_ratio(o, lse, &want, &at) > 1 && at == i);
            o[i] = right;
        }
        ha_test_release();
    }
}

TEST(test_ratio_rejects)
{
    double o[2] = { 1, 2 }, bound[2] = { 0.5, 0.5 }, lo[2] = { 0, 0 }, hi[2] = { 4, 4 };
    struct ha_ref_state want = {
        .o = o, .bound = bound, .lse = 3, .lse_bound = 0.5, .v_min = lo, .v_max = hi, .dim = 2
    };
    size_t at = 9;
    assert_true(ha_ref_ratio((float[]){ 1.25f, 2.125f }, 3, &want, &at) == 0.5 && at == 0);
    assert_true(ha_ref_ratio((float[]){ 1, 2 }, 4, &want, &at) == 2 && at == 2);
    assert_true(ha_ref_ratio((float[]){ 1, NAN }, 3, &want, &at) == HUGE_VAL && at == 1);
    assert_true(ha_ref_ratio((float[]){ 1, 2 }, NAN, &want, &at) == HUGE_VAL && at == 2);
    assert_true(ha_ref_ratio((float[]){ 1, INFINITY }, 3, &want, &at) == HUGE_VAL);
    o[0] = (double)NAN;
    assert_true(ha_ref_ratio((float[]){ 1, 2 }, 3, &want, &at) == HUGE_VAL && at == 0);
    o[0] = 1;
    bound[0] = bound[1] = 8;
    assert_true(ha_ref_ratio((float[]){ 0, 4 }, 3, &want, &at) == 0.25 && at == 1);
    assert_true(ha_ref_ratio((float[]){ 0, 4.000001f }, 3, &want, &at) == HUGE_VAL && at == 1);
    assert_true(ha_ref_ratio((float[]){ -0.000001f, 4 }, 3, &want, &at) == HUGE_VAL && at == 0);
    bound[0] = (double)NAN;
    assert_true(ha_ref_ratio((float[]){ 1.5f, 2 }, 3, &want, &at) == HUGE_VAL && at == 0);
    bound[0] = 8;
    want.lse_bound = (double)NAN;
    assert_true(ha_ref_ratio((float[]){ 1, 2 }, 3, &want, &at) == HUGE_VAL && at == 2);
    want.lse = -HUGE_VAL;
    want.lse_bound = 0;
    assert_true(ha_ref_ratio((float[]){ 1, 2 }, -INFINITY, &want, &at) == 0);
    assert_true(ha_ref_ratio((float[]){ 1, 2 }, -5e4f, &want, &at) == HUGE_VAL && at == 2);
    bound[0] = 0;
    assert_true(ha_ref_ratio((float[]){ 1 + 0x1p-23f, 2 }, -INFINITY, &want, &at) == HUGE_VAL && at == 0);
}

/* The numbers of chunks and paths, by hand: chunks of 2048 keys; joins every 16, at most 40 on any path, of weights in
 * f16; additions that truncate; joins that round nothing but an addition, and parts of 128 keys and more. */
/* 2^8 keys max|v| just below the largest binary32 number, and there. */
TEST(test_overflow_is_said)
{
    struct ha_bound b = { 8, 8, 0, 1e-7, 2e-7, 2, 3, .u_o = 0 };
    float v[16] = { 0 };
    for (size_t i = 0; i < 4; i++) {
        const bool huge_scores = i & 1, too_large = i & 2;
        struct ha_test_input in = ha_test_input(0, 16, 1, HA_F32, 1);
        in.rows.v = v;
        in.rows.v_stride_bytes = sizeof *v;
        v[11] = too_large ? -0x1p116f : -0x1.fffffcp115f;
        b.h_dot = huge_scores ? 1e12 : 8; /* no weight is known: all keys count */
        assert_true(ha_test_attend(&in, &in.rows, &b).may_overflow == too_large);
    }
    ha_test_release();
}

TEST(test_bound_parameters)
{
    static const struct ha_profile plain = { 16, 4, 8, 3, 1e-7, 2e-7, .join_keys = 0 },
                                   gpu = { 16, 4, 8, 3, 1e-7, 2e-7, 16, 40, .weight_type = HA_F16 },
                                   cut = { 16, 4, 8, 3, 1e-7, 2e-7, 16, 40, .weight_type = HA_F16, .truncates = true },
                                   low = { 16, 4,  8,       3,      1e-7,    2e-7,
                                           16, 40, HA_BF16, HA_F16, HA_BF16, .sum_rounded = true },
                                   exact = { 16, 4, 8, 3, 0x1p-23, 2e-7, .exact_joins = true };
    static const struct {
        const struct ha_profile *profile;
        size_t dim, keys, runs;
        struct ha_bound want; /* h_dot, h_sum, rescales, exp_eps, log_eps, kappa_s, kappa_t, u_p, eta_p, u_o, eta_o,
                               * u_w, eta_w, u_l, eta_l, one_sign */
    } row[] = {
        { &plain, 80, 2048, 1, { 9, 256 + 3 + 1, 0, 1e-7, 2e-7, 2, 3, .u_o = 0 } },
        { &plain, 81, 2049, 1, { 10, 256 + 3 + 1 + 1 + 4, 1, 1e-7, 2e-7, 4, 4, .u_o = 0 } },
        { &plain, 64, 2, 4, { 8, 1 + 3 + 1 + 1 + 4, 1, 1e-7, 2e-7, 4, 4, .u_o = 0 } }, /* one in each of two runs */
        { &plain, 64, 2048, 2, { 8, 256 + 3 + 1 + 1 + 4, 1, 1e-7, 2e-7, 4, 4, .u_o = 0 } },
        { &plain, 64, 2049, 2, { 8, 256 + 3 + 1 + 1 + 4, 1, 1e-7, 2e-7, 4, 4, .u_o = 0 } },
        { &plain, 64, 2050, 2, { 8, 256 + 3 + 1 + 2 + 4, 2, 1e-7, 2e-7, 4, 4, .u_o = 0 } }, /* 1 + 2049 */
        { &plain, 64, 131072, 1, { 8, 256 + 3 + 1 + 63 + 4, 63, 1e-7, 2e-7, 4, 4, .u_o = 0 } },
        { &plain, 64, 0, 3, { 8, 3 + 1, 0, 1e-7, 2e-7, 2, 3, .u_o = 0 } },
        { &plain, 64, 1, 1, { 8, 1 + 3 + 1, 0, 1e-7, 2e-7, 2, 3, .u_o = 0 } },
        { &gpu, 64, 16, 1, { 8, 2 + 3 + 1, 0, 1e-7, 2e-7, 2, 3, 0x1p-11, 0x1p-25, .u_o = 0 } },
        { &gpu, 64, 33, 1, { 8, 2 + 3 + 1 + 2 + 4, 2, 1e-7, 2e-7, 4, 4, 0x1p-11, 0x1p-25, .u_o = 0 } },
        { &gpu, 64, 131072, 2, { 8, 2 + 3 + 1 + 40 + 4, 40, 1e-7, 2e-7, 4, 4, 0x1p-11, 0x1p-25, .u_o = 0 } },
        { &cut, 64, 33, 1, { 2 * 8, 2 * (2 + 3) + 1 + 2 + 4, 2, 1e-7, 2e-7, 4, 4, 0x1p-11, 0x1p-25, .one_sign = 0.5 } },
        { &low,
          64,
          16,
          1,
          { 8, 2 + 3 + 1, 0, 1e-7, 2e-7, 2, 3, 0, 0, 0x1p-11, 0x1p-25, 0x1p-8, 0x1p-126, 0x1p-8, 0x1p-134,
            .one_sign = 0 } },
        { &exact, 80, 128, 1, { 9, 16 + 3 + 1, 0, 5 * 0x1p-24, 2e-7, 2, 3, .u_o = 0 } },
        { &exact, 80, 129, 1, { 9, 17 + 3 + 1 + 1, 0, 5 * 0x1p-24, 2e-7, 2, 3, .u_o = 0 } },           /* two parts */
        { &exact, 80, 131072, 3, { 9, 256 + 3 + 1 + 65 + 10, 0, 5 * 0x1p-24, 2e-7, 2, 3, .u_o = 0 } }, /* 1024 */
        { &exact, 80, 131073, 3, { 9, 256 + 3 + 1 + 65 + 11, 0, 5 * 0x1p-24, 2e-7, 2, 3, .u_o = 0 } },
        { &exact, 80, 0, 0, { 9, 3 + 1, 0, 5 * 0x1p-24, 2e-7, 2, 3, .u_o = 0 } },
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        const struct ha_bound got = ha_bound_attend(row[i].profile, row[i].dim, row[i].keys, row[i].runs);
        if (memcmp(&got, &row[i].want, sizeof got) != 0)
            fail_msg("row %zu: depths %g and %g, %g rescales, exp %g, log %g, kappas %g and %g", i, got.h_dot,
                     got.h_sum, got.rescales, got.exp_eps, got.log_eps, got.kappa_s, got.kappa_t);
    }
}

/* of two kernels the weaker, in each respect */
static void no_kernel(const struct ha_packed_chunk *c) { (void)c; }

/* Chunks as long as a context may be take no more additions than there are keys: the weaker of both allows for no more
 * than the two of them together do. */
TEST(chunks_are_no_longer_than_the_keys)
{
    const struct ha_profile warps = { .dot_lanes = 32,
                                      .sum_lanes = 32,
                                      .sum_extra = 104,
                                      .join_keys = UINT32_MAX,
                                      .joins_max = 1 },
                            plain = { .dot_lanes = 8, .sum_lanes = 8, .sum_extra = 7 };
    for (size_t most = 0; most < 100000; most += 1 + most / 3) {
        const struct ha_profile both = ha_profile_weaker(&warps, &plain, most);
        for (size_t keys = 0; keys <= most; keys += 1 + keys / 9) {
            const double x = ha_bound_attend(&warps, 64, keys, 1).h_sum, y = ha_bound_attend(&plain, 64, keys, 1).h_sum,
                         of_both = ha_bound_attend(&both, 64, keys, 1).h_sum;
            assert_true(of_both >= x && of_both >= y);
            if (keys == most) assert_true(of_both <= x + y);
        }
    }
}

TEST(test_profile_of_both)
{
    const struct ha_profile rows = { 8, 3, 32, 31, 1, 4, .exact_joins = true };
    struct ha_profile packed = { 32, 31, 32, 30, 2, 3, .exact_joins = true };
    struct ha_kernels k = { .profile = rows,
                            .packed_profile = { [HA_F16] = packed },
                            .attend_packed = { [HA_F16] = no_kernel } };
    struct ha_profile both = ha_profile_attend(&k, HA_F16);
    assert_true(both.dot_lanes == 8 && both.dot_extra == 31 && both.sum_lanes == 32 && both.sum_extra == 31
                && both.exact_joins && !both.varies);
    assert_true(both.exp_eps == 2 && both.log_eps == 4 && both.join_keys == 0 && both.weight_type == HA_F32
                && both.out_type == HA_F32 && both.lse_type == HA_F32 && !both.sum_rounded && !both.truncates);
    both = ha_profile_attend(&k, HA_F32); /* no packed kernel */
    assert_true(both.dot_extra == 3 && both.exp_eps == 1 && both.log_eps == 4);

    /* chunks of 128 keys: with each length of context at least what either kernel has by itself */
    packed.join_keys = 128;
    packed.sum_lanes = 64;
    packed.weight_type = packed.out_type = packed.lse_type = HA_F16;
    packed.sum_rounded = true;
    packed.truncates = true;
    packed.exact_joins = false;
    packed.varies = true;
    k.packed_profile[HA_F16] = packed;
    both = ha_profile_attend(&k, HA_F16);
    assert_true(both.join_keys == 128 && both.weight_type == HA_F16 && both.out_type == HA_F16
                && both.lse_type == HA_F16 && both.sum_rounded && both.truncates && !both.exact_joins && both.varies);
    struct ha_profile table = rows, least = rows;
    table.score_type = HA_F16;
    table.sum_least = 0.5;
    both = ha_profile_weaker(&rows, &table, 1000);
    assert_true(both.score_type == HA_F16 && both.sum_least == 0.5); /* divided is less off */
    least.sum_least = 0.25;
    both = ha_profile_weaker(&table, &least, 1000);
    assert_true(both.score_type == HA_F16 && both.sum_least == 0.25);
    for (int exact = 0; exact < 2; exact++) {
        k.packed_profile[HA_F16].truncates = false;
        k.packed_profile[HA_F16].exact_joins = exact;
        both = ha_profile_attend(&k, HA_F16);
        for (size_t keys = 0; keys < 10000; keys += 1 + keys / 9)
            for (size_t runs = 1; runs <= HA_RUNS_MAX; runs++) {
                const struct ha_bound b = ha_bound_attend(&both, 64, keys, runs);
                const struct ha_bound x = ha_bound_attend(&rows, 64, keys, runs),
                                      y = ha_bound_attend(&k.packed_profile[HA_F16], 64, keys, runs);
                assert_true(b.h_sum >= x.h_sum && b.h_sum >= y.h_sum && b.h_dot >= x.h_dot && b.h_dot >= y.h_dot);
                assert_true(b.rescales >= x.rescales && b.rescales >= y.rescales && b.kappa_s >= y.kappa_s
                            && b.u_p == y.u_p && b.u_w == y.u_w);
            }
    }
}
