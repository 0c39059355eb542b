/* attend_packed and attend_chunk where the answer is known without a bound: values that are not numbers, keys that are
 * not there, sums that are exact, levels. */

#include "harness/base/numeric.h"
#include "kernels/rows.h"
#include "kernels/test_packed_data.h"

#include <math.h>

enum { KEYS = 71, DIM_MAX = 128, GAP = 3 };

static const size_t dims[] = { 24, 16, 8, 40, DIM_MAX };

/* With it the exponents of two are the products of queries and keys, exactly. */
static const float LN2 = 0x1.62e43p-1f;

/* of query rows: some tables take many another way than few */
static size_t few_or_many(size_t i) { return i % 5 ? 5 : 21; }

/* Each table that has an attend_packed of its own, by that and by attend_chunk. */
enum way { PACKED, CHUNK, WAYS };
#define FOR_WAYS(t, way, dtype)           \
    HA_TEST_EACH(t, attend_packed[dtype]) \
    for (enum way way = PACKED; way < WAYS; way++)

/* `keys` of the list by queries that all are q, with weights */
static struct ha_test_states attend(const struct ha_kernels *t, enum way way, const struct ha_test_packed *p,
                                    size_t rows, size_t keys, const float *q, float scale, const uint32_t *visible)
{
    const size_t dim = p->kv.dim;
    struct ha_test_states s = {
        .rows = rows,
        .q_stride = dim,
        .keys = keys,
        .scale = scale,
        .with_weights = true,
        .visible = visible,
        .gap = GAP,
    };
    s.q = ha_guard_alloc(rows * dim * sizeof *s.q);
    for (size_t r = 0; r < rows; r++) memcpy(s.q + r * dim, q, dim * sizeof *q);
    if (way == PACKED) ha_test_packed_attend(t->attend_packed[p->kv.dtype], p, &s);
    else ha_test_chunk_attend(t->attend_chunk, p, &s);
    return s;
}

/* all keys of the list, by queries that are 0.25 throughout */
static struct ha_test_states ask(const struct ha_kernels *t, enum way way, const struct ha_test_packed *p, size_t rows,
                                 const uint32_t *visible)
{
    float q[DIM_MAX];
    for (size_t d = 0; d < DIM_MAX; d++) q[d] = 0.25f;
    return attend(t, way, p, rows, p->kv.keys, q, LN2, visible);
}

static void put_key(struct ha_test_packed *p, size_t key, float k, float v)
{
    for (size_t d = 0; d < p->kv.dim; d++) {
        ha_test_packed_put_k(p, key, d, k);
        ha_test_packed_put_v(p, key, d, v);
    }
}

static float weight(const struct ha_test_states *s, size_t r, size_t j)
{
    return s->weights[r * (s->keys + s->gap) + j];
}

static void assert_empty(const struct ha_test_states *s, size_t r, size_t dim)
{
    assert_true(s->level[r] == -INFINITY && s->sum[r] == 0);
    for (size_t d = 0; d < dim; d++) assert_true(s->acc[r * dim + d] == 0);
    for (size_t j = 0; j < s->keys; j++) assert_true(weight(s, r, j) == 0);
}

TEST(no_keys)
{
    HA_TEST_DTYPES(dtype)
    for (size_t keys = 0; keys <= 40; keys += 40)
        for (size_t unit = 0; unit <= 16; unit += 16) {
            struct ha_test_packed p;
            ha_test_packed_make(&p, HA_TEST_NORMAL, 24, keys, dtype, unit, 1);
            p.kv.keys = p.packed.units = 0;
            FOR_WAYS(t, way, dtype)
            {
                struct ha_test_states s = ask(t, way, &p, few_or_many(keys / 8), NULL);
                for (size_t r = 0; r < s.rows; r++) assert_empty(&s, r, 24);
            }
            ha_guard_release(0);
        }
}

