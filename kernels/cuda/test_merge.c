/* merge: against the bound of ha_ref_merge, and what is not a matter of rounding. */

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/test_stream.h"
#include "kernels/test_merge_data.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

enum { KINDS = HA_TEST_MERGE_KINDS };

static bool small;
static double worst[HA_FORM_COUNT];
static struct ha_kernels device; /* merge and its traits alone */

static void merge_on_stream(const struct ha_merge *m) { test_done(ha_cuda_merge(test_stream, m)); }

static int open_device(void **state)
{
    device.merge = merge_on_stream;
    device.traits = ha_cuda_merge_traits();
    device.traits.exp_eps = device.traits.log_eps = 0x1p-23; /* test_accuracy.cu measures them */
    return test_stream_open(state);
}

/* ---- the bound */

static void check_row(const struct ha_test_merge *p, size_t r)
{
    const struct ha_test_merge_error e = ha_test_merge_judge(p, r, &device.traits);
    if (!(e.o <= 1 && e.lse <= 1)) {
        print_message(
            "%s %s: %zu states, %zu x %zu rows, dim %zu, layout %d, alias %d: row %zu: %g and %g of the bound\n",
            ha_form_name(p->form), ha_dtype_name(p->dtype), p->count, p->tokens, p->heads, p->dim, p->rows, p->alias, r,
            e.o, e.lse);
        fail();
    }
    if (p->dtype == HA_F32) worst[p->form] = fmax(worst[p->form], fmax(e.o, e.lse));
}

static void check(struct ha_test_merge *p)
{
    ha_test_merge_run(p, &device);
    for (size_t r = 0; r < p->tokens * p->heads; r++) check_row(p, r);
}

static const size_t counts[] = { 0, 1, 2, 3, 8, 9, 64, 65, 512 }, dims[] = { 1, 8, 64, 80, 128, 256, 19, 300 };

/* every form and type with every number of states and dim; layouts, aliases and levels take turns */
TEST(every_size)
{
    size_t turn = 0;
    for (size_t n = 0; n < KINDS * COUNT(counts) * COUNT(dims); n++) {
        const size_t count = counts[n / KINDS % COUNT(counts)], dim = dims[n / KINDS / COUNT(counts)];
        if (small && (count > 3 ? n % 11 : n % 3)) continue;
        for (size_t again = 0; again < (small || count > 64 ? 1 : 3); again++, turn++) {
            struct ha_test_merge p = ha_test_merge_kind(n, count, dim);
            p.rows = (enum ha_test_rows)(turn % HA_TEST_ROWS);
            p.alias = count ? (enum ha_alias)(turn / 4 % 3) : HA_ALIAS_NONE;
            p.tokens = 1 + turn % 2;
            p.heads = count > 64 ? 1 : 1 + turn % 3;
            ha_test_merge_spread(&p, (enum ha_test_spread)(turn % 7 % HA_TEST_SPREADS), turn);
            test_order(turn);
            check(&p);
            ha_test_merge_free(&p);
        }
    }
}

/* more rows than a block has room for, and a last block that is not full */
TEST(many_rows)
{
    static const size_t rows[] = { 32, 5, 333 };
    for (size_t n = 0; n < KINDS * COUNT(rows); n++) {
        struct ha_test_merge p = ha_test_merge_kind(n, n % 5 == 4 ? 5 : 2, n % 2 ? 128 : 64);
        p.tokens = rows[n / KINDS];
        p.heads = n / KINDS == 2 ? 1 : 3;
        p.rows = (enum ha_test_rows)(n % 3);
        ha_test_merge_spread(&p, HA_TEST_SOME_EMPTY, n);
        check(&p);
        ha_test_merge_free(&p);
    }
}

static int report(void **state)
{
    for (int f = 0; f < HA_FORM_COUNT; f++)
        printf("%s: worst error / bound of f32 %.3f\n", ha_form_name((enum ha_form)f), worst[f]);
    return test_stream_close(state);
}

/* ---- bits */

