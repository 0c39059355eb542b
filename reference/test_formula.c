/* The bounds, term by term as docs/measurement.md states them, in long double and in no hurry. */

#include "reference/error.h"
#include "reference/test_inputs.h"
#include "reference/test_state.h"

#include "harness/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { N = 40, DIM = 6 };
static const long double u = 0x1p-24L, eta = 0x1p-126L;

static long double gamma_of(long double h) { return h * u / (1 - h * u); }

static bool same(double got, long double want)
{
    if (isinf(want)) return (long double)got == want;
    return fabsl((long double)got - want) <= 1e-9L * fabsl(want);
}

static void attend_formula(const struct ha_test_input *in, const struct ha_bound *b, long double *bound, long double *lse_bound)
{
    long double s[N], a[N], p[N], theta[N], m = -HUGE_VALL, d = 0, big_theta = 0;
    for (size_t j = 0; j < N; j++) {
        s[j] = a[j] = 0;
        for (size_t i = 0; i < DIM; i++) {
            const long double t = (long double)in->q[i] * (long double)in->k[j * DIM + i];
            s[j] += t;
            a[j] += fabsl(t);
        }
        s[j] *= (long double)in->scale;
        a[j] *= (long double)in->scale;
        m = fmaxl(m, s[j]);
    }
    for (size_t j = 0; j < N; j++) d += expl(s[j] - m);
    const long double lost = N * eta / d, g = gamma_of((long double)(b->h_sum + b->rescales));
    for (size_t j = 0; j < N; j++) {
        const long double eps = (gamma_of((long double)b->h_dot) + (long double)b->kappa_s * u) * a[j] + (long double)b->kappa_t * u * (m - s[j]) +
                                (1 + (long double)b->rescales) * (long double)b->exp_eps;
        p[j] = expl(s[j] - m) / d;
        theta[j] = expm1l(eps);
        big_theta += p[j] * theta[j];
    }
    big_theta += lost;
    for (size_t i = 0; i < DIM; i++) {
        long double o = 0, v = 0, size = 0, b1 = 0;
        for (size_t j = 0; j < N; j++) {
            const long double x = (long double)in->v[j * DIM + i];
            o += p[j] * x;
            v = fmaxl(v, fabsl(x));
        }
        for (size_t j = 0; j < N; j++) {
            const long double x = (long double)in->v[j * DIM + i];
            size += p[j] * fabsl(x) + p[j] * theta[j] * fabsl(x);
            b1 += p[j] * theta[j] * fabsl(x - o);
        }
        b1 = (b1 + lost * (v + fabsl(o))) / (1 - big_theta);
        size = (size + lost * v) / (1 - big_theta);
        const long double u_p = (long double)b->u_p;
        const long double b2 = ((g + u_p * (1 + g)) * size + (fabsl(o) + b1) * g) / (1 - g) + N * ((long double)b->eta_p * v + eta) / d;
        long double all = b1 + b2;
        all += 3 * u * (fabsl(o) + all) + eta;
        all += (long double)b->u_o * (fabsl(o) + all) + (long double)b->eta_o;
        bound[i] = big_theta < 1 ? all : HUGE_VALL;
    }
    *lse_bound = -log1pl(-big_theta) - log1pl(-g) + (long double)b->log_eps * (fabsl(logl(d)) + 1e-3L) + 3 * u * fabsl(m) + u * fabsl(m + logl(d));
    if (!(big_theta < 1)) *lse_bound = HUGE_VALL;
}

static void test_attend(void **unused)
{
    (void)unused;
    static const struct ha_bound bound[] = {
        { 4, 9, 0, 0x1p-24, 0x1p-23, 2, 3, 0, 0, 0, 0 },
        { 6, 40, 7, 0x1p-22, 0x1p-24, 4, 4, 0, 0, 0x1p-11, 0x1p-25 },
        { 6, 5, 2, 0, 0x1p-10, 4, 4, 0x1p-11, 0x1p-25, 0x1p-8, 0x1p-134 },
        { 1, 2, 0, 0, 0, 0, 0, 0x1p-8, 0x1p-9, 0, 0 },
    };
    size_t finite = 0;
    for (size_t f = 0; f < ha_test_families; f++)
        for (size_t c = 0; c < sizeof bound / sizeof bound[0]; c++) {
            struct ha_test_input in;
            ha_test_input_make(&in, f, N, DIM, HA_F16, c);
            const struct ha_rows rows = ha_test_input_rows(&in);
            struct ha_ref_state got = ha_test_attend(in.q, DIM, in.scale, &rows, in.dtype, &bound[c]);
            long double want[DIM], lse_bound;
            attend_formula(&in, &bound[c], want, &lse_bound);
            finite += got.lse_bound < HUGE_VAL;
            if (!same(got.lse_bound, lse_bound)) fail_msg("%s: LSE bound %g, by the formula %Lg", ha_test_family_name(f), got.lse_bound, lse_bound);
            for (size_t i = 0; i < DIM; i++)
                if (!same(got.bound[i], want[i])) fail_msg("%s: bound %g, by the formula %Lg", ha_test_family_name(f), got.bound[i], want[i]);
            ha_test_state_free(&got);
            ha_test_input_free(&in);
        }
    assert_true(finite > 50);
}

