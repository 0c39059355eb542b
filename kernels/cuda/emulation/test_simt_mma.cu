/* ha_mma_tf32 against products in binary64, with fragments laid out as PTX's manual has them; and the tf32 cuts. */

#include "kernels/cuda/emulation/test_simt.h"

#include <math.h>

extern "C" {
#include "harness/base/rng.h"
}

enum { M = 16, N = 8, K = 8 };

struct product {
    const float *a, *b, *c; /* [warps][16][8] [8][8] [16][8] */
    float *d;               /* [warps][16][8] */
};

__global__ void product_kernel(HA_ARGS(struct product) p)
{
    const unsigned warp = threadIdx.x / 32, group = threadIdx.x % 32 >> 2, in_group = threadIdx.x % 4;
    const float *a = p.a + warp * M * K, *b = p.b + warp * K * N, *c = p.c + warp * M * N;
    float fa[4], fb[2], fc[4];
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = i == 0 || i == 2 ? group : group + 8, col = i < 2 ? in_group : in_group + 4;
        fa[i] = a[row * K + col];
    }
    for (unsigned i = 0; i < 2; i++) fb[i] = b[(i == 0 ? in_group : in_group + 4) * N + group];
    for (unsigned i = 0; i < 4; i++) fc[i] = c[(i < 2 ? group : group + 8) * N + in_group * 2 + (i & 1)];
    ha_mma_tf32(fc, fa, fb);
    for (unsigned i = 0; i < 4; i++)
        p.d[warp * M * N + (i < 2 ? group : group + 8) * N + in_group * 2 + (i & 1)] = fc[i];
}

enum { WARPS = 4 };
enum { A_SIZE = WARPS * M * K, B_SIZE = WARPS * K * N, C_SIZE = WARPS * M * N };
static float a[A_SIZE], b[B_SIZE], c[C_SIZE], d[C_SIZE];
static unsigned at_a(unsigned w, unsigned row, unsigned k) { return (w * M + row) * K + k; }
static unsigned at_b(unsigned w, unsigned k, unsigned col) { return (w * K + k) * N + col; }
static unsigned at_c(unsigned w, unsigned row, unsigned col) { return (w * M + row) * N + col; }

static void multiply(void)
{
    memset(d, 0, sizeof d);
    const struct product p = { a, b, c, d };
    assert_int_equal(ha_launch(product_kernel, dim3(1), dim3(WARPS * 32), NULL, p), cudaSuccess);
}

#define FOR_ALL(w, row, col)                   \
    for (unsigned w = 0; w < WARPS; w++)       \
        for (unsigned row = 0; row < M; row++) \
            for (unsigned col = 0; col < N; col++)

/* every element of a and of b a number of its own: no other arrangement gives the same sums */
TEST(layout)
{
    for (unsigned i = 0; i < A_SIZE; i++) a[i] = float(1 + i);
    for (unsigned i = 0; i < B_SIZE; i++) b[i] = float(1 + i) * (i % 2 ? 1.f : -1.f);
    for (unsigned i = 0; i < C_SIZE; i++) c[i] = float(100000 + i);
    FOR_EACH_ORDER
    {
        multiply();
        FOR_ALL(w, row, col)
        {
            double sum = double(c[at_c(w, row, col)]);
            for (unsigned k = 0; k < K; k++) sum += double(a[at_a(w, row, k)]) * double(b[at_b(w, k, col)]);
            assert_true(double(d[at_c(w, row, col)]) == sum);
        }
    }
}

static double cut(float x) { return double(__uint_as_float(__float_as_uint(x) & ~0x1fffu)); }

/* worst error over what the model may lose: two slices of five addends, each cut to 24 bits of the largest */
static double worst(void)
{
    double worst = 0;
    FOR_ALL(w, row, col)
    {
        double sum = double(c[at_c(w, row, col)]), largest = fabs(sum);
        for (unsigned k = 0; k < K; k++) {
            const double term = cut(a[at_a(w, row, k)]) * cut(b[at_b(w, k, col)]);
            sum += term;
            largest = fmax(largest, fabs(term));
        }
        /* after the first slice, c may have grown to five times the largest */
        const double error = fabs(double(d[at_c(w, row, col)]) - sum) / (largest * 0x1p-23 * 5 * (1 + 5) + 0x1p-149);
        if (!(error <= worst)) worst = error;
    }
    return worst;
}

