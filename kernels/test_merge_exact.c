/* merge, through every table: what is not a matter of rounding. Linked a second time with a table of the CUDA kernels,
 * whose rows are of whole 16 bytes. */

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "kernels/test_merge_data.h"

#include <float.h>
#include <math.h>

/* without the last, largest one in a small run, in which some tests take every fifth problem: of every form and type */
#define COUNT_SCOPED(array) (COUNT(array) - (test_small ? 1 : 0))

#ifndef HA_TEST_MERGE_DIM
#define HA_TEST_MERGE_DIM 45
#define HA_TEST_MERGE_NAN 0x7fc00001 /* of those that signal, the kernels' arithmetic makes quiet ones */
#endif
enum { DIM = HA_TEST_MERGE_DIM, LAST = DIM - 1, KINDS = HA_TEST_MERGE_KINDS };

/* the largest finite number */
static float most(enum ha_dtype t) { return t == HA_F32 ? FLT_MAX : t == HA_F16 ? 65504 : 0x1.fep127f; }

/* One state alone, or among empty ones whose o is NaN, is copied bit for bit: the signs of its zeros, its largest
 * number, its subnormal ones, infinity and NaN. */
TEST(a_single_state_is_copied)
{
    static const float levels[] = { 0, -0.0f, 1e-7f, -1e5f, 88, FLT_MAX, -FLT_MAX };
    static const size_t counts[] = { 1, 2, 3, 16, 17, 64, 65, 200, 600 };
    for (size_t n = 0; n < KINDS * COUNT_SCOPED(counts); n++) {
        struct ha_test_merge p = ha_test_merge_kind(n % KINDS, counts[n / KINDS], DIM);
        ha_test_merge_make(&p, n);
        for (size_t at = 0; at < p.count; at += 1 + at / 2) {
            for (size_t i = 0; i < p.count; i++) *ha_test_merge_level(&p, i, 0) = i % 3 ? -INFINITY : INFINITY;
            float *o = ha_test_merge_o(&p, at, 0), *level = ha_test_merge_level(&p, at, 0),
                  *sum = ha_test_merge_sum(&p, at, 0);
            o[3] = -0.0f;
            o[4] = 0;
            o[5] = p.dtype == HA_F16 ? -0x1p-24f : p.dtype == HA_BF16 ? -0x1p-133f : -0x1p-149f;
            o[LAST] = most(p.dtype);
            o[LAST - 1] = INFINITY;
            memcpy(&o[LAST - 2], &(const uint32_t){ p.dtype == HA_F32 ? HA_TEST_MERGE_NAN : 0x7fc00000 }, sizeof *o);
            *sum = 1.7f;
            for (size_t l = test_small ? (n + at) % COUNT(levels) : 0; l < COUNT(levels);
                 l += test_small ? COUNT(levels) : 1) {
                *level = levels[l];
                HA_TEST_ALL(t)
                {
                    ha_test_merge_run(&p, t);
                    ha_test_same(p.got_o, o, DIM);
                    ha_test_same(p.got_level, level, 1);
                    if (p.form == HA_FORM_MAX_SUM) ha_test_same(p.got_sum, sum, 1);
                }
            }
        }
        ha_test_merge_free(&p);
    }
}

TEST(empties_only)
{
    static const float zeros[DIM], none = -INFINITY;
    for (size_t n = 0; n < KINDS; n++)
        for (size_t count = 0; count <= 600; count += 1 + count / 2) {
            struct ha_test_merge p = ha_test_merge_kind(n, count, DIM);
            ha_test_merge_make(&p, n);
            for (size_t i = 0; i < p.count; i++) *ha_test_merge_level(&p, i, 0) = i % 2 ? -INFINITY : INFINITY;
            HA_TEST_ALL(t)
            {
                ha_test_merge_run(&p, t);
                ha_test_same(p.got_o, zeros, DIM);
                ha_test_same(p.got_level, &none, 1);
                if (p.form == HA_FORM_MAX_SUM) ha_test_same(p.got_sum, zeros, 1);
            }
            ha_test_merge_free(&p);
        }
}

