#include "datasets/test_file.h"
#include "datasets/trace.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/test_folder.h"

#include <math.h>
#include <sys/stat.h>

static struct ha_why why;

extern const struct ha_dataset ha_dataset_trace;

/* Moves everything behind the header by n bytes. */
static void misalign(size_t n)
{
    FILE *f = fopen(path(), "rb+");
    uint64_t length;
    assert_non_null(f);
    assert_int_equal(fread(&length, sizeof length, 1, f), 1);
    char *rest = calloc(1, (size_t)1 << 18);
    assert_non_null(rest);
    size_t header = (size_t)length, got = fread(rest, 1, (size_t)1 << 18, f);
    assert_true(got > header && got < (size_t)1 << 18);
    length += n;
    rewind(f);
    assert_int_equal(fwrite(&length, sizeof length, 1, f), 1);
    assert_int_equal(fwrite(rest, 1, header, f), header);
    for (size_t i = 0; i < n; i++) fputc(' ', f);
    assert_int_equal(fwrite(rest + header, 1, got - header, f), got - header);
    assert_int_equal(fclose(f), 0);
    free(rest);
}

static struct ha_source *trace_open(struct ha_shape *shape)
{
    struct ha_source *src;
    if (ha_dataset_trace.open(&ha_dataset_trace, &src, shape, TOKENS, 1, path(), &why) != HA_OK)
        fail_msg("%s", why.text);
    return src;
}

/* The trace as it is now. */
static void expect_spoilt(enum ha_dtype dtype, const char *reason)
{
    trace_write();
    expect_refused(shape_of(dtype), path(), reason);
}

/* ---- what comes back ------------------------------------------------------------------ */

static void round_trip(enum ha_tensor_type type, enum ha_dtype dtype, bool inputs, size_t shift)
{
    trace_make(type, inputs ? TEST_X : TEST_NONE);
    trace_write();
    if (shift) misalign(shift);
    struct ha_shape s = shape_of(dtype);
    struct ha_source *src = trace_open(&s);
    assert_int_equal(s.layers, LAYERS);
    assert_int_equal(s.q_heads, Q_HEADS);
    assert_int_equal(s.kv_heads, KV_HEADS);
    assert_int_equal(s.head_dim, HEAD_DIM);
    assert_int_equal(s.model_dim, inputs ? MODEL_DIM : 0);
    assert_true(s.scale == 0.25f);
    for (int layer = 0; layer < LAYERS; layer++) {
        for (size_t part = 0; part < 2; part++)
            for (size_t head = 0; head < KV_HEADS; head++) {
                const float *want = trace_value(layer, part ? "v" : "k") + (head * TOKENS + 3) * HEAD_DIM;
                char got[35 * HEAD_DIM * 4];
                ha_dataset_trace.kv(src, 1, (size_t)layer, head, 3, 35, part ? NULL : got, part ? got : NULL);
                for (size_t i = 0; i < (size_t)35 * HEAD_DIM; i++)
                    assert_true(ha_load(got, i, dtype) == ha_round(want[i], dtype));
            }
        for (size_t head = 0; head < Q_HEADS; head++)
            for (size_t row = 0; row < ROWS; row++) {
                const float *want = trace_value(layer, "q") + (head * ROWS + row) * HEAD_DIM;
                float got[HEAD_DIM];
                ha_dataset_trace.query(src, 0, (size_t)layer, head, Q_FIRST + row, got);
                for (size_t i = 0; i < HEAD_DIM; i++) assert_true(got[i] == ha_round(want[i], dtype));
            }
        const float *wq = ha_dataset_trace.projection(src, (size_t)layer).wq;
        assert_int_equal(wq != NULL, inputs);
        if (!inputs) continue;
        /* W_Q x from the API against wq (x / rms * norm) from the tensors */
        const float *x = trace_value(layer, "x") + 5 * MODEL_DIM, *w = trace_value(layer, "wq"),
                    *norm = trace_value(layer, "norm");
        float got_x[MODEL_DIM];
        double squares = 0;
        ha_dataset_trace.input(src, 0, (size_t)layer, Q_FIRST + 5, got_x);
        for (size_t j = 0; j < MODEL_DIM; j++) squares += (double)x[j] * (double)x[j] / MODEL_DIM;
        for (size_t i = 0; i < (size_t)Q_HEADS * HEAD_DIM; i++) {
            double want = 0, got = 0;
            for (size_t j = 0; j < MODEL_DIM; j++) {
                want += (double)w[i * MODEL_DIM + j] * (double)x[j] / sqrt(squares + 1e-5) * (double)norm[j];
                got += (double)wq[i * MODEL_DIM + j] * (double)got_x[j];
            }
            assert_true(fabs(got - want) <= 1e-5);
        }
    }
    ha_dataset_trace.close(src);
}

