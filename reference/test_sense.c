/* Sensitivity: what is planted just above a bound is seen; honest designs are not much less sensitive than kernels like
 * ours, and inflated claims are; what a shape leaves no room for is refused, with the field. */

#include "reference/rows.h"
#include "reference/test_fp32.h"

#include <limits.h>

#define U 0x1p-24

static struct ha_why why;
static const struct ha_profile ours = { 8, 31, 32, 31, 2 * U, 2 * U, .exact_joins = true };

static struct ha_ref_state answer(const struct ha_test_input *in, const struct ha_profile *p)
{
    const struct ha_bound b = ha_bound_attend(p, in->dim, in->keys, 1);
    return ha_test_attend(in, &in->rows, &b);
}

static double insensitivity(const struct ha_test_input *in, const struct ha_profile *p, double exp_seen,
                            double log_seen)
{
    const struct ha_profile usual = ha_profile_usual(p, &ours, exp_seen, log_seen);
    const struct ha_ref_state a = answer(in, p), b = answer(in, &usual);
    const struct ha_ref_sense x = ha_ref_sensitivity(&a), y = ha_ref_sensitivity(&b);
    return ha_ref_insensitivity(&x, &y);
}

static const struct {
    size_t keys, dim;
} shape[] = { { 1, 8 }, { 2, 128 }, { 20, 64 }, { 300, 16 }, { 2500, 4 } };
enum { SHAPES = sizeof shape / sizeof shape[0] };

/* Designs that exist: sums of tensor cores in tiles, by a library, truncated; a key at a time, a tile at a time, with
 * compensation; fast exponentials, as far as may be claimed; a fast logarithm that was seen to be one. */
static const struct {
    const char *name;
    struct ha_profile profile;
    double log_seen;
} design[] = {
    { "tensor cores",
      { 32, 89, 32, 104, 4 * U, 4 * U, .join_keys = UINT_MAX, .joins_max = 1, .weight_type = HA_BF16 },
      0 },
    { "a library of products",
      { 1, 16, 1, 64, 4 * U, 4 * U, .join_keys = UINT_MAX, .weight_type = HA_F16, .truncates = true },
      0 },
    { "one lane, truncated", { 1, 0, 1, 0, 2 * U, 2 * U, .join_keys = UINT_MAX, .truncates = true }, 0 },
    { "online, a key at a time", { 1, 0, 1, 0, 2 * U, 2 * U, .join_keys = 1 }, 0 },
    { "online, 64 keys at a time", { 1, 4, 8, 8, 4 * U, 4 * U, .join_keys = 64 }, 0 },
    { "compensated", { 64, 4, 1024, 4, 2 * U, 2 * U, .join_keys = UINT_MAX }, 0 },
    { "fast exp", { 8, 8, 32, 31, 0x1p-17, 2 * U, .join_keys = UINT_MAX }, 0 },
    { "fast exp and log", { 8, 8, 32, 31, 0x1p-18, 0x1p-11, .join_keys = UINT_MAX }, 0x1p-11 },
    { "all in 16 bits",
      { 8, 8, 32, 31, 4 * U, 4 * U, .join_keys = UINT_MAX, .weight_type = HA_BF16, .out_type = HA_BF16,
        .lse_type = HA_BF16, .sum_rounded = true },
      0 },
};

TEST(honest_designs_are_sensitive)
{
    double worst = 0;
    for (size_t f = 0; f < ha_test_families; f++)
        for (size_t s = 0; s < (test_small ? 3 : SHAPES); s++) {
            const struct ha_test_input in = ha_test_input(f, shape[s].keys, shape[s].dim, HA_F16, f + s);
            for (size_t i = 0; i < COUNT(design) + ha_test_methods; i++) {
                const struct ha_test_method *m = i < COUNT(design) ? NULL : &ha_test_method[i - COUNT(design)];
                const struct ha_profile p = m ? ha_test_method_profile(m, in.dtype) : design[i].profile;
                const double x = insensitivity(&in, &p, (double)NAN, m ? (double)NAN : design[i].log_seen);
                worst = fmax(worst, x);
                if (!(x <= HA_SENSE_MOST))
                    fail_msg("%s, %s: %g times", m ? m->name : design[i].name, ha_test_input_says(&in), x);
            }
            ha_test_release();
        }
    print_message("honest designs: at most %.3g times\n", worst);
}

