#include "suites/merge/judge.h"

#include "harness/base/safetensors.h"
#include "harness/base/test_folder.h"
#include "suites/merge/test_trial.h"

#include <math.h>
#include <sys/stat.h>

static const char *path(void) { return test_path("merge.safetensors"); }

static const struct ha_merge_traits usual = { .exp_eps = 0x1p-23, .log_eps = 0x1p-23 };

static void write_answered(const struct ha_merge_trial *t, const char *const *meta)
{
    if (ha_replay_write(path(), t->batch, true, meta, &why) != HA_OK) fail_msg("%s", why.text);
}

/* rows of this shape, merged */
static struct ha_merge_trial answered(const struct ha_merge_shape *s)
{
    const struct ha_merge_trial t = trial_open(NULL, s, some_empty);
    trial_merge(&t);
    return t;
}

static enum ha_status judged(struct ha_merge_shape *shape, struct ha_judgement *j)
{
    return ha_replay_judge(path(), shape, j, &why);
}

/* What is written is judged as the batch is, in every form, type, order, alias and layout. */
static void check_shape(const struct ha_merge_shape *given)
{
    static const char *const meta[] = { "seed", "4", "case", "every_shape", NULL };
    struct ha_merge_shape s = *given, read;
    struct ha_judgement j;
    s.plus_inf = s.form % 2;
    struct ha_merge_trial t = answered(&s), other = trial_open(NULL, &s, some_empty);
    const struct ha_judgement here = trial_judge(&t, &usual);
    write_answered(&t, meta);
    if (judged(&read, &j) != HA_OK)
        fail_msg("%s %s %s %s %s: %s; ratio %g", ha_form_name(s.form), ha_dtype_name(s.dtype), ha_order_name(s.order),
                 ha_alias_name(s.alias), ha_layout_name(s.layout), why.text, j.ratio);
    assert_int_equal(j.rows, 6);
    assert_true(j.ratio == here.ratio && j.row == here.row && j.element == here.element && j.exact == here.exact);
    assert_true(read.states == 5 && read.tokens == 3 && read.heads == 2 && read.dim == 16 && read.form == s.form
                && read.dtype == s.dtype && read.order == s.order && read.plus_inf == s.plus_inf);
    assert_int_equal(read.layout, s.layout == HA_LAYOUT_HEADS_FIRST ? HA_LAYOUT_HEADS_FIRST : HA_LAYOUT_PACKED);
    /* an answer that is read into another batch makes the same result there */
    assert_int_equal(ha_replay_read_answer(path(), other.batch, &why), HA_OK);
    assert_int_equal(ha_batch_intact(other.batch, &why), HA_OK);
    assert_true(trial_judge(&other, &usual).ratio == here.ratio);
    ha_merge_trial_close(&other);
    ha_merge_trial_close(&t);
}

TEST(every_shape)
{
    const struct ha_merge_shape s = { .states = 5, .tokens = 3, .heads = 2, .dim = 16 };
    assert_int_equal(each_shape(s, check_shape), 432);
}

/* The numbers lie in the file where the format says. */
TEST(where_they_lie)
{
    for (int layout = 0; layout < 2; layout++) {
        const struct ha_merge_shape s = { .states = 3,
                                          .tokens = 4,
                                          .heads = 5,
                                          .dim = 8,
                                          .form = HA_FORM_MAX_SUM,
                                          .layout = layout ? HA_LAYOUT_HEADS_FIRST : HA_LAYOUT_PACKED };
        struct ha_merge_trial t = answered(&s);
        struct ha_safetensors *file;
        write_answered(&t, NULL);
        assert_int_equal(ha_safetensors_open(&file, path(), &why), HA_OK);
        assert_string_equal(ha_safetensors_meta(file, "lse_layout"), layout ? "heads_tokens" : "tokens_heads");
        for (size_t m = 0; m <= 3; m++) {
            const bool merged = m == 3;
            const float *o = ha_safetensors_find(file, merged ? "merged_o" : "o")->data;
            const float *lse = ha_safetensors_find(file, merged ? "merged_lse" : "lse")->data;
            const float *sum = ha_safetensors_find(file, merged ? "merged_sum" : "sum")->data;
            for (size_t r = 0; r < 20; r++) {
                const size_t first = merged ? 0 : m * 20, at = first + (layout ? r % 5 * 4 + r / 5 : r);
                float row[8], its_lse, its_sum;
                ha_batch_get(t.batch, merged ? HA_RESULT : m, r, row, &its_lse, &its_sum);
                assert_memory_equal(row, o + (first + r) * 8, sizeof row);
                assert_true(lse[at] == its_lse && !memcmp(&sum[at], &its_sum, sizeof its_sum));
            }
        }
        ha_safetensors_close(file);
        ha_merge_trial_close(&t);
    }
}

