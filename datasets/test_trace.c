#include "datasets/trace.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

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

struct trace {
    char key[META][16], text[META][32];
    size_t meta, tensors;
    char name[TENSORS][24];
    struct ha_tensor tensor[TENSORS];
    float value[TENSORS][VALUES_MAX]; /* rounded to the file's type */
    char stored[TENSORS][VALUES_MAX * 4];
};

static char folder[64], path[96];

static enum ha_dtype dtype_of(enum ha_tensor_type type)
{
    return type == HA_T_F16 ? HA_F16 : type == HA_T_BF16 ? HA_BF16 : HA_F32;
}

static void store(struct trace *t, size_t i)
{
    ha_store_row(t->stored[i], VALUES_MAX, dtype_of(t->tensor[i].type), t->value[i]);
}

static struct trace *trace_make(enum ha_tensor_type type, bool inputs)
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
    struct trace *t = calloc(1, sizeof *t);
    assert_non_null(t);
    for (; t->meta < META; t->meta++) {
        strcpy(t->key[t->meta], meta[t->meta][0]);
        strcpy(t->text[t->meta], meta[t->meta][1]);
    }
    for (size_t layer = 0; layer < LAYERS; layer++)
        for (size_t p = 0; p < (inputs ? PARTS : 3); p++) {
            size_t i = t->tensors++, n = 1;
            struct ha_tensor *x = &t->tensor[i];
            snprintf(t->name[i], sizeof t->name[i], "layers.%zu.%s", layer, parts[p].part);
            *x = (struct ha_tensor){ .name = t->name[i], .type = type, .dims = parts[p].dims, .data = t->stored[i] };
            for (size_t j = 0; j < x->dims; j++) n *= x->dim[j] = parts[p].dim[j];
            x->bytes = n * ha_dtype_bytes(dtype_of(type));
            ha_rng_normals(1, i, 0, VALUES_MAX, t->value[i]);
            for (size_t j = 0; j < VALUES_MAX; j++) t->value[i][j] = ha_round(t->value[i][j], dtype_of(type));
            store(t, i);
        }
    return t;
}

static void trace_write(struct trace *t)
{
    const char *meta[2 * META + 1] = { NULL };
    struct ha_why why = { "" };
    for (size_t i = 0; i < t->meta; i++) {
        meta[2 * i] = t->key[i];
        meta[2 * i + 1] = t->text[i];
    }
    if (ha_safetensors_write(path, t->tensor, t->tensors, meta, &why) != HA_OK) fail_msg("%s", why.text);
}

