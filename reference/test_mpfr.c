/* The oracle against 200-bit arithmetic: its own error must be a negligible part of the bound. */

#include "reference/test_fp32.h"

#include <mpfr.h>

enum { BITS = 200, KEYS_MOST = 100000, DIM_MOST = 128 };
/* The oracle's own error, as a share of the bound. That of a merge may be as small as u|L|, and rounding L to
 * binary64 alone costs 2^-29 of it. */
static const double attend_error = 1e-9, merge_error = 2e-9;

/* the tightest profile that a kernel could claim, so that the bound is as small as it gets */
static const struct ha_profile tight = {
    .dot_lanes = 16, .dot_extra = 4, .sum_lanes = 16, .sum_extra = 4, .exp_eps = 0x1p-24, .log_eps = 0x1p-24
};

/* logarithms of weights, and the answer that they give: numbers of 200 bits */
static mpfr_t score[KEYS_MOST], exact_o[DIM_MOST], exact_lse;

static int setup(void **unused)
{
    for (size_t j = 0; j < KEYS_MOST; j++) mpfr_init2(score[j], BITS);
    for (size_t i = 0; i < DIM_MOST; i++) mpfr_init2(exact_o[i], BITS);
    mpfr_init2(exact_lse, BITS);
    return 0;
}

/* o = sum exp(s_j - max) v_j / sum exp(s_j - max) */
static void exact_average(size_t n, size_t dim, double (*value)(const void *arg, size_t j, size_t i), const void *arg)
{
    mpfr_t max, sum, w, t;
    mpfr_inits2(BITS, max, sum, w, t, (mpfr_ptr)NULL);
    mpfr_set(max, score[0], MPFR_RNDN);
    for (size_t j = 1; j < n; j++) mpfr_max(max, max, score[j], MPFR_RNDN);
    mpfr_set_zero(sum, 1);
    for (size_t i = 0; i < dim; i++) mpfr_set_zero(exact_o[i], 1);
    for (size_t j = 0; j < n; j++) {
        mpfr_sub(w, score[j], max, MPFR_RNDN);
        mpfr_exp(w, w, MPFR_RNDN);
        mpfr_add(sum, sum, w, MPFR_RNDN);
        for (size_t i = 0; i < dim; i++) {
            mpfr_mul_d(t, w, value(arg, j, i), MPFR_RNDN);
            mpfr_add(exact_o[i], exact_o[i], t, MPFR_RNDN);
        }
    }
    for (size_t i = 0; i < dim; i++) mpfr_div(exact_o[i], exact_o[i], sum, MPFR_RNDN);
    mpfr_log(exact_lse, sum, MPFR_RNDN);
    mpfr_add(exact_lse, exact_lse, max, MPFR_RNDN);
    mpfr_clears(max, sum, w, t, (mpfr_ptr)NULL);
}

static double row_value(const void *arg, size_t j, size_t i)
{
    const struct ha_test_input *in = arg;
    return (double)in->v[j * in->dim + i];
}

static void exact_attend(const struct ha_test_input *in)
{
    mpfr_t t;
    mpfr_init2(t, BITS);
    for (size_t j = 0; j < in->keys; j++) {
        mpfr_set_zero(score[j], 1);
        for (size_t i = 0; i < in->dim; i++) {
            mpfr_set_flt(t, in->q[i], MPFR_RNDN);
            mpfr_mul_d(t, t, (double)in->k[j * in->dim + i], MPFR_RNDN);
            mpfr_add(score[j], score[j], t, MPFR_RNDN);
        }
        mpfr_mul_d(score[j], score[j], (double)in->scale, MPFR_RNDN);
    }
    mpfr_clear(t);
    exact_average(in->keys, in->dim, row_value, in);
}

static double state_value(const void *arg, size_t j, size_t i) { return ((const struct ha_ref_state *)arg)[j].o[i]; }

/* L = max + ln sum */
static void exact_lse_of(mpfr_t lse, double max, double sum)
{
    mpfr_set_d(lse, sum, MPFR_RNDN);
    mpfr_log(lse, lse, MPFR_RNDN);
    mpfr_add_d(lse, lse, max, MPFR_RNDN);
}

static void exact_merge(const struct ha_ref_state *states, size_t count, enum ha_form form)
{
    for (size_t k = 0; k < count; k++) {
        if (form == HA_FORM_MAX_SUM) exact_lse_of(score[k], states[k].max, states[k].sum);
        else mpfr_set_d(score[k], states[k].lse, MPFR_RNDN);
    }
    exact_average(count, states[0].dim, state_value, states);
}