/* What is within each field's range by itself, and adds up, over keys that weigh about the same. */
TEST(inflated_claims_are_not)
{
    static const struct {
        const char *name;
        struct ha_profile profile;
        size_t keys;
    } inflated[] = {
        { "log", { 8, 8, 32, 31, 2 * U, 0x1p-11, .join_keys = UINT_MAX }, 20 },
        { "a bad exp, rescaled for each key", { 8, 8, 32, 31, 0x1p-16, 2 * U, .join_keys = 1 }, 300 },
        { "all at the end of its range", { 1, 192, 1, 148, 0x1p-16, 0x1p-11, .join_keys = 1, .truncates = true }, 20 },
    };
    for (size_t i = 0; i < COUNT(inflated); i++) {
        const struct ha_test_input in = ha_test_input(0, inflated[i].keys, 64, HA_F16, i);
        const double x = insensitivity(&in, &inflated[i].profile, 3 * U, 3 * U);
        if (!(x > HA_SENSE_MOST)) fail_msg("%s: %g times", inflated[i].name, x);
        ha_test_release();
    }
}

TEST(a_factor_is_of_what_is_known)
{
    const struct ha_ref_sense fine = { 1e-5, 2e-5 }, worse = { 5e-5, 4e-5 }, blind = { HUGE_VAL, 1e-5 },
                              lost = { 1e-5, HUGE_VAL }, huge = { 0.3, 0.02 }, nothing = { (double)NAN, (double)NAN },
                              none = { 0, 0 };
    assert_true(ha_ref_insensitivity(&worse, &fine) > 4.99 && ha_ref_insensitivity(&worse, &fine) < 5.01);
    assert_true(ha_ref_insensitivity(&fine, &worse) == 0.5 && ha_ref_insensitivity(&nothing, &nothing) == 1);
    assert_true(isinf(ha_ref_insensitivity(&fine, &none)) && ha_ref_insensitivity(&none, &none) == 1);
    assert_true(isinf(ha_ref_insensitivity(&blind, &fine)) && isinf(ha_ref_insensitivity(&lost, &fine)));
    assert_true(isinf(ha_ref_insensitivity(&blind, &huge)) && ha_ref_insensitivity(&blind, &blind) == 1);
    assert_true(ha_ref_insensitivity(&(struct ha_ref_sense){ 9, 9 }, &huge) == 1);
}

/* Of the row's elements the keenest counts; what has no bound, nothing to be relative to, or no keys says so. */
TEST(sensitivity_of_a_row)
{
    double o[] = { 0, -2, 1 }, bound[] = { 1e-6, 4e-6, 1e-6 };
    struct ha_ref_state s = { .o = o, .bound = bound, .dim = 3, .lse = 5, .lse_bound = 0.5 };
    assert_true(ha_ref_sensitivity(&s).o == 1e-6 && ha_ref_sensitivity(&s).lse == expm1(0.5));
    o[1] = -8;
    assert_true(ha_ref_sensitivity(&s).o == 5e-7);
    s.lse_bound = 800; /* beyond what exp can say, but no infinite bound */
    assert_true(ha_ref_sensitivity(&s).lse > 1e300 && isfinite(ha_ref_sensitivity(&s).lse));
    bound[0] = HUGE_VAL;
    assert_true(isinf(ha_ref_sensitivity(&s).o));
    bound[0] = (double)NAN;
    s.lse_bound = (double)NAN;
    assert_true(isinf(ha_ref_sensitivity(&s).o) && isinf(ha_ref_sensitivity(&s).lse));
    bound[0] = o[1] = o[2] = 0;
    s.lse = -HUGE_VAL;
    assert_true(isnan(ha_ref_sensitivity(&s).o) && isnan(ha_ref_sensitivity(&s).lse));
}

