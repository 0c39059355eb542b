/* hash and hamming, through every table: bits as binary64 has the signs of sums, norms within their bound, words of
 * other rows left alone; scores bit for bit. */

#include "harness/api/reference.h"
#include "harness/base/rng.h"
#include "kernels/test_data.h"

#include <math.h>

enum { WORD = sizeof(uint32_t), UNTOUCHED = 0x5A5A5A5A };

/* ---- hash -------------------------------------------------------------------------------------------------------- */

static float *matrix(size_t bits, size_t dim, uint64_t seed)
{
    float *a = ha_guard_alloc(bits * dim * sizeof *a);
    ha_rng_normals(seed, 1, 0, bits * dim, a);
    return a;
}

static struct ha_hash hash_of(const struct ha_test_kv *kv, const float *a, size_t bits, size_t first)
{
    return (struct ha_hash){ .a = a,
                             .bits = bits,
                             .rows = kv->rows,
                             .head_dim = kv->dim,
                             .dtype = kv->dtype,
                             .codes = ha_guard_alloc(ha_code_bytes(first + kv->rows.keys, bits)),
                             .first = first };
}

static uint32_t *word_at(const struct ha_hash *h, size_t row, size_t word)
{
    return (uint32_t *)h->codes + ha_ref_code(h->bits, row, word);
}

static void run(const struct ha_kernels *t, const struct ha_hash *h)
{
    memset(h->codes, UNTOUCHED & 0xFF, ha_code_bytes(h->first + h->rows.keys, h->bits));
    t->hash(h);
}

static void judge(const struct ha_kernels *t, const struct ha_hash *h)
{
    const size_t rows = h->first + h->rows.keys, all = (rows + HA_CODE_KEYS - 1) / HA_CODE_KEYS * HA_CODE_KEYS;
    run(t, h);
    const double ratio = ha_ref_judge_hash(h);
    if (!(ratio <= 1))
        fail_msg("%s: %zu keys from %zu on, %zu bits, dim %zu, %s: error over bound %g", t->name, h->rows.keys,
                 h->first, h->bits, h->head_dim, ha_dtype_name(h->dtype), ratio);
    ha_test_worst(t, "a code", ratio);
    for (size_t row = 0; row < all; row++)
        for (size_t w = 0; w <= h->bits / 32 && (row < h->first || row >= rows); w++)
            assert_int_equal(*word_at(h, row, w), UNTOUCHED);
}

TEST(codes_within_bound)
{
    static const size_t dims[] = { 8, 80, 128, 1, 9, 17, 31, 64, 127, 256, 300 }, bits[] = { 32, 128, 256, 96 };
    static const struct {
        size_t first, keys;
    } runs[] = { { 0, 0 },  { 0, 1 },  { 0, 15 }, { 0, 16 }, { 0, 17 }, { 5, 3 },
                 { 15, 1 }, { 3, 13 }, { 3, 14 }, { 16, 4 }, { 7, 50 }, { 9, 1000 } };
    uint64_t seed = 0;
    HA_TEST_DTYPES(dtype)
    for (size_t d = 0; d < (test_small ? 3 : COUNT(dims)); d++)
        for (size_t r = 0; r < COUNT(runs) - (d > 1); r++, seed++) {
            struct ha_test_kv kv;
            const size_t n = bits[seed % COUNT(bits)];
            ha_test_kv_make(&kv, (enum ha_test_layout)(seed % HA_TEST_LAYOUTS),
                            (enum ha_test_family)(seed % HA_TEST_FAMILIES), dims[d], runs[r].keys, dtype, seed);
            const struct ha_hash h = hash_of(&kv, matrix(n, dims[d], seed), n, runs[r].first);
            HA_TEST_EACH(t, hash) judge(t, &h);
            ha_guard_release(0);
        }
}

/* Sums that are exact, and 0 among them, which is not positive. */
TEST(a_sum_of_zero_is_no_bit)
{
    enum { DIM = 21, KEYS = 37, BITS = 64 };
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct ha_test_kv kv;
        size_t zeros = 0;
        ha_test_kv_make(&kv, HA_TEST_DENSE, HA_TEST_NORMAL, DIM, KEYS, HA_F16, seed);
        float *a = matrix(BITS, DIM, seed);
        int x[KEYS][DIM];
        for (size_t i = 0; i < KEYS; i++)
            for (size_t d = 0; d < DIM; d++) {
                x[i][d] = (int)ha_rng_below(seed, 2, i * DIM + d, 5) - 2;
                ha_test_kv_put_k(&kv, i, d, (float)x[i][d]);
            }
        for (size_t i = 0; i < BITS * DIM; i++) a[i] = (float)((int)ha_rng_below(seed, 3, i, 3) - 1);
        const struct ha_hash h = hash_of(&kv, a, BITS, seed);
        HA_TEST_EACH(t, hash)
        {
            judge(t, &h);
            for (size_t i = 0; i < KEYS; i++)
                for (size_t b = 0; b < BITS; b++) {
                    int sum = 0;
                    for (size_t d = 0; d < DIM; d++) sum += (int)a[b * DIM + d] * x[i][d];
                    zeros += sum == 0;
                    assert_int_equal(*word_at(&h, seed + i, b / 32) >> b % 32 & 1, sum > 0);
                }
        }
        assert_true(zeros > 0);
        ha_guard_release(0);
    }
}

