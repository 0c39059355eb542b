/* exp, log and rounding to 16 bits as the tables declare them: the functions of each instruction set's vectors over
 * every float, and 2^x once more as the kernels of attention show it.
 *
 * Kernels take 2^x, x = s log2 e; a scale of ln 2, rounded, makes x the product q.k itself. A first key of score 0 is
 * the maximum, and head dimension 8 with unit queries makes each element of a key a score of its own, so that its
 * weight is 2^ that element. (The rounding of x where the scale is any is kappa_s of reference/bound.c, the rounding of
 * x - level there counts with exp: here both are exact.) */

#include "kernels/test_simd.h"

#include "harness/base/numeric.h"
#include "kernels/rows.h"
#include "kernels/test_data.h"

#include <math.h>

enum { DIM = 8, KEYS = HA_CHUNK_KEYS, BATCH = (KEYS - 1) * DIM };

/* ---- vectors by themselves ---- */

static void exp2_of_c(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = exp2f(x[i]);
}

static void exp_of_c(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = expf(x[i]);
}

/* a table that computes with another's vectors has none of its own */
static struct ha_test_simd simd_of(const struct ha_kernels *t)
{
    static const struct ha_test_simd c = { exp2_of_c, exp_of_c, NULL };
    const struct {
        const char *name;
        const struct ha_test_simd *simd;
    } all[] = {
        { "c", &c },
        { "avx2", &ha_test_simd_avx2 },
        { "avx512", &ha_test_simd_avx512 },
        { "neon", &ha_test_simd_neon },
        { "sve256", &ha_test_simd_sve256 },
        { "sve512", &ha_test_simd_sve512 },
    };
    for (size_t i = 0; i < COUNT(all); i++)
        if (!strcmp(all[i].name, t->name)) return *all[i].simd;
    return (struct ha_test_simd){ .exp2 = NULL };
}

/* in two pieces that are no multiples of the lanes */
static bool in_pieces(void (*of)(float *, size_t), float *x)
{
    enum { FIRST = 4096 + 5 };
    if (!of) return false;
    of(x, FIRST);
    of(x + FIRST, BATCH - FIRST);
    return true;
}
static bool by_exp2(const struct ha_kernels *t, float *x) { return in_pieces(simd_of(t).exp2, x); }
static bool by_exp(const struct ha_kernels *t, float *x) { return in_pieces(simd_of(t).exp, x); }
static double exp2_eps(const struct ha_kernels *t) { return fmin(t->traits.exp_eps, t->profile.exp_eps); }
static double exp_eps(const struct ha_kernels *t) { return t->traits.exp_eps; }

/* ---- and as the weights of kernels ---- */

static bool by_kernel(const struct ha_kernels *t, bool packed, float *x)
{
    static const float ln2 = 0x1.62e43p-1f;
    float q[DIM * DIM], level[DIM], sum[DIM], acc[DIM * DIM], *w = ha_guard_alloc(DIM * KEYS * sizeof *w);
    struct ha_test_kv kv;
    assert_true(ha_scale_log2(ln2) == 1);
    ha_test_kv_make(&kv, HA_TEST_DENSE, DIM, KEYS, HA_F32, 0);
    for (size_t i = 0; i < KEYS * DIM; i++) ha_test_kv_put_k(&kv, i / DIM, i % DIM, i < DIM ? 0 : x[i - DIM]);
    for (size_t i = 0; i < DIM * DIM; i++) q[i] = i / DIM == i % DIM;
    if (packed) {
        void *blocks = ha_guard_alloc(KEYS / HA_PACK_KEYS * ha_packed_block_bytes(DIM, HA_F32));
        t->pack(&(struct ha_pack){ .blocks = blocks, .rows = kv.rows, .head_dim = DIM, .dtype = HA_F32 });
        t->attend_packed[HA_F32](&(struct ha_packed_chunk){ .q = q,
                                                            .q_rows = DIM,
                                                            .q_stride = DIM,
                                                            .head_dim = DIM,
                                                            .packed = { .blocks = blocks, .keys = KEYS },
                                                            .keys = KEYS,
                                                            .scale = ln2,
                                                            .weights = w,
                                                            .weights_stride = KEYS,
                                                            .level = level,
                                                            .sum = sum,
                                                            .acc = acc,
                                                            .scratch = ha_guard_alloc(HA_PACKED_SCRATCH) });
    } else {
        t->attend_chunk(&(struct ha_chunk){ .q = q,
                                            .q_rows = DIM,
                                            .q_stride = DIM,
                                            .head_dim = DIM,
                                            .rows = kv.rows,
                                            .dtype = HA_F32,
                                            .scale = ln2,
                                            .weights = w,
                                            .weights_stride = KEYS,
                                            .level = level,
                                            .sum = sum,
                                            .acc = acc });
    }
    for (size_t r = 0; r < DIM; r++) {
        assert_true(level[r] == 0 && w[r * KEYS] == 1);
        for (size_t j = 1; j < KEYS; j++) x[(j - 1) * DIM + r] = w[r * KEYS + j];
    }
    ha_guard_release(0);
    return true;
}
static bool by_chunk(const struct ha_kernels *t, float *x) { return by_kernel(t, false, x); }
static bool by_packed(const struct ha_kernels *t, float *x) { return by_kernel(t, true, x); }
static double chunk_eps(const struct ha_kernels *t) { return t->profile.exp_eps; }
static double packed_eps(const struct ha_kernels *t) { return t->packed_profile[HA_F32].exp_eps; }