/* Moves everything behind the header by n bytes. */
static void misalign(size_t n)
{
    FILE *f = fopen(path, "rb+");
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

static void expect_refused(struct ha_shape shape, const char *reason)
{
    const struct ha_shape before = shape;
    struct ha_source *src;
    struct ha_why why = { "" };
    assert_int_equal(ha_dataset_trace.open(&src, &shape, shape.ctx[0], 1, path, &why), HA_ERROR);
    assert_null(src);
    assert_memory_equal(&shape, &before, sizeof shape);
    if (!strstr(why.text, reason)) fail_msg("reason is '%s', expected '%s'", why.text, reason);
}

static size_t index_of(const struct trace *t, const char *name)
{
    for (size_t i = 0; i < t->tensors; i++)
        if (strcmp(t->name[i], name) == 0) return i;
    fail_msg("no tensor %s", name);
    return 0;
}

/* ---- what comes back ------------------------------------------------------------------ */

static void round_trip(enum ha_tensor_type type, enum ha_dtype dtype, bool inputs, size_t shift)
{
    struct trace *t = trace_make(type, inputs);
    trace_write(t);
    if (shift) misalign(shift);
    struct ha_shape s = shape_of(dtype);
    struct ha_source *src;
    struct ha_why why = { "" };
    if (ha_dataset_trace.open(&src, &s, 40, 1, path, &why) != HA_OK) fail_msg("%s", why.text);
    assert_int_equal(s.layers, LAYERS);
    assert_int_equal(s.q_heads, Q_HEADS);
    assert_int_equal(s.kv_heads, KV_HEADS);
    assert_int_equal(s.head_dim, HEAD_DIM);
    assert_int_equal(s.model_dim, inputs ? MODEL_DIM : 0);
    assert_true(s.scale == 0.25f);
    char name[24];
    for (size_t layer = 0; layer < LAYERS; layer++) {
        for (size_t part = 0; part < 2; part++)
            for (size_t head = 0; head < KV_HEADS; head++) {
                snprintf(name, sizeof name, "layers.%zu.%c", layer, part ? 'v' : 'k');
                const float *want = t->value[index_of(t, name)] + head * TOKENS * HEAD_DIM + 3 * HEAD_DIM;
                char got[35 * HEAD_DIM * 4];
                ha_dataset_trace.kv(src, 1, layer, head, 3, 35, part ? NULL : got, part ? got : NULL);
                for (size_t i = 0; i < (size_t)35 * HEAD_DIM; i++)
                    assert_true(ha_load(got, i, dtype) == ha_round(want[i], dtype));
            }
        for (size_t head = 0; head < Q_HEADS; head++)
            for (size_t row = 0; row < ROWS; row++) {
                snprintf(name, sizeof name, "layers.%zu.q", layer);
                const float *want = t->value[index_of(t, name)] + (head * ROWS + row) * HEAD_DIM;
                float got[HEAD_DIM];
                ha_dataset_trace.query(src, 0, layer, head, Q_FIRST + row, got);
                for (size_t i = 0; i < HEAD_DIM; i++) assert_true(got[i] == ha_round(want[i], dtype));
            }
        const float *wq = ha_dataset_trace.wq(src, layer);
        assert_int_equal(wq != NULL, inputs);
        if (!inputs) continue;
        /* W_Q x from the API against wq (x / rms * norm) from the tensors */
        snprintf(name, sizeof name, "layers.%zu.x", layer);
        const float *x = t->value[index_of(t, name)] + 5 * MODEL_DIM;
        snprintf(name, sizeof name, "layers.%zu.wq", layer);
        const float *w = t->value[index_of(t, name)];
        snprintf(name, sizeof name, "layers.%zu.norm", layer);
        const float *norm = t->value[index_of(t, name)];
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
    free(t);
}

static void test_round_trip(void **state)
{
    (void)state;
    static const enum ha_tensor_type types[] = { HA_T_F32, HA_T_F16, HA_T_BF16 };
    static const enum ha_dtype dtypes[] = { HA_F32, HA_F16, HA_BF16 };
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 3; j++)
            for (size_t shift = 0; shift < 4; shift++) round_trip(types[i], dtypes[j], shift != 2, shift);
}

static void test_fewer_layers(void **state)
{
    (void)state;
    struct trace *t = trace_make(HA_T_F16, true);
    trace_write(t);
    struct ha_shape s = shape_of(HA_F16);
    struct ha_source *src;
    struct ha_why why;
    s.layers = 1;
    s.q_heads = Q_HEADS;
    s.kv_heads = KV_HEADS;
    s.head_dim = HEAD_DIM;
    s.model_dim = MODEL_DIM;
    s.scale = 0.25f;
    assert_int_equal(ha_dataset_trace.open(&src, &s, 40, 1, path, &why), HA_OK);
    assert_int_equal(s.layers, 1);
    ha_dataset_trace.close(src);
    free(t);
}

/* ---- what open refuses ---------------------------------------------------------------- */

static void test_what_the_case_asks(void **state)
{
    (void)state;
    struct trace *t = trace_make(HA_T_F16, true);
    trace_write(t);
    const struct ha_shape good = shape_of(HA_F16);
    struct ha_shape s = good;
    s.layers = 3;
    expect_refused(s, "has 2 layers, the case asks for 3");
    s = good;
    s.q_heads = 8;
    expect_refused(s, "query heads is 4 here, the case asks for 8");
    s = good;
    s.kv_heads = 4;
    expect_refused(s, "KV heads is 2 here");
    s = good;
    s.head_dim = 128;
    expect_refused(s, "head_dim is 30 here");
    s = good;
    s.model_dim = 11;
    expect_refused(s, "model_dim is 10 here");
    s = good;
    s.scale = 0.125f;
    expect_refused(s, "scale is 0.25, the case asks for 0.125");
    s = good;
    s.steps = 5;
    expect_refused(
        s,
        "has 40 tokens, and queries of tokens 24 to 39; ctx=32 and 5 steps of q_len 2 need more: lower ctx or steps");
    s.steps = SIZE_MAX;
    expect_refused(s, "lower ctx or steps");
    s.steps = SIZE_MAX / 2 + 1;
    expect_refused(s, "lower ctx or steps");
    s = good;
    s.ctx[0] = SIZE_MAX;
    expect_refused(s, "lower ctx or steps");
    s = good;
    s.ctx[1] = 29;
    expect_refused(
        s, "has 40 tokens, and queries of tokens 24 to 39; ctx=29 with observed=6 needs that of token 23: raise ctx to "
           "at least 30 or lower observed");
    s.ctx[1] = 3;
    expect_refused(s, "needs that of token 0");
    s = good;
    s.batch = 0;
    expect_refused(s, "batch is 0");
    s.batch = HA_BATCH_MAX + 1;
    expect_refused(s, "batch is 65");
    free(t);
}

static void test_metadata(void **state)
{
    (void)state;
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
        struct trace *t = trace_make(HA_T_F16, true);
        for (size_t j = 0; j < t->meta; j++)
            if (strcmp(t->key[j], bad[i].key) == 0) strcpy(t->text[j], bad[i].text);
        trace_write(t);
        expect_refused(shape_of(HA_F16), bad[i].reason);
        free(t);
    }
    for (size_t gone = 0; gone < META; gone++) {
        struct trace *t = trace_make(HA_T_F16, true);
        char reason[64];
        if (strcmp(t->key[gone], "format") == 0) strcpy(reason, "not a trace");
        else snprintf(reason, sizeof reason, "metadata key '%s' is missing", t->key[gone]);
        strcpy(t->key[gone], "other");
        trace_write(t);
        expect_refused(shape_of(HA_F16), reason);
        free(t);
    }
}