TEST(test_round_trip)
{
    static const enum ha_tensor_type types[] = { HA_T_F32, HA_T_F16, HA_T_BF16 };
    for (size_t i = 0; i < 3; i++)
        for (enum ha_dtype dtype = 0; (int)dtype < HA_DTYPE_COUNT; dtype++)
            for (size_t shift = 0; shift < 4; shift++) round_trip(types[i], dtype, shift != 2, shift);
}

TEST(test_fewer_layers)
{
    trace_make(HA_T_F16, TEST_X);
    trace_write();
    struct ha_shape s = shape_of(HA_F16);
    s.layers = 1;
    s.q_heads = Q_HEADS;
    s.kv_heads = KV_HEADS;
    s.head_dim = HEAD_DIM;
    s.model_dim = MODEL_DIM;
    s.scale = 0.25f;
    struct ha_source *src = trace_open(&s);
    assert_int_equal(s.layers, 1);
    ha_dataset_trace.close(src);
}

/* What version 2 says of the projection comes back as it stands in the file; what a file lacks is NULL. */
TEST(test_projection)
{
    static const unsigned kinds[] = { TEST_NONE,        TEST_ROPE,          TEST_WO,
                                      TEST_X,           TEST_X | TEST_BIAS, TEST_X | TEST_NORM,
                                      TEST_X | TEST_WO, TEST_X | TEST_ROPE, TEST_ALL };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const unsigned has = kinds[i], x = has & TEST_X;
        trace_make(HA_T_F16, has);
        trace_write();
        struct ha_shape s = shape_of(HA_F16);
        struct ha_source *src = trace_open(&s);
        assert_int_equal(s.model_dim, x ? MODEL_DIM : 0);
        for (int layer = 0; layer < LAYERS; layer++) {
            const struct ha_projection p = ha_dataset_trace.projection(src, (size_t)layer);
            assert_int_equal(p.wq != NULL, x != 0);
            assert_int_equal(p.bias != NULL, (has & TEST_BIAS) != 0);
            assert_int_equal(p.norm != NULL, (has & TEST_NORM) != 0);
            assert_int_equal(p.wo != NULL, x && has & TEST_WO); /* how wide it is, x says */
            assert_int_equal(p.rotary, has & TEST_ROPE ? 12 : x ? HEAD_DIM : 0);
            assert_int_equal(p.inv_freq != NULL, p.rotary != 0);
            if (p.bias) assert_memory_equal(p.bias, trace_value(layer, "q_bias"), (size_t)4 * Q_HEADS * HEAD_DIM);
            if (p.norm) assert_memory_equal(p.norm, trace_value(layer, "q_norm"), (size_t)4 * HEAD_DIM);
            if (p.wo) assert_memory_equal(p.wo, trace_value(layer, "wo"), (size_t)4 * MODEL_DIM * Q_HEADS * HEAD_DIM);
            if (has & TEST_ROPE) assert_memory_equal(p.inv_freq, trace_value(-1, NULL), 6 * sizeof(float));
            else if (x) assert_float_equal(p.inv_freq[3], pow(10000, -3.0 / 15), 1e-7);
            assert_true(p.norm_eps == (has & TEST_NORM ? 0.125f : 0));
            assert_true(p.rope_scale == (has & TEST_ROPE ? 1.25f : 1));
            assert_false(p.adjacent);
        }
        ha_dataset_trace.close(src);
    }
}

/* ---- what open refuses ---------------------------------------------------------------- */