TEST(a_single_state_is_copied)
{
    enum { DIM = 48 };
    static const float levels[] = { 0, -0.0f, 1e-7f, -1e5f, FLT_MAX, -FLT_MAX };
    static const size_t of[] = { 1, 2, 8, 9, 64, 65, 512 };
    for (size_t n = 0; n < KINDS * (COUNT(of) - small); n++) {
        struct ha_test_merge p = ha_test_merge_kind(n % KINDS, of[n / KINDS], DIM);
        ha_test_merge_make(&p, n);
        for (size_t at = 0; at < p.count; at += 1 + at) {
            for (size_t i = 0; i < p.count; i++) *ha_test_merge_level(&p, i, 0) = i % 3 ? -INFINITY : INFINITY;
            float *o = ha_test_merge_o(&p, at, 0), *level = ha_test_merge_level(&p, at, 0),
                  *sum = ha_test_merge_sum(&p, at, 0);
            o[3] = -0.0f;
            o[4] = 0;
            o[5] = p.dtype == HA_F16 ? -0x1p-24f : p.dtype == HA_BF16 ? -0x1p-133f : -0x1p-149f;
            o[DIM - 1] = p.dtype == HA_F32 ? FLT_MAX : p.dtype == HA_F16 ? 65504 : 0x1.fep127f;
            o[DIM - 2] = INFINITY;
            /* a NaN that any arithmetic would change, a conversion too */
            memcpy(&o[DIM - 3], &(const uint32_t){ p.dtype == HA_F32 ? 0x7fa00001 : 0x7fc00000 }, sizeof *o);
            *sum = 1.7f;
            *level = levels[(n + at) % COUNT(levels)];
            ha_test_merge_run(&p, &device);
            ha_test_same(p.got_o, o, DIM);
            ha_test_same(p.got_level, level, 1);
            if (p.form == HA_FORM_MAX_SUM) ha_test_same(p.got_sum, sum, 1);
        }
        ha_test_merge_free(&p);
    }
}

TEST(empties_only)
{
    static const float zeros[300], none = -INFINITY;
    for (size_t n = 0; n < KINDS * (COUNT(counts) - small); n++) {
        struct ha_test_merge p = ha_test_merge_kind(n % KINDS, counts[n / KINDS], n % 2 ? 300 : 64);
        ha_test_merge_make(&p, n);
        for (size_t i = 0; i < p.count; i++) *ha_test_merge_level(&p, i, 0) = i % 2 ? -INFINITY : INFINITY;
        ha_test_merge_run(&p, &device);
        ha_test_same(p.got_o, zeros, p.dim);
        ha_test_same(p.got_level, &none, 1);
        if (p.form == HA_FORM_MAX_SUM) ha_test_same(p.got_sum, zeros, 1);
        ha_test_merge_free(&p);
    }
}

/* what they point to is not even there */
TEST(o_of_an_empty_state_is_not_read)
{
    static const size_t of[] = { 2, 5, 40, 300 };
    void *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(nowhere != MAP_FAILED);
    for (size_t n = 0; n < COUNT(of); n++) {
        const size_t count = of[n];
        struct ha_merge_state *s = calloc(count, sizeof *s);
        float *o = test_alloc(2 * 64 * sizeof *o), *lse = test_alloc(count * sizeof *lse),
              *out = test_alloc(65 * sizeof *out);
        assert_non_null(s);
        for (size_t i = 0; i < 128; i++) o[i] = (float)i;
        for (size_t i = 0; i < count; i++) {
            s[i] = (struct ha_merge_state){ .o = nowhere, .lse = &lse[i], .sum = nowhere };
            lse[i] = i % 2 ? INFINITY : -INFINITY;
        }
        for (size_t one = 0; one < 2; one++) {
            s[count - 1 - one].o = o;
            s[count - 1 - one].sum = out; /* of HA_FORM_MAX_SUM alone */
            lse[count - 1 - one] = 2;
            merge_on_stream(&(struct ha_merge){ .form = HA_FORM_NATURAL,
                                                .dtype = HA_F32,
                                                .plus_inf_is_empty = true,
                                                .states = s,
                                                .states_count = count,
                                                .tokens = 1,
                                                .heads = 1,
                                                .dim = 64,
                                                .out = { .o = out, .lse = out + 64 } });
            ha_test_same(out, o, 64);
        }
        free(s), free(o), free(lse), free(out);
    }
    munmap(nowhere, 4096);
}