/* Whatever a block held before, behind the keys packed into it is nothing that is seen. */
TEST(behind_the_end)
{
    static const float rest[] = { NAN, INFINITY, 60000 };
    HA_TEST_DTYPES(dtype)
    for (size_t keys = 1; keys < 70; keys += test_small ? 5 : 1)
        for (size_t unit = 0; unit <= 32; unit += 16) {
            const size_t dim = dims[keys % 4], rows = few_or_many(keys);
            struct ha_test_packed p, used;
            ha_test_packed_make(&p, HA_TEST_NORMAL, dim, keys, dtype, unit, keys);
            ha_test_packed_make(&used, HA_TEST_NORMAL, dim, (p.packed.keys + 31) / 32 * 32, dtype, 0, 1);
            struct ha_test_packed again = p;
            struct ha_rows store = p.kv.rows; /* in the order of the store; what the list does not name is any row */
            uint32_t *index = ha_guard_alloc(p.packed.keys * sizeof *index);
            memset(index, 0, p.packed.keys * sizeof *index);
            for (size_t j = 0; j < keys; j++) index[p.place[j]] = (uint32_t)ha_row(&p.kv.rows, j);
            store.index = index;
            store.keys = p.packed.keys;
            again.packed.blocks = used.packed.blocks;
            HA_TEST_EACH(t, attend_packed[dtype])
            {
                for (size_t j = 0; j < used.kv.keys; j++) put_key(&used, j, rest[keys % 3], rest[keys % 3]);
                t->pack(&(struct ha_pack){
                    .blocks = ha_test_own(used.packed.blocks), .rows = store, .head_dim = dim, .dtype = dtype });
                struct ha_test_states a = ask(t, PACKED, &p, rows, NULL), b = ask(t, PACKED, &again, rows, NULL);
                assert_true(ha_test_states_equal(&a, &b, rows, dim));
            }
            ha_guard_release(0);
        }
}

/* Keys from `cut` on are NaN in K and V. Rows that see none of them give what they gave before the NaN, bit for bit;
 * the others give NaN. All limits within a block of rows differ. */
TEST(what_is_not_seen_does_not_leak)
{
    enum { DIM = 24, ROWS = 9 };
    static const uint32_t visible[][ROWS] = {
        { 0, 1, 2, 3, 31, 32, 33, 70, 71 }, { 71, 71, 40, 71, 71, 0, 71, 71, 40 },
        { 5, 6, 7, 8, 9, 10, 11, 12, 13 },  { 71, 71, 71, 71, 71, 71, 71, 71, 71 },
        { 0, 0, 0, 0, 1, 0, 0, 0, 0 },      { 64, 65, 66, 67, 68, 69, 70, 71, 4000 },
    };
    HA_TEST_DTYPES(dtype)
    for (size_t i = 0; i < COUNT(visible); i++)
        for (size_t cut = 0; cut <= KEYS; cut += (test_small ? 9 : 1) + cut % 7) {
            const size_t unit = (i + cut) % 3 ? 0 : 16;
            struct ha_test_packed clean, dirty;
            ha_test_packed_make(&clean, HA_TEST_NORMAL, DIM, KEYS, dtype, unit, i);
            ha_test_packed_make(&dirty, HA_TEST_NORMAL, DIM, KEYS, dtype, unit, i);
            for (size_t j = cut; j < KEYS; j++) put_key(&dirty, j, NAN, NAN);
            HA_TEST_EACH(t, attend_chunk)
            {
                struct ha_test_states a = ask(t, CHUNK, &clean, ROWS, visible[i]),
                                      b = ask(t, CHUNK, &dirty, ROWS, visible[i]);
                for (size_t r = 0; r < ROWS; r++) {
                    const size_t sees = visible[i][r] < KEYS ? visible[i][r] : KEYS;
                    for (size_t j = sees; j < KEYS; j++) assert_true(weight(&b, r, j) == 0);
                    if (sees == 0) assert_empty(&b, r, DIM);
                    if (sees > cut) {
                        assert_true(isnan(b.sum[r]));
                        continue;
                    }
                    assert_memory_equal(&a.level[r], &b.level[r], sizeof *b.level);
                    assert_memory_equal(&a.sum[r], &b.sum[r], sizeof *b.sum);
                    assert_memory_equal(a.acc + r * DIM, b.acc + r * DIM, DIM * sizeof *b.acc);
                    assert_memory_equal(a.weights + r * (KEYS + GAP), b.weights + r * (KEYS + GAP),
                                        KEYS * sizeof *b.weights);
                }
            }
            ha_guard_release(0);
        }
}

