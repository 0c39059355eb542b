/* A trace of a small model: what it holds is what the forward pass makes, and its projection gives its queries. */

#include "datasets/model/capture.h"
#include "datasets/model/fake_gguf.h"
#include "datasets/model/tokenizer.h"
#include "datasets/model/transformer.h"
#include "harness/api/dataset.h"
#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/stop.h"
#include "harness/base/test_folder.h"

#include <math.h>

extern const struct ha_dataset ha_dataset_trace;

enum { TOKENS = 60, QUERIES = 20, Q = FAKE_Q_HEADS * FAKE_HEAD_DIM, KV = FAKE_KV_HEADS * FAKE_HEAD_DIM };

static struct ha_why why;
static const char text[] =
    "then in the thin air the other, another; 12 er \303\251\n\nthe theory is there and in it he erred\n";
static char model_path[TEST_PATH_MAX], text_path[TEST_PATH_MAX], trace_path[TEST_PATH_MAX];

static int begin(void **state)
{
    if (test_folder_make(state) != 0) return -1;
    snprintf(model_path, sizeof model_path, "%s", test_path("m.gguf"));
    snprintf(text_path, sizeof text_path, "%s", test_path("t.txt"));
    snprintf(trace_path, sizeof trace_path, "%s", test_path("x.safetensors"));
    test_write("t.txt", text, strlen(text));
    return 0;
}

static void write_model(const struct fake_model *of)
{
    struct fake_gguf g;
    fake_model(&g, of);
    test_write("m.gguf", g.bytes, g.count);
    free(g.bytes);
}

static struct ha_capture capture_of(enum ha_dtype dtype)
{
    return (struct ha_capture){
        .model = model_path, .text = text_path, .out = trace_path, .tokens = TOKENS, .queries = QUERIES, .dtype = dtype
    };
}

/* ---- beside the forward pass ------------------------------------------------------------------------------------- */

static float x[TOKENS * FAKE_MODEL_DIM], k[FAKE_LAYERS][TOKENS * KV], v[FAKE_LAYERS][TOKENS * KV],
    q[FAKE_LAYERS][TOKENS * Q];

/* All layers in one call each; the mean of -log p of the tokens from `from` on. */
static double forward(size_t from)
{
    static float o[TOKENS * Q], scratch[TOKENS * 400], logits[TOKENS * 300];
    struct ha_gguf *file;
    struct ha_tokenizer *tokenizer;
    struct ha_transformer model;
    uint32_t token[TOKENS];
    size_t position[TOKENS], count;
    double loss = 0;
    assert_int_equal(ha_gguf_open(&file, model_path, &why), HA_OK);
    assert_int_equal(ha_tokenizer_open(&tokenizer, file, &why), HA_OK);
    assert_int_equal(ha_transformer_open(&model, file, &why), HA_OK);
    assert_int_equal(ha_tokenizer_encode(tokenizer, text, strlen(text), token, TOKENS, &count, &why), HA_OK);
    assert_int_equal(count, TOKENS);
    for (size_t t = 0; t < TOKENS; t++) position[t] = t;
    ha_transformer_embed(&model, token, TOKENS, x);
    for (size_t l = 0; l < FAKE_LAYERS; l++) {
        ha_transformer_before(&model, l, x, position, TOKENS, q[l], k[l], v[l], scratch);
        ha_transformer_attend(&model, q[l], k[l], v[l], 0, TOKENS, o, scratch);
        ha_transformer_behind(&model, l, o, TOKENS, x, scratch);
    }
    ha_transformer_logits(&model, x, TOKENS, logits, scratch);
    for (size_t t = from; t + 1 < TOKENS; t++) {
        double sum = 0;
        for (size_t w = 0; w < model.sizes.vocabulary; w++) sum += exp((double)logits[t * model.sizes.vocabulary + w]);
        loss += log(sum) - (double)logits[t * model.sizes.vocabulary + token[t + 1]];
    }
    ha_transformer_close(&model);
    ha_tokenizer_close(tokenizer);
    ha_gguf_close(file);
    return loss / (double)(TOKENS - 1 - from);
}

static struct ha_shape open_trace(struct ha_source **of, enum ha_dtype dtype)
{
    struct ha_shape shape = { .dtype = dtype, .batch = 1 };
    if (ha_dataset_trace.open(&ha_dataset_trace, of, &shape, TOKENS, 1, trace_path, &why) != HA_OK)
        fail_msg("%s", why.text);
    return shape;
}

static double off(const float *got, const float *want, size_t n)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        size += (double)want[i] * (double)want[i];
    }
    return sqrt(difference / size);
}