TEST(two_states_commute)
{
    enum { DIM = 40 };
    static const float zeros[] = { 0, -0.0f, -INFINITY };
    for (size_t n = 0; n < KINDS * 60; n += small ? 7 : 1) {
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
        ha_test_merge_run(&a, &device);
        ha_test_merge_run(&b, &device);
        ha_test_same(a.got_o, b.got_o, DIM);
        ha_test_same(a.got_level, b.got_level, 1);
        ha_test_same(a.got_sum, b.got_sum, 1);
        ha_test_merge_free(&a);
        ha_test_merge_free(&b);
    }
}

/* equal weights and integers: exact in every order, and near the largest number without overflow */
TEST(equal_weights_are_exact)
{
    static const size_t of[] = { 2, 4, 8, 16, 64, 128, 512 };
    for (size_t n = 0; n < KINDS * (COUNT(of) - small); n++) {
        struct ha_test_merge p = ha_test_merge_kind(n % KINDS, of[n / KINDS], 64);
        if (p.form == HA_FORM_DIRECT) continue; /* exp(-ln M) is not exactly 1/M */
        ha_test_merge_make(&p, n);
        const float top = p.dtype == HA_F32 ? FLT_MAX : p.dtype == HA_F16 ? 65504 : 0x1.fep127f;
        for (size_t i = 0; i < p.count; i++) {
            *ha_test_merge_level(&p, i, 0) = 3;
            for (size_t d = 0; d < p.dim; d++)
                ha_test_merge_o(&p, i, 0)[d] = (float[]){ top, -top, -0.0f, (float)(i % 2 * 2) }[d % 4];
        }
        ha_test_merge_run(&p, &device);
        for (size_t d = 0; d < p.dim; d++) ha_test_same(&p.got_o[d], &(const float[]){ top, -top, -0.0f, 1 }[d % 4], 1);
        ha_test_merge_free(&p);
    }
}

/* the form that does not divide: where L is coarse the weights do not add up to 1, and stay so */
TEST(direct_weights_are_taken_as_they_are)
{
    static const size_t of[] = { 2, 6, 20 };
    for (size_t n = 0; n < COUNT(of); n++) {
        struct ha_test_merge p = ha_test_merge_kind(HA_FORM_DIRECT, of[n], 8);
        ha_test_merge_make(&p, n);
        for (size_t i = 0; i < p.count; i++) {
            *ha_test_merge_level(&p, i, 0) = 3e5f;
            for (size_t d = 0; d < p.dim; d++) ha_test_merge_o(&p, i, 0)[d] = 1;
        }
        ha_test_merge_run(&p, &device);
        const double all = (double)p.count * exp(3e5 - (double)p.got_level[0]);
        assert_true(fabs(all - 1) > 1e-3);
        for (size_t d = 0; d < p.dim; d++) assert_true(fabs((double)p.got_o[d] - all) < 1e-5);
        ha_test_merge_free(&p);
    }
}

/* ---- not a number */

TEST(bad_level_is_never_silent)
{
    static const size_t of[] = { 1, 2, 3, 17, 65, 512 };
    for (size_t n = 0; n < KINDS * (COUNT(of) - small); n++) {
        struct ha_test_merge p = ha_test_merge_kind(n % KINDS, of[n / KINDS], 40);
        ha_test_merge_make(&p, n);
        for (size_t at = 0; at < p.count; at += 1 + at * 3)
            for (int variant = 0; variant < 4; variant++) {
                const bool inf = variant & 1, others_empty = variant & 2;
                p.plus_inf_is_empty = !inf;
                for (size_t i = 0; i < p.count; i++)
                    *ha_test_merge_level(&p, i, 0) = others_empty ? -INFINITY : (float)i;
                *ha_test_merge_level(&p, at, 0) = inf ? INFINITY : (at + n / 4) % 2 ? NAN : -NAN;
                ha_test_merge_run(&p, &device);
                assert_true(isnan(p.got_level[0]));
                if (p.form == HA_FORM_MAX_SUM) assert_true(isnan(p.got_sum[0]));
                for (size_t d = 0; d < p.dim; d++) assert_true(isnan(p.got_o[d]));
            }
        ha_test_merge_free(&p);
    }
}