static float number(uint64_t *drawn, int exponents)
{
    const double x = double(ha_rng_bits(1, 0, (*drawn)++) >> 11) * 0x1p-53 - 0.5;
    return float(ldexp(x, int(ha_rng_below(1, 1, (*drawn)++, unsigned(2 * exponents + 1))) - exponents));
}

TEST(random_products)
{
    uint64_t drawn = 0;
    for (int exponents = 0; exponents <= 32; exponents += 4)
        for (unsigned repeat = 0; repeat < 5; repeat++) {
            for (unsigned i = 0; i < A_SIZE; i++) a[i] = number(&drawn, exponents);
            for (unsigned i = 0; i < B_SIZE; i++) b[i] = number(&drawn, exponents);
            for (unsigned i = 0; i < C_SIZE; i++) c[i] = repeat ? number(&drawn, 2 * exponents) : 0;
            multiply();
            assert_true(worst() <= 1);
        }
}

static void fill(float x, float y, float z)
{
    for (unsigned i = 0; i < A_SIZE; i++) a[i] = x;
    for (unsigned i = 0; i < B_SIZE; i++) b[i] = y;
    for (unsigned i = 0; i < C_SIZE; i++) c[i] = z;
}

TEST(adversarial)
{
    static const struct {
        float a, b, c, want; /* of all elements */
    } cases[] = {
        /* 13 bits that are not read */
        { 1 + 0x1.ffep-11f, 1, 0, 8 },
        { 1, 1 + 0x1.ffep-11f, 0, 8 },
        { 1 + 0x1p-10f, 1, 0, 8 + 0x1p-7f },
        /* c, and products that are each under half an ulp of it: cut one by one */
        { 0x1.cp-13f, 0x1p-12f, 1, 1 },
        /* what cancels, exactly */
        { 1, 1, -8, 0 },
        { 0x1p20f, 0x1p20f, -0x1p43f, 0 },
        /* the ends of the range */
        { 0x1p-70f, 0x1p-70f, 0, 0x1p-137f },
        { 0x1p-80f, 0x1p-80f, 0, 0 },
        { 0x1p63f, 0x1p63f, 0, INFINITY },
        { INFINITY, 1, 0, INFINITY },
        { INFINITY, 0, 0, NAN },
        { 1, 1, -INFINITY, -INFINITY },
        { INFINITY, 1, -INFINITY, NAN },
        { NAN, 1, 1, NAN },
        { 0, 0, NAN, NAN },
        { 1, INFINITY, 0, INFINITY },
        { 0, INFINITY, 0, NAN },
        { 1, NAN, 1, NAN },
    };
    for (const auto &x : cases) {
        fill(x.a, x.b, x.c);
        multiply();
        FOR_ALL(w, row, col)
        {
            const float got = d[at_c(w, row, col)];
            if (!(isnan(x.want) ? isnan(got) : got == x.want))
                fail_msg("%a * %a + %a: %a, not %a", double(x.a), double(x.b), double(x.c), double(got),
                         double(x.want));
        }
    }
    /* ulps of c, towards zero */
    fill(0, 0, 1);
    a[0] = 0x1.8p-12f, b[0] = 0x1p-11f;
    multiply();
    assert_true(d[0] == 1 + 0x1p-23f);
    a[0] = -0x1.8p-12f;
    multiply();
    assert_true(d[0] == 1 - 0x1p-23f);
    /* one bad element spoils its row or column alone */
    fill(1, 1, 0);
    b[at_b(2, 6, 3)] = -INFINITY;
    multiply();
    FOR_ALL(w, row, col) assert_true(d[at_c(w, row, col)] == (w == 2 && col == 3 ? -INFINITY : 8));
    fill(1, 1, 0);
    a[at_a(1, 3, 5)] = NAN;
    multiply();
    FOR_ALL(w, row, col) assert_true(w == 1 && row == 3 ? isnan(d[at_c(w, row, col)]) : d[at_c(w, row, col)] == 8);
}

TEST(tf32_parts)
{
    uint64_t drawn = 0;
    for (unsigned i = 0; i < 100000; i++) {
        const float x = number(&drawn, 30), hi = ha_tf32_hi(x), lo = ha_tf32_hi(x - hi);
        assert_int_equal(__float_as_uint(hi) & 0x1fffu, 0);
        assert_true(fabsf(hi) <= fabsf(x) && fabsf(x - hi) <= fabsf(x) * 0x1p-10f);
        assert_true(fabsf((x - hi) - lo) <= fabsf(x) * 0x1p-20f);
    }
}
