/* The bounds of the oracle against those of docs/measurement.md, computed term by term in long double. */

#include "reference/rows.h"
#include "reference/test_inputs.h"

enum { N = 40, DIM = 6 };
static const long double u = 0x1p-24L, eta = 0x1p-126L;

static long double gamma_of(long double h) { return h * u / (1 - h * u); }

static bool same(double got, long double want)
{
    if (isinf(want)) return (long double)got == want;
    return fabsl((long double)got - want) <= 1e-9L * fabsl(want);
}

static void attend_formula(const struct ha_test_input *in, const struct ha_bound *b, long double *bound,
                           long double *lse_bound)
{
    long double s[N], a[N], p[N], theta[N], e[N], m = -HUGE_VALL, d = 0, big_theta = 0, lowest = -HUGE_VALL, reach = 0;
    size_t used = 0;
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
    for (size_t j = 0; j < N; j++) {
        e[j] = (expm1l((long double)b->h_dot * u * (1 + u)) + (long double)b->kappa_s * u) * a[j]
               + (long double)b->kappa_t * u * (m - s[j]);
        lowest = fmaxl(lowest, s[j] - e[j]);
    }
    for (size_t j = 0; j < N; j++)
        if (s[j] + e[j] >= lowest - 104) used++, reach = fmaxl(reach, e[j] * (1 + 8 * u));
    const long double lost = N * (eta + (long double)b->eta_w) / d, g = gamma_of((long double)(b->h_sum + b->rescales));
    for (size_t j = 0; j < N; j++) {
        const long double eps = (gamma_of((long double)b->h_dot) + (long double)b->kappa_s * u) * a[j]
                                + (long double)b->kappa_t * u * (m - s[j])
                                + (1 + (long double)b->rescales) * (long double)b->exp_eps + (long double)b->u_w;
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
        const long double b2 = ((g + u_p * (1 + g)) * size + (fabsl(o) + b1) * g) / (1 - g)
                               + N * ((long double)b->eta_p * v + eta) / d;
        long double all = b1 + b2;
        all += 3 * u * (fabsl(o) + all) + eta;
        all += (long double)b->u_o * (fabsl(o) + all) + (long double)b->eta_o;
        bound[i] = all;
        if (big_theta < 1) continue;
        long double lo = HUGE_VALL, hi = -HUGE_VALL;
        for (size_t j = 0; j < N; j++) {
            const long double x = (long double)in->v[j * DIM + i];
            if (s[j] + e[j] >= lowest - 104) lo = fminl(lo, x), hi = fmaxl(hi, x);
        }
        const long double w = fmaxl(fabsl(lo), fabsl(hi)), h = (long double)(b->h_sum + b->rescales) * u * (1 + u);
        long double out = (expl(2 * h) * (1 + u_p) - 1) * w;
        out += 2 * ((long double)used * (long double)b->eta_p * w + N * eta * (1 + v));
        out += 3 * u * (w + out) + eta;
        out += (long double)b->u_o * (w + out) + (long double)b->eta_o;
        bound[i] = fmaxl(hi + out - o, o - lo + out);
    }
    const long double exp_eps = (long double)b->exp_eps, u_w = (long double)b->u_w;
    *lse_bound = big_theta < 1 ? -log1pl(-big_theta) - log1pl(-g) + (long double)b->log_eps * (fabsl(logl(d)) + 1e-3L)
                               : reach + (long double)(b->h_sum + b->rescales) * u * (1 + u)
                                     + (1 + (long double)b->rescales) * exp_eps * (1 + exp_eps) + u_w * (1 + u_w)
                                     + 2 * N * (eta + (long double)b->eta_w)
                                     + (long double)b->log_eps * (logl((long double)used) + 1e-3L);
    *lse_bound += 3 * u * fabsl(m) + u * fabsl(m + logl(d));
    *lse_bound += (long double)b->u_l * (fabsl(m + logl(d)) + *lse_bound) + (long double)b->eta_l;
}