/* in o of a state that has keys, however little it weighs: in that component; in the sum: in all, and the sum */
TEST(nan_in_a_state)
{
    enum { DIM = 24 };
    for (size_t n = 0; n < KINDS * 2; n++)
        for (size_t at = 0; at < DIM; at += small ? 7 : 1) {
            const size_t count = n / KINDS ? 30 : 3, bad = at % count;
            struct ha_test_merge p = ha_test_merge_kind(n, count, DIM);
            ha_test_merge_make(&p, n);
            for (size_t i = 0; i < count; i++) *ha_test_merge_level(&p, i, 0) = i == bad ? -3e3f : (float)(i % 3);
            ha_test_merge_o(&p, bad, 0)[at] = NAN;
            ha_test_merge_run(&p, &device);
            for (size_t d = 0; d < DIM; d++) assert_true(isnan(p.got_o[d]) == (d == at));
            assert_true(isfinite(p.got_level[0]));
            *ha_test_merge_sum(&p, bad, 0) = NAN;
            ha_test_merge_run(&p, &device);
            assert_true(isfinite(p.got_level[0]));
            for (size_t d = 0; d < DIM; d++) assert_true(isnan(p.got_o[d]) == (d == at || p.form == HA_FORM_MAX_SUM));
            ha_test_merge_free(&p);
        }
}

/* ---- the same in another way */

/* layouts, pieces of 16 bytes or single elements, in place or not, the threads' order: the same bits */
TEST(layouts_and_orders_do_not_matter)
{
    static const size_t of[] = { 1, 2, 7, 20, 100 };
    for (size_t n = 0; n < KINDS * (COUNT(of) - small); n++) {
        struct ha_test_merge p = ha_test_merge_kind(n, of[n / KINDS], n % 2 ? 80 : 128);
        p.tokens = 3;
        p.heads = 2;
        ha_test_merge_spread(&p, (enum ha_test_spread)(1 + n % 5), n);
        struct ha_test_merge q = ha_test_merge_like(&p);
        test_order(0);
        ha_test_merge_run(&p, &device);
        for (size_t i = 0; i < HA_TEST_ROWS * 3 * TEST_ORDERS; i += small ? 5 : 1) {
            q.rows = (enum ha_test_rows)(i % HA_TEST_ROWS);
            q.alias = (enum ha_alias)(i / HA_TEST_ROWS % 3);
            test_order(i / HA_TEST_ROWS / 3);
            ha_test_merge_run(&q, &device);
            ha_test_merge_same(&p, &q);
        }
        ha_test_merge_free(&p);
        ha_test_merge_free(&q);
    }
}

/* Rows of `dim` elements every 24, so that all begin at 16 bytes, but for one thing that is an element more: of state 1
 * its o (0), token stride (1) or head stride (2), or those of the output (3, 4, 5); 6: none. got: the rows, packed.
 * What lies between and behind them is left alone. */
