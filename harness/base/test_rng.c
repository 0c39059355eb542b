#include "harness/base/rng.h"

#include "harness/api/kernels.h"
#include "harness/base/cpu.h"
#include "harness/base/test.h"

#include <math.h>

/* The three philox4x32 10 lines of kat_vectors, published with Random123. */
TEST(known_answers)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } vectors[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < COUNT(vectors); i++) {
        uint32_t out[4];
        ha_philox4x32(vectors[i].counter, vectors[i].key, out);
        assert_memory_equal(out, vectors[i].out, sizeof out);
    }
}

/* The paper's definition once more, in plain steps: S-boxes and permutation from the text, the
 * products by long multiplication over 16-bit halves. */
static void multiply(uint32_t x, uint32_t y, uint32_t *high, uint32_t *low)
{
    uint32_t x0 = x & 0xffff, x1 = x >> 16, y0 = y & 0xffff, y1 = y >> 16;
    uint32_t middle = x1 * y0 + (x0 * y0 >> 16);
    uint32_t other = x0 * y1 + (middle & 0xffff);
    *high = x1 * y1 + (middle >> 16) + (other >> 16);
    *low = x * y;
}

static void philox_plain(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t r[4], k[2] = { key[0], key[1] };
    memcpy(r, counter, sizeof r);
    for (int round = 0; round < 10; round++) {
        uint32_t high0, low0, high1, low1;
        multiply(0xD2511F53, r[0], &high0, &low0);
        multiply(0xCD9E8D57, r[2], &high1, &low1);
        uint32_t next[4] = { high1 ^ r[1] ^ k[0], low1, high0 ^ r[3] ^ k[1], low0 };
        memcpy(r, next, sizeof r);
        k[0] += 0x9E3779B9;
        k[1] += 0xBB67AE85;
    }
    memcpy(out, r, sizeof r);
}

TEST(agrees_with_a_plain_version)
{
    uint32_t x[6] = { 1, 2, 3, 4, 5, 6 };
    for (int i = 0; i < 10000; i++) {
        uint32_t want[4], got[4];
        philox_plain(x, x + 4, want);
        ha_philox4x32(x, x + 4, got);
        assert_memory_equal(got, want, sizeof got);
        x[i % 6] ^= got[i % 4];
    }
}

TEST(counter_and_key_are_as_documented)
{
    uint64_t seed = 0x0123456789abcdef, stream = 0xfedcba9876543210, i = 0x1122334455667788;
    const uint32_t counter[4] = { 0x55667788, 0x11223344, 0x76543210, 0xfedcba98 }, key[2] = { 0x89abcdef, 0x01234567 };
    uint32_t w[4];
    philox_plain(counter, key, w);
    assert_true(ha_rng_bits(seed, stream, i) == ((uint64_t)w[1] << 32 | w[0]));
    assert_true(ha_rng_uniform(seed, stream, i) == (float)(w[1] >> 8) / 16777216.0f);
    int sum = 0;
    for (int j = 0; j < 4; j++) sum += (int)(w[j] & 0xffff) + (int)(w[j] >> 16);
    double exact = (sum - 262140) / sqrt(2863311530.0);
    assert_true(fabs((double)ha_rng_normal(seed, stream, i) - exact) <= 2e-7 * fabs(exact));
}

TEST(uniforms_are_uniform)
{
    enum { N = 1 << 16, BINS = 64 };
    size_t bins[BINS] = { 0 };
    for (uint64_t i = 0; i < N; i++) {
        float u = ha_rng_uniform(7, 1, i);
        assert_true(u >= 0 && u < 1);
        bins[(size_t)(u * BINS)]++;
    }
    double chi2 = 0, want = (double)N / BINS;
    for (size_t b = 0; b < BINS; b++) chi2 += ((double)bins[b] - want) * ((double)bins[b] - want) / want;
    /* 63 degrees of freedom: beyond 110 with probability 2e-4, below 30 with 2e-4 */
    assert_true(chi2 > 30 && chi2 < 110);
}

