#include "suites/merge/replay.h"

#include "harness/base/numeric.h"
#include "harness/base/safetensors.h"
#include "suites/merge/test_strangers.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], path[128];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_merge_replay-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/merge.safetensors", folder);
    return 0;
}
static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static const struct ha_merge_traits usual = { .exp_eps = 0x1p-23, .log_eps = 0x1p-23 };

static enum ha_status judged(struct ha_merge_shape *shape, struct ha_judgement *j, struct ha_why *why)
{
    return ha_replay_judge(path, shape, j, why);
}

/* What is written is judged as the batch is, in every form, type, order, alias and layout. */
static void every_shape(void **state)
{
    (void)state;
    size_t count = 0;
    for (unsigned i = 0; i < HA_FORM_COUNT * HA_DTYPE_COUNT * HA_ORDER_COUNT * HA_ALIAS_COUNT * HA_LAYOUT_COUNT; i++) {
        unsigned x = i;
        struct ha_merge_shape s = { .states = 5, .tokens = 3, .heads = 2, .dim = 16 }, read;
        s.form = (enum ha_form)(x % HA_FORM_COUNT), x /= HA_FORM_COUNT;
        s.dtype = (enum ha_dtype)(x % HA_DTYPE_COUNT), x /= HA_DTYPE_COUNT;
        s.order = (enum ha_order)(x % HA_ORDER_COUNT), x /= HA_ORDER_COUNT;
        s.alias = (enum ha_alias)(x % HA_ALIAS_COUNT), x /= HA_ALIAS_COUNT;
        s.layout = (enum ha_layout)(x % HA_LAYOUT_COUNT);
        s.plus_inf = i % 2;
        struct rows_made made;
        struct ha_judgement j;
        struct ha_why why = { "" };
        rows_open(&made, NULL, &s);
        rows_answer(&made);
        const struct ha_judgement here = rows_judge(&made, &usual);
        static const char *const meta[] = { "seed", "4", "case", "every_shape", NULL };
        assert_int_equal(ha_replay_write(path, made.batch, true, meta, &why), HA_OK);
        if (judged(&read, &j, &why) != HA_OK) fail_msg("%u: %s; ratio %g", i, why.text, j.ratio);
        assert_int_equal(j.rows, 6);
        assert_true(j.ratio == here.ratio && j.row == here.row && j.element == here.element && j.exact == here.exact);
        assert_true(read.states == 5 && read.tokens == 3 && read.heads == 2 && read.dim == 16 && read.form == s.form
                    && read.dtype == s.dtype && read.order == s.order && read.plus_inf == s.plus_inf);
        assert_int_equal(read.layout, s.layout == HA_LAYOUT_HEADS_FIRST ? HA_LAYOUT_HEADS_FIRST : HA_LAYOUT_PACKED);

        /* an answer that is read back changes nothing; into another batch it makes the same result */
        struct rows_made other;
        rows_open(&other, NULL, &s);
        assert_int_equal(ha_replay_read_answer(path, other.batch, &why), HA_OK);
        assert_int_equal(ha_batch_intact(other.batch, &why), HA_OK);
        assert_true(rows_judge(&other, &usual).ratio == here.ratio);
        rows_close(&other);
        rows_close(&made);
        count++;
    }
    assert_int_equal(count, 432);
}

/* The numbers lie in the file where the format says. */
static void where_they_lie(void **state)
{
    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        const struct ha_merge_shape s = { .states = 3,
                                          .tokens = 4,
                                          .heads = 5,
                                          .dim = 8,
                                          .form = HA_FORM_MAX_SUM,
                                          .layout = layout ? HA_LAYOUT_HEADS_FIRST : HA_LAYOUT_PACKED };
        struct rows_made made;
        struct ha_safetensors *file;
        struct ha_why why = { "" };
        rows_open(&made, NULL, &s);
        rows_answer(&made);
        assert_int_equal(ha_replay_write(path, made.batch, true, NULL, &why), HA_OK);
        assert_int_equal(ha_safetensors_open(&file, path, &why), HA_OK);
        assert_string_equal(ha_safetensors_meta(file, "lse_layout"), layout ? "heads_tokens" : "tokens_heads");
        for (size_t m = 0; m <= 3; m++) {
            const bool merged = m == 3;
            const float *o = ha_safetensors_find(file, merged ? "merged_o" : "o")->data;
            const float *lse = ha_safetensors_find(file, merged ? "merged_lse" : "lse")->data;
            const float *sum = ha_safetensors_find(file, merged ? "merged_sum" : "sum")->data;
            for (size_t t = 0; t < 4; t++)
                for (size_t h = 0; h < 5; h++) {
                    const size_t first = merged ? 0 : m * 20, at = first + (layout ? h * 4 + t : t * 5 + h);
                    float row[8], its_lse, its_sum;
                    ha_batch_get(made.batch, merged ? HA_RESULT : m, t * 5 + h, row, &its_lse, &its_sum);
                    assert_memory_equal(row, o + (first + t * 5 + h) * 8, sizeof row);
                    assert_true(lse[at] == its_lse && sum[at] == its_sum);
                }
        }
        ha_safetensors_close(file);
        rows_close(&made);
    }
}