/* A NaN leaves its row without a bit, and its norm is a NaN; an infinity is what binary64 makes of it; of zeros all is
 * 0; sums that underflow. Other rows do not know. */
TEST(of_no_number)
{
    enum { DIM = 45, KEYS = 21, BITS = 96, FIRST = 3 };
    static const float odd[] = { NAN, -NAN, INFINITY, -INFINITY };
    HA_TEST_DTYPES(dtype)
    for (size_t i = 0; i < KEYS; i++) {
        struct ha_test_kv kv;
        ha_test_kv_make(&kv, (enum ha_test_layout)(i % HA_TEST_LAYOUTS), HA_TEST_NORMAL, DIM, KEYS, dtype, 5);
        float *a = matrix(BITS, DIM, i);
        a[i * DIM + i] = 0; /* times an infinity: a NaN */
        a[(i + 1) * DIM + 2] = NAN;
        const size_t infinite = (i + 1) % KEYS, zero = (i + 2) % KEYS, small = (i + 3) % KEYS;
        ha_test_kv_put_k(&kv, i, i * 2, odd[i % 2]);
        ha_test_kv_put_k(&kv, infinite, i, odd[2 + i % 2]);
        for (size_t d = 0; d < DIM; d++) {
            ha_test_kv_put_k(&kv, zero, d, d % 2 ? 0.0f : -0.0f);
            ha_test_kv_put_k(&kv, small, d, 0x1p-140f);
        }
        const struct ha_hash h = hash_of(&kv, a, BITS, FIRST);
        HA_TEST_EACH(t, hash)
        {
            judge(t, &h);
            for (size_t w = 0; w < BITS / 32; w++)
                assert_true(*word_at(&h, FIRST + i, w) == 0 && *word_at(&h, FIRST + zero, w) == 0);
            assert_true(isnan(*(float *)word_at(&h, FIRST + i, BITS / 32)));
            assert_true(*word_at(&h, FIRST + zero, BITS / 32) == 0);
            assert_true(*(float *)word_at(&h, FIRST + infinite, BITS / 32) == INFINITY);
        }
        ha_guard_release(0);
    }
}

/* What the judge is for: a bit that is wrong although binary32 knows it, and one that it does not know; norms. */
TEST(a_wrong_code_is_seen)
{
    enum { DIM = 64, BITS = 32 };
    struct ha_test_kv kv;
    ha_test_kv_make(&kv, HA_TEST_DENSE, HA_TEST_NORMAL, DIM, 1, HA_F32, 1);
    float *a = matrix(BITS, DIM, 1);
    const struct ha_hash h = hash_of(&kv, a, BITS, 0);
    float *norm = (float *)word_at(&h, 0, 1);
    for (size_t d = 0; d < DIM; d++) ha_test_kv_put_k(&kv, 0, d, 1);
    for (size_t d = 0; d < DIM; d++) a[d] = d % 2 ? -1 : 1;
    run(ha_test_tables, &h);
    for (size_t b = 0; b < BITS; b++) {
        *word_at(&h, 0, 0) ^= 1u << b;
        assert_true((ha_ref_judge_hash(&h) <= 1) == (b == 0));
        *word_at(&h, 0, 0) ^= 1u << b;
    }
    const struct {
        float sum;
        bool open;
    } near[] = { { 0x1p-13f, true }, { -0x1p-13f, true }, { 0x1p-11f, false }, { -0x1p-11f, false } };
    for (size_t i = 0; i < COUNT(near); i++) {
        a[0] = 1 + near[i].sum; /* 64 terms of 1: 2^-12 are 64 roundings of their sizes */
        run(ha_test_tables, &h);
        *word_at(&h, 0, 0) ^= 1;
        assert_true((ha_ref_judge_hash(&h) <= 1) == near[i].open);
    }
    run(ha_test_tables, &h);
    const struct {
        float norm;
        bool right;
    } norms[] = { { 8, true },          { 8 * (1 + 0x1p-20f), true }, { 8 * (1 + 0x1p-18f), false }, { -8, false },
                  { INFINITY, false },  { 8 * (1 - 0x1p-20f), true }, { 8 * (1 - 0x1p-18f), false }, { 0, false },
                  { (float)NAN, false } };
    for (size_t i = 0; i < COUNT(norms); i++) {
        *norm = norms[i].norm;
        assert_true((ha_ref_judge_hash(&h) <= 1) == norms[i].right);
    }
    ha_guard_release(0);
}

/* ---- hamming ----------------------------------------------------------------------------------------------------- */

struct scores {
    struct ha_hamming args;
    size_t s_bytes;
};