/* An 8-bit result comes back with its scale; another scale, or another code, is wrong. */
TEST(eight_bits)
{
    struct ha_merge_shape s = { .states = 3, .tokens = 3, .heads = 2, .dim = 16, .fp8 = HA_FP8_E5M2 }, read;
    struct ha_judgement j;
    for (; s.fp8; s.fp8--) {
        struct ha_merge_trial t = answered(&s), other = trial_open(NULL, &s, some_empty);
        uint8_t *o = t.batch->out.o;
        const float scale = ha_batch_scale(t.batch);
        write_answered(&t, NULL);
        assert_int_equal(judged(&read, &j), HA_OK);
        assert_true(read.fp8 == s.fp8 && j.rows == 6);
        assert_int_equal(ha_replay_read_answer(path(), other.batch, &why), HA_OK);
        assert_int_equal(trial_judge(&other, &usual).status, HA_OK);
        o[21]++;
        write_answered(&t, NULL);
        assert_int_equal(judged(&read, &j), HA_FAIL);
        assert_true(j.row == 1 && j.element == 5);
        o[21]--;
        ha_batch_set_scale(t.batch, scale * 1.25f);
        write_answered(&t, NULL);
        assert_int_equal(judged(&read, &j), HA_FAIL);
        ha_merge_trial_close(&other);
        ha_merge_trial_close(&t);
    }
}

/* A wrong number in one row is found in that row, also past the first chunk and with [heads][tokens]. */
TEST(wrong_rows)
{
    for (int layout = 0; layout < 2; layout++) {
        struct ha_merge_shape s = { .states = 3,
                                    .tokens = 40,
                                    .heads = 5,
                                    .dim = 64,
                                    .layout = layout ? HA_LAYOUT_HEADS_FIRST : HA_LAYOUT_PACKED };
        struct ha_merge_trial t = answered(&s);
        struct ha_judgement j;
        const struct ha_merge_state *out = &t.batch->out;
        float *o = (float *)out->o + 33 * out->o_token_stride + 4 * out->o_head_stride, old = o[7];
        float *lse = out->lse + 33 * out->lse_token_stride + 4 * out->lse_head_stride;
        o[7] += 1e-3f;
        write_answered(&t, NULL);
        assert_int_equal(judged(&s, &j), HA_FAIL);
        assert_int_equal(j.row, 33 * 5 + 4);
        assert_int_equal(j.element, 7);
        assert_true(j.got == (double)o[7] && fabs(j.want - (double)old) < 1e-6 && j.ratio > 100);
        o[7] = old;
        *lse = NAN;
        write_answered(&t, NULL);
        assert_int_equal(judged(&s, &j), HA_FAIL);
        assert_int_equal(j.row, 33 * 5 + 4);
        assert_int_equal(j.element, 64);
        ha_merge_trial_close(&t);
    }
}

/* The errors that a file declares of exp widen its bound. */
TEST(declared_errors)
{
    struct ha_merge_shape s = { .states = 3, .tokens = 2, .heads = 2, .dim = 64 };
    struct ha_merge_trial t = answered(&s);
    struct ha_judgement j;
    t.batch->out.lse[0] += 1e-5f;
    write_answered(&t, NULL);
    assert_int_equal(judged(&s, &j), HA_FAIL);
    static const char *const loose[] = { "exp_eps", "1.5e-5", "log_eps", "1e-7", NULL };
    write_answered(&t, loose);
    assert_int_equal(judged(&s, &j), HA_OK);
    ha_merge_trial_close(&t);
}

/* ---- files that are none ------------------------------------------------------------------- */

enum { STATES = 2, TOKENS = 3, HEADS = 2, DIM = 4 };
static struct ha_tensor tensor(const char *name, enum ha_tensor_type type, size_t dims, const size_t *dim)
{
    static const char zeros[4 << 20];
    struct ha_tensor t = { .name = name, .type = type, .dims = dims, .data = zeros };
    t.bytes = type == HA_T_F64 ? 8 : type == HA_T_F16 || type == HA_T_BF16 ? 2 : 4;
    for (size_t i = 0; i < dims; i++) t.bytes *= t.dim[i] = dim[i];
    return t;
}

#define HA_DIMS(...) \
    (sizeof((const size_t[]){ __VA_ARGS__ }) / sizeof(size_t)), { __VA_ARGS__ }
#define LACKS \
    HA_T_F32, 0, { 0 }