/* Whatever is right is so little off that more than the bound besides is seen; and what the judge is blind to is not.
 */
TEST(what_is_planted_is_seen)
{
    for (size_t f = 0; f < ha_test_families; f++)
        for (size_t s = 0; s < 3; s++) {
            static uint32_t order[300];
            const struct ha_test_input in = ha_test_input(f, shape[s].keys, shape[s].dim, HA_F16, f);
            const struct ha_test_method *m = &ha_test_method[f % ha_test_methods];
            const struct ha_profile p = ha_test_method_profile(m, in.dtype);
            struct ha_ref_state want = answer(&in, &p);
            float o[HA_TEST_DIM_MAX], copy[HA_TEST_DIM_MAX];
            size_t last = in.keys;
            for (size_t j = 0; j < in.keys; j++) order[j] = (uint32_t)j;
            const float lse = ha_test_fp32_attend(m, &in, order, &last, 1, o);
            for (size_t d = 0; d < in.dim; d++) o[d] = ha_round(o[d], in.dtype);
            assert_true(ha_ref_ratio(o, lse, &want, NULL) <= 1);
            if (!ha_ref_sees(o, lse, &want, copy)) fail_msg("%s: not seen", ha_test_input_says(&in));
            ha_test_release();
        }
    for (int down = 0; down < 2; down++)
        for (double bound = 0; bound < 1; bound += 1e-3 + bound) {
            const double want = down ? 1 + bound / 2 : 1 - bound / 2;
            const double off = fabs((double)ha_ref_planted(1, want, bound) - want);
            assert_true(off > bound && off <= bound * 1.51 + 2 * U);
        }
}

static void refused(const struct ha_profile *p, size_t head_dim, size_t keys, const char *says)
{
    why.text[0] = 0;
    const enum ha_status st = ha_claims_attend("profile[f16]", p, head_dim, keys, 1, &why);
    if (st != (says ? HA_FAIL : HA_OK) || (says && !strstr(why.text, says)))
        fail_msg("%zu x %zu: status %d '%s', not '%s'", keys, head_dim, (int)st, why.text, says ? says : "");
}

/* The range of what is added grows with the sum; and where the claims alone leave nothing known they are refused. */
TEST(claims_follow_from_the_shape)
{
    struct ha_profile p = ours;
    refused(&p, 8, 1, NULL);
    refused(&p, 8, 1 << 20, NULL);
    p.sum_extra = 200;
    refused(&p, 64, 72, NULL);
    refused(&p, 64, 71, "its profile[f16]: sum_extra is 200, not from 0 to 199 where the keys are 71");
    p.sum_extra = 31;
    p.dot_extra = 200;
    refused(&p, 72, 1, NULL);
    refused(&p, 64, 1, "its profile[f16]: dot_extra is 200, not from 0 to 192 where head_dim is 64");
    p = (struct ha_profile){ 1, 0, 1, 0, 0x1p-16, 2 * U, .join_keys = 1 };
    refused(&p, 64, 7000, NULL);
    refused(&p, 64, 8192, "its profile[f16]: exp_eps is 1.52588e-05: a weight that is rescaled 8191 times");
    p.joins_max = 100;
    refused(&p, 64, 8192, NULL);
    p = (struct ha_profile){ 1, 0, 1, 0, 2 * U, 2 * U, .join_keys = UINT_MAX };
    refused(&p, 64, 1 << 20, NULL);
    refused(&p, 64, 1 << 21, "its profile[f16]: sum_lanes is 1 and join_keys is 4294967295: a sum over 2097152 keys");
    for (size_t i = 0; i < COUNT(design) + ha_test_methods; i++)
        for (size_t keys = 0; keys < 131073; keys += 1 + keys)
            refused(i < COUNT(design) ? &design[i].profile : &ha_test_method[i - COUNT(design)].profile, 8, keys, NULL);
}