static void padded(enum ha_dtype t, size_t count, size_t dim, size_t thing, char *got)
{
    enum { TOKENS = 2, HEADS = 2, ROWS = TOKENS * HEADS, PADDED = 24, ROOM = ROWS * PADDED + 8, STATES = 10 };
    const size_t size = ha_dtype_bytes(t), last = count; /* the output */
    struct ha_merge_state s[STATES];
    char *memory[STATES];
    float lse[STATES * ROWS];
    for (size_t i = 0; i <= last; i++) {
        size_t more[3] = { 0 };
        if (thing < 6 && i == (thing < 3 ? 1 : last)) more[thing % 3] = 1;
        memory[i] = test_alloc(ROOM * size);
        s[i] = (struct ha_merge_state){ .o = memory[i] + more[0] * size,
                                        .o_token_stride = HEADS * PADDED + more[1],
                                        .o_head_stride = PADDED + more[2],
                                        .lse = lse + i * ROWS,
                                        .lse_token_stride = HEADS,
                                        .lse_head_stride = 1 };
        if (i == last) break;
        memset(memory[i], 0x11, ROOM * size); /* numbers, which show where they are written */
        for (size_t r = 0; r < ROWS; r++) {
            s[i].lse[r] = ha_rng_normal(count, i, r);
            char *row = (char *)s[i].o + (r / HEADS * s[i].o_token_stride + r % HEADS * s[i].o_head_stride) * size;
            for (size_t d = 0; d < dim; d++) ha_store(row, d, t, ha_rng_normal(dim, 10 + i, r * dim + d));
        }
    }
    const struct ha_merge_state out = s[last];
    merge_on_stream(&(struct ha_merge){ .form = HA_FORM_NATURAL,
                                        .dtype = t,
                                        .states = s,
                                        .states_count = count,
                                        .tokens = TOKENS,
                                        .heads = HEADS,
                                        .dim = dim,
                                        .out = out });
    for (size_t r = 0; r < ROWS; r++) {
        char *row = (char *)out.o + (r / HEADS * out.o_token_stride + r % HEADS * out.o_head_stride) * size;
        memcpy(got + r * dim * size, row, dim * size);
        memset(row, 0xff, dim * size);
    }
    for (size_t i = 0; i < ROOM * size; i++) assert_int_equal((uint8_t)memory[last][i], 0xff);
    for (size_t i = 0; i <= last; i++) free(memory[i]);
}

/* the sanitizers see what is accessed in too large pieces */
TEST(padded_rows_and_one_thing_unaligned)
{
    static const size_t of[] = { 2, 7, 9 }, dim[] = { 16, 19 };
    for (size_t n = 0; n < HA_DTYPE_COUNT * COUNT(of) * COUNT(dim); n++) {
        char want[4 * 24 * sizeof(float)] = { 0 }, got[sizeof want] = { 0 };
        for (size_t thing = 7; thing-- > 0;) {
            padded((enum ha_dtype)(n % 3), of[n / 3 % 3], dim[n / 9], thing, thing == 6 ? want : got);
            if (thing < 6) assert_memory_equal(got, want, sizeof want);
        }
    }
}

/* the result over a state in the middle */
TEST(any_state_may_be_the_output)
{
    static const size_t of[] = { 3, 12 };
    for (size_t n = 0; n < COUNT(of); n++)
        for (size_t place = 0; place < of[n]; place++) {
            enum { DIM = 64 };
            struct ha_merge_state s[12];
            float *o = test_alloc(of[n] * DIM * sizeof *o), *lse = test_alloc(of[n] * sizeof *lse), want[DIM], level;
            for (size_t i = 0; i < of[n]; i++) {
                s[i] = (struct ha_merge_state){ .o = o + i * DIM, .lse = lse + i };
                lse[i] = ha_rng_normal(n, 1, i);
                for (size_t d = 0; d < DIM; d++) o[i * DIM + d] = ha_rng_normal(n, 2 + i, d);
            }
            struct ha_merge m = { .form = HA_FORM_NATURAL,
                                  .dtype = HA_F32,
                                  .states = s,
                                  .states_count = of[n],
                                  .tokens = 1,
                                  .heads = 1,
                                  .dim = DIM,
                                  .out = { .o = want, .lse = &level } };
            merge_on_stream(&m);
            m.out = s[place];
            merge_on_stream(&m);
            ha_test_same(o + place * DIM, want, DIM);
            ha_test_same(lse + place, &level, 1);
            free(o), free(lse);
        }
}