TEST(test_attend)
{
    static const struct ha_bound bound[] = {
        { 4, 9, 0, 0x1p-24, 0x1p-23, 2, 3, .u_o = 0 },
        { 6, 40, 7, 0x1p-22, 0x1p-24, 4, 4, 0, 0, 0x1p-11, 0x1p-25, 0, 0, 0x1p-8, 0x1p-134, .one_sign = 0 },
        { 6, 5, 2, 0, 0x1p-10, 4, 4, 0x1p-11, 0x1p-25, 0x1p-8, 0x1p-134, .u_w = 0 },
        { 6, 5, 2, 0, 0x1p-10, 4, 4, 0, 0, 0, 0, 0x1p-11, 0x1p-25, 0x1p-11, 0x1p-25, .one_sign = 0 },
        { 1, 2, 0, 0, 0, 0, 0, 0x1p-8, 0x1p-9, .u_o = 0 },
    };
    static const float longer[] = { 1, 1e3f, 1e5f, 1e7f };
    size_t unknown = 0, all = 0;
    for (size_t f = 0; f < ha_test_families; f++)
        for (size_t x = 0; x < 4 * sizeof bound / sizeof bound[0]; x++, all++) {
            const size_t c = x / 4;
            const struct ha_test_input in = ha_test_input(f, N, DIM, HA_F16, c);
            for (size_t i = 0; i < DIM; i++) in.q[i] *= longer[x % 4];
            const struct ha_ref_state got = ha_test_attend(&in, &in.rows, &bound[c]);
            long double want[DIM], lse_bound;
            attend_formula(&in, &bound[c], want, &lse_bound);
            unknown += got.lse_bound > 1;
            if (!same(got.lse_bound, lse_bound))
                fail_msg("%s: LSE bound %g, by the formula %Lg", in.family, got.lse_bound, lse_bound);
            for (size_t i = 0; i < DIM; i++)
                if (!same(got.bound[i], want[i]))
                    fail_msg("%s: bound %g, by the formula %Lg", in.family, got.bound[i], want[i]);
            ha_test_release();
        }
    if (!(unknown > 50 && unknown < all - 50)) fail_msg("%zu of %zu without known weights", unknown, all);
}

/* exp(log_p + eps) - p where exp(eps) overflows or p underflows */
TEST(test_spread)
{
    assert_true(same(ha_ref_spread(-3, 0.5), expl(-3) * expm1l(0.5L)));
    assert_true(same(ha_ref_spread(-3, 2.5), expl(-0.5L) - expl(-3)));
    assert_true(same(ha_ref_spread(-800, 790), expl(-10)));
    assert_true(ha_ref_spread(-10, 2000) == HUGE_VAL);
    assert_true(ha_ref_spread(-HUGE_VAL, 1) == 0 && ha_ref_spread(-HUGE_VAL, HUGE_VAL) == 0);
}

enum { M = 5 };

/* o and LSE beside their bounds */
struct formula {
    long double o[DIM], bound[DIM], lse, lse_bound;
};

static void merge_formula(const struct ha_ref_state *part, const struct ha_merge_bound *b, struct formula *f)
{
    const bool direct = b->form == HA_FORM_DIRECT, logs = b->form != HA_FORM_MAX_SUM;
    const long double rescales = (long double)b->rescales * (M - 1), depth = M + (long double)b->depth_extra + rescales;
    const long double g = gamma_of(depth), g2 = gamma_of(depth + 2), flush = (1 + (long double)b->rescales) * eta;
    const long double exp_eps = (1 + rescales) * (long double)b->exp_eps + (logs ? 0 : u);
    long double max[M], number[M], pi[M], theta[M], top = -HUGE_VALL, sum = 0, big_theta = 0;
    for (size_t k = 0; k < M; k++) {
        max[k] = (long double)(logs ? part[k].lse : part[k].max);
        number[k] = logs ? 1 : (long double)part[k].sum;
        top = fmaxl(top, max[k]);
    }
    for (size_t k = 0; k < M; k++) sum += number[k] * expl(max[k] - top);
    for (size_t k = 0; k < M; k++) {
        const long double lambda = (long double)part[k].lse_bound, w = number[k] * expl(max[k] - top);
        pi[k] = w / sum;
        theta[k] = pi[k] * expm1l(lambda + 3 * u * (top - max[k] + lambda) + exp_eps) + flush * (1 + number[k]) / sum
                   + flush;
        big_theta += theta[k];
    }
    f->lse = top + logl(sum);
    f->lse_bound = -log1pl(-big_theta) - log1pl(-g);
    f->lse_bound += logs ? (long double)b->log_eps * (fabsl(logl(sum)) + 1e-3L) + u * fabsl(f->lse)
                         : 0x1p-52L * fabsl(f->lse);
    for (size_t k = 0; k < M && direct; k++) {
        const long double lambda = (long double)part[k].lse_bound;
        theta[k] = pi[k] * expm1l(lambda + 3 * u * (f->lse - max[k] + lambda + f->lse_bound) + exp_eps) + flush;
    }
    for (size_t i = 0; i < DIM; i++) {
        long double deviation = 0, inherited = 0, size = 0, own = 0, o = 0;
        for (size_t k = 0; k < M; k++) o += pi[k] * (long double)part[k].o[i];
        for (size_t k = 0; k < M; k++) {
            const long double x = (long double)part[k].o[i], bound = (long double)part[k].bound[i];
            deviation += theta[k] * fabsl(x - o);
            own += theta[k] * fabsl(x);
            inherited += (pi[k] + theta[k]) * bound;
            size += (pi[k] + theta[k]) * (fabsl(x) + bound);
        }
        const long double lost = M * flush * (1 + 1 / sum);
        long double all;
        if (direct) {
            all = expm1l(f->lse_bound) * fabsl(o) + expl(f->lse_bound) * (own + inherited + g2 * size) + lost;
        } else {
            const long double b1 = (deviation + inherited) / (1 - big_theta);
            all = b1 + (g2 * size / (1 - big_theta) + (fabsl(o) + b1) * g) / (1 - g) + lost;
            all += 3 * u * (fabsl(o) + all);
        }
        all += eta;
        f->o[i] = o;
        f->bound[i] = all + (long double)b->u_o * (fabsl(o) + all) + (long double)b->eta_o;
    }
}

