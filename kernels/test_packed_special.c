/* attend_packed where the answer is known without a bound: values that are not numbers, keys that are not there, sums
 * that are exact, levels. */

#include "kernels/test_packed_data.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { KEYS = 71 };

static bool small;
static const size_t dims[] = { 24, 16, 8, 40, 128 };

#define COUNT(array)  (sizeof array / sizeof *array)
#define FOR_DTYPES(d) for (enum ha_dtype d = HA_F32; d <= HA_BF16; d++)

/* of query rows: some tables take many another way than few */
static size_t few_or_many(size_t i) { return i % 5 ? 5 : 21; }

/* all keys of the list, by queries that are 0.25 throughout, with weights */
static struct ha_test_states ask(const struct ha_kernels *t, const struct ha_test_packed *p, size_t rows)
{
    struct ha_test_states s = {
        .rows = rows, .q_stride = p->kv.dim, .keys = p->listed, .scale = 1, .with_weights = true, .gap = 3
    };
    s.q = ha_guard_alloc(rows * p->kv.dim * sizeof *s.q);
    for (size_t i = 0; i < rows * p->kv.dim; i++) s.q[i] = 0.25f;
    ha_test_packed_attend(t->attend_packed[p->kv.dtype], p, &s);
    return s;
}

static void put_key(struct ha_test_packed *p, size_t key, float k, float v)
{
    for (size_t d = 0; d < p->kv.dim; d++) {
        ha_test_packed_put_k(p, key, d, k);
        ha_test_packed_put_v(p, key, d, v);
    }
}

static void assert_empty(const struct ha_test_states *s, size_t dim)
{
    for (size_t r = 0; r < s->rows; r++) {
        assert_true(s->level[r] == -INFINITY && s->sum[r] == 0);
        for (size_t d = 0; d < dim; d++) assert_true(s->acc[r * dim + d] == 0);
        for (size_t j = 0; j < s->keys; j++) assert_true(s->weights[r * (s->keys + s->gap) + j] == 0);
    }
}

static void no_keys(void **state)
{
    (void)state;
    FOR_DTYPES(dtype)
    for (size_t keys = 0; keys <= 40; keys += 40)
        for (size_t unit = 0; unit <= 16; unit += 16) {
            struct ha_test_packed p;
            ha_test_packed_make(&p, HA_TEST_NORMAL, 24, keys, dtype, unit, 0, 1);
            p.listed = 0;
            HA_TEST_EACH(t, attend_packed[dtype])
            {
                struct ha_test_states s = ask(t, &p, few_or_many(keys / 8));
                assert_empty(&s, 24);
                ha_test_states_free(&s);
            }
            ha_test_packed_free(&p);
        }
}

/* Whatever a block held before, behind the keys packed into it is nothing that is seen. */
static void behind_the_end(void **state)
{
    (void)state;
    static const float rest[] = { NAN, INFINITY, 60000 };
    FOR_DTYPES(dtype)
    for (size_t keys = 1; keys < 70; keys += small ? 5 : 1)
        for (size_t unit = 0; unit <= 32; unit += 16) {
            const size_t dim = dims[keys % 4], rows = few_or_many(keys);
            struct ha_test_packed p, used;
            ha_test_packed_make(&p, HA_TEST_NORMAL, dim, keys, dtype, unit, keys, keys);
            ha_test_packed_make(&used, HA_TEST_NORMAL, dim, (keys + 31) / 32 * 32, dtype, 0, 0, 1);
            struct ha_test_packed again = p;
            again.packed.blocks = used.packed.blocks;
            HA_TEST_EACH(t, attend_packed[dtype])
            {
                for (size_t j = 0; j < used.kv.keys; j++) put_key(&used, j, rest[keys % 3], rest[keys % 3]);
                union {
                    const void *from;
                    void *to;
                } blocks = { .from = used.packed.blocks };
                t->pack(&(struct ha_pack){ .blocks = blocks.to, .rows = p.kv.rows, .head_dim = dim, .dtype = dtype });
                struct ha_test_states a = ask(t, &p, rows), b = ask(t, &again, rows);
                assert_true(ha_test_states_equal(&a, &b, rows, dim));
                ha_test_states_free(&a);
                ha_test_states_free(&b);
            }
            ha_test_packed_free(&p);
            ha_test_packed_free(&used);
        }
}