/* ---- exp ---- */

enum { EXP2, EXP, CHUNK, PACKED, WAYS };
static const struct {
    const char *name;
    bool (*run)(const struct ha_kernels *t, float *x); /* [BATCH], in place; false: the table has no such */
    double (*exact)(double x), (*declared)(const struct ha_kernels *t);
} ways[WAYS] = {
    [EXP2] = { "exp2", by_exp2, exp2, exp2_eps },
    [EXP] = { "exp", by_exp, exp, exp_eps },
    [CHUNK] = { "2^x of attend_chunk", by_chunk, exp2, chunk_eps },
    [PACKED] = { "2^x of attend_packed", by_packed, exp2, packed_eps },
};

/* Every stride-th float from least to most, times `sign`. Where the result is below the normal range, it may be off by
 * one subnormal step: underflow is gradual. */
static void sweep(size_t way, float least, float most, float sign, uint32_t stride)
{
    static float x[BATCH], y[BATCH];
    static double want[BATCH];
    double worst[HA_TEST_TABLES_MAX] = { 0 }, step = 0, by = 1;
    const uint32_t end = ha_f32_bits(most);
    for (uint32_t at = ha_f32_bits(least); at <= end;) {
        for (size_t i = 0; i < BATCH; i++) {
            x[i] = sign * ha_f32_of_bits(at <= end ? at : end);
            if (at <= end) at += stride;
            /* Of the one before, by what the step between them makes: the same for all of a binade. Anew every 64, so
             * that it is good to 2^-46. */
            const double gap = i % 64 ? (double)x[i] - (double)x[i - 1] : 0;
            if (gap != step) by = ways[way].exact(step = gap);
            want[i] = i % 64 ? want[i - 1] * by : ways[way].exact((double)x[i]);
        }
        for (size_t t = 0; t < ha_test_tables_count; t++) {
            memcpy(y, x, sizeof y);
            if (!ways[way].run(&ha_test_tables[t], y)) continue;
            for (size_t i = 0; i < BATCH; i++) {
                const double off = fabs((double)y[i] - want[i]) - (want[i] < 0x1p-126 ? 0x1p-149 : 0);
                if (!(off <= worst[t] * want[i]) && !isnan(worst[t])) worst[t] = off / want[i];
            }
        }
    }
    for (size_t t = 0; t < ha_test_tables_count; t++) {
        const double eps = ways[way].declared(&ha_test_tables[t]);
        printf("%s: %s of %g to %g: error %.3f * 2^-24, declared %.3f\n", ha_test_tables[t].name, ways[way].name,
               (double)(sign * least), (double)(sign * most), worst[t] * 0x1p24, eps * 0x1p24);
        assert_true(worst[t] <= eps);
    }
}

/* of attention: a score may be 8 above the level */
TEST(exp2_of_every_float)
{
    sweep(EXP2, 0x1p-25f, 150, -1, test_small ? 65537 : 1);
    sweep(EXP2, 0, 0x1p-25f, -1, test_small ? 1000003 : 101);
    sweep(EXP2, 0x1p-25f, 8.5f, 1, test_small ? 65537 : 7);
}

TEST(exp_of_every_float)
{
    sweep(EXP, 0x1p-25f, 104, -1, test_small ? 65537 : 1);
    sweep(EXP, 0, 0x1p-25f, -1, test_small ? 1000003 : 101);
}