/* a,b = b,a, bit for bit, zeros of both signs included; and o and -o of one level cancel */
TEST(two_states_commute)
{
    static const float zeros[] = { 0, -0.0f, -INFINITY };
    for (size_t n = 0; n < KINDS * 100; n += test_small ? 7 : 1) {
        struct ha_test_merge a = ha_test_merge_kind(n % KINDS, 2, DIM), b = a;
        ha_test_merge_make(&a, n);
        ha_test_merge_make(&b, n);
        for (size_t i = 0; i < 2; i++) {
            const float x = 3 * ha_rng_normal(n, 5, i);
            a.o[i * DIM] = i ? 0 : -0.0f;
            *ha_test_merge_level(&a, i, 0) = n % 5 ? x : zeros[(n / 5 + i * (n / 15)) % 3];
            *ha_test_merge_sum(&a, i, 0) = 1 + x * x;
            *ha_test_merge_level(&b, !i, 0) = *ha_test_merge_level(&a, i, 0);
            *ha_test_merge_sum(&b, !i, 0) = *ha_test_merge_sum(&a, i, 0);
            memcpy(ha_test_merge_o(&b, !i, 0), ha_test_merge_o(&a, i, 0), DIM * sizeof *a.o);
        }
        HA_TEST_ALL(t)
        {
            assert_true(t->traits.commutes);
            ha_test_merge_run(&a, t);
            ha_test_merge_run(&b, t);
            ha_test_same(a.got_o, b.got_o, DIM);
            ha_test_same(a.got_level, b.got_level, 1);
            ha_test_same(a.got_sum, b.got_sum, 1);
        }
        for (size_t d = 0; d < DIM; d++)
            a.o[DIM + d] = -(a.o[d] = ha_round((a.dtype == HA_F16 ? 1e4f : 1e30f) * a.o[d], a.dtype));
        for (size_t i = 0; i < 2; i++) a.level[i] = 7, a.sum[i] = 3;
        HA_TEST_ALL(t)
        {
            ha_test_merge_run(&a, t);
            for (size_t d = 0; d < DIM; d++) assert_true(a.got_o[d] == 0);
        }
        ha_test_merge_free(&a);
        ha_test_merge_free(&b);
    }
}

/* Shares of 1/4 are exact. Others, and the weights of the form that does not divide, add up to 1 + a few 2^-24:
 * binary32 needs that much room, 16 bits have it. */
TEST(no_overflow_of_a_convex_combination)
{
    for (size_t n = 0; n < KINDS; n++) {
        struct ha_test_merge p = ha_test_merge_kind(n, 4, DIM);
        ha_test_merge_make(&p, n);
        for (int equal = 0; equal < 2; equal++) {
            const bool exact = equal && p.form != HA_FORM_DIRECT;
            const float top = exact || p.dtype != HA_F32 ? most(p.dtype) : 3.4e38f;
            for (size_t i = 0; i < 4 * DIM; i++) p.o[i] = i % DIM % 2 ? top : -top;
            for (size_t i = 0; i < 4; i++)
                *ha_test_merge_level(&p, i, 0) = equal ? 1 : (float[]){ 1, 1.5f, 0.3f, -2 }[i];
            HA_TEST_ALL(t)
            {
                ha_test_merge_run(&p, t);
                for (size_t d = 0; d < DIM; d++) {
                    if (exact) assert_true(fabsf(p.got_o[d]) == top);
                    assert_true(fabsf(fabsf(p.got_o[d]) - top) <= 1e-6f * top);
                }
            }
        }
        ha_test_merge_free(&p);
    }
}

/* ---- not a number ---------------------------------------------------------------------------- */

static void assert_nan(const struct ha_test_merge *p)
{
    assert_true(isnan(p->got_level[0]));
    if (p->form == HA_FORM_MAX_SUM) assert_true(isnan(p->got_sum[0]));
    for (size_t d = 0; d < DIM; d++) assert_true(isnan(p->got_o[d]));
}