/* one score that is NaN, or +inf, wherever it stands, among ordinary ones or among -inf */
static void one_bad_score(void **state)
{
    (void)state;
    FOR_DTYPES(dtype)
    for (size_t j = 0; j < KEYS; j += small ? 6 : 1)
        for (int among_empty = 0; among_empty < 2; among_empty++)
            for (int inf = 0; inf < 2; inf++) {
                const size_t dim = dims[j % 4], rows = few_or_many(j);
                struct ha_test_packed p;
                ha_test_packed_make(&p, HA_TEST_NORMAL, dim, KEYS, dtype, j % 3 * 16, KEYS, j);
                for (size_t i = 0; among_empty && i < KEYS; i++) put_key(&p, i, -INFINITY, 1);
                put_key(&p, j, 1, 1);
                ha_test_packed_put_k(&p, j, j % dim, inf ? INFINITY : NAN);
                HA_TEST_EACH(t, attend_packed[dtype])
                {
                    struct ha_test_states s = ask(t, &p, rows);
                    for (size_t r = 0; r < rows; r++) assert_true(isnan(s.sum[r]));
                    ha_test_states_free(&s);
                }
                ha_test_packed_free(&p);
            }
}

static void scores_of_minus_infinity(void **state)
{
    (void)state;
    FOR_DTYPES(dtype)
    for (size_t j = 0; j < KEYS; j += 5) {
        const size_t dim = dims[j % 4], rows = few_or_many(j);
        struct ha_test_packed p;
        ha_test_packed_make(&p, HA_TEST_NORMAL, dim, KEYS, dtype, j % 2 * 16, KEYS, j);
        for (size_t i = 0; i < KEYS; i++) put_key(&p, i, -INFINITY, i % 2 ? INFINITY : NAN);
        HA_TEST_EACH(t, attend_packed[dtype])
        {
            struct ha_test_states s = ask(t, &p, rows);
            assert_empty(&s, dim);
            ha_test_states_free(&s);
        }
        /* the only key that weighs anything decides all */
        for (size_t i = 0; i < KEYS; i++) put_key(&p, i, -INFINITY, 1e4f);
        put_key(&p, j, 2, 7);
        HA_TEST_EACH(t, attend_packed[dtype])
        {
            struct ha_test_states s = ask(t, &p, rows);
            for (size_t r = 0; r < rows; r++) {
                assert_true(s.sum[r] > 0);
                const double off = 7 * (0x1p-22 + 2 * t->packed_profile[dtype].weight_u);
                for (size_t d = 0; d < dim; d++) assert_true(fabs((double)(s.acc[r * dim + d] / s.sum[r]) - 7) <= off);
                for (size_t i = 0; i < KEYS; i++) assert_true((s.weights[r * (KEYS + 3) + i] > 0) == (p.order[i] == j));
            }
            ha_test_states_free(&s);
        }
        ha_test_packed_free(&p);
    }
}

/* It stays in its column; all else has the bits that it has without. */
static void no_number_in_one_component_of_v(void **state)
{
    (void)state;
    FOR_DTYPES(dtype)
    for (size_t j = 0; j < KEYS; j += small ? 6 : 1) {
        const size_t dim = dims[j % 4], rows = few_or_many(j), column = j % dim;
        struct ha_test_packed p;
        ha_test_packed_make(&p, HA_TEST_NORMAL, dim, KEYS, dtype, j % 4 ? 0 : 16, KEYS, j);
        HA_TEST_EACH(t, attend_packed[dtype])
        {
            ha_test_packed_put_v(&p, j, column, 1);
            struct ha_test_states a = ask(t, &p, rows);
            ha_test_packed_put_v(&p, j, column, j % 3 ? NAN : INFINITY);
            struct ha_test_states b = ask(t, &p, rows);
            for (size_t r = 0; r < rows; r++) {
                assert_true(!isfinite(b.acc[r * dim + column]));
                b.acc[r * dim + column] = a.acc[r * dim + column];
            }
            assert_true(ha_test_states_equal(&a, &b, rows, dim));
            ha_test_states_free(&a);
            ha_test_states_free(&b);
        }
        ha_test_packed_free(&p);
    }
}