/* one score that is NaN, or +inf, wherever it stands, among ordinary ones or among -inf */
TEST(one_bad_score)
{
    HA_TEST_DTYPES(dtype)
    for (size_t j = 0; j < KEYS; j += test_small ? 6 : 1)
        for (int among_empty = 0; among_empty < 2; among_empty++)
            for (int inf = 0; inf < 2; inf++) {
                const size_t dim = dims[j % 4], rows = few_or_many(j);
                struct ha_test_packed p;
                ha_test_packed_make(&p, HA_TEST_NORMAL, dim, KEYS, dtype, j % 3 * 16, j);
                for (size_t i = 0; among_empty && i < KEYS; i++) put_key(&p, i, -INFINITY, 1);
                put_key(&p, j, 1, 1);
                ha_test_packed_put_k(&p, j, j % dim, inf ? INFINITY : NAN);
                FOR_WAYS(t, way, dtype)
                {
                    struct ha_test_states s = ask(t, way, &p, rows, NULL);
                    for (size_t r = 0; r < rows; r++) assert_true(isnan(s.sum[r]));
                }
                ha_guard_release(0);
            }
}

TEST(scores_of_minus_infinity)
{
    HA_TEST_DTYPES(dtype)
    for (size_t j = 0; j < KEYS; j += 5) {
        const size_t dim = dims[j % 4], rows = few_or_many(j);
        struct ha_test_packed p;
        ha_test_packed_make(&p, HA_TEST_NORMAL, dim, KEYS, dtype, j % 2 * 16, j);
        for (size_t i = 0; i < KEYS; i++) put_key(&p, i, -INFINITY, i % 2 ? INFINITY : NAN);
        FOR_WAYS(t, way, dtype)
        {
            struct ha_test_states s = ask(t, way, &p, rows, NULL);
            for (size_t r = 0; r < rows; r++) assert_empty(&s, r, dim);
        }
        /* the only key that weighs anything decides all, and nothing is rounded */
        for (size_t i = 0; i < KEYS; i++) put_key(&p, i, -INFINITY, 1e4f);
        put_key(&p, j, 2, 7);
        FOR_WAYS(t, way, dtype)
        {
            struct ha_test_states s = ask(t, way, &p, rows, NULL);
            for (size_t r = 0; r < rows; r++) {
                const float w = exp2f(2 * 0.25f * (float)dim - s.level[r]);
                assert_true(w > 0 && s.sum[r] == w);
                for (size_t d = 0; d < dim; d++) assert_true(s.acc[r * dim + d] == 7 * w);
                for (size_t i = 0; i < KEYS; i++) assert_true(weight(&s, r, i) == (i == j ? w : 0));
            }
        }
        ha_guard_release(0);
    }
}

/* What only queries in parts can get wrong: an infinity in K times the parts of a query that are 0. */
TEST(infinite_keys_by_queries_in_parts)
{
    enum { ROWS = 17, DIM = 40, KEYS_HERE = 41, AT = 19 };
    float q[DIM];
    for (size_t d = 0; d < DIM; d++) q[d] = d % 2 ? 0.5f : 0.3f;
    for (int sign = -1; sign <= 1; sign += 2) {
        struct ha_test_packed p;
        ha_test_packed_make(&p, HA_TEST_NORMAL, DIM, KEYS_HERE, HA_BF16, 0, 1);
        ha_test_packed_put_k(&p, AT, 3, (float)sign * INFINITY);
        FOR_WAYS(t, way, HA_BF16)
        {
            struct ha_test_states s = attend(t, way, &p, ROWS, KEYS_HERE, q, 0.3f, NULL);
            for (size_t r = 0; r < ROWS; r++) {
                if (sign > 0) assert_true(isnan(s.sum[r]));
                else assert_true(isfinite(s.sum[r]) && s.sum[r] > 0 && weight(&s, r, AT) == 0);
            }
        }
        ha_guard_release(0);
    }
}