/* exp(log_p + eps) - p where exp(eps) overflows or p underflows */
static void test_spread(void **unused)
{
    (void)unused;
    assert_true(same(ha_ref_spread(-3, 0.5), expl(-3) * expm1l(0.5L)));
    assert_true(same(ha_ref_spread(-3, 2.5), expl(-0.5L) - expl(-3)));
    assert_true(same(ha_ref_spread(-800, 790), expl(-10)));
    assert_true(ha_ref_spread(-10, 2000) == HUGE_VAL);
    assert_true(ha_ref_spread(-HUGE_VAL, 1) == 0 && ha_ref_spread(-HUGE_VAL, HUGE_VAL) == 0);
}

static void test_merge(void **unused)
{
    (void)unused;
    enum { M = 5 };
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct ha_ref_state state[M], got = ha_test_state(DIM);
        const double exp_eps = seed % 2 ? 0x1p-22 : 0, log_eps = seed % 3 ? 0x1p-21 : 0;
        const double u_o = seed % 5 ? 0x1p-11 : 0, eta_o = seed % 5 ? 0x1p-25 : 0;
        long double max = -HUGE_VALL, sum = 0, big_theta = 0, pi[M], theta[M];
        for (size_t k = 0; k < M; k++) {
            state[k] = ha_test_state(DIM);
            state[k].lse = (double)ha_rng_normal(seed, k, 0) * (seed % 7 ? 3 : 300);
            state[k].lse_bound = seed % 4 ? (double)ha_rng_uniform(seed, k, 1) * 1e-5 : 0.3;
            for (size_t i = 0; i < DIM; i++) {
                state[k].o[i] = (double)ha_rng_normal(seed, k, 2 + i);
                state[k].bound[i] = (double)ha_rng_uniform(seed, k, 50 + i) * 1e-5;
            }
            max = fmaxl(max, (long double)state[k].lse);
        }
        for (size_t k = 0; k < M; k++) sum += expl((long double)state[k].lse - max);
        for (size_t k = 0; k < M; k++) {
            const long double lambda = (long double)state[k].lse_bound;
            pi[k] = expl((long double)state[k].lse - max) / sum;
            theta[k] = expm1l(lambda + 3 * u * (max - (long double)state[k].lse + lambda) + (long double)exp_eps);
            big_theta += pi[k] * theta[k];
        }
        big_theta += M * eta / sum;
        const long double lse = max + logl(sum);
        const long double lse_bound = -log1pl(-big_theta) - log1pl(-gamma_of(M)) + (long double)log_eps * (fabsl(logl(sum)) + 1e-3L) + u * fabsl(lse);
        ha_ref_merge(state, M, exp_eps, log_eps, u_o, eta_o, &got);
        assert_true(same(got.lse, lse) && same(got.lse_bound, lse_bound));
        for (size_t i = 0; i < DIM; i++) {
            long double o = 0, b1 = 0, size = 0;
            for (size_t k = 0; k < M; k++) o += pi[k] * (long double)state[k].o[i];
            for (size_t k = 0; k < M; k++) {
                const long double ok = (long double)state[k].o[i], bk = (long double)state[k].bound[i];
                b1 += pi[k] * theta[k] * fabsl(ok - o) + pi[k] * (1 + theta[k]) * bk;
                size += pi[k] * (1 + theta[k]) * (fabsl(ok) + bk);
            }
            b1 /= 1 - big_theta;
            size /= 1 - big_theta;
            long double all = b1 + (gamma_of(M + 2) * size + (fabsl(o) + b1) * gamma_of(M)) / (1 - gamma_of(M));
            all += 3 * u * (fabsl(o) + all);
            all += (long double)u_o * (fabsl(o) + all) + (long double)eta_o;
            if (!same(got.bound[i], all)) fail_msg("seed %llu: bound %g, by the formula %Lg", (unsigned long long)seed, got.bound[i], all);
        }
        for (size_t k = 0; k < M; k++) ha_test_state_free(&state[k]);
        ha_test_state_free(&got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_attend), cmocka_unit_test(test_spread), cmocka_unit_test(test_merge) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
