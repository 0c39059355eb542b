#include "datasets/trace.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/test_folder.h"

#include <math.h>
#include <sys/stat.h>

static struct ha_why why;

extern const struct ha_dataset ha_dataset_trace;

/* ---- a trace to write, and to spoil --------------------------------------------------- */

enum {
    LAYERS = 2,
    Q_HEADS = 4,
    KV_HEADS = 2,
    HEAD_DIM = 30,
    MODEL_DIM = 10,
    TOKENS = 40,
    Q_FIRST = 24,
    ROWS = TOKENS - Q_FIRST,
    PARTS = 6,
    TENSORS = LAYERS * PARTS,
    META = 15,
    VALUES_MAX = KV_HEADS * TOKENS * HEAD_DIM
};

static struct trace {
    char key[META][16], text[META][32];
    size_t tensors;
    char name[TENSORS][24];
    struct ha_tensor tensor[TENSORS];
    float value[TENSORS][VALUES_MAX]; /* rounded to the file's type */
    char stored[TENSORS][VALUES_MAX * 4];
} trace;

static const char *path(void) { return test_path("t.safetensors"); }

static enum ha_dtype dtype_of(enum ha_tensor_type type)
{
    return type == HA_T_F16 ? HA_F16 : type == HA_T_BF16 ? HA_BF16 : HA_F32;
}

static void trace_make(enum ha_tensor_type type, bool inputs)
{
    static const char *const meta[META][2] = {
        { "format", "habench-trace" },
        { "version", "1" },
        { "model", "none" },
        { "source", "noise" },
        { "tokens", "40" },
        { "q_first", "24" },
        { "layers", "2" },
        { "q_heads", "4" },
        { "kv_heads", "2" },
        { "head_dim", "30" },
        { "model_dim", "10" },
        { "rope_theta", "10000.0" },
        { "norm_eps", "1e-05" },
        { "scale", "0.25" },
        { "licence", "none" },
    };
    static const struct {
        const char *part;
        size_t dims, dim[3];
    } parts[PARTS] = {
        { "k", 3, { KV_HEADS, TOKENS, HEAD_DIM } },     { "v", 3, { KV_HEADS, TOKENS, HEAD_DIM } },
        { "q", 3, { Q_HEADS, ROWS, HEAD_DIM } },        { "x", 2, { ROWS, MODEL_DIM } },
        { "wq", 2, { Q_HEADS * HEAD_DIM, MODEL_DIM } }, { "norm", 1, { MODEL_DIM } },
    };
    const enum ha_dtype dtype = dtype_of(type);
    memset(&trace, 0, sizeof trace);
    for (size_t i = 0; i < META; i++) {
        strcpy(trace.key[i], meta[i][0]);
        strcpy(trace.text[i], meta[i][1]);
    }
    for (size_t layer = 0; layer < LAYERS; layer++)
        for (size_t p = 0; p < (inputs ? PARTS : 3); p++) {
            size_t i = trace.tensors++, n = 1;
            struct ha_tensor *x = &trace.tensor[i];
            snprintf(trace.name[i], sizeof trace.name[i], "layers.%zu.%s", layer, parts[p].part);
            *x = (struct ha_tensor){
                .name = trace.name[i], .type = type, .dims = parts[p].dims, .data = trace.stored[i]
            };
            for (size_t j = 0; j < x->dims; j++) n *= x->dim[j] = parts[p].dim[j];
            x->bytes = n * ha_dtype_bytes(dtype);
            ha_rng_normals(1, i, 0, n, trace.value[i]);
            for (size_t j = 0; j < n; j++) trace.value[i][j] = ha_round(trace.value[i][j], dtype);
        }
}

