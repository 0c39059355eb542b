/* pq_encode, pq_table and pq_score, through every table: codes of the nearest centroids, bits of other keys left alone;
 * entries and scores within their bound. */

#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "kernels/test_data.h"

#include <math.h>

enum { UNTOUCHED = 0x5A };

/* a book with some centroids that are there twice */
static struct ha_pq book(size_t groups, size_t dims, size_t count, size_t bits, bool shared, uint64_t seed)
{
    struct ha_pq pq = { .groups = groups, .dims = dims, .count = count, .books = shared ? 1 : groups, .bits = bits };
    const size_t n = ha_pq_book_floats(&pq);
    float *c = ha_guard_alloc(n * sizeof *c);
    ha_rng_normals(seed, 1, 0, n, c);
    for (size_t row = 0; row < pq.books * dims; row++)
        for (size_t j = 0; j < count; j++)
            if (ha_rng_below(seed, 2, j, 4) == 0) c[row * count + j] = c[row * count + j / 2];
    pq.centroid = c;
    return pq;
}

static float *number(const struct ha_pq *pq, size_t book_of, size_t d, size_t j)
{
    return (float *)ha_test_own(pq->centroid) + (book_of * pq->dims + d) * pq->count + j;
}

/* ---- pq_encode --------------------------------------------------------------------------------------------------- */

static struct ha_pq_encode encode_of(const struct ha_test_kv *kv, const struct ha_pq *pq, size_t first)
{
    return (struct ha_pq_encode){ .pq = *pq,
                                  .rows = kv->rows,
                                  .dtype = kv->dtype,
                                  .codes = ha_guard_alloc(ha_pq_code_bytes(pq, first + kv->rows.keys)),
                                  .first = first };
}

static void judge_codes(const struct ha_kernels *t, const struct ha_pq_encode *e)
{
    const struct ha_pq *pq = &e->pq;
    const size_t end = e->first + e->rows.keys, all = (end + HA_PQ_KEYS - 1) / HA_PQ_KEYS * HA_PQ_KEYS;
    struct ha_pq bits = *pq;
    unsigned char was[HA_PQ_KEYS / 8 * HA_PQ_BITS_MAX];
    memset(e->codes, UNTOUCHED, ha_pq_code_bytes(pq, end));
    t->pq_encode(e);
    const double ratio = ha_ref_judge_pq_encode(e);
    if (!(ratio <= 1))
        fail_msg("%s: %zu keys from %zu on, %zu groups of %zu, %zu centroids, %zu bits, %zu books, %s: %g", t->name,
                 e->rows.keys, e->first, pq->groups, pq->dims, pq->count, pq->bits, pq->books, ha_dtype_name(e->dtype),
                 ratio);
    ha_test_worst(t, "a code of a group", ratio);
    memset(was, UNTOUCHED, sizeof was);
    bits.groups = 1;
    for (size_t i = 0; i < all; i++)
        for (size_t g = 0; g < pq->groups && (i < e->first || i >= end); g++)
            /* where a group's codes begin is a multiple of 4 bytes, so that its pattern is that of any other */
            assert_int_equal(ha_ref_pq_code(pq, e->codes, i, g), ha_ref_pq_code(&bits, was, i % HA_PQ_KEYS, 0));
}

static const struct {
    size_t groups, dims, count, bits;
} shapes[] = {
    { 1, 1, 2, 1 },      { 3, 2, 4, 2 },    { 2, 4, 7, 3 },     { 5, 3, 16, 4 },    { 2, 8, 29, 5 },
    { 1, 16, 33, 6 },    { 3, 5, 128, 7 },  { 32, 4, 256, 8 },  { 2, 20, 512, 9 },  { 3, 2, 1000, 10 },
    { 1, 4, 2048, 11 },  { 7, 2, 300, 12 }, { 2, 4, 8192, 13 }, { 1, 8, 9000, 14 }, { 1, 2, 20000, 15 },
    { 1, 4, 65536, 16 }, { 4, 1, 1, 1 },    { 2, 64, 64, 6 },   { 4, 4, 200, 16 },  { 2, 2, 15, 8 },
};