static void test_tensors(void **state)
{
    (void)state;
    struct trace *t;
    char reason[64];
    for (size_t gone = 0; gone < TENSORS; gone++) {
        t = trace_make(HA_T_F16, true);
        snprintf(reason, sizeof reason, "tensor %s is missing", t->name[gone]);
        t->tensor[gone] = t->tensor[--t->tensors];
        trace_write(t);
        expect_refused(shape_of(HA_F16), reason);
        free(t);
    }
    for (size_t i = 0; i < TENSORS; i++) {
        t = trace_make(HA_T_F16, true);
        t->tensor[i].dim[t->tensor[i].dims++] = 1;
        trace_write(t);
        snprintf(reason, sizeof reason, "tensor %s has shape", t->name[i]);
        expect_refused(shape_of(HA_F16), reason);
        free(t);

        t = trace_make(HA_T_F16, true);
        t->tensor[i].type = HA_T_BF16;
        trace_write(t);
        snprintf(reason, sizeof reason, "tensor %s has another dtype", i ? t->name[i] : "layers.0.v");
        expect_refused(shape_of(HA_F16), reason);
        free(t);
    }
    t = trace_make(HA_T_F32, true);
    for (size_t i = 0; i < TENSORS; i++) t->tensor[i].type = HA_T_I32;
    trace_write(t);
    expect_refused(shape_of(HA_F16), "layers.0.k is not F16, BF16 or F32");
    free(t);
    t = trace_make(HA_T_F32, true);
    strcpy(t->name[TENSORS - 1], "layers.1.extra");
    trace_write(t);
    expect_refused(shape_of(HA_F16), "tensor layers.1.norm is missing");
    free(t);
}

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < TENSORS; i++)
        for (size_t bad = 0; bad < 3; bad++) {
            struct trace *t = trace_make(HA_T_BF16, true);
            size_t last = t->tensor[i].bytes / 2 - 1;
            t->value[i][last] = bad == 0 ? NAN : bad == 1 ? -INFINITY : INFINITY;
            store(t, i);
            trace_write(t);
            expect_refused(shape_of(HA_F32), bad ? "is infinite" : "is NaN");
            expect_refused(shape_of(HA_F32), t->name[i]);
            free(t);
        }
    struct trace *t = trace_make(HA_T_F32, false);
    size_t k = index_of(t, "layers.1.k");
    t->value[k][(1 * TOKENS + 17) * HEAD_DIM + 3] = -65520;
    store(t, k);
    trace_write(t);
    expect_refused(shape_of(HA_F16), "tensor layers.1.k[1][17][3] is -65520, too large for f16");
    struct ha_shape s = shape_of(HA_BF16);
    struct ha_source *src;
    struct ha_why why;
    assert_int_equal(ha_dataset_trace.open(&src, &s, 40, 1, path, &why), HA_OK);
    ha_dataset_trace.close(src);
    free(t);

    t = trace_make(HA_T_F32, true);
    size_t wq = index_of(t, "layers.1.wq"), norm = index_of(t, "layers.1.norm");
    t->value[wq][MODEL_DIM + 2] = t->value[norm][2] = 1e30f;
    store(t, wq);
    store(t, norm);
    trace_write(t);
    expect_refused(shape_of(HA_F16), "layers.1.wq times layers.1.norm overflows");
    free(t);
}