/* A wrong number in one row is found in that row, also past the first chunk and with [heads][tokens]. */
static void wrong_rows(void **state)
{
    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        struct ha_merge_shape s = { .states = 3,
                                    .tokens = 40,
                                    .heads = 5,
                                    .dim = 64,
                                    .layout = layout ? HA_LAYOUT_HEADS_FIRST : HA_LAYOUT_PACKED };
        struct rows_made made;
        struct ha_judgement j;
        struct ha_why why = { "" };
        rows_open(&made, NULL, &s);
        rows_answer(&made);
        const size_t token = 33, head = 4;
        float *o = (float *)made.batch->out.o + token * made.batch->out.o_token_stride
                   + head * made.batch->out.o_head_stride;
        float *lse = made.batch->out.lse + token * made.batch->out.lse_token_stride
                     + head * made.batch->out.lse_head_stride,
              old = o[7];
        o[7] += 1e-3f;
        assert_int_equal(ha_replay_write(path, made.batch, true, NULL, &why), HA_OK);
        assert_int_equal(judged(&s, &j, &why), HA_FAIL);
        assert_int_equal(j.row, 33 * 5 + 4);
        assert_int_equal(j.element, 7);
        assert_true(j.got == (double)o[7] && fabs(j.want - (double)old) < 1e-6 && j.ratio > 100);
        o[7] = old;
        *lse = NAN;
        assert_int_equal(ha_replay_write(path, made.batch, true, NULL, &why), HA_OK);
        assert_int_equal(judged(&s, &j, &why), HA_FAIL);
        assert_int_equal(j.row, 33 * 5 + 4);
        assert_int_equal(j.element, 64);
        rows_close(&made);
    }
}

/* The errors that a file declares of exp widen its bound. */
static void declared_errors(void **state)
{
    (void)state;
    struct ha_merge_shape s = { .states = 3, .tokens = 2, .heads = 2, .dim = 64 };
    struct rows_made made;
    struct ha_judgement j;
    struct ha_why why = { "" };
    rows_open(&made, NULL, &s);
    rows_answer(&made);
    made.batch->out.lse[0] += 3e-4f;
    assert_int_equal(ha_replay_write(path, made.batch, true, NULL, &why), HA_OK);
    assert_int_equal(judged(&s, &j, &why), HA_FAIL);
    static const char *const loose[] = { "exp_eps", "0.001", "log_eps", "1e-7", NULL };
    assert_int_equal(ha_replay_write(path, made.batch, true, loose, &why), HA_OK);
    assert_int_equal(judged(&s, &j, &why), HA_OK);
    rows_close(&made);
}

/* ---- files that are none ------------------------------------------------------------------- */

enum { STATES = 2, TOKENS = 3, HEADS = 2, DIM = 4 };
static const float numbers[1024];

static struct ha_tensor tensor(const char *name, enum ha_tensor_type type, size_t dims, const size_t *dim)
{
    struct ha_tensor t = { .name = name, .type = type, .dims = dims, .data = numbers };
    t.bytes = type == HA_T_F64 ? 8 : type == HA_T_F16 || type == HA_T_BF16 ? 2 : 4;
    for (size_t i = 0; i < dims; i++) t.bytes *= t.dim[i] = dim[i];
    return t;
}

#define HA_DIMS(...) \
    (sizeof((const size_t[]){ __VA_ARGS__ }) / sizeof(size_t)), { __VA_ARGS__ }