static void trace_write(void)
{
    const char *meta[2 * META + 1] = { NULL };
    for (size_t i = 0; i < META; i++) {
        meta[2 * i] = trace.key[i];
        meta[2 * i + 1] = trace.text[i];
    }
    for (size_t i = 0; i < trace.tensors; i++) {
        const struct ha_tensor *x = &trace.tensor[i];
        ha_store_row(trace.stored[i], x->bytes / ha_dtype_bytes(dtype_of(x->type)), dtype_of(x->type), trace.value[i]);
    }
    if (ha_safetensors_write(path(), trace.tensor, trace.tensors, meta, &why) != HA_OK) fail_msg("%s", why.text);
}

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

static struct ha_shape shape_of(enum ha_dtype dtype)
{
    return (struct ha_shape){ .batch = 2, .dtype = dtype, .ctx = { 32, 30 }, .q_len = 2, .steps = 4, .observed = 6 };
}

static struct ha_source *trace_open(struct ha_shape *shape)
{
    struct ha_source *src;
    if (ha_dataset_trace.open(&ha_dataset_trace, &src, shape, TOKENS, 1, path(), &why) != HA_OK)
        fail_msg("%s", why.text);
    return src;
}

static void expect_refused(struct ha_shape shape, const char *file, const char *reason)
{
    const struct ha_shape before = shape;
    struct ha_source *src;
    *why.text = 0;
    assert_int_equal(ha_dataset_trace.open(&ha_dataset_trace, &src, &shape, shape.ctx[0], 1, file, &why), HA_ERROR);
    assert_null(src);
    assert_memory_equal(&shape, &before, sizeof shape);
    if (!strstr(why.text, reason)) fail_msg("reason is '%s', expected '%s'", why.text, reason);
}

/* The trace as it is now. */
static void expect_spoilt(enum ha_dtype dtype, const char *reason)
{
    trace_write();
    expect_refused(shape_of(dtype), path(), reason);
}