static void state_make(struct ha_ref_state *s, uint64_t seed, size_t k)
{
    const double tiny = seed % 6 ? 1 : 1e-37; /* where underflow matters */
    s->max = (double)ha_rng_normal(seed, k, 0) * (seed % 7 ? 3 : 300) - (seed % 6 || k == 0 ? 0 : 87);
    s->sum = 1 + 100 * (double)ha_rng_uniform(seed, k, 99);
    s->lse = s->max + (seed % 2 ? log(s->sum) : 0);
    s->lse_bound = seed % 4 ? (double)ha_rng_uniform(seed, k, 1) * 1e-5 : 0.3;
    for (size_t i = 0; i < DIM; i++) {
        const bool zero = seed % 8 == 0 && i % 2 == 0; /* the bound is what underflow takes */
        s->o[i] = zero ? 0 : (double)ha_rng_normal(seed, k, 2 + i) * (k ? 1 / tiny : tiny);
        s->bound[i] = zero ? 0 : (double)ha_rng_uniform(seed, k, 50 + i) * 1e-5 * tiny;
    }
}

TEST(test_merge)
{
    for (enum ha_form form = 0; (int)form < HA_FORM_COUNT; form++)
        for (uint64_t seed = 0; seed < 100; seed++) {
            struct ha_ref_state part[M], got = ha_test_state(DIM);
            const struct ha_merge_traits traits = {
                .exp_eps = seed % 2 ? 0x1p-22 : 0,
                .log_eps = seed % 3 ? 0x1p-21 : 0,
                .depth_extra = (double)(seed % 3),
                .rescales = seed % 5 ? 0 : 1,
            };
            const struct ha_merge_bound b = ha_bound_merge(&traits, form, (enum ha_dtype)(seed % HA_DTYPE_COUNT));
            struct formula want;
            for (size_t k = 0; k < M; k++) {
                part[k] = ha_test_state(DIM);
                state_make(&part[k], seed, k);
                part[k].v_min = part[k].v_max = NULL;
            }
            merge_formula(part, &b, &want);
            ha_ref_merge(part, M, &b, &got);
            if (!same(got.lse, want.lse) || !same(got.lse_bound, want.lse_bound))
                fail_msg("%s, seed %llu: LSE %g within %g, by the formula %Lg within %Lg", ha_form_name(b.form),
                         (unsigned long long)seed, got.lse, got.lse_bound, want.lse, want.lse_bound);
            for (size_t i = 0; i < DIM; i++)
                if (!same(got.o[i], want.o[i]) || !same(got.bound[i], want.bound[i]))
                    fail_msg("%s, seed %llu: %g within %g, by the formula %Lg within %Lg", ha_form_name(b.form),
                             (unsigned long long)seed, got.o[i], got.bound[i], want.o[i], want.bound[i]);
            ha_test_release();
        }
}