static double error_of(double got, mpfr_t want, double bound)
{
    mpfr_t e;
    mpfr_init2(e, BITS);
    mpfr_d_sub(e, got, want, MPFR_RNDN);
    const double error = fabs(mpfr_get_d(e, MPFR_RNDA));
    mpfr_clear(e);
    return bound == HUGE_VAL || error == 0 ? 0 : error / bound;
}

static double worst_error(const struct ha_ref_state *got)
{
    double worst = error_of(got->lse, exact_lse, got->lse_bound);
    for (size_t i = 0; i < got->dim; i++) {
        const double e = error_of(got->o[i], exact_o[i], got->bound[i]);
        const bool smaller = e <= worst;
        if (!smaller) worst = e;
    }
    return worst;
}

static void check_attend(size_t family, size_t keys, size_t dim, enum ha_dtype dtype, uint64_t seed)
{
    const struct ha_test_input in = ha_test_input(family, keys, dim, dtype, seed);
    const struct ha_bound b = ha_bound_attend(&tight, dim, keys, 1);
    const struct ha_ref_state got = ha_test_attend(&in, &in.rows, &b);
    exact_attend(&in);
    const double worst = worst_error(&got);
    if (!(worst <= attend_error)) fail_msg("%s: own error %g of the bound", ha_test_input_says(&in), worst);
    ha_test_release();
}

TEST(test_attend)
{
    static const struct {
        size_t keys, dim;
    } shape[] = { { 1, 1 }, { 2, 3 }, { 17, 80 }, { 128, 128 }, { 1000, 128 }, { 5000, 16 } };
    const size_t shapes = test_small ? 3 : sizeof shape / sizeof shape[0];
    for (size_t f = 0; f < ha_test_families; f++)
        for (size_t s = 0; s < shapes; s++)
            for (enum ha_dtype type = 0; (int)type < HA_DTYPE_COUNT; type++)
                check_attend(f, shape[s].keys, shape[s].dim, type, 100 * s + f);
}

/* So many keys that plain sums would show: equal weights and values, whose roundings have one sign. */
TEST(test_attend_long)
{
    for (size_t f = 0; f < ha_test_families; f++)
        if (strcmp(ha_test_family_name(f), "biased") == 0 || strcmp(ha_test_family_name(f), "ties") == 0)
            check_attend(f, test_small ? 20000 : 100000, 2, HA_F32, f);
}

/* Designs that store less than binary32: o, LSE and the weights that both sums take in 16 bits. Not the oracle but the
 * exact result is the judge, and only the bound is the oracle's. */
TEST(test_16_bits)
{
    static uint32_t order[KEYS_MOST];
    static const struct {
        size_t keys, dim;
    } shape[] = { { 1, 8 }, { 17, 80 }, { 129, 64 }, { 3000, 16 } };
    double worst = 0;
    for (size_t j = 0; j < KEYS_MOST; j++) order[j] = (uint32_t)j;
    for (size_t f = 0; f < ha_test_families; f++)
        for (size_t s = 0; s < (test_small ? 3 : sizeof shape / sizeof shape[0]); s++)
            for (enum ha_dtype type = HA_F16; (int)type < HA_DTYPE_COUNT; type++) {
                const struct ha_test_input in = ha_test_input(f, shape[s].keys, shape[s].dim, type, 10 * s + f);
                exact_attend(&in);
                for (size_t m = 0; m < ha_test_methods; m++) {
                    const struct ha_profile p = ha_test_method_profile(&ha_test_method[m], type);
                    const struct ha_bound b = ha_bound_attend(&p, in.dim, in.keys, 1);
                    struct ha_ref_state got = ha_test_attend(&in, &in.rows, &b);
                    float o[HA_TEST_DIM_MAX];
                    got.lse = (double)ha_test_fp32_attend(&ha_test_method[m], &in, order, &in.keys, 1, o);
                    for (size_t i = 0; i < in.dim; i++) got.o[i] = (double)ha_round(o[i], type);
                    const double e = worst_error(&got);
                    if (!(e <= 1))
                        fail_msg("%s, %s: error %g of the bound", ha_test_method[m].name, ha_test_input_says(&in), e);
                    worst = fmax(worst, e);
                }
                ha_test_release();
            }
    print_message("largest error %.3g of the bound\n", worst);
    assert_true(worst > 0.5);
}

TEST(test_weights)
{
    const struct ha_test_input in = ha_test_input(0, 300, 64, HA_F16, 7);
    double p[300], sum = 0;
    const double lse = ha_ref_weights(in.q, in.dim, (double)in.scale, &in.rows, in.dtype, p);
    exact_attend(&in);
    assert_true(error_of(lse, exact_lse, 1) <= 1e-14);
    for (size_t i = 0; i < in.dim; i++) {
        double o = 0;
        for (size_t j = 0; j < in.keys; j++) o += p[j] * (double)in.v[j * in.dim + i];
        assert_true(error_of(o, exact_o[i], 1) <= 1e-14);
    }
    for (size_t j = 0; j < in.keys; j++) sum += p[j];
    assert_true(fabs(sum - 1) <= 1e-14);
}