TEST(below_stays_below_and_reaches_all)
{
    static const uint64_t limits[] = { 1, 2, 3, 10, 1000, UINT64_C(1) << 32, UINT64_MAX };
    for (size_t l = 0; l < COUNT(limits); l++) {
        size_t halves[2] = { 0 };
        for (uint64_t i = 0; i < 2000; i++) {
            uint64_t x = ha_rng_below(3, l, i, limits[l]);
            assert_true(x < limits[l]);
            halves[x >= limits[l] / 2 + limits[l] % 2]++;
        }
        if (limits[l] % 2 == 0) assert_true(halves[0] > 850 && halves[1] > 850);
    }
    size_t seen[10] = { 0 };
    for (uint64_t i = 0; i < 2000; i++) seen[ha_rng_below(3, 99, i, 10)]++;
    for (size_t d = 0; d < 10; d++) assert_true(seen[d] > 140 && seen[d] < 260);
}

/* Mean 0, variance 1, skewness 0, kurtosis 2.85, each within five standard errors. */
TEST(normals_have_their_moments)
{
    enum { N = 1 << 18 };
    float *x = malloc(N * sizeof *x);
    assert_non_null(x);
    ha_rng_normals(11, 2, 0, N, x);
    double m[5] = { 0 }, largest = 0;
    for (size_t i = 0; i < N; i++) {
        double p = 1;
        for (int k = 1; k <= 4; k++) m[k] += (p *= (double)x[i]);
        largest = fmax(largest, fabs((double)x[i]));
    }
    free(x);
    double error = 5 / sqrt(N);
    assert_true(fabs(m[1] / N) < error);
    assert_true(fabs(m[2] / N - 1) < error * sqrt(2.0));
    assert_true(fabs(m[3] / N) < error * sqrt(15.0));
    assert_true(fabs(m[4] / N - 2.85) < error * sqrt(96.0));
    assert_true(largest < 4.9 && largest > 3.5);
}

/* Any length from any start, over the carry of the counter's low word too; as on a CPU without vectors as well. */
TEST(a_row_is_its_elements)
{
    static const uint64_t starts[] = { 0, 5, UINT64_C(0xfffffff9), UINT64_C(0x7fffffffc), UINT64_MAX - 40 };
    static const unsigned masks[] = { 0, HA_CPU_AVX512, HA_CPU_AVX2 };
    for (size_t m = 0; m < COUNT(masks); m++) {
        ha_cpu_mask(masks[m]);
        for (size_t s = 0; s < COUNT(starts); s++)
            for (size_t n = 0; n < 37; n++) {
                float row[40];
                memset(row, 0xff, sizeof row);
                ha_rng_normals(123456789012345, s << 31 | s, starts[s], n, row);
                for (size_t j = 0; j < n; j++)
                    assert_true(row[j] == ha_rng_normal(123456789012345, s << 31 | s, starts[s] + j));
                assert_true(isnan(row[n]));
            }
    }
    ha_cpu_mask(0);
}

/* The bits that every machine must give: FNV-1a over 1000 of them, from a version in Python. */
TEST(the_bits_are_pinned)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (uint64_t i = 0; i < 1000; i++) {
        union {
            float f;
            uint32_t u;
        } x = { .f = ha_rng_normal(1, 2, i) };
        hash = (hash ^ x.u) * 0x100000001b3;
    }
    assert_true(hash == 0xd68b451acabc4aea);
}

TEST(streams_and_seeds_differ)
{
    uint64_t base = ha_rng_bits(1, 1, 1);
    for (int bit = 0; bit < 64; bit++) {
        uint64_t flip = UINT64_C(1) << bit;
        assert_true(ha_rng_bits(1 ^ flip, 1, 1) != base);
        assert_true(ha_rng_bits(1, 1 ^ flip, 1) != base);
        assert_true(ha_rng_bits(1, 1, 1 ^ flip) != base);
    }
}