/* One tensor in the place of the right one, or missing, or one pair of metadata. */
static const struct {
    const char *name;
    enum ha_tensor_type type;
    size_t dims, dim[5];
    const char *key, *value, *words;
} wrong[] = {
    { "o", LACKS, NULL, NULL, "there is no tensor 'o', [states][tokens][heads][dim]" },
    { "lse", LACKS, NULL, NULL, "there is no tensor 'lse', F32 [2, 3, 2]" },
    { "merged_o", LACKS, NULL, NULL, "there is no tensor 'merged_o', F32 [3, 2, 4]" },
    { "merged_lse", LACKS, NULL, NULL, "there is no tensor 'merged_lse', F32 [3, 2]" },
    { "sum", LACKS, "form", "max_sum", "there is no tensor 'sum', F32 [2, 3, 2]" },
    { "merged_sum", LACKS, "form", "max_sum", "there is no tensor 'merged_sum', F32 [3, 2]" },
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
    { NULL, LACKS, "lse_layout", "heads_tokens", "'lse' is F32 [2, 3, 2]; it must be F32 [2, 2, 3]" },
    { NULL, LACKS, "form", "natural2", "__metadata__: unknown form 'natural2'; did you mean 'natural'?" },
    { NULL, LACKS, "form", "", "__metadata__: unknown form ''" },
    { NULL, LACKS, "order", "trees", "unknown order 'trees'; did you mean 'tree'?" },
    { NULL, LACKS, "lse_layout", "zzzzzzzz", "unknown lse_layout 'zzzzzzzz'; it is one of: tokens_heads heads_tokens" },
    { NULL, LACKS, "empty", "inf", "unknown empty 'inf'; did you mean" },
    { NULL, LACKS, "fp8", "e3m4", "unknown fp8 'e3m4'; it is one of: none e4m3 e5m2" },
    { NULL, LACKS, "fp8", "e4m3", "fp8 is e4m3, and there is no fp8_scale" },
    { NULL, LACKS, "exp_eps", "nan", "exp_eps is 'nan', not a number from 0 to 0.00195312" },
    { NULL, LACKS, "exp_eps", "1", "exp_eps is '1', not a number from 0 to 0.00195312" },
    { NULL, LACKS, "log_eps", "-1e-9", "log_eps is '-1e-9'" },
    { NULL, LACKS, "log_eps", "1e-7x", "log_eps is '1e-7x'" },
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
    for (size_t i = 0; i < 6; i++) {
        const bool other = k < COUNT(wrong) && wrong[k].name && !strcmp(wrong[k].name, right[i].name);
        if (other && !wrong[k].dims) continue;
        list[count++] = other ? tensor(right[i].name, wrong[k].type, wrong[k].dims, wrong[k].dim)
                              : tensor(right[i].name, HA_T_F32, right[i].dims, right[i].dim);
    }
    const bool any = k < COUNT(wrong);
    const char *const meta[] = { "other", "anything", any ? wrong[k].key : NULL, any ? wrong[k].value : NULL, NULL };
    assert_int_equal(ha_safetensors_write(path(), list, count, meta, &why), HA_OK);
}

TEST(malformed)
{
    struct ha_merge_shape s;
    struct ha_judgement j;
    write_right_but(SIZE_MAX);
    assert_int_equal(judged(&s, &j), HA_FAIL); /* zeros: the LSE of two states is not theirs */
    for (size_t k = 0; k < COUNT(wrong); k++) {
        write_right_but(k);
        if (judged(&s, &j) != HA_ERROR) fail_msg("%zu: '%s' is taken", k, wrong[k].words);
        says(wrong[k].words);
        says(path());
    }
}

/* Cut anywhere, it is an error and nothing else. */
TEST(cut)
{
    struct ha_merge_shape s;
    struct ha_judgement j;
    write_right_but(SIZE_MAX);
    struct stat st;
    assert_int_equal(stat(path(), &st), 0);
    for (off_t bytes = st.st_size - 1; bytes >= 0; bytes -= bytes > 200 ? 37 : 1) {
        assert_int_equal(truncate(path(), bytes), 0);
        assert_int_equal(judged(&s, &j), HA_ERROR);
        says(path());
    }
    unlink(path());
    assert_int_equal(judged(&s, &j), HA_ERROR);
    says("cannot open");
    assert_int_equal(ha_replay_judge(test_folder, &s, &j, &why), HA_ERROR);
    says("is a directory");
}

/* An answer must fit the batch that was asked about. */
TEST(wrong_answers)
{
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
    struct ha_merge_trial t = trial_open(NULL, &asked, some_empty);
    for (size_t i = 0; i < COUNT(cases); i++) {
        write_right_but(cases[i].k);
        assert_int_equal(ha_replay_read_answer(path(), t.batch, &why), HA_ERROR);
        says(cases[i].words);
        assert_int_equal(ha_batch_intact(t.batch, &why), HA_OK);
    }
    write_right_but(SIZE_MAX);
    assert_int_equal(ha_replay_read_answer(path(), t.batch, &why), HA_OK);
    assert_true(t.batch->out.lse[0] == 0);
    ha_merge_trial_close(&t);
}

TEST_MAIN { return test_all("merge_replay", test_folder_make, test_folder_remove); }