/* NaN, and +inf where that does not mean empty */
TEST(bad_level_is_never_silent)
{
    static const size_t counts[] = { 1, 2, 3, 17, 65, 600 };
    for (size_t n = 0; n < KINDS * COUNT_SCOPED(counts); n += test_small ? 5 : 1) {
        struct ha_test_merge p = ha_test_merge_kind(n % KINDS, counts[n / KINDS], DIM);
        ha_test_merge_make(&p, n);
        for (size_t at = 0; at < p.count; at += 1 + at / 2)
            for (int others_empty = 0; others_empty < 2; others_empty++)
                for (int inf = 0; inf < 2; inf++) {
                    p.plus_inf_is_empty = !inf;
                    for (size_t i = 0; i < p.count; i++)
                        *ha_test_merge_level(&p, i, 0) = others_empty ? -INFINITY : (float)i;
                    *ha_test_merge_level(&p, at, 0) = inf ? INFINITY : at % 2 ? NAN : -NAN;
                    HA_TEST_ALL(t)
                    {
                        ha_test_merge_run(&p, t);
                        assert_nan(&p);
                    }
                }
        ha_test_merge_free(&p);
    }
}

/* in o of a state that has keys, however little it weighs: in that component; in the sum: in o and the sum */
TEST(nan_in_a_state)
{
    for (size_t n = 0; n < KINDS; n++)
        for (size_t at = 0; at < DIM; at += test_small ? 7 : 1)
            for (size_t bad = 0; bad < 4; bad++) {
                const size_t count = bad < 3 ? 3 : 30;
                struct ha_test_merge p = ha_test_merge_kind(n, count, DIM);
                ha_test_merge_make(&p, n);
                for (size_t i = 0; i < count; i++)
                    *ha_test_merge_level(&p, i, 0) = i == 2 || i == 3 ? -3e3f : (float)(1 + i % 2);
                ha_test_merge_o(&p, bad, 0)[at] = NAN;
                HA_TEST_ALL(t)
                {
                    ha_test_merge_run(&p, t);
                    for (size_t d = 0; d < DIM; d++) assert_true(isnan(p.got_o[d]) == (d == at));
                    assert_true(isfinite(p.got_level[0]));
                }
                *ha_test_merge_sum(&p, bad, 0) = NAN;
                HA_TEST_ALL(t)
                {
                    ha_test_merge_run(&p, t);
                    assert_true(isfinite(p.got_level[0]));
                    assert_true(isnan(p.got_sum[0]) == (p.form == HA_FORM_MAX_SUM));
                    for (size_t d = 0; d < DIM; d++)
                        assert_true(isnan(p.got_o[d]) == (d == at || p.form == HA_FORM_MAX_SUM));
                }
                ha_test_merge_free(&p);
            }
}

/* ---- the same in another way ------------------------------------------------------------------ */

static void random_levels(struct ha_test_merge *p, size_t n)
{
    for (size_t i = 0; i < p->count; i++)
        for (size_t r = 0; r < p->tokens * p->heads; r++) {
            const float x = ha_rng_normal(n, 4 + i, r);
            *ha_test_merge_level(p, i, r) = x > 1 ? -INFINITY : 4 * x;
            *ha_test_merge_sum(p, i, r) = 1 + 50 * ha_rng_uniform(n, 7000 + i, r);
        }
}