TEST(test_what_the_case_asks)
{
#define AT(member) offsetof(struct ha_shape, member)
#define HAS        "has 40 tokens, and queries of tokens 24 to 39; "
    static const struct {
        size_t at, value;
        const char *reason;
    } bad[] = {
        { AT(layers), 3, "has 2 layers, the case asks for 3" },
        { AT(q_heads), 8, "query heads is 4 here, the case asks for 8" },
        { AT(kv_heads), 4, "KV heads is 2 here" },
        { AT(head_dim), 128, "head_dim is 30 here" },
        { AT(model_dim), 11, "model_dim is 10 here" },
        { AT(steps), 5, HAS "ctx=32 and 5 steps of q_len 2 need more: lower ctx or steps" },
        { AT(steps), SIZE_MAX, "lower ctx or steps" },
        { AT(steps), SIZE_MAX / 2 + 1, "lower ctx or steps" },
        { AT(ctx), SIZE_MAX, "lower ctx or steps" },
        { AT(ctx[1]), 29,
          HAS
          "ctx=29 with observed=6 (queries ahead of the first step) needs that of token 23: raise ctx to at least 30 "
          "or lower observed to 5" },
        { AT(ctx[1]), 3, "needs that of token 0" },
        { AT(batch), 0, "batch is 0" },
        { AT(batch), HA_BATCH_MAX + 1, "batch is 257" },
    };
    trace_make(HA_T_F16, TEST_X);
    trace_write();
    struct ha_shape s;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        s = shape_of(HA_F16);
        memcpy((char *)&s + bad[i].at, &bad[i].value, sizeof bad[i].value);
        expect_refused(s, path(), bad[i].reason);
    }
    s = shape_of(HA_F16);
    s.scale = 0.125f;
    expect_refused(s, path(), "scale is 0.25, the case asks for 0.125");
}

static bool opens(struct ha_shape s, struct ha_why *reason)
{
    struct ha_source *src;
    *reason = (struct ha_why){ "" };
    if (ha_dataset_trace.open(&ha_dataset_trace, &src, &s, TOKENS, 1, path(), reason) != HA_OK) return false;
    ha_dataset_trace.close(src);
    return true;
}

/* What a refusal says of a context and its observed queries is enough, and the next smaller step is not. */
TEST(test_what_is_to_be_changed)
{
    size_t said[4] = { 0 };
    trace_make(HA_T_F16, TEST_NONE);
    trace_write();
    for (size_t ctx = 2; ctx < TOKENS; ctx += 6)
        for (size_t observed = 0; observed < TOKENS + 2; observed += 4)
            for (size_t steps = 1; steps < TOKENS - ctx; steps += 5) {
                struct ha_why reason, after;
                const struct ha_shape s = {
                    .batch = 1, .dtype = HA_F16, .ctx = { ctx }, .q_len = 1, .steps = steps, .observed = observed
                };
                struct ha_shape other = s, less = s;
                if (opens(s, &reason)) continue;
                const char *raise = strstr(reason.text, "raise ctx to at least "),
                           *lower = strstr(reason.text, "lower observed");
                const char *to = raise ? raise + strlen("raise ctx to at least ") : NULL;
                if (raise && lower && strstr(lower, "or steps")) { /* one change is not enough */
                    said[3]++;
                    for (size_t n = 0; n < TOKENS; n += 3) {
                        other.ctx[0] = n;
                        less.observed = n;
                        assert_false(opens(other, &after) || opens(less, &after));
                    }
                    continue;
                }
                said[raise && lower ? 2 : raise ? 1 : 0]++;
                assert_true(raise || lower);
                if (raise) {
                    other.ctx[0] = strtoul(to, NULL, 10);
                    if (!opens(other, &after)) fail_msg("'%s', and then '%s'", reason.text, after.text);
                    other.ctx[0]--;
                    assert_false(opens(other, &after));
                }
                if (lower) {
                    less.observed = strtoul(lower + strlen("lower observed to "), NULL, 10);
                    if (!opens(less, &after)) fail_msg("'%s', and then '%s'", reason.text, after.text);
                    less.observed++;
                    assert_false(opens(less, &after));
                }
            }
    for (size_t i = 0; i < 4; i++) assert_true(said[i] > 0);
}

struct spoilt {
    const char *key, *text, *reason;
};

static void expect_spoilt_metadata(unsigned has, const struct spoilt *bad, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        trace_make(HA_T_F16, has);
        trace_meta(bad[i].key, bad[i].text);
        expect_spoilt(HA_F16, bad[i].reason);
    }
}