TEST(codes_are_of_the_nearest)
{
    static const struct {
        size_t first, keys;
    } runs[] = { { 0, 0 }, { 0, 1 }, { 31, 1 }, { 5, 3 }, { 0, 33 }, { 17, 70 }, { 3, 4 } };
    uint64_t seed = 0;
    HA_TEST_DTYPES(dtype)
    for (size_t s = 0; s < COUNT(shapes); s++)
        for (size_t r = 0; r < COUNT(runs); r++, seed++) {
            struct ha_test_kv kv;
            const size_t count = shapes[s].count;
            if (test_small && (seed % 3 || count > 2048)) continue;
            if (count > 2048 && runs[r].keys > 4) continue;
            const struct ha_pq pq = book(shapes[s].groups, shapes[s].dims, count, shapes[s].bits, seed % 2, seed);
            ha_test_kv_make(&kv, (enum ha_test_layout)(seed % HA_TEST_LAYOUTS),
                            (enum ha_test_family)(seed % HA_TEST_FAMILIES), pq.groups * pq.dims, runs[r].keys, dtype,
                            seed);
            const struct ha_pq_encode e = encode_of(&kv, &pq, runs[r].first);
            HA_TEST_EACH(t, pq_encode) judge_codes(t, &e);
            ha_guard_release(0);
        }
}

/* Of centroids that are equally far the first is meant, in every lane and wherever a vector ends. */
TEST(the_smaller_number_of_equals)
{
    enum { COUNT_ = 521, BITS = 10 };
    struct ha_test_kv kv;
    const struct ha_pq pq = book(1, 2, COUNT_, BITS, true, 1);
    ha_test_kv_make(&kv, HA_TEST_DENSE, HA_TEST_NORMAL, 2, 1, HA_F32, 1);
    for (size_t d = 0; d < 2; d++) ha_test_kv_put_k(&kv, 0, d, 3);
    const struct ha_pq_encode e = encode_of(&kv, &pq, 0);
    for (size_t a = 0; a < COUNT_; a += 7)
        for (size_t b = a + 1; b < COUNT_; b += b < a + 40 ? 1 : 37) {
            for (size_t j = 0; j < COUNT_; j++) *number(&pq, 0, 0, j) = *number(&pq, 0, 1, j) = -1;
            *number(&pq, 0, 0, a) = *number(&pq, 0, 1, b) = 2;
            *number(&pq, 0, 0, b) = *number(&pq, 0, 1, a) = 4; /* a difference of 1 either way */
            HA_TEST_EACH(t, pq_encode)
            {
                judge_codes(t, &e);
                assert_int_equal(ha_ref_pq_code(&pq, e.codes, 0, 0), a);
            }
        }
    ha_guard_release(0);
}

/* A centroid with a NaN is never the nearest, but an infinite distance may be; where all are NaN it is the first. */
TEST(no_numbers)
{
    enum { COUNT_ = 277, BITS = 9, KEYS = 5 };
    struct ha_test_kv kv;
    const struct ha_pq pq = book(1, 4, COUNT_, BITS, true, 1);
    ha_test_kv_make(&kv, HA_TEST_DENSE, HA_TEST_NORMAL, 4, KEYS, HA_F32, 1);
    const struct ha_pq_encode e = encode_of(&kv, &pq, 0);
    ha_test_kv_put_k(&kv, 1, 2, (float)NAN);
    ha_test_kv_put_k(&kv, 2, 0, INFINITY);
    for (size_t round = 0; round < 3; round++) {
        const size_t nan_before = round == 0 ? 3 : round == 1 ? 260 : COUNT_;
        for (size_t j = 0; j < nan_before; j++) *number(&pq, 0, j % 4, j) = (float)NAN;
        HA_TEST_EACH(t, pq_encode)
        {
            judge_codes(t, &e);
            assert_int_equal(ha_ref_pq_code(&pq, e.codes, 1, 0), 0);
            assert_int_equal(ha_ref_pq_code(&pq, e.codes, 2, 0), nan_before % COUNT_);
        }
    }
    ha_guard_release(0);
}