/* Of every layer, head and token: what the trace has is what the model made, to this relative error. */
static void same(struct ha_source *of, enum ha_dtype dtype, size_t first_layer, size_t layers, double tolerance)
{
    float got[FAKE_HEAD_DIM], value[FAKE_HEAD_DIM], input[FAKE_MODEL_DIM];
    double query[Q];
    for (size_t l = 0; l < layers; l++)
        for (size_t t = 0; t < TOKENS; t++) {
            for (size_t h = 0; h < FAKE_KV_HEADS; h++) {
                const size_t at = t * KV + h * FAKE_HEAD_DIM;
                float stored[2][FAKE_HEAD_DIM];
                ha_dataset_trace.kv(of, 0, l, h, t, 1, stored[0], stored[1]);
                ha_load_row(stored[0], FAKE_HEAD_DIM, dtype, got);
                ha_load_row(stored[1], FAKE_HEAD_DIM, dtype, value);
                assert_true(off(got, k[first_layer + l] + at, FAKE_HEAD_DIM) <= tolerance);
                assert_true(off(value, v[first_layer + l] + at, FAKE_HEAD_DIM) <= tolerance);
            }
            if (t < TOKENS - QUERIES) continue;
            const struct ha_projection p = ha_dataset_trace.projection(of, l);
            ha_dataset_trace.input(of, 0, l, t, input);
            ha_projection_query(&p, FAKE_Q_HEADS, FAKE_HEAD_DIM, FAKE_MODEL_DIM, input, t, query, NULL);
            for (size_t h = 0; h < FAKE_Q_HEADS; h++) {
                float made[FAKE_HEAD_DIM];
                for (size_t i = 0; i < FAKE_HEAD_DIM; i++) made[i] = (float)query[h * FAKE_HEAD_DIM + i];
                ha_dataset_trace.query(of, 0, l, h, t, got);
                assert_true(off(got, q[first_layer + l] + t * Q + h * FAKE_HEAD_DIM, FAKE_HEAD_DIM) <= tolerance);
                assert_true(off(made, got, FAKE_HEAD_DIM) <= 4 * tolerance);
            }
        }
}

TEST_WITH(a_trace_has_what_the_model_made, begin, test_folder_remove)
{
    static const struct fake_model models[] = {
        { .type = 0 },
        { .architecture = "qwen2", .bias = true, .type = 1, .head = true },
        { .architecture = "qwen3", .norm = true, .type = 2, .first = true },
    };
    for (size_t i = 0; i < COUNT(models); i++)
        for (enum ha_dtype dtype = HA_F32; dtype <= HA_BF16; dtype++) {
            const double tolerance = dtype == HA_F32 ? 1e-5 : dtype == HA_F16 ? 2e-3 : 1e-2;
            struct ha_captured captured;
            struct ha_source *of;
            const struct ha_capture c = capture_of(dtype);
            write_model(&models[i]);
            if (ha_capture(&c, &captured, &why) != HA_OK) fail_msg("%s", why.text);
            const double loss = forward(0);
            assert_true(fabs(captured.loss - loss) < 1e-5 * loss);
            assert_true(fabs(captured.last_loss - forward(TOKENS - 1 - TOKENS / 4)) < 1e-5 * loss);
            const struct ha_shape shape = open_trace(&of, dtype);
            assert_true(shape.layers == FAKE_LAYERS && shape.q_heads == FAKE_Q_HEADS && shape.kv_heads == FAKE_KV_HEADS
                        && shape.head_dim == FAKE_HEAD_DIM && shape.model_dim == FAKE_MODEL_DIM);
            same(of, dtype, 0, FAKE_LAYERS, tolerance);
            ha_dataset_trace.close(of);
        }
}

TEST_WITH(a_slice_has_its_own_layers, begin, test_folder_remove)
{
    struct ha_captured captured;
    struct ha_source *of;
    struct ha_capture c = capture_of(HA_F32);
    c.first_layer = 1;
    write_model(&(struct fake_model){ .type = 0 });
    assert_int_equal(ha_capture(&c, &captured, &why), HA_OK);
    forward(0);
    assert_int_equal(open_trace(&of, HA_F32).layers, 1);
    same(of, HA_F32, 1, 1, 1e-5);
    ha_dataset_trace.close(of);
}

TEST_WITH(what_cannot_be_captured_leaves_nothing, begin, test_folder_remove)
{
    const struct ha_capture right = capture_of(HA_F16);
    char few[TEST_PATH_MAX];
    struct ha_capture of[7];
    for (size_t i = 0; i < COUNT(of); i++) of[i] = right;
    static const char *const reason[] = { "takes 2 to 96",
                                          "takes 2 to 96",
                                          "1 to 60, the tokens",
                                          "the model has 0 to 1",
                                          "the model has 0 to 1",
                                          "cannot open",
                                          "has 3 tokens, of 60 that are asked for" };
    of[0].tokens = 97;
    of[1].tokens = 1;
    of[2].queries = 61;
    of[3].first_layer = 2;
    of[4].first_layer = 1, of[4].layers = 2;
    of[5].text = "nosuch";
    of[6].text = strcpy(few, test_path("few.txt"));
    struct ha_captured captured;
    write_model(&(struct fake_model){ .type = 0 });
    test_write("few.txt", "theta", 5); /* the|t|a */
    for (size_t i = 0; i < COUNT(of); i++) {
        assert_int_equal(ha_capture(&of[i], &captured, &why), HA_ERROR);
        assert_contains(why.text, reason[i]);
        assert_int_not_equal(access(trace_path, F_OK), 0);
    }
    ha_stop = 2;
    assert_int_equal(ha_capture(&right, &captured, &why), HA_ERROR);
    ha_stop = 0;
    assert_contains(why.text, "interrupted");
    assert_int_not_equal(access(trace_path, F_OK), 0);
}