/* It stays in its column; all else has the bits that it has without. */
TEST(no_number_in_one_component_of_v)
{
    HA_TEST_DTYPES(dtype)
    for (size_t j = 0; j < KEYS; j += test_small ? 6 : 1) {
        const size_t dim = dims[j % 4], rows = few_or_many(j), column = j % dim;
        struct ha_test_packed p;
        ha_test_packed_make(&p, HA_TEST_NORMAL, dim, KEYS, dtype, j % 4 ? 0 : 16, j);
        FOR_WAYS(t, way, dtype)
        {
            ha_test_packed_put_v(&p, j, column, 1);
            struct ha_test_states a = ask(t, way, &p, rows, NULL);
            ha_test_packed_put_v(&p, j, column, j % 3 ? NAN : INFINITY);
            struct ha_test_states b = ask(t, way, &p, rows, NULL);
            for (size_t r = 0; r < rows; r++) {
                assert_true(j % 3 ? isnan(b.acc[r * dim + column]) : !isfinite(b.acc[r * dim + column]));
                b.acc[r * dim + column] = a.acc[r * dim + column];
            }
            assert_true(ha_test_states_equal(&a, &b, rows, dim));
        }
        ha_guard_release(0);
    }
}

/* Equal scores and small integers in V: no rounding happens anywhere, and no key is missing or counted twice. */
TEST(exact_sums)
{
    static const float q[DIM_MAX] = { [1] = 8 };
    HA_TEST_DTYPES(dtype)
    for (size_t keys = 1; keys <= 600; keys += test_small ? 37 : keys < 130 ? 1 : 29) {
        const size_t dim = dims[keys % COUNT(dims)], rows = few_or_many(keys / 2);
        struct ha_test_packed p;
        ha_test_packed_make(&p, HA_TEST_NORMAL, dim, keys, dtype, 0, keys);
        double sum[DIM_MAX] = { 0 };
        for (size_t j = 0; j < keys; j++)
            for (size_t d = 0; d < dim; d++) {
                const int v = (int)((j * 7 + d * 3 + j / 32) % 17) - 8;
                ha_test_packed_put_k(&p, j, d, d == 1 ? 0 : j % 2 ? 1.5f : 3);
                ha_test_packed_put_v(&p, j, d, (float)v);
                sum[d] += v;
            }
        FOR_WAYS(t, way, dtype)
        {
            struct ha_test_states s = attend(t, way, &p, rows, keys, q, 0.3f, NULL);
            for (size_t r = 0; r < rows; r++) {
                const double one = exp2(-(double)s.level[r]);
                assert_true((double)s.sum[r] == (double)keys * one);
                for (size_t d = 0; d < dim; d++) assert_true((double)s.acc[r * dim + d] == sum[d] * one);
                for (size_t j = 0; j < keys; j++) assert_true((double)weight(&s, r, j) == one);
            }
        }
        ha_guard_release(0);
    }
}

/* Exponents that rise and fall by much, little, and just about what a level may be off: the score of key j is f(j). */
static float falling(size_t j) { return -(float)j; }
static float rising(size_t j) { return (float)j * 0.173f; }
static float steps_of_8(size_t j) { return (float)(j / 32 * 8) * 0.69314718f; }
static float a_little_more(size_t j) { return (float)(j / 32) * 5.5453f; }
static float back_and_forth(size_t j) { return j / 32 % 2 ? -30.0f : 3.0f * (float)(j / 64); }
static float huge_last(size_t j) { return j == 150 ? 1e37f : -1e37f; }
static float huge_first(size_t j) { return j == 3 ? 1e37f : -1e37f; }
static float all_low(size_t j) { return -1e37f * (float)(1 + j % 2); }
static float peak_within(size_t j) { return j == 40 ? 2000 : j % 7 ? -2000 : 1999; }