/* Codes of any bits, of rows that are not asked for too: some of the queries' own, some of all others. */
static struct scores make(size_t rows, size_t keys, size_t bits, uint64_t seed)
{
    const size_t stride = keys + seed % 3, words = ha_code_bytes(keys, bits) / WORD;
    struct scores s = { .s_bytes = ((rows - 1) * stride + keys) * sizeof(float) };
    uint32_t *q = ha_guard_alloc(ha_code_bytes(rows, bits)), *codes = ha_guard_alloc(words * WORD);
    for (size_t i = 0; i < ha_code_bytes(rows, bits) / WORD; i++) q[i] = (uint32_t)(ha_rng_bits(seed, 1, i) >> 32);
    for (size_t i = 0; i < words; i++) codes[i] = (uint32_t)(ha_rng_bits(seed, 2, i) >> 32);
    for (size_t i = 0; i < keys; i++) {
        const size_t row = i / 3 % rows;
        for (size_t w = 0; w < bits / 32 && i % 3; w++)
            codes[ha_ref_code(bits, i, w)] = q[ha_ref_code(bits, row, w)] ^ (i % 3 == 1 ? 0 : UINT32_MAX);
        ((float *)codes)[ha_ref_code(bits, i, bits / 32)] = fabsf(ha_rng_normal(seed, 3, i));
    }
    s.args = (struct ha_hamming){ q, rows, bits, codes, keys, ha_guard_alloc(s.s_bytes), stride, seed % 2 };
    return s;
}

static void judge_scores(const struct ha_kernels *t, const struct scores *s)
{
    const struct ha_hamming *h = &s->args;
    memset(h->s, 0xFF, s->s_bytes);
    t->hamming(h);
    if (ha_ref_judge_hamming(h) > 0) fail_msg("%s: %zu rows, %zu keys, %zu bits", t->name, h->q_rows, h->keys, h->bits);
    for (size_t r = 0; r + 1 < h->q_rows; r++)
        for (size_t i = h->keys; i < h->s_stride; i++) {
            /* 0xFF is a NaN of its own */
            uint32_t got;
            memcpy(&got, &h->s[r * h->s_stride + i], sizeof got);
            assert_int_equal(got, UINT32_MAX);
        }
}

TEST(scores_are_exact)
{
    static const size_t keys[] = { 0, 1, 7, 15, 16, 17, 33, 1000, 1024, 1029, 2070 },
                        rows[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 18, 19, 20 };
    uint64_t seed = 0;
    for (size_t bits = 32; bits <= HA_CODE_BITS_MAX; bits += 32)
        for (size_t r = 0; r < COUNT(rows); r++)
            for (size_t k = test_small ? r % 2 : 0; k < COUNT(keys); k += test_small ? 2 : 1, seed++) {
                const struct scores s = make(rows[r], keys[k], bits, seed);
                HA_TEST_EACH(t, hamming) judge_scores(t, &s);
                ha_guard_release(0);
            }
}

/* Norms that are no numbers, none, or too large for the product. */
TEST(special_norms)
{
    static const float odd[] = { NAN, INFINITY, 0, 3e38f, 0x1p-149f, 1 };
    enum { KEYS = 77, BITS = 128 };
    const struct scores s = make(4, KEYS, BITS, 1);
    for (size_t i = 0; i < KEYS; i++)
        ((float *)ha_test_own(s.args.codes))[ha_ref_code(BITS, i, BITS / 32)] = odd[i % COUNT(odd)];
    HA_TEST_EACH(t, hamming) judge_scores(t, &s);
    ha_guard_release(0);
}

/* numbers that are worked out by hand */
TEST(by_hand)
{
    uint32_t q[2 * HA_CODE_KEYS] __attribute__((aligned(64))) = { 0xF0F0F0F0, 0 };
    uint32_t k[2 * HA_CODE_KEYS] __attribute__((aligned(64))) = { 0xF0F0F0F0, 0x0F0F0F0F, 0xF0F0F0F1 };
    static const float norm[] = { 2, 0.5f, 3 };
    memcpy(k + HA_CODE_KEYS, norm, sizeof norm);
    HA_TEST_EACH(t, hamming)
    {
        float s[6];
        t->hamming(&(struct ha_hamming){ q, 2, 32, k, 3, s, 3, true });
        assert_true(s[0] == 64 && s[1] == -16 && s[2] == 90);
        assert_true(s[3] == 0 && s[4] == 0 && s[5] == -6);
        t->hamming(&(struct ha_hamming){ q, 0, 32, k, 3, s, 3, true });
        assert_true(s[0] == 64);
    }
}

TEST(a_wrong_score_is_seen)
{
    const struct scores s = make(5, 50, 96, 2);
    judge_scores(ha_test_tables, &s);
    for (size_t r = 0; r < 5; r++)
        for (size_t i = 0; i < 50; i++) {
            float *x = &s.args.s[r * s.args.s_stride + i];
            const float was = *x;
            *x = nextafterf(was, INFINITY);
            assert_true(ha_ref_judge_hamming(&s.args) > 1);
            *x = i % 2 ? -was : (float)NAN;
            assert_true(ha_ref_judge_hamming(&s.args) > 1);
            *x = was;
        }
    assert_true(ha_ref_judge_hamming(&s.args) <= 1);
    ha_guard_release(0);
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, ha_test_report); }