TEST(a_wrong_code_is_seen)
{
    struct ha_test_kv kv;
    const struct ha_pq pq = book(2, 4, 16, 4, false, 3);
    ha_test_kv_make(&kv, HA_TEST_DENSE, HA_TEST_NORMAL, 8, 5, HA_F32, 3);
    const struct ha_pq_encode e = encode_of(&kv, &pq, 0);
    judge_codes(ha_test_tables, &e);
    for (size_t i = 0; i < 5; i++)
        for (size_t g = 0; g < 2; g++) {
            unsigned char *at = (unsigned char *)e.codes + g * 16 + i / 2;
            *at ^= (unsigned char)(i % 2 ? 0x10 : 1);
            assert_true(ha_ref_judge_pq_encode(&e) > 1);
            *at ^= (unsigned char)(i % 2 ? 0x10 : 1);
        }
    assert_true(ha_ref_judge_pq_encode(&e) <= 1);
    ha_guard_release(0);
}

/* ---- pq_table ---------------------------------------------------------------------------------------------------- */

static struct ha_pq_table table_of(const struct ha_pq *pq, size_t q_len, size_t group, enum ha_dtype type,
                                   uint64_t seed)
{
    const size_t dim = pq->groups * pq->dims, head = dim + seed % 3, token = group * head + seed % 2;
    float *q = ha_guard_alloc(((q_len - 1) * token + (group - 1) * head + dim) * sizeof *q);
    for (size_t i = 0; i < q_len; i++)
        for (size_t h = 0; h < group; h++)
            ha_rng_normals(seed, 3, (i * group + h) * dim, dim, q + i * token + h * head);
    return (struct ha_pq_table){ .pq = *pq,
                                 .q = q,
                                 .q_len = q_len,
                                 .group = group,
                                 .q_token_stride = token,
                                 .q_head_stride = head,
                                 .type = type,
                                 .table = ha_guard_alloc(ha_pq_table_bytes(pq, q_len * group, type)) };
}

static void judge_table(const struct ha_kernels *t, const struct ha_pq_table *a)
{
    memset(a->table, 0xFF, ha_pq_table_bytes(&a->pq, a->q_len * a->group, a->type));
    t->pq_table(a);
    const double ratio = ha_ref_judge_pq_table(a, NULL);
    if (!(ratio <= 1))
        fail_msg("%s: %zu x %zu rows, %zu groups of %zu, %zu centroids, %s: %g", t->name, a->q_len, a->group,
                 a->pq.groups, a->pq.dims, a->pq.count, ha_dtype_name(a->type), ratio);
    ha_test_worst(t, "an entry of a table", ratio);
}

TEST(tables_within_bound)
{
    static const size_t rows[][2] = { { 1, 1 }, { 1, 4 }, { 1, 7 }, { 3, 2 }, { 2, 4 }, { 5, 1 } };
    uint64_t seed = 0;
    for (size_t s = 0; s < COUNT(shapes); s++)
        for (size_t r = 0; r < COUNT(rows); r++, seed++) {
            if (shapes[s].count > (test_small ? 600 : 9000) && r != 1) continue;
            const struct ha_pq pq = book(shapes[s].groups, shapes[s].dims, shapes[s].count, shapes[s].bits, seed % 2,
                                         seed);
            const struct ha_pq_table f32 = table_of(&pq, rows[r][0], rows[r][1], HA_F32, seed),
                                     f16 = table_of(&pq, rows[r][0], rows[r][1], HA_F16, seed);
            *number(&pq, 0, 0, pq.count - 1) = (const float[]){ 1, (float)NAN, INFINITY, 1e6f }[seed % 4];
            HA_TEST_EACH(t, pq_table)
            {
                judge_table(t, &f32);
                judge_table(t, &f16);
            }
            ha_guard_release(0);
        }
}

/* Behind the end of f16 is infinity, of either sign, in each row and wherever a vector ends. */
TEST(what_is_beyond_f16_is_infinite)
{
    enum { COUNT_ = 21 };
    static const struct {
        float x, want;
    } end[] = { { 65504, 65504 },
                { 0x1.ffdffep15f, 65504 }, /* below the middle */
                { 65520, INFINITY },
                { 65536, INFINITY },
                { 1e30f, INFINITY } };
    const struct ha_pq pq = book(1, 1, COUNT_, 5, true, 1);
    const struct ha_pq_table a = table_of(&pq, 1, 5, HA_F16, 1);
    for (size_t h = 0; h < 5; h++) ((float *)(uintptr_t)a.q)[h * a.q_head_stride] = h % 2 ? -1 : 1;
    for (size_t j = 0; j < COUNT_; j++) *number(&pq, 0, 0, j) = end[j % COUNT(end)].x;
    HA_TEST_EACH(t, pq_table)
    {
        judge_table(t, &a);
        for (size_t h = 0; h < 5; h++)
            for (size_t j = 0; j < COUNT_; j++) {
                const float got = ha_load(a.table, (h / HA_PQ_ROWS * COUNT_ + j) * HA_PQ_ROWS + h % HA_PQ_ROWS, HA_F16);
                if (got != (h % 2 ? -1 : 1) * end[j % COUNT(end)].want) fail_msg("%s: entry %zu, %zu", t->name, h, j);
            }
    }
    ha_guard_release(0);
}