TEST(test_metadata)
{
    static const struct spoilt bad[] = {
        { "format", "something", "not a trace: metadata format is 'something'" },
        { "version", "3", "version '3'; this program reads versions 1 and 2" },
        { "tokens", "0", "tokens='0' is not an integer from 1" },
        { "tokens", "-40", "tokens='-40'" },
        { "tokens", "+40", "tokens='+40'" },
        { "tokens", " 40", "tokens=' 40'" },
        { "tokens", "40x", "tokens='40x'" },
        { "tokens", "99999999999999999999999", "tokens='9999" },
        { "tokens", "41", "tensor layers.0.k has shape [2][40][30], the metadata says [2][41][30]" },
        { "q_first", "", "q_first='' is not an integer from 0" },
        { "q_first", "40", "leaves no query among 40 tokens" },
        { "q_first", "25", "tensor layers.0.q has shape [4][16][30], the metadata says [4][15][30]" },
        { "layers", "1", "version 1 with 1 layers has no tensor layers.1.k: take it out" },
        { "layers", "3", "tensor layers.2.k is missing" },
        { "layers", "1000000000000", "tensor layers.2.k is missing" },
        { "q_heads", "3", "3 query heads are not a multiple of 2" },
        { "q_heads", "8", "tensor layers.0.q has shape" },
        { "kv_heads", "0", "kv_heads='0'" },
        { "kv_heads", "1", "tensor layers.0.k has shape" },
        { "head_dim", "7", "tensor layers.0.k has shape" },
        { "model_dim", "11", "tensor layers.0.x has shape [16][10], the metadata says [16][11]" },
        { "scale", "nan", "scale='nan' is not a finite" },
        { "scale", "inf", "scale='inf' is not a finite" },
        { "scale", "1e60", "scale=1e+60 is not a binary32 number above 0" },
        { "scale", "1e-60", "scale=1e-60 is not a binary32 number above 0" },
        { "scale", "0", "scale=0 is not a binary32 number above 0" },
        { "scale", "-0.25", "scale=-0.25 is not a binary32 number above 0" },
        { "scale", "", "scale='' is not a finite" },
        { "scale", "0.25 ", "is not a finite" },
        { "norm_eps", "-1", "norm_eps=-1 is not a number from 0 to 1" },
        { "norm_eps", "1e300", "norm_eps=1e+300 is not a number from 0 to 1" },
        { "norm_eps", "nan", "norm_eps='nan' is not a finite" },
        { "rope_theta", "-1", "rope_theta=-1 is negative" },
        { "rope_theta", "inf", "rope_theta='inf' is not a finite" },
        { "tokens", "0x28", "tokens='0x28'" },
        { "head_dim", "18446744073709551616", "head_dim='1844" },
    };
    static const struct spoilt bad_2[] = {
        /* what version 2 adds */
        { "rope_pairing", "hal", "unknown rope_pairing 'hal'; did you mean 'half'?" },
        { "rope_pairing", "", "unknown rope_pairing ''; it is one of: half adjacent" },
        { "rope_scale", "0", "rope_scale=0 is not a binary32 number above 0" },
        { "rope_scale", "-1", "rope_scale=-1 is not a binary32 number above 0" },
        { "rope_scale", "1e60", "rope_scale=1e+60 is not a binary32 number above 0" },
        { "rope_scale", "nan", "rope_scale='nan' is not a finite number" },
        { "rope_scale", "one", "rope_scale='one' is not a finite number" },
        { "q_norm_eps", "-1e-9", "q_norm_eps=-1e-09 is not a number from 0 to 1" },
        { "q_norm_eps", "2", "q_norm_eps=2 is not a number from 0 to 1" },
        { "q_norm_eps", "inf", "q_norm_eps='inf' is not a finite number" },
        { "version", "1", "version 1 with 2 layers has no tensor layers.0.q_bias: take it out" },
        { "version", "02", "version '02'; this program reads versions 1 and 2" },
        { "layers", "1", "version 2 with 1 layers has no tensor layers.1.k: take it out" },
        { "model_dim", "11", "tensor layers.0.x has shape [16][10], the metadata says [16][11]" },
    };
    expect_spoilt_metadata(TEST_X, bad, COUNT(bad));
    expect_spoilt_metadata(TEST_ALL, bad_2, COUNT(bad_2));
    for (size_t gone = 0; gone < META; gone++) {
        char reason[64] = "not a trace";
        trace_make(HA_T_F16, TEST_X);
        if (strcmp(trace.key[gone], "format") != 0)
            snprintf(reason, sizeof reason, "metadata key '%s' is missing", trace.key[gone]);
        strcpy(trace.key[gone], "other");
        expect_spoilt(HA_F16, reason);
    }
    trace_make(HA_T_F16, TEST_ALL);
    strcpy(trace.key[META], "other");
    expect_spoilt(HA_F16, "metadata key 'q_norm_eps' is missing");
    trace_make(HA_T_F16, TEST_ALL);
    trace_meta("rope_pairing", "adjacent");
    trace.tensors--;
    expect_spoilt(HA_F16, "rope_pairing=adjacent is without effect, for tensor rope.inv_freq is missing");
    trace_meta("rope_pairing", "half");
    expect_spoilt(HA_F16, "rope_scale is without effect, for tensor rope.inv_freq is missing");
}

