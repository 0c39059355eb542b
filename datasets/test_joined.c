#include "datasets/test_file.h"

/* Traces that + joins: sequence b of a batch reads file b mod the number of files. */

extern const struct ha_dataset ha_dataset_trace;

static struct ha_why why;

/* the trace as it is now, under another name */
static void write_as(const char *name)
{
    char from[TEST_PATH_MAX];
    trace_write();
    strcpy(from, path());
    assert_int_equal(rename(from, test_path(name)), 0);
}

static const char *joined(void)
{
    static char text[2 * TEST_PATH_MAX];
    const size_t n = (size_t)snprintf(text, sizeof text, "%s+", test_path("a.safetensors"));
    snprintf(text + n, sizeof text - n, "%s", test_path("b.safetensors"));
    return text;
}

/* Of the two that lie there now. */
static void expect_unlike(const char *reason) { expect_refused(shape_of(HA_F16), joined(), reason); }

/* Dimension d of a part of every layer becomes n, which is less. */
static void narrow(const char *part, size_t d, size_t n)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        struct ha_tensor *x = &trace.tensor[trace_index(layer, part)];
        x->bytes = x->bytes / x->dim[d] * n;
        x->dim[d] = n;
    }
}

TEST(test_joined)
{
    static float first[LAYERS][3][VALUES_MAX];
    static const char *const parts[] = { "k", "q", "x" };
    struct ha_shape s = { .batch = 3, .dtype = HA_F32, .ctx = { 32, 36, 31 }, .q_len = 2, .steps = 2, .observed = 2 };
    trace_make(HA_T_F32, TEST_ALL);
    write_as("a.safetensors");
    for (int layer = 0; layer < LAYERS; layer++)
        for (size_t p = 0; p < 3; p++) memcpy(first[layer][p], trace_value(layer, parts[p]), sizeof first[layer][p]);
    trace_meta("q_first", "30");
    narrow("q", 1, 10);
    narrow("x", 0, 10);
    for (int layer = 0; layer < LAYERS; layer++)
        for (size_t p = 0; p < 3; p++)
            for (size_t i = 0; i < VALUES_MAX; i++) trace_value(layer, parts[p])[i] += 1;
    write_as("b.safetensors");

    struct ha_source *src;
    assert_int_equal(ha_dataset_trace.find(joined(), &why), HA_OK);
    if (ha_dataset_trace.open(&ha_dataset_trace, &src, &s, TOKENS, 1, joined(), &why) != HA_OK)
        fail_msg("%s", why.text);
    assert_int_equal(s.layers, LAYERS);
    for (size_t b = 0; b < 3; b++)
        for (int layer = 0; layer < LAYERS; layer++) {
            float k[2 * HEAD_DIM], q[HEAD_DIM], x[MODEL_DIM];
            const bool second = b == 1;
            const size_t rows = second ? 10 : ROWS, row = 35 - (TOKENS - rows);
            const float *want[3];
            for (size_t p = 0; p < 3; p++) want[p] = second ? trace_value(layer, parts[p]) : first[layer][p];
            ha_dataset_trace.kv(src, b, (size_t)layer, 1, 7, 2, k, NULL);
            assert_memory_equal(k, want[0] + (TOKENS + 7) * HEAD_DIM, sizeof k);
            ha_dataset_trace.query(src, b, (size_t)layer, 3, 35, q);
            assert_memory_equal(q, want[1] + (3 * rows + row) * HEAD_DIM, sizeof q);
            ha_dataset_trace.input(src, b, (size_t)layer, 35, x);
            assert_float_equal(x[3] / x[2], want[2][row * MODEL_DIM + 3] / want[2][row * MODEL_DIM + 2], 1e-4);
        }
    ha_dataset_trace.close(src);

    /* each sequence against its own file */
    s.ctx[1] = 31;
    expect_refused(
        s, joined(),
        "b.safetensors: has 40 tokens, and queries of tokens 30 to 39; ctx=31 with observed=2 (queries ahead of "
        "the first step) needs that of token 29: raise ctx to at least 32 or lower observed to 1");
    s.ctx[1] = 36;
    s.ctx[2] = 25;
    expect_refused(s, joined(), "a.safetensors: has 40 tokens, and queries of tokens 24");
    s.ctx[2] = 31;
    s.layers = 3;
    expect_refused(s, joined(), "a.safetensors: has 2 layers, the case asks for 3");
}