TEST(a_wrong_entry_is_seen)
{
    const struct ha_pq pq = book(3, 4, 9, 4, false, 5);
    for (size_t f16 = 0; f16 < 2; f16++) {
        const struct ha_pq_table a = table_of(&pq, 1, 3, f16 ? HA_F16 : HA_F32, 5);
        judge_table(ha_test_tables, &a);
        for (size_t i = 0; i < 3 * 9 * HA_PQ_ROWS; i++) {
            uint16_t *half = (uint16_t *)a.table + i;
            float *whole = (float *)a.table + i;
            const float was = f16 ? 0 : *whole;
            if (f16) *half = (uint16_t)(*half + 2);
            else *whole = was + 1e-3f;
            assert_true(ha_ref_judge_pq_table(&a, NULL) > 1);
            if (f16) *half = (uint16_t)(*half - 2);
            else *whole = was;
        }
        assert_true(ha_ref_judge_pq_table(&a, NULL) <= 1);
    }
    ha_guard_release(0);
}

/* ---- pq_score ---------------------------------------------------------------------------------------------------- */

struct scores {
    struct ha_pq_score args;
    size_t bytes;
};

/* A table of any numbers and codes below count; behind the last key codes are anything. */
static struct scores scores_of(size_t groups, size_t count, size_t bits, size_t rows, size_t keys, enum ha_dtype type,
                               uint64_t seed)
{
    const struct ha_pq pq = { .groups = groups, .dims = 1, .count = count, .books = 1, .bits = bits };
    const size_t n = ha_pq_table_bytes(&pq, rows, HA_F32) / sizeof(float), stride = keys + seed % 3;
    struct scores s = { .bytes = ((rows - 1) * stride + keys) * sizeof(float) };
    void *table = ha_guard_alloc(ha_pq_table_bytes(&pq, rows, type));
    unsigned char *codes = ha_guard_alloc(ha_pq_code_bytes(&pq, keys));
    for (size_t i = 0; i < n; i++) ha_store(table, i, type, ha_rng_normal(seed, 1, i));
    for (size_t i = 0; i < keys; i++)
        for (size_t g = 0; g < groups; g++) {
            const size_t at = (i / HA_PQ_KEYS * groups + g) * HA_PQ_KEYS + i % HA_PQ_KEYS;
            const uint64_t code = i < 2 ? i * (count - 1) : ha_rng_below(seed, 2, i * groups + g, count);
            for (size_t b = at * bits; b < (at + 1) * bits; b++)
                codes[b / 8] = (unsigned char)((codes[b / 8] & ~(1u << b % 8))
                                               | (code >> (b - at * bits) & 1) << b % 8);
        }
    s.args = (struct ha_pq_score){ pq, table, type, rows, codes, keys, 0.3f, ha_guard_alloc(s.bytes), stride };
    return s;
}

static void judge_scores(const struct ha_kernels *t, const struct scores *s)
{
    const struct ha_pq_score *a = &s->args;
    memset(a->s, 0xFF, s->bytes);
    t->pq_score(a);
    const double ratio = ha_ref_judge_pq_score(a, NULL);
    if (!(ratio <= 1))
        fail_msg("%s: %zu rows, %zu keys, %zu groups, %zu centroids, %zu bits, %s: %g", t->name, a->rows, a->keys,
                 a->pq.groups, a->pq.count, a->pq.bits, ha_dtype_name(a->type), ratio);
    ha_test_worst(t, "a score by codes", ratio);
    for (size_t r = 0; r + 1 < a->rows; r++)
        for (size_t i = a->keys; i < a->s_stride; i++) {
            uint32_t got; /* 0xFF is a NaN of its own */
            memcpy(&got, &a->s[r * a->s_stride + i], sizeof got);
            assert_int_equal(got, UINT32_MAX);
        }
}