TEST(exp2_of_kernels)
{
    for (size_t way = CHUNK; way <= PACKED; way++) {
        sweep(way, 0x1p-25f, 150, -1, test_small ? 65537 * 7 : 1009);
        sweep(way, 0, 0x1p-25f, -1, test_small ? 10000019 : 100003);
    }
}

/* (What a key of -inf weighs in kernels is in test_packed_special.c: here its zeros of the other queries are NaN.) */
TEST(exp2_at_the_ends)
{
    static const float at[] = { 0, -0.0f, -1, -126, -149, -150, -150.5f, -151, -152, -300, -1e4f, -1e30f, -3.4e38f };
    static const float want[COUNT(at)] = { 1, 1, 0.5f, 0x1p-126f, 0x1p-149f };
    HA_TEST_ALL(t)
    for (size_t way = 0; way < WAYS; way++) {
        static float x[BATCH];
        memset(x, 0, sizeof x);
        memcpy(x + 3, at, sizeof at);
        if (way == EXP2) x[0] = NAN, x[1] = -INFINITY;
        if (way == EXP || !ways[way].run(t, x)) continue;
        for (size_t i = 0; i < COUNT(at); i++) assert_true(x[3 + i] == want[i]);
        if (way == EXP2) assert_true(isnan(x[0]) && x[1] == 0);
    }
}

/* ---- log ---- */

/* of the sums that merges take the logarithm of; relative, also just above 1. Attention takes log in binary64. */
TEST(log_of_sums)
{
    double worst = 0, worst2 = 0;
    for (uint32_t at = ha_f32_bits(1) + 1, end = ha_f32_bits(0x1p24f); at < end; at += test_small ? 100003 : 29) {
        const volatile float x = ha_f32_of_bits(at);
        const double y = log((double)x), e = fabs((double)logf(x) - y) / y;
        worst = e > worst || isnan(e) ? e : worst;
        const double y2 = log2((double)x), e2 = fabs((double)log2f(x) - y2) / y2;
        worst2 = e2 > worst2 || isnan(e2) ? e2 : worst2;
    }
    printf("logf, log2f on (1, 2^24): error %.3f, %.3f * 2^-24\n", worst * 0x1p24, worst2 * 0x1p24);
    for (size_t t = 0; t < ha_test_tables_count; t++) {
        assert_true(worst <= ha_test_tables[t].traits.log_eps);
        assert_true(worst2 <= ha_test_tables[t].traits.log_eps);
    }
}

/* ---- 16 bits ---- */

/* n numbers, at most BATCH, by every table's vectors as harness/base/numeric.h rounds them, and nothing behind them */
static void check_narrow(const float *x, size_t n, enum ha_dtype type)
{
    static uint16_t got[BATCH + 1], want[BATCH];
    ha_store_row(want, n, type, x);
    for (size_t t = 0; t < ha_test_tables_count; t++) {
        const struct ha_test_simd s = simd_of(&ha_test_tables[t]);
        if (!s.narrow) continue;
        got[n] = 0x1234;
        s.narrow(got, x, n, type);
        assert_memory_equal(got, want, n * sizeof *want);
        assert_int_equal(got[n], 0x1234);
    }
}

/* floats of every sign and exponent, NaN and infinities among them */
TEST(narrowing_rounds_once)
{
    enum { N = 4096 + 5 }; /* not a multiple of the lanes */
    static float x[N];
    const uint32_t stride = test_small ? 65521 * 3 : 1021;
    for (uint64_t at = 0; at < UINT64_C(1) << 32;) {
        for (size_t i = 0; i < N; i++, at += stride) x[i] = ha_f32_of_bits((uint32_t)at);
        check_narrow(x, N, HA_F16);
        check_narrow(x, N, HA_BF16);
    }
}

/* those halfway between two numbers, and beside them */
TEST(narrowing_of_ties)
{
    for (int type = HA_F16; type <= HA_BF16; type++)
        for (uint32_t h = 0; h < 1u << 16; h++) {
            const uint16_t both[2] = { (uint16_t)h, (uint16_t)(h + 1) };
            float of[2], x[3];
            ha_load_row(both, 2, (enum ha_dtype)type, of);
            x[1] = 0.5f * of[0] + 0.5f * of[1];
            x[0] = ha_f32_of_bits(ha_f32_bits(x[1]) - 1);
            x[2] = ha_f32_of_bits(ha_f32_bits(x[1]) + 1);
            check_narrow(x, 3, (enum ha_dtype)type);
        }
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, NULL); }