/* One tensor in the place of the right one (dims 0: none), or one pair of metadata. */
static const struct {
    const char *name;
    enum ha_tensor_type type;
    size_t dims, dim[5];
    const char *key, *value, *words;
} wrong[] = {
    { "o", HA_T_F32, 0, { 0 }, NULL, NULL, "there is no tensor 'o', [states][tokens][heads][dim]" },
    { "lse", HA_T_F32, 0, { 0 }, NULL, NULL, "there is no tensor 'lse', F32 [2, 3, 2]" },
    { "merged_o", HA_T_F32, 0, { 0 }, NULL, NULL, "there is no tensor 'merged_o', F32 [3, 2, 4]" },
    { "merged_lse", HA_T_F32, 0, { 0 }, NULL, NULL, "there is no tensor 'merged_lse', F32 [3, 2]" },
    { "sum", HA_T_F32, 0, { 0 }, "form", "max_sum", "there is no tensor 'sum', F32 [2, 3, 2]" },
    { "merged_sum", HA_T_F32, 0, { 0 }, "form", "max_sum", "there is no tensor 'merged_sum', F32 [3, 2]" },
    { "o", HA_T_F32, HA_DIMS(STATES, TOKENS, DIM), NULL, NULL, "'o' is [2, 3, 4]; it must have four dimensions" },
    { "o", HA_T_F32, HA_DIMS(1, STATES, TOKENS, HEADS, DIM), NULL, NULL, "it must have four dimensions" },
    { "o", HA_T_F64, HA_DIMS(STATES, TOKENS, HEADS, DIM), NULL, NULL, "'o' is F64; it must be F32, F16 or BF16" },
    { "o", HA_T_I32, HA_DIMS(STATES, TOKENS, HEADS, DIM), NULL, NULL, "'o' is of another type" },
    { "o", HA_T_F16, HA_DIMS(STATES, TOKENS, HEADS, DIM), NULL, NULL,
      "'merged_o' is F32 [3, 2, 4]; it must be F16 [3, 2, 4]" },
    { "o", HA_T_F32, HA_DIMS(0, TOKENS, HEADS, DIM), NULL, NULL, "'o' is [0, 3, 2, 4]: no states" },
    { "o", HA_T_F32, HA_DIMS(STATES, 0, HEADS, DIM), NULL, NULL, "no tokens" },
    { "o", HA_T_F32, HA_DIMS(STATES, TOKENS, 0, DIM), NULL, NULL, "no heads" },
    { "o", HA_T_F32, HA_DIMS(STATES, TOKENS, HEADS, 0), NULL, NULL, "no dim" },
    { "o", HA_T_BF16, HA_DIMS(1, 1, 1, 1025), NULL, NULL, "1025 dim, and 1024 are the most" },
    { "o", HA_T_F16, HA_DIMS((1 << 20) + 1, 1, 1, 1), NULL, NULL, "1048577 states, and 1048576 are the most" },
    { "o", HA_T_F32, HA_DIMS(STATES + 1, TOKENS, HEADS, DIM), NULL, NULL,
      "'lse' is F32 [2, 3, 2]; it must be F32 [3, 3, 2]" },
    { "lse", HA_T_F16, HA_DIMS(STATES, TOKENS, HEADS), NULL, NULL, "'lse' is F16 [2, 3, 2]; it must be F32 [2, 3, 2]" },
    { "lse", HA_T_F32, HA_DIMS(STATES, HEADS, TOKENS), NULL, NULL, "'lse' is F32 [2, 2, 3]; it must be F32 [2, 3, 2]" },
    { "lse", HA_T_F32, HA_DIMS(STATES, TOKENS, HEADS, 1), NULL, NULL, "'lse' is F32 [2, 3, 2, 1]; it must be" },
    { "merged_o", HA_T_F32, HA_DIMS(1, TOKENS, HEADS, DIM), NULL, NULL,
      "'merged_o' is F32 [1, 3, 2, 4]; it must be F32 [3, 2, 4]" },
    { "merged_lse", HA_T_F32, HA_DIMS(HEADS, TOKENS), NULL, NULL, "'merged_lse' is F32 [2, 3]; it must be F32 [3, 2]" },
    { NULL, HA_T_F32, 0, { 0 }, "lse_layout", "heads_tokens", "'lse' is F32 [2, 3, 2]; it must be F32 [2, 2, 3]" },
    { NULL, HA_T_F32, 0, { 0 }, "form", "natural2", "__metadata__: unknown form 'natural2'; did you mean 'natural'?" },
    { NULL, HA_T_F32, 0, { 0 }, "form", "", "__metadata__: unknown form ''" },
    { NULL, HA_T_F32, 0, { 0 }, "order", "trees", "unknown order 'trees'; did you mean 'tree'?" },
    { NULL,
      HA_T_F32,
      0,
      { 0 },
      "lse_layout",
      "zzzzzzzz",
      "unknown lse_layout 'zzzzzzzz'; it is one of: tokens_heads heads_tokens" },
    { NULL, HA_T_F32, 0, { 0 }, "empty", "inf", "unknown empty 'inf'; did you mean" },
    { NULL, HA_T_F32, 0, { 0 }, "exp_eps", "nan", "exp_eps is 'nan', not a number from 0 to 0.01" },
    { NULL, HA_T_F32, 0, { 0 }, "exp_eps", "1", "exp_eps is '1', not a number from 0 to 0.01" },
    { NULL, HA_T_F32, 0, { 0 }, "log_eps", "-1e-9", "log_eps is '-1e-9'" },
    { NULL, HA_T_F32, 0, { 0 }, "log_eps", "1e-7x", "log_eps is '1e-7x'" },
};