/* Each of the first tensors of a trace: gone, of another shape or type, not finite. */
static void expect_spoilt_tensors(unsigned has, size_t count)
{
    const float bad[] = { NAN, -INFINITY, INFINITY };
    char reason[96];
    for (size_t i = 0; i < count; i++) {
        trace_make(HA_T_BF16, has);
        snprintf(reason, sizeof reason, "tensor %s is missing", trace.name[i]);
        trace.tensor[i] = trace.tensor[--trace.tensors];
        expect_spoilt(HA_F32, reason);

        trace_make(HA_T_BF16, has);
        trace.tensor[i].dim[trace.tensor[i].dims++] = 1;
        snprintf(reason, sizeof reason, "tensor %s has shape", trace.name[i]);
        expect_spoilt(HA_F32, reason);

        trace_make(HA_T_BF16, has);
        trace.tensor[i].type = HA_T_F16;
        snprintf(reason, sizeof reason, "tensor %s has another dtype", i ? trace.name[i] : "layers.0.v");
        expect_spoilt(HA_F32, reason);

        for (size_t j = 0; j < COUNT(bad); j++) {
            trace_make(HA_T_BF16, has);
            trace.value[i][trace.tensor[i].bytes / 2 - 1] = bad[j];
            expect_spoilt(HA_F32, j ? "is infinite" : "is NaN");
            expect_refused(shape_of(HA_F32), path(), trace.name[i]);
        }
    }
}

TEST(test_tensors)
{
    expect_spoilt_tensors(TEST_X, TENSORS);
    trace_make(HA_T_BF16, TEST_ALL);
    expect_spoilt_tensors(TEST_ALL, trace.tensors - 1);
    trace_make(HA_T_F32, TEST_X);
    for (size_t i = 0; i < TENSORS; i++) trace.tensor[i].type = HA_T_I32;
    expect_spoilt(HA_F16, "layers.0.k is not F16, BF16 or F32");

    static const struct {
        unsigned has;
        const char *part, *name, *reason; /* part of layer 1; NULL: the last tensor */
    } others[] = {
        { TEST_X, NULL, "layers.1.extra", "version 1 with 2 layers has no tensor layers.1.extra: take it out" },
        { TEST_ALL, "wo", "layers.1.w\n", "version 2 with 2 layers has no tensor layers.1.w?: take it out" },
        { TEST_ALL, "wo", "layers.01.wo", "has no tensor layers.01.wo: take it out" },
    };
    for (size_t i = 0; i < COUNT(others); i++) {
        trace_make(HA_T_F32, others[i].has);
        strcpy(trace.name[others[i].part ? trace_index(1, others[i].part) : TENSORS - 1], others[i].name);
        expect_spoilt(HA_F16, others[i].reason);
    }
    static const unsigned without_x[] = { TEST_BIAS, TEST_NORM };
    for (size_t i = 0; i < COUNT(without_x); i++) {
        trace_make(HA_T_BF16, without_x[i]);
        expect_spoilt(HA_F32, "tensor layers.0.x is missing");
    }
}

TEST(test_values)
{
    trace_make(HA_T_F32, TEST_NONE);
    trace_value(1, "k")[(1 * TOKENS + 17) * HEAD_DIM + 3] = -65520;
    expect_spoilt(HA_F16, "tensor layers.1.k[1][17][3] is -65520, too large for f16");
    struct ha_shape s = shape_of(HA_BF16);
    ha_dataset_trace.close(trace_open(&s));

    trace_make(HA_T_F32, TEST_X);
    trace_value(1, "wq")[MODEL_DIM + 2] = trace_value(1, "norm")[2] = 1e30f;
    expect_spoilt(HA_F16, "layers.1.wq times layers.1.norm overflows");
}