/* ---- where a name is looked for ------------------------------------------------------- */

static void test_find(void **state)
{
    (void)state;
    char found[4096], here[4096];
    struct ha_why why = { "" };
    assert_int_equal(ha_trace_find("nothing-of-that-name", found, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "no datasets/traces/nothing-of-that-name.safetensors"));
    assert_int_equal(ha_trace_find(path, found, &why), HA_OK);
    assert_string_equal(found, path);

    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
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

    struct ha_source *src;
    struct ha_shape s = shape_of(HA_F16);
    assert_int_equal(ha_dataset_trace.open(&src, &s, 40, 1, NULL, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "needs a file"));
    assert_int_equal(ha_dataset_trace.open(&src, &s, 40, 1, "/no/such/trace", &why), HA_ERROR);
    assert_non_null(strstr(why.text, "/no/such/trace: there is no such file"));
    assert_int_equal(ha_dataset_trace.open(&src, &s, 40, 1, "/dev", &why), HA_ERROR);
    assert_non_null(strstr(why.text, "is a directory"));
    assert_int_equal(ha_dataset_trace.find("/no/such/trace", &why), HA_ERROR);
    assert_int_equal(ha_dataset_trace.find("/dev", &why), HA_OK); /* it is there; open says what it is */
}

/* The published traces, where this tree has them, found from the program up. */
static void test_published(void **state)
{
    (void)state;
    static const char *const names[] = { "english", "code" };
    char here[4096];
    size_t opened = 0;
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir("/"), 0);
    for (size_t i = 0; i < 2; i++) {
        char found[4096];
        struct ha_source *src;
        struct ha_why why = { "" };
        struct ha_shape s = { .batch = 1, .dtype = HA_F16, .ctx = { 1920 }, .q_len = 1, .steps = 128, .observed = 64 };
        if (ha_trace_find(names[i], found, &why) != HA_OK) continue;
        if (ha_dataset_trace.open(&src, &s, 2048, 1, names[i], &why) != HA_OK) fail_msg("%s", why.text);
        ha_dataset_trace.close(src);
        opened++;
    }
    assert_int_equal(chdir(here), 0);
    if (opened == 0) skip();
}

static int files_setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/habench-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/t.safetensors", folder);
    return 0;
}

static int files_teardown(void **state)
{
    (void)state;
    remove(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_fewer_layers),
        cmocka_unit_test(test_what_the_case_asks),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_published),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