/* Row r of states whose scores, as powers of two, are x[keys]. */
static void check_level(const struct ha_test_states *s, size_t r, const double *x)
{
    const double level = (double)s->level[r];
    double top = -HUGE_VAL, sum = 0;
    for (size_t j = 0; j < s->keys; j++) top = fmax(top, x[j]);
    const double slack = 0x1p-22 * fabs(top);
    assert_true(level == floor(level) && level >= top - 8 - slack && level < top + 1 + slack);
    if (fabs(top) > 1e6) return;
    for (size_t j = 0; j < s->keys; j++) {
        const double w = exp2(x[j] - level);
        assert_true(fabs((double)weight(s, r, j) - w) <= w * (1e-5 + 4 * slack) + 0x1p-126);
        sum += w;
    }
    assert_true(fabs((double)s->sum[r] - sum) <= sum * (1e-5 + 4 * slack));
}

TEST(levels)
{
    enum { N = 200, DIM = 8 };
    static const float q[DIM] = { 4, 4, 4, 4, 4, 4, 4, 4 };
    float (*const score[])(size_t) = { falling,   rising,     steps_of_8, a_little_more, back_and_forth,
                                       huge_last, huge_first, all_low,    peak_within };
    for (size_t f = 0; f < COUNT(score); f++)
        for (enum ha_dtype dtype = HA_F32; dtype <= HA_BF16; dtype += HA_BF16) {
            const size_t rows = few_or_many(f);
            struct ha_test_packed p;
            double x[N];
            ha_test_packed_make(&p, HA_TEST_NORMAL, DIM, N, dtype, 0, f);
            for (size_t j = 0; j < N; j++) {
                for (size_t d = 0; d < DIM; d++) ha_test_packed_put_k(&p, j, d, d == 5 ? score[f](j) : 0);
                x[j] = (double)ha_round(score[f](j), dtype) * 0x1.71547652b82fep+0;
            }
            FOR_WAYS(t, way, dtype)
            for (size_t keys = 128; keys <= N; keys += N - 128) {
                struct ha_test_states s = attend(t, way, &p, rows, keys, q, 0.25f, NULL);
                for (size_t r = 0; r < rows; r++) check_level(&s, r, x);
            }
            ha_guard_release(0);
        }
}

/* What a row gives does not depend on the others: one of them twice as large changes nothing. All queries are exact in
 * bfloat16, or none is: a kernel may take another way for those that are. */
TEST(rows_by_themselves)
{
    enum { MOST = 17 };
    HA_TEST_DTYPES(dtype)
    for (size_t rows = 2; rows <= MOST; rows += test_small ? 5 : 1)
        for (size_t other = 0; other < rows; other += 1 + rows / 4) {
            const size_t dim = dims[rows % COUNT(dims)];
            struct ha_test_packed p;
            ha_test_packed_make(&p, HA_TEST_PEAKED, dim, KEYS + rows, dtype, 0, rows);
            FOR_WAYS(t, way, dtype)
            {
                struct ha_test_states s[2];
                for (size_t i = 0; i < 2; i++) {
                    s[i] = (struct ha_test_states){
                        .rows = rows, .q_stride = dim, .keys = p.kv.keys, .scale = 0.1f, .with_weights = true
                    };
                    s[i].q = ha_test_packed_queries(HA_TEST_PEAKED, dim, rows, 0, other % 2, rows);
                    for (size_t d = 0; i == 1 && d < dim; d++) s[i].q[other * dim + d] *= 2;
                    if (way == PACKED) ha_test_packed_attend(t->attend_packed[dtype], &p, &s[i]);
                    else ha_test_chunk_attend(t->attend_chunk, &p, &s[i]);
                }
                memcpy(s[1].acc + other * dim, s[0].acc + other * dim, dim * sizeof(float));
                memcpy(s[1].weights + other * p.kv.keys, s[0].weights + other * p.kv.keys, p.kv.keys * sizeof(float));
                s[1].level[other] = s[0].level[other];
                s[1].sum[other] = s[0].sum[other];
                assert_true(ha_test_states_equal(&s[0], &s[1], rows, dim));
            }
            ha_guard_release(0);
        }
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, NULL); }