static float *value_of(size_t layer, const char *part)
{
    char name[24];
    snprintf(name, sizeof name, "layers.%zu.%s", layer, part);
    for (size_t i = 0; i < trace.tensors; i++)
        if (strcmp(trace.name[i], name) == 0) return trace.value[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* ---- what comes back ------------------------------------------------------------------ */

static void round_trip(enum ha_tensor_type type, enum ha_dtype dtype, bool inputs, size_t shift)
{
    trace_make(type, inputs);
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
    for (size_t layer = 0; layer < LAYERS; layer++) {
        for (size_t part = 0; part < 2; part++)
            for (size_t head = 0; head < KV_HEADS; head++) {
                const float *want = value_of(layer, part ? "v" : "k") + (head * TOKENS + 3) * HEAD_DIM;
                char got[35 * HEAD_DIM * 4];
                ha_dataset_trace.kv(src, 1, layer, head, 3, 35, part ? NULL : got, part ? got : NULL);
                for (size_t i = 0; i < (size_t)35 * HEAD_DIM; i++)
                    assert_true(ha_load(got, i, dtype) == ha_round(want[i], dtype));
            }
        for (size_t head = 0; head < Q_HEADS; head++)
            for (size_t row = 0; row < ROWS; row++) {
                const float *want = value_of(layer, "q") + (head * ROWS + row) * HEAD_DIM;
                float got[HEAD_DIM];
                ha_dataset_trace.query(src, 0, layer, head, Q_FIRST + row, got);
                for (size_t i = 0; i < HEAD_DIM; i++) assert_true(got[i] == ha_round(want[i], dtype));
            }
        const float *wq = ha_dataset_trace.projection(src, layer).wq;
        assert_int_equal(wq != NULL, inputs);
        if (!inputs) continue;
        /* W_Q x from the API against wq (x / rms * norm) from the tensors */
        const float *x = value_of(layer, "x") + 5 * MODEL_DIM, *w = value_of(layer, "wq"),
                    *norm = value_of(layer, "norm");
        float got_x[MODEL_DIM];
        double squares = 0;
        ha_dataset_trace.input(src, 0, layer, Q_FIRST + 5, got_x);
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
    trace_make(HA_T_F16, true);
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
          HAS "ctx=29 with observed=6 needs that of token 23: raise ctx to at least 30 or lower observed" },
        { AT(ctx[1]), 3, "needs that of token 0" },
        { AT(batch), 0, "batch is 0" },
        { AT(batch), HA_BATCH_MAX + 1, "batch is 257" },
    };
    trace_make(HA_T_F16, true);
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

TEST(test_metadata)
{
    static const struct {
        const char *key, *text, *reason;
    } bad[] = {
        { "format", "something", "not a trace: metadata format is 'something'" },
        { "version", "2", "version '2'" },
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
        { "layers", "1", "has 12 tensors; 1 layers with 6 each make 6" },
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
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        trace_make(HA_T_F16, true);
        for (size_t j = 0; j < META; j++)
            if (strcmp(trace.key[j], bad[i].key) == 0) strcpy(trace.text[j], bad[i].text);
        expect_spoilt(HA_F16, bad[i].reason);
    }
    for (size_t gone = 0; gone < META; gone++) {
        char reason[64] = "not a trace";
        trace_make(HA_T_F16, true);
        if (strcmp(trace.key[gone], "format") != 0)
            snprintf(reason, sizeof reason, "metadata key '%s' is missing", trace.key[gone]);
        strcpy(trace.key[gone], "other");
        expect_spoilt(HA_F16, reason);
    }
}

TEST(test_tensors)
{
    char reason[64];
    for (size_t i = 0; i < TENSORS; i++) {
        trace_make(HA_T_F16, true);
        snprintf(reason, sizeof reason, "tensor %s is missing", trace.name[i]);
        trace.tensor[i] = trace.tensor[--trace.tensors];
        expect_spoilt(HA_F16, reason);

        trace_make(HA_T_F16, true);
        trace.tensor[i].dim[trace.tensor[i].dims++] = 1;
        snprintf(reason, sizeof reason, "tensor %s has shape", trace.name[i]);
        expect_spoilt(HA_F16, reason);

        trace_make(HA_T_F16, true);
        trace.tensor[i].type = HA_T_BF16;
        snprintf(reason, sizeof reason, "tensor %s has another dtype", i ? trace.name[i] : "layers.0.v");
        expect_spoilt(HA_F16, reason);
    }
    trace_make(HA_T_F32, true);
    for (size_t i = 0; i < TENSORS; i++) trace.tensor[i].type = HA_T_I32;
    expect_spoilt(HA_F16, "layers.0.k is not F16, BF16 or F32");
    trace_make(HA_T_F32, true);
    strcpy(trace.name[TENSORS - 1], "layers.1.extra");
    expect_spoilt(HA_F16, "tensor layers.1.norm is missing");
}

TEST(test_values)
{
    const float bad[] = { NAN, -INFINITY, INFINITY };
    for (size_t i = 0; i < TENSORS; i++)
        for (size_t j = 0; j < 3; j++) {
            trace_make(HA_T_BF16, true);
            trace.value[i][trace.tensor[i].bytes / 2 - 1] = bad[j];
            expect_spoilt(HA_F32, j ? "is infinite" : "is NaN");
            expect_refused(shape_of(HA_F32), path(), trace.name[i]);
        }
    trace_make(HA_T_F32, false);
    value_of(1, "k")[(1 * TOKENS + 17) * HEAD_DIM + 3] = -65520;
    expect_spoilt(HA_F16, "tensor layers.1.k[1][17][3] is -65520, too large for f16");
    struct ha_shape s = shape_of(HA_BF16);
    ha_dataset_trace.close(trace_open(&s));

    trace_make(HA_T_F32, true);
    value_of(1, "wq")[MODEL_DIM + 2] = value_of(1, "norm")[2] = 1e30f;
    expect_spoilt(HA_F16, "layers.1.wq times layers.1.norm overflows");
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
    static const char *const names[] = { "english", "code" };
    char here[4096];
    size_t opened = 0;
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir("/"), 0);
    for (size_t i = 0; i < 2; i++) {
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

int main(void) { return test_all("tests", test_folder_make, test_folder_remove); }