static void merge_refused(double exp_eps, double depth_extra, double rescales, size_t states, const char *says)
{
    const struct ha_merge_traits t = { .exp_eps = exp_eps, .depth_extra = depth_extra, .rescales = rescales };
    const enum ha_status st = ha_claims_merge(&t, states, &why);
    if (st != (says ? HA_FAIL : HA_OK) || (says && !strstr(why.text, says)))
        fail_msg("%zu states: status %d '%s', not '%s'", states, (int)st, why.text, says ? says : "");
}

TEST(claims_follow_from_the_states)
{
    merge_refused(2 * U, 18, 0, 2, NULL);
    merge_refused(2 * U, 18.5, 0, 2, "its traits: depth_extra is 18.5, not from 0 to 18 where 2 states are merged");
    merge_refused(2 * U, 64, 1, 48, NULL);
    merge_refused(2 * U, 0, 1, 0, NULL);
    merge_refused(0x1p-16, 0, 1, 7000, NULL);
    merge_refused(0x1p-16, 0, 1, 8192, "its traits: exp_eps is 1.52588e-05: a weight of 8192 states");
    merge_refused(0, 0, 2, 1 << 20, "its traits: rescales is 2: a sum over 1048576 states");
}

/* What stands in a row's place: the types and joins of whom it stands for, our numbers, or what was seen. */
TEST(usual_claims)
{
    const struct ha_profile of = { .dot_lanes = 9,
                                   .dot_extra = 90,
                                   .sum_lanes = 90,
                                   .sum_extra = 90,
                                   .exp_eps = 1e-5,
                                   .log_eps = 1e-5,
                                   .join_keys = 7,
                                   .joins_max = 5,
                                   .weight_type = HA_BF16,
                                   .out_type = HA_F16,
                                   .lse_type = HA_BF16,
                                   .sum_rounded = true,
                                   .truncates = true,
                                   .operand_eps = 0x1p-11,
                                   .logit_type = HA_F16,
                                   .score_type = HA_F16,
                                   .sum_least = 0.5 };
    struct ha_profile p = ha_profile_usual(&of, &ours, 1e-6, (double)NAN);
    assert_true(p.dot_lanes == 1 && p.sum_lanes == 1 && p.dot_extra == 31 && p.sum_extra == 31 && p.exp_eps == 1e-6
                && p.log_eps == 2 * U && p.join_keys == 7 && p.joins_max == 5 && p.weight_type == HA_BF16
                && p.out_type == HA_F16 && p.lse_type == HA_BF16 && p.sum_rounded && !p.truncates && !p.exact_joins
                && p.score_type == HA_F16 && p.sum_least == 0.5 && p.operand_eps == 0x1p-11 && p.logit_type == HA_F16);
    const struct ha_merge_traits mine = { .exp_eps = 2 * U, .log_eps = 2 * U }, theirs = {
        .forms = 5, .exp_eps = 1e-5, .log_eps = 1, .depth_extra = 9, .rescales = 2
    };
    const struct ha_merge_traits t = ha_traits_usual(&theirs, &mine, (double)NAN, 1e-6);
    assert_true(t.forms == 5 && t.exp_eps == 2 * U && t.log_eps == 1e-6 && t.depth_extra == 0 && t.rescales == 1);
}

/* A number that the declared type cannot hold was not rounded to it. */
TEST(numbers_of_a_type)
{
    const float o[] = { 1, -0.f, INFINITY, NAN, 0x1.004p0f, 0x1p-24f }, bad[] = { 1, 0x1.002p0f };
    struct ha_profile p = { .out_type = HA_F16 };
    size_t at = 99;
    assert_true(ha_ref_fits(o, 6, 1.1f, &p, &at));
    assert_true(!ha_ref_fits(bad, 2, 1, &p, &at) && at == 1);
    p.lse_type = HA_BF16;
    assert_true(!ha_ref_fits(o, 6, 1.1f, &p, &at) && at == 6);
    assert_true(ha_ref_fits(o, 6, -INFINITY, &p, &at));
    p.out_type = HA_BF16;
    assert_true(!ha_ref_fits(o, 6, 1, &p, &at) && at == 4);
    p = (struct ha_profile){ 0 };
    assert_true(ha_ref_fits(bad, 2, 1.1f, &p, &at));
}