static void write_right_but(size_t k)
{
    static const struct {
        const char *name;
        size_t dims, dim[4];
    } right[] = { { "o", HA_DIMS(STATES, TOKENS, HEADS, DIM) }, { "lse", HA_DIMS(STATES, TOKENS, HEADS) },
                  { "sum", HA_DIMS(STATES, TOKENS, HEADS) },    { "merged_o", HA_DIMS(TOKENS, HEADS, DIM) },
                  { "merged_lse", HA_DIMS(TOKENS, HEADS) },     { "merged_sum", HA_DIMS(TOKENS, HEADS) } };
    struct ha_tensor list[6];
    size_t count = 0;
    static void *large;
    if (!large) large = calloc(1, 4 << 20);
    for (size_t i = 0; i < 6; i++) {
        const bool other = k < sizeof wrong / sizeof *wrong && wrong[k].name && !strcmp(wrong[k].name, right[i].name);
        if (other && !wrong[k].dims) continue;
        list[count++] = other ? tensor(right[i].name, wrong[k].type, wrong[k].dims, wrong[k].dim)
                              : tensor(right[i].name, HA_T_F32, right[i].dims, right[i].dim);
        list[count - 1].data = large;
    }
    const char *meta[] = { "other", "anything", NULL, NULL, NULL };
    if (k < sizeof wrong / sizeof *wrong) {
        meta[2] = wrong[k].key;
        meta[3] = wrong[k].value;
    }
    struct ha_why why;
    assert_int_equal(ha_safetensors_write(path, list, count, meta, &why), HA_OK);
}

static void malformed(void **state)
{
    (void)state;
    struct ha_merge_shape s;
    struct ha_judgement j;
    struct ha_why why = { "" };
    write_right_but(SIZE_MAX);
    assert_int_equal(judged(&s, &j, &why), HA_FAIL); /* zeros: the LSE of two states is not theirs */
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        write_right_but(k);
        if (judged(&s, &j, &why) != HA_ERROR) fail_msg("%zu: '%s' is taken", k, wrong[k].words);
        says(&why, wrong[k].words);
        says(&why, path);
    }
}

/* Cut anywhere, it is an error and nothing else. */
static void cut(void **state)
{
    (void)state;
    struct ha_merge_shape s;
    struct ha_judgement j;
    struct ha_why why = { "" };
    write_right_but(SIZE_MAX);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    for (off_t bytes = st.st_size - 1; bytes >= 0; bytes -= bytes > 200 ? 37 : 1) {
        assert_int_equal(truncate(path, bytes), 0);
        assert_int_equal(judged(&s, &j, &why), HA_ERROR);
        says(&why, path);
    }
    unlink(path);
    assert_int_equal(judged(&s, &j, &why), HA_ERROR);
    says(&why, "cannot open");
    assert_int_equal(ha_replay_judge(folder, &s, &j, &why), HA_ERROR);
    says(&why, "is a directory");
}

/* An answer must fit the batch that was asked about. */
static void wrong_answers(void **state)
{
    (void)state;
    const struct ha_merge_shape asked = {
        .states = STATES, .tokens = TOKENS, .heads = HEADS, .dim = DIM, .form = HA_FORM_MAX_SUM
    };
    static const struct {
        size_t k;
        const char *words;
    } cases[] = { { 2, "there is no tensor 'merged_o'" },
                  { 3, "no tensor 'merged_lse'" },
                  { 5, "no tensor 'merged_sum'" },
                  { 21, "'merged_o' is F32 [1, 3, 2, 4]" },
                  { 22, "'merged_lse' is F32 [2, 3]; it must be F32 [3, 2]" } };
    struct rows_made made;
    struct ha_why why = { "" };
    rows_open(&made, NULL, &asked);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_right_but(cases[i].k);
        assert_int_equal(ha_replay_read_answer(path, made.batch, &why), HA_ERROR);
        says(&why, cases[i].words);
        assert_int_equal(ha_batch_intact(made.batch, &why), HA_OK);
    }
    write_right_but(SIZE_MAX);
    assert_int_equal(ha_replay_read_answer(path, made.batch, &why), HA_OK);
    assert_true(made.batch->out.lse[0] == 0);
    rows_close(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape),     cmocka_unit_test(where_they_lie), cmocka_unit_test(wrong_rows),
        cmocka_unit_test(declared_errors), cmocka_unit_test(malformed),      cmocka_unit_test(cut),
        cmocka_unit_test(wrong_answers),
    };
    return cmocka_run_group_tests_name("merge_replay", tests, make_folder, remove_folder);
}