TEST(test_inv_freq)
{
    static const struct {
        float value;
        const char *reason;
    } bad[] = {
        { NAN, "tensor rope.inv_freq[2] is NaN" },
        { INFINITY, "tensor rope.inv_freq[2] is infinite" },
        { -0.5f, "tensor rope.inv_freq[2] is -0.5, below 0" },
    };
    struct ha_tensor *x;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        trace_make(HA_T_F16, TEST_ALL);
        trace_value(-1, NULL)[2] = bad[i].value;
        expect_spoilt(HA_F16, bad[i].reason);
    }
    trace_make(HA_T_F16, TEST_ALL);
    x = &trace.tensor[trace_index(-1, NULL)];
    x->type = HA_T_F16;
    x->bytes /= 2;
    expect_spoilt(HA_F16, "tensor rope.inv_freq is not F32");
    static const size_t dims[][3] = { { 1, 16 }, { 1, 0 }, { 2, 6, 1 } };
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        trace_make(HA_T_F16, TEST_ALL);
        x = &trace.tensor[trace_index(-1, NULL)];
        x->dims = dims[i][0];
        memcpy(x->dim, dims[i] + 1, x->dims * sizeof *x->dim);
        x->bytes = (i == 2 ? 6 : dims[i][1]) * sizeof(float);
        expect_spoilt(HA_F16, i == 0   ? "rope.inv_freq has shape [16]; head_dim 30 has from [1] to [15] pairs"
                              : i == 1 ? "rope.inv_freq has shape [0]; head_dim 30"
                                       : "rope.inv_freq has shape [6][1]; head_dim 30");
    }
}

/* ---- where a name is looked for ------------------------------------------------------- */

TEST(test_find)
{
    char found[4096], here[4096];
    assert_int_equal(ha_trace_find("nothing-of-that-name", found, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "no datasets/traces/nothing-of-that-name.safetensors"));
    assert_int_equal(ha_trace_find(path(), found, &why), HA_OK);
    assert_string_equal(found, path());

    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(test_folder), 0);
    assert_int_equal(mkdir("datasets", 0755) | mkdir("datasets/traces", 0755) | mkdir("short", 0755), 0);
    FILE *f = fopen("datasets/traces/short.safetensors", "wb");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(ha_trace_find("short", found, &why), HA_OK);
    assert_string_equal(found, "datasets/traces/short.safetensors");
    assert_int_equal(ha_trace_find("short.safetensors", found, &why), HA_OK);
    assert_string_equal(found, "datasets/traces/short.safetensors");
    assert_int_equal(
        remove("datasets/traces/short.safetensors") | rmdir("datasets/traces") | rmdir("datasets") | rmdir("short"), 0);
    assert_int_equal(chdir(here), 0);

    expect_refused(shape_of(HA_F16), NULL, "needs a file");
    expect_refused(shape_of(HA_F16), "/no/such/trace", "/no/such/trace: there is no such file");
    expect_refused(shape_of(HA_F16), "/dev", "is a directory");
    assert_int_equal(ha_dataset_trace.find("/no/such/trace", &why), HA_ERROR);
    assert_int_equal(ha_dataset_trace.find("/dev", &why), HA_OK); /* it is there; open says what it is */
}

/* The published traces, where this tree has them, found from the program up. */
TEST(test_published)
{
    static const char *const names[] = { "english", "code", "deep" };
    char here[4096];
    size_t opened = 0;
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir("/"), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char found[4096];
        struct ha_source *src;
        struct ha_shape s = { .batch = 1, .dtype = HA_F16, .ctx = { 1920 }, .q_len = 1, .steps = 128, .observed = 64 };
        if (ha_trace_find(names[i], found, &why) != HA_OK) continue;
        if (ha_dataset_trace.open(&ha_dataset_trace, &src, &s, 2048, 1, names[i], &why) != HA_OK)
            fail_msg("%s", why.text);
        ha_dataset_trace.close(src);
        opened++;
    }
    assert_int_equal(chdir(here), 0);
    if (opened == 0) skip();
}

TEST_MAIN { return test_all("tests", test_folder_make, test_folder_remove); }