/* What must agree, and does not: "a" is a whole trace, the other is spoilt. */
TEST(test_joined_unlike)
{
    static const struct {
        const char *key, *text, *reason;
    } meta[] = {
        { "scale", "0.5", "a.safetensors: scale is 0.25, and 0.5 in " },
        { "rope_pairing", "adjacent", "a.safetensors: rope_pairing=adjacent is 0, and 1 in " },
        { "rope_scale", "1.5", "a.safetensors: rope_scale is 1.25, and 1.5 in " },
        { "q_norm_eps", "0.5", "a.safetensors: q_norm_eps is 0.125, and 0.5 in " },
    };
    static const struct {
        unsigned has;
        const char *reason;
    } parts[] = {
        { TEST_NONE, "a.safetensors: model_dim (0: no x) is 10, and 0 in " },
        { TEST_ALL & ~TEST_ROPE, "a.safetensors: rope_scale is 1.25, and 1 in " },
        { TEST_ALL & ~TEST_BIAS, "a.safetensors: has tensors layers.*.q_bias, and " },
        { TEST_ALL & ~TEST_WO, "a.safetensors: has tensors layers.*.wo, and " },
    };
    static const struct {
        const char *key, *text, *parts;
        size_t dim, to;
        const char *reason;
    } shapes[] = {
        { "q_heads", "2", "q", 0, 2, "a.safetensors: query heads is 4, and 2 in " },
        { "kv_heads", "1", "kv", 0, 1, "a.safetensors: KV heads is 2, and 1 in " },
        { "head_dim", "15", "kvq", 2, 15, "a.safetensors: head_dim is 30, and 15 in " },
    };
    static const char *const weights[] = { "wq", "norm", "q_bias", "q_norm", "wo" };
    trace_make(HA_T_F16, TEST_ALL);
    write_as("a.safetensors");
    for (size_t i = 0; i < sizeof meta / sizeof *meta; i++) {
        trace_make(HA_T_F16, TEST_ALL);
        trace_meta(meta[i].key, meta[i].text);
        write_as("b.safetensors");
        expect_unlike(meta[i].reason);
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        trace_make(HA_T_F16, parts[i].has);
        write_as("b.safetensors");
        expect_unlike(parts[i].reason);
    }
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        trace_make(HA_T_F16, TEST_ALL);
        trace_value(1, weights[i])[5] += 1;
        write_as("b.safetensors");
        expect_unlike("a.safetensors: the weights of layer 1 are not those of ");
    }
    trace_make(HA_T_F16, TEST_ALL);
    trace_value(-1, NULL)[5] += 1;
    write_as("b.safetensors");
    expect_unlike("a.safetensors: its rotary frequencies are not those of ");
    trace_make(HA_T_F16, TEST_ALL);
    trace.tensor[trace_index(-1, NULL)].dim[0] = 5;
    trace.tensor[trace_index(-1, NULL)].bytes = 5 * sizeof(float);
    write_as("b.safetensors");
    expect_unlike("a.safetensors: rotary dimensions is 12, and 10 in ");

    trace_make(HA_T_F16, TEST_NONE);
    write_as("a.safetensors");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        trace_make(HA_T_F16, TEST_NONE);
        trace_meta(shapes[i].key, shapes[i].text);
        for (const char *p = shapes[i].parts; *p; p++) narrow((char[]){ *p, 0 }, shapes[i].dim, shapes[i].to);
        write_as("b.safetensors");
        expect_unlike(shapes[i].reason);
    }

    /* of fewer layers: as many as both have, or what the case asks for */
    trace_make(HA_T_BF16, TEST_NONE);
    trace_meta("layers", "1");
    trace.tensors = 3;
    write_as("b.safetensors");
    struct ha_shape s = shape_of(HA_F32);
    struct ha_source *src;
    const char *both = joined();
    if (ha_dataset_trace.open(&ha_dataset_trace, &src, &s, TOKENS, 1, both, &why) != HA_OK) fail_msg("%s", why.text);
    assert_int_equal(s.layers, 1);
    ha_dataset_trace.close(src);
    s.layers = 2;
    expect_refused(s, both, "b.safetensors: has 1 layers, the case asks for 2");
}

TEST(test_joined_names)
{
    char many[2 * HA_BATCH_MAX + 8] = "a", here[4096];
    trace_make(HA_T_F16, TEST_NONE);
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(test_folder), 0);
    write_as("a");
    write_as("b");
    assert_int_equal(ha_dataset_trace.find("a+b", &why), HA_OK);
    expect_refused(shape_of(HA_F16), "a+c", "trace c: no such file");
    expect_refused(shape_of(HA_F16), "c+a", "trace c: no such file");
    expect_refused(shape_of(HA_F16), "a+", "trace a+: there is no such file, and no name on one side of a +");
    expect_refused(shape_of(HA_F16), "+a", "trace +a: there is no such file, and no name");
    expect_refused(shape_of(HA_F16), "a++b", "trace a++b: there is no such file, and no name");
    assert_int_equal(ha_dataset_trace.find("a+c", &why), HA_ERROR);
    for (size_t i = 0; i < HA_BATCH_MAX; i++) strcat(many, "+a");
    expect_refused(shape_of(HA_F16), many, "+ joins more than 256 files");
    many[2 * HA_BATCH_MAX - 1] = 0;
    assert_int_equal(ha_dataset_trace.find(many, &why), HA_OK);

    test_write("a+b", "no trace", 8); /* it goes before the two */
    expect_refused(shape_of(HA_F16), "a+b", "a+b: ");
    assert_int_equal(ha_dataset_trace.find("a+b", &why), HA_OK);
    assert_int_equal(remove("a+b") | remove("a") | remove("b"), 0);
    assert_int_equal(chdir(here), 0);
}

/* Sequence 0 and 2 have the keys of english, 1 those of code. */
TEST(test_joined_published)
{
    static const char *const names[] = { "english", "code", "english", "english+code" };
    static unsigned char k[4][64 * 64 * 2];
    for (size_t i = 0; i < 4; i++) {
        struct ha_source *src;
        struct ha_shape s = { .batch = 3, .dtype = HA_F16, .ctx = { 1792, 1800, 1900 }, .q_len = 1, .steps = 2 };
        if (ha_dataset_trace.open(&ha_dataset_trace, &src, &s, 1902, 1, names[i], &why) != HA_OK)
            fail_msg("%s", why.text);
        if (i < 3) ha_dataset_trace.kv(src, i, 3, 1, 1700, 64, k[i], NULL);
        for (size_t b = 0; i == 3 && b < 3; b++) {
            ha_dataset_trace.kv(src, b, 3, 1, 1700, 64, k[3], NULL);
            assert_memory_equal(k[3], k[b], sizeof *k);
        }
        ha_dataset_trace.close(src);
    }
    assert_memory_not_equal(k[0], k[1], sizeof *k);
}

TEST_MAIN { return test_all("tests", test_folder_make, test_folder_remove); }