/* Gaps and offsets between the LSEs that a merge meets; -inf is an empty state. */
static const double lse_case[][4] = {
    { 0, 0, 0, 0 },
    { 0, 1e-7, -0.0, 1 },
    { 100, 99, 98, 97 },
    { 1000, 999, -1000, 0 },
    { -120, -121, -HUGE_VAL, -122 },
    { 88, 0, -94, -150 },
    { 0, -87.5, -104, -60 },
    { 104, 0, 0, 150 },
    { 1e4, 1e4 + 1, 1e4 - 1, 1e4 },
    { 3e5, 3e5 - 0.5, 3e5 + 0.25, 0 },
    { -HUGE_VAL, -1e5, -1e5, -6e4 },
    { -6e4, -6e4, -1.1e4, -1e5 },
    { 12.5, -HUGE_VAL, -HUGE_VAL, 20.1 },
    { 20.1, 13.8, 13.8, 13.8 },
    { 0x1.fffffep127, -0x1.fffffep127, 0, 1e30 },
    { 1e30, 1e30, -1e30, 0 },
};

/* the LSE that (max, sum) stand for becomes got's own, whose error binary64 cannot hide then */
static void use_pair(struct ha_ref_state *got)
{
    exact_lse_of(score[0], got->max, got->sum);
    mpfr_sub(exact_lse, exact_lse, score[0], MPFR_RNDN);
    got->lse = 0;
}

static void check_merge(const struct ha_ref_state *states, size_t count, size_t dim, enum ha_form form, uint64_t seed)
{
    static struct ha_ref_state used[600];
    size_t n = 0;
    for (size_t k = 0; k < count; k++)
        if (states[k].max > -HUGE_VAL) used[n++] = states[k];
    struct ha_ref_state got = ha_test_state(dim);
    const struct ha_merge_traits traits = { .exp_eps = 0x1p-24, .log_eps = 0x1p-24 };
    const struct ha_merge_bound b = ha_bound_merge(&traits, form, HA_F32);
    ha_ref_merge(states, count, &b, &got);
    if (n > 1) { /* one alone is copied: test_merge_edge.c */
        exact_merge(used, n, form);
        if (form == HA_FORM_MAX_SUM) use_pair(&got);
        const double worst = worst_error(&got);
        if (!(worst <= merge_error))
            fail_msg("%s, %zu states, seed %llu: own error %g of the bound", ha_form_name(form), count,
                     (unsigned long long)seed, worst);
    }
}

static void state_make(struct ha_ref_state *s, enum ha_form form, double lse, uint64_t seed, size_t k)
{
    s->lse = s->max = lse;
    s->sum = form == HA_FORM_MAX_SUM ? exp(12 * (double)ha_rng_uniform(seed, k, 98)) : 1;
    s->lse_bound = seed & 1 ? 1e-7 : 0;
    for (size_t i = 0; i < s->dim; i++) {
        const double size = seed & 2 ? pow(10, 9 * (double)i - 36) : seed & 8 ? (k % 2 ? -1e30 : 1e30) : 1;
        s->o[i] = (double)ha_rng_normal(seed & 8 ? 0 : seed, seed & 8 ? 0 : k, i) * size;
        s->bound[i] = seed & 4 ? 1e-6 * fabs(s->o[i]) : 0;
    }
}

TEST(test_merge)
{
    enum { DIM = 8, MOST = 512 };
    static struct ha_ref_state states[MOST];
    for (size_t k = 0; k < MOST; k++) states[k] = ha_test_state(DIM);
    for (enum ha_form form = 0; (int)form < HA_FORM_COUNT; form++) {
        for (size_t c = 0; c < sizeof lse_case / sizeof lse_case[0]; c++)
            for (size_t count = 2; count <= 4; count++)
                for (uint64_t seed = 0; seed < 16; seed++) {
                    for (size_t k = 0; k < count; k++) state_make(&states[k], form, lse_case[c][k], seed, k);
                    check_merge(states, count, DIM, form, seed);
                }
        for (uint64_t seed = 0; seed < 16; seed++)
            for (size_t many = 0; many < 2; many++) {
                const size_t count = test_small || !many ? 70 : MOST;
                for (size_t k = 0; k < count; k++)
                    state_make(&states[k], form, (seed & 1 ? 30.0 : 0.5) * (double)ha_rng_normal(seed, k, 97), seed, k);
                check_merge(states, count, DIM, form, seed);
            }
    }
}

TEST_MAIN { return test_all("tests", setup, NULL); }