/* Equal scores and small integers in V: no rounding happens anywhere, and nobody is missing or counted twice. */
static void exact_sums(void **state)
{
    (void)state;
    FOR_DTYPES(dtype)
    for (size_t keys = 1; keys <= 600; keys += small ? 37 : keys < 130 ? 1 : 29) {
        const size_t dim = dims[keys % COUNT(dims)], rows = few_or_many(keys / 2);
        struct ha_test_packed p;
        ha_test_packed_make(&p, HA_TEST_NORMAL, dim, keys, dtype, 0, 0, keys);
        double sum[128] = { 0 };
        for (size_t j = 0; j < keys; j++)
            for (size_t d = 0; d < dim; d++) {
                const int v = (int)((j * 7 + d * 3 + j / 32) % 17) - 8;
                ha_test_packed_put_k(&p, j, d, d == 1 ? 0 : j % 2 ? 1.5f : 3);
                ha_test_packed_put_v(&p, j, d, (float)v);
                sum[d] += v;
            }
        HA_TEST_EACH(t, attend_packed[dtype])
        {
            struct ha_test_states s = {
                .rows = rows, .q_stride = dim, .keys = keys, .scale = 0.3f, .with_weights = true
            };
            s.q = ha_guard_alloc(rows * dim * sizeof *s.q);
            for (size_t i = 0; i < rows * dim; i++) s.q[i] = i % dim == 1 ? 8 : 0;
            ha_test_packed_attend(t->attend_packed[dtype], &p, &s);
            for (size_t r = 0; r < rows; r++) {
                const double one = exp2(-(double)s.level[r]);
                assert_true((double)s.sum[r] == (double)keys * one);
                for (size_t d = 0; d < dim; d++) assert_true((double)s.acc[r * dim + d] == sum[d] * one);
                for (size_t j = 0; j < keys; j++) assert_true((double)s.weights[r * keys + j] == one);
            }
            ha_test_states_free(&s);
        }
        ha_test_packed_free(&p);
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

static void levels(void **state)
{
    (void)state;
    enum { N = 200, DIM = 8 };
    float (*const score[])(size_t) = { falling,   rising,     steps_of_8, a_little_more, back_and_forth,
                                       huge_last, huge_first, all_low,    peak_within };
    for (size_t f = 0; f < COUNT(score); f++)
        for (int dtype = HA_F32; dtype <= HA_BF16; dtype += HA_BF16) {
            struct ha_test_packed p;
            ha_test_packed_make(&p, HA_TEST_NORMAL, DIM, N, (enum ha_dtype)dtype, 0, 0, f);
            for (size_t j = 0; j < N; j++)
                for (size_t d = 0; d < DIM; d++) ha_test_packed_put_k(&p, j, d, d == 5 ? score[f](j) : 0);
            const size_t rows = few_or_many(f);
            HA_TEST_EACH(t, attend_packed[dtype])
            for (size_t keys = 128; keys <= N; keys += N - 128) {
                struct ha_test_states s = {
                    .rows = rows, .q_stride = DIM, .keys = keys, .scale = 0.25f, .with_weights = true
                };
                s.q = ha_guard_alloc(rows * DIM * sizeof *s.q);
                for (size_t i = 0; i < rows * DIM; i++) s.q[i] = 4;
                ha_test_packed_attend(t->attend_packed[dtype], &p, &s);
                for (size_t r = 0; r < rows; r++) {
                    double top = -HUGE_VAL, sum = 0, x[N];
                    for (size_t j = 0; j < keys; j++) {
                        union {
                            const void *from;
                            const float *f32;
                            const uint16_t *bf16;
                        } k = { .from = p.packed.blocks };
                        const size_t at = ha_ref_packed_k((enum ha_dtype)dtype, DIM, j, 5);
                        union {
                            uint32_t u;
                            float f;
                        } bits = { .u = dtype == HA_F32 ? 0 : (uint32_t)k.bf16[at] << 16 };
                        x[j] = (double)(dtype == HA_F32 ? k.f32[at] : bits.f) * 0x1.71547652b82fep+0;
                        top = fmax(top, x[j]);
                    }
                    const double level = (double)s.level[r], slack = 0x1p-22 * fabs(top);
                    assert_true(level == floor(level) && level >= top - 8 - slack && level < top + 1 + slack);
                    if (fabs(top) > 1e6) continue;
                    for (size_t j = 0; j < keys; j++) sum += exp2(x[j] - level);
                    assert_true(fabs((double)s.sum[r] - sum) <= sum * (1e-5 + 4 * slack));
                    for (size_t j = 0; j < keys; j++) {
                        const double w = exp2(x[j] - level);
                        assert_true(fabs((double)s.weights[r * keys + j] - w) <= w * (1e-5 + 4 * slack) + 0x1p-126);
                    }
                }
                ha_test_states_free(&s);
            }
            ha_test_packed_free(&p);
        }
}

/* Rows are each other's company and no more: another one twice as large changes nothing. Exact in bfloat16 or not, all
 * of them alike: a kernel may take another way for those that are. */
static void rows_by_themselves(void **state)
{
    (void)state;
    enum { MOST = 17 };
    FOR_DTYPES(dtype)
    for (size_t rows = 2; rows <= MOST; rows += small ? 5 : 1)
        for (size_t other = 0; other < rows; other += 1 + rows / 4) {
            const size_t dim = dims[rows % COUNT(dims)];
            struct ha_test_packed p;
            ha_test_packed_make(&p, HA_TEST_PEAKED, dim, KEYS + rows, dtype, 0, 0, rows);
            HA_TEST_EACH(t, attend_packed[dtype])
            {
                struct ha_test_states s[2];
                for (size_t i = 0; i < 2; i++) {
                    s[i] = (struct ha_test_states){
                        .rows = rows, .q_stride = dim, .keys = p.listed, .scale = 0.1f, .with_weights = true
                    };
                    s[i].q = ha_test_packed_queries(HA_TEST_PEAKED, dim, rows, 0, other % 2, rows);
                    for (size_t d = 0; i == 1 && d < dim; d++) s[i].q[other * dim + d] *= 2;
                    ha_test_packed_attend(t->attend_packed[dtype], &p, &s[i]);
                }
                memcpy(s[1].acc + other * dim, s[0].acc + other * dim, dim * sizeof(float));
                memcpy(s[1].weights + other * p.listed, s[0].weights + other * p.listed, p.listed * sizeof(float));
                s[1].level[other] = s[0].level[other];
                s[1].sum[other] = s[0].sum[other];
                assert_true(ha_test_states_equal(&s[0], &s[1], rows, dim));
                for (size_t i = 0; i < 2; i++) ha_test_states_free(&s[i]);
            }
            ha_test_packed_free(&p);
        }
}

int main(int argc, char **argv)
{
    small = argc > 1 && strcmp(argv[1], "small") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_keys),
        cmocka_unit_test(behind_the_end),
        cmocka_unit_test(one_bad_score),
        cmocka_unit_test(scores_of_minus_infinity),
        cmocka_unit_test(no_number_in_one_component_of_v),
        cmocka_unit_test(exact_sums),
        cmocka_unit_test(levels),
        cmocka_unit_test(rows_by_themselves),
    };
    return cmocka_run_group_tests(tests, ha_test_tables_setup, NULL);
}