/* nor does it matter which rows are merged in one call */
TEST(strides_and_aliases_do_not_matter)
{
    static const size_t counts[] = { 1, 2, 5, 20, 70, 530 }, dims[] = { DIM, 270, 128 };
    for (size_t n = 0; n < KINDS * COUNT_SCOPED(counts); n += test_small ? 5 : 1) {
        struct ha_test_merge p = ha_test_merge_kind(n % KINDS, counts[n / KINDS], DIM);
        p.tokens = 3;
        p.heads = 2;
        p.dim = dims[n % 5 % 3];
        ha_test_merge_make(&p, n);
        random_levels(&p, n);
        struct ha_test_merge q = ha_test_merge_like(&p), one = p;
        one.tokens = one.heads = 1;
        ha_test_merge_make(&one, n);
        HA_TEST_ALL(t)
        {
            p.rows = HA_TEST_TOKENS_HEADS;
            p.alias = HA_ALIAS_NONE;
            ha_test_merge_run(&p, t);
            for (int rows = 0; rows < HA_TEST_ROWS; rows++)
                for (int alias = HA_ALIAS_NONE; alias <= HA_ALIAS_LAST; alias++) {
                    q.rows = (enum ha_test_rows)rows;
                    q.alias = (enum ha_alias)alias;
                    ha_test_merge_run(&q, t);
                    ha_test_merge_same(&p, &q);
                }
            for (size_t r = 0; r < 6; r += 5) {
                for (size_t i = 0; i < p.count; i++) {
                    memcpy(ha_test_merge_o(&one, i, 0), ha_test_merge_o(&p, i, r), p.dim * sizeof *p.o);
                    *ha_test_merge_level(&one, i, 0) = *ha_test_merge_level(&p, i, r);
                    *ha_test_merge_sum(&one, i, 0) = *ha_test_merge_sum(&p, i, r);
                }
                ha_test_merge_run(&one, t);
                ha_test_same(one.got_o, p.got_o + r * p.dim, p.dim);
            }
        }
        ha_test_merge_free(&p);
        ha_test_merge_free(&q);
        ha_test_merge_free(&one);
    }
}

/* 16 bits are read, summed in binary32 and rounded once: what the merge of the same numbers in binary32 gives, rounded
 */
TEST(halves_are_rounded_once)
{
    for (size_t n = 0; n < 4 * 2 * 60; n += test_small ? 7 : 1) {
        struct ha_test_merge wide = ha_test_merge_kind(n % 4, n % 9 == 8 ? 11 : 2 + n / 4 % 4, DIM), half;
        wide.tokens = 5;
        wide.dim = 100;
        wide.dtype = n / 240 ? HA_BF16 : HA_F16;
        ha_test_merge_make(&wide, n);
        random_levels(&wide, n);
        /* equal levels give ties; small numbers subnormal results, large ones those that overflow */
        for (size_t i = 0; n % 3 == 0 && i < wide.count * 5; i++) wide.level[i] = 2, wide.sum[i] = 1;
        const float by = (float[]){ 1, 0x1p-14f, 0x1p-18f, 0x1p14f, 0x1p-130f }[n % 5];
        for (size_t i = 0; i < wide.count * 500; i++) wide.o[i] = ha_round(by * wide.o[i], wide.dtype);
        wide.o[7] = NAN;
        wide.o[9] = -INFINITY;
        half = ha_test_merge_like(&wide);
        wide.dtype = HA_F32;
        HA_TEST_ALL(t)
        {
            ha_test_merge_run(&wide, t);
            ha_test_merge_run(&half, t);
            for (size_t i = 0; i < 500; i++) wide.got_o[i] = ha_round(wide.got_o[i], half.dtype);
            ha_test_merge_same(&half, &wide);
        }
        ha_test_merge_free(&wide);
        ha_test_merge_free(&half);
    }
}

/* a common offset that is exact costs (max, sum, o) nothing */
TEST(max_sum_is_shift_invariant)
{
    for (size_t n = 0; n < 50; n++) {
        struct ha_test_merge p = ha_test_merge_kind(HA_FORM_MAX_SUM, 5, DIM);
        ha_test_merge_make(&p, n);
        for (size_t i = 0; i < 5; i++) p.level[i] = (float)ha_rng_below(n, 3, i, 4096) / 256;
        struct ha_test_merge q = ha_test_merge_like(&p);
        for (size_t i = 0; i < 5; i++) q.level[i] += 0x1p15f;
        HA_TEST_ALL(t)
        {
            ha_test_merge_run(&p, t);
            ha_test_merge_run(&q, t);
            q.got_level[0] -= 0x1p15f;
            ha_test_merge_same(&p, &q);
        }
        ha_test_merge_free(&p);
        ha_test_merge_free(&q);
    }
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, NULL); }