/* 16 bits are read, summed in binary32 and rounded once */
TEST(halves_are_rounded_once)
{
    for (size_t n = 0; n < 4 * 2 * 30; n += small ? 7 : 1) {
        struct ha_test_merge wide = ha_test_merge_kind(n % 4, n % 9 == 8 ? 11 : 2 + n / 4 % 4, 104), half;
        wide.tokens = 3;
        wide.dtype = n / 120 ? HA_BF16 : HA_F16;
        ha_test_merge_spread(&wide, n % 3 ? HA_TEST_NEAR : HA_TEST_EQUAL, n);
        /* subnormal results, and those that overflow */
        const float by = (float[]){ 1, 0x1p-14f, 0x1p-18f, 0x1p14f, 0x1p-130f }[n % 5];
        for (size_t i = 0; i < wide.count * wide.tokens * wide.dim; i++)
            wide.o[i] = ha_round(by * wide.o[i], wide.dtype);
        wide.o[9] = -INFINITY;
        half = ha_test_merge_like(&wide);
        wide.dtype = HA_F32;
        ha_test_merge_run(&wide, &device);
        ha_test_merge_run(&half, &device);
        for (size_t i = 0; i < wide.tokens * wide.dim; i++) wide.got_o[i] = ha_round(wide.got_o[i], half.dtype);
        ha_test_merge_same(&half, &wide);
        ha_test_merge_free(&wide);
        ha_test_merge_free(&half);
    }
}

/* rows of o and LSE that lie further apart than 32 bits count */
TEST(far_rows)
{
    enum { DIM = 8, ROWS = 2, COUNT_MAX = 9 };
    static const size_t of[] = { 2, COUNT_MAX };
    const size_t stride = ((size_t)1 << 32) + DIM, lse_stride = ((size_t)1 << 32) + 1, bytes = stride * 2 + 4096,
                 lse_bytes = lse_stride * 4 + 4096;
    uint16_t *o = test_sparse(bytes);
    float *lse = test_sparse(lse_bytes);
    for (size_t n = 0; n < 2 * COUNT(of); n++) {
        const bool heads = n % 2;
        const size_t count = of[n / 2];
        struct ha_merge_state s[COUNT_MAX + 1]; /* the last is the output */
        for (size_t i = 0; i <= COUNT_MAX; i++) {
            s[i] = (struct ha_merge_state){ .o = o + 2 * DIM * i, .lse = lse + 2 * i };
            *(heads ? &s[i].o_head_stride : &s[i].o_token_stride) = stride;
            *(heads ? &s[i].lse_head_stride : &s[i].lse_token_stride) = lse_stride;
            for (size_t r = 0; r < ROWS; r++) {
                s[i].lse[r * lse_stride] = (float)r;
                for (size_t d = 0; d < DIM; d++) ha_store(s[i].o, r * stride + d, HA_F16, (float)(20 * r + d + i));
            }
        }
        merge_on_stream(&(struct ha_merge){ .form = HA_FORM_BASE2,
                                            .dtype = HA_F16,
                                            .states = s,
                                            .states_count = count,
                                            .tokens = heads ? 1 : ROWS,
                                            .heads = heads ? ROWS : 1,
                                            .dim = DIM,
                                            .out = s[COUNT_MAX] });
        for (size_t r = 0; r < ROWS; r++) {
            assert_true(s[COUNT_MAX].lse[r * lse_stride] == (float)r + log2f((float)count));
            for (size_t d = 0; d < DIM; d++)
                assert_true(ha_load(s[COUNT_MAX].o, r * stride + d, HA_F16)
                            == (float)(20 * r + d) + (float)(count - 1) / 2);
        }
    }
    munmap(o, bytes);
    munmap(lse, lse_bytes);
}

TEST(calls_without_rows)
{
    float lse = 7;
    merge_on_stream(&(struct ha_merge){ .heads = 4, .dim = 8 });
    merge_on_stream(&(struct ha_merge){ .tokens = 4, .dim = 8 });
    merge_on_stream(
        &(struct ha_merge){ .tokens = 1, .heads = 1, .out.lse = &lse }); /* rows without elements have an LSE */
    assert_true(lse == -INFINITY);
    assert_int_equal(ha_cuda_merge(test_stream, &(struct ha_merge){ .states_count = HA_CUDA_STATES_MAX + 1 }),
                     cudaErrorInvalidValue);
}

int main(int argc, char **argv)
{
    small = argc > 1 && strcmp(argv[1], "small") == 0;
    return test_all("tests", open_device, report);
}