TEST(scores_within_bound)
{
    static const size_t keys[] = { 0, 1, 5, 31, 32, 33, 95, 200, 2048, 2049, 4200 }, rows[] = { 1, 2, 3, 4, 5, 8, 11 },
                        groups[] = { 1, 2, 7, 32, 9, 64 };
    uint64_t seed = 0;
    for (size_t bits = 1; bits <= HA_PQ_BITS_MAX; bits++)
        for (size_t k = 0; k < COUNT(keys); k++, seed++) {
            if (test_small && keys[k] > 200 && bits % 4) continue;
            const size_t most = (size_t)1 << bits, count = seed % 3 ? most : most / 2 + 1,
                         some = bits > 12 ? seed % 3 + 1 : groups[seed % COUNT(groups)];
            const struct scores s = scores_of(some, count, bits, bits > 12 ? 5 : rows[seed % COUNT(rows)], keys[k],
                                              seed % 2 ? HA_F16 : HA_F32, seed);
            HA_TEST_EACH(t, pq_score) judge_scores(t, &s);
            ha_guard_release(0);
        }
}

/* A NaN and an infinity reach the scores of the keys that have their code, in their row, and no others. */
TEST(entries_that_are_no_numbers)
{
    enum { GROUPS = 5, COUNT_ = 32, ROWS = 6 };
    static const float odd[] = { NAN, INFINITY, -INFINITY };
    for (size_t i = 0; i < 40; i++) {
        const struct scores s = scores_of(GROUPS, COUNT_, 5, ROWS, 100, i % 2 ? HA_F16 : HA_F32, i);
        for (size_t j = 0; j < 3; j++)
            ha_store(ha_test_own(s.args.table), ha_rng_below(i, 9, j, GROUPS * COUNT_ * HA_PQ_ROWS), s.args.type,
                     odd[j]);
        HA_TEST_EACH(t, pq_score) judge_scores(t, &s);
        ha_guard_release(0);
    }
}

TEST(a_wrong_score_is_seen)
{
    const struct scores s = scores_of(6, 64, 6, 5, 70, HA_F32, 2);
    judge_scores(ha_test_tables, &s);
    for (size_t r = 0; r < 5; r++)
        for (size_t i = 0; i < 70; i++) {
            float *x = &s.args.s[r * s.args.s_stride + i];
            const float was = *x;
            *x = i % 2 ? was + 1e-3f : (float)NAN;
            assert_true(ha_ref_judge_pq_score(&s.args, NULL) > 1);
            *x = was;
        }
    assert_true(ha_ref_judge_pq_score(&s.args, NULL) <= 1);
    ha_guard_release(0);
}

/* numbers that are worked out by hand: two groups of one dimension, 2-bit codes */
TEST(by_hand)
{
    static const float c[] = { 0, 1, 2, 3 };
    static const float q[] = { 10, 1 };
    static const float k[] = { 2.9f, 0.1f, 1.4f, 1.6f };
    const struct ha_pq pq = { c, 2, 1, 4, 1, 2 };
    HA_TEST_ALL(t)
    {
        unsigned char codes[16] __attribute__((aligned(64))) = { 0 };
        float table[2 * 4 * HA_PQ_ROWS] __attribute__((aligned(64))), s[2] = { 0 };
        t->pq_encode(&(struct ha_pq_encode){ pq, { .k = k, .k_stride_bytes = 8, .keys = 2 }, HA_F32, codes, 0 });
        assert_true(codes[0] == (3 | 1 << 2) && codes[8] == (0 | 2 << 2));
        t->pq_table(&(struct ha_pq_table){ pq, q, 1, 1, 2, 2, HA_F32, table });
        assert_true(table[3 * 4] == 30 && table[3 * 4 + 1] == 0 && table[16 + 2 * 4] == 2);
        t->pq_score(&(struct ha_pq_score){ pq, table, HA_F32, 1, codes, 2, 0.5f, s, 2 });
        assert_true(s[0] == 15 && s[1] == 6);
    }
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, ha_test_report); }
