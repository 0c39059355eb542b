/* The forward pass beside the plainest loops in binary64, which share with it no more than the reader of the file. */

#include "datasets/model/fake_gguf.h"
#include "datasets/model/transformer.h"
#include "harness/base/test_folder.h"

#include <math.h>

enum {
    TOKENS = 24,
    D = FAKE_MODEL_DIM,
    HD = FAKE_HEAD_DIM,
    Q = FAKE_Q_HEADS * HD,
    KV = FAKE_KV_HEADS * HD,
    WORDS = 264
};

static struct ha_why why;
static struct fake_gguf bytes;
static struct ha_gguf *file;
static struct ha_transformer model;

static void begin(const struct fake_model *of)
{
    fake_model(&bytes, of);
    if (ha_gguf_parse(&file, "x.gguf", bytes.bytes, bytes.count, &why) != HA_OK
        || ha_transformer_open(&model, file, &why) != HA_OK)
        fail_msg("%s", why.text);
}

static void end(void)
{
    ha_transformer_close(&model);
    ha_gguf_close(file);
    free(bytes.bytes);
}

/* ---- by definition ----------------------------------------------------------------------------------------------- */

static const struct fake_model *fake;

/* A row of blk.LAYER.NAME, or of NAME where the layer is SIZE_MAX; until the next. */
static const float *row_of(size_t layer, const char *name, size_t row)
{
    static float numbers[512];
    char full[64];
    if (layer == SIZE_MAX) snprintf(full, sizeof full, "%s", name);
    else snprintf(full, sizeof full, "blk.%zu.%s", layer, name);
    ha_gguf_row(ha_gguf_find(file, full), row, numbers);
    return numbers;
}

static void multiply(double *out, size_t layer, const char *name, size_t rows, const double *x, size_t columns)
{
    for (size_t r = 0; r < rows; r++) {
        const float *const w = row_of(layer, name, r);
        out[r] = 0;
        for (size_t c = 0; c < columns; c++) out[r] += (double)w[c] * x[c];
    }
}

static void over_norm(double *out, const double *x, size_t layer, const char *name, size_t n)
{
    const float *const w = row_of(layer, name, 0);
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += x[i] * x[i];
    for (size_t i = 0; i < n; i++) out[i] = x[i] / sqrt(squares / (double)n + (double)1e-3F) * (double)w[i];
}

/* Heads of a query or key: bias, norm, rotary embedding of the position. */
static void make_heads(double *x, size_t layer, const char *what, size_t heads, size_t position)
{
    char name[32];
    snprintf(name, sizeof name, "attn_%s.bias", what);
    for (size_t i = 0; fake->bias && i < heads * HD; i++) x[i] += (double)row_of(layer, name, 0)[i];
    snprintf(name, sizeof name, "attn_%s_norm.weight", what);
    const bool adjacent = !fake->architecture || !strcmp(fake->architecture, "llama");
    for (size_t h = 0; h < heads; h++) {
        double *const head = x + h * HD, in[HD];
        if (fake->norm && *what != 'v') over_norm(head, head, layer, name, HD);
        memcpy(in, head, sizeof in);
        for (size_t j = 0; j < HD / 2 && *what != 'v'; j++) {
            const size_t a = adjacent ? 2 * j : j, b = adjacent ? 2 * j + 1 : j + HD / 2;
            const double angle = (double)position * pow(100, -2.0 * (double)j / HD);
            head[a] = in[a] * cos(angle) - in[b] * sin(angle);
            head[b] = in[b] * cos(angle) + in[a] * sin(angle);
        }
    }
}

static double x64[TOKENS][D], q64[TOKENS][Q], k64[TOKENS][KV], v64[TOKENS][KV], o64[TOKENS][Q], logits64[TOKENS][WORDS];

static void layer_by_definition(size_t layer)
{
    double y[D], up[FAKE_FEED], gate[FAKE_FEED], part[D];
    for (size_t t = 0; t < TOKENS; t++) {
        over_norm(y, x64[t], layer, "attn_norm.weight", D);
        multiply(q64[t], layer, "attn_q.weight", Q, y, D);
        multiply(k64[t], layer, "attn_k.weight", KV, y, D);
        multiply(v64[t], layer, "attn_v.weight", KV, y, D);
        make_heads(q64[t], layer, "q", FAKE_Q_HEADS, t);
        make_heads(k64[t], layer, "k", FAKE_KV_HEADS, t);
        make_heads(v64[t], layer, "v", FAKE_KV_HEADS, t);
    }
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t h = 0; h < FAKE_Q_HEADS; h++) {
            const size_t g = h / (FAKE_Q_HEADS / FAKE_KV_HEADS) * HD;
            double e[TOKENS], sum = 0;
            for (size_t s = 0; s <= t; s++) {
                double score = 0;
                for (size_t i = 0; i < HD; i++) score += q64[t][h * HD + i] * k64[s][g + i];
                sum += e[s] = exp(score / sqrt(HD));
            }
            for (size_t i = 0; i < HD; i++) {
                o64[t][h * HD + i] = 0;
                for (size_t s = 0; s <= t; s++) o64[t][h * HD + i] += e[s] / sum * v64[s][g + i];
            }
        }
    for (size_t t = 0; t < TOKENS; t++) {
        multiply(part, layer, "attn_output.weight", D, o64[t], Q);
        for (size_t i = 0; i < D; i++) x64[t][i] += part[i];
        over_norm(y, x64[t], layer, "ffn_norm.weight", D);
        multiply(gate, layer, "ffn_gate.weight", FAKE_FEED, y, D);
        multiply(up, layer, "ffn_up.weight", FAKE_FEED, y, D);
        for (size_t i = 0; i < FAKE_FEED; i++) gate[i] *= up[i] / (1 + exp(-gate[i]));
        multiply(part, layer, "ffn_down.weight", D, gate, FAKE_FEED);
        for (size_t i = 0; i < D; i++) x64[t][i] += part[i];
    }
}

/* ---- beside it --------------------------------------------------------------------------------------------------- */

static void near(const char *what, const float *got, const double *want, size_t n, double tolerance)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += want[i] * want[i];
    }
    if (!(sqrt(difference) <= tolerance * sqrt(size))) fail_msg("%s: off by %g", what, sqrt(difference / size));
}

static float x[TOKENS][D], q[TOKENS][Q], k[TOKENS][KV], v[TOKENS][KV], o[TOKENS][Q], logits[TOKENS][WORDS];
static float scratch[TOKENS * (D + WORDS + 2 * FAKE_FEED)];

/* The rows of a call: all at once, or in parts of `rows`. */
static void run(const uint32_t *token, size_t rows)
{
    size_t position[TOKENS];
    for (size_t t = 0; t < TOKENS; t++) position[t] = t;
    for (size_t t = 0; t < TOKENS; t += rows) ha_transformer_embed(&model, token + t, rows, x[t]);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t i = 0; i < D; i++) x64[t][i] = (double)row_of(SIZE_MAX, "token_embd.weight", token[t])[i];
    for (size_t l = 0; l < FAKE_LAYERS; l++) {
        layer_by_definition(l);
        for (size_t t = 0; t < TOKENS; t += rows)
            ha_transformer_before(&model, l, x[t], position + t, rows, q[t], k[t], v[t], scratch);
        for (size_t t = 0; t < TOKENS; t += rows)
            ha_transformer_attend(&model, q[t], k[0], v[0], t, rows, o[t], scratch);
        near("q", q[0], q64[0], TOKENS * Q, 1e-5);
        near("k", k[0], k64[0], TOKENS * KV, 1e-5);
        near("v", v[0], v64[0], TOKENS * KV, 1e-5);
        near("o", o[0], o64[0], TOKENS * Q, 1e-5);
        for (size_t t = 0; t < TOKENS; t += rows) ha_transformer_behind(&model, l, o[t], rows, x[t], scratch);
        near("x", x[0], x64[0], TOKENS * D, 1e-5);
    }
    for (size_t t = 0; t < TOKENS; t++) {
        double y[D];
        over_norm(y, x64[t], SIZE_MAX, "output_norm.weight", D);
        multiply(logits64[t], SIZE_MAX, fake->head ? "output.weight" : "token_embd.weight", WORDS, y, D);
    }
    for (size_t t = 0; t < TOKENS; t += rows) ha_transformer_logits(&model, x[t], rows, logits[t], scratch);
    near("logits", logits[0], logits64[0], TOKENS * WORDS, 1e-5);
}

TEST(the_forward_pass_is_that_of_the_definition)
{
    static const struct fake_model models[] = {
        { .type = 0 },
        { .type = 1, .head = true },
        { .architecture = "qwen2", .bias = true, .type = 8 },
        { .architecture = "qwen3", .norm = true, .type = 2, .head = true },
    };
    uint32_t token[TOKENS];
    for (size_t t = 0; t < TOKENS; t++) token[t] = (uint32_t)(t * 37 % WORDS);
    for (size_t i = 0; i < COUNT(models); i++) {
        fake = &models[i];
        begin(fake);
        assert_int_equal(model.sizes.vocabulary, WORDS);
        run(token, TOKENS);
        run(token, 3);
        run(token, 1);
        end();
    }
}

/* ---- files that it cannot be read from --------------------------------------------------------------------------- */

/* The model with one text in it put in place of another of the same length. */
static void refused(const char *from, const char *to, const char *reason)
{
    struct fake_gguf g;
    struct ha_gguf *of;
    size_t found = 0;
    fake_model(&g, &(struct fake_model){ .type = 1 });
    for (size_t i = 0; i + strlen(from) < g.count; i++)
        if (!memcmp(g.bytes + i, from, strlen(from)) && !found++) memcpy(g.bytes + i, to, strlen(from));
    assert_true(found > 0);
    assert_int_equal(ha_gguf_parse(&of, "x.gguf", g.bytes, g.count, &why), HA_OK);
    assert_int_equal(ha_transformer_open(&model, of, &why), HA_ERROR);
    assert_contains(why.text, reason);
    assert_null(model.numbers);
    ha_gguf_close(of);
    free(g.bytes);
}

TEST(a_model_of_another_kind_is_refused_with_the_cause)
{
    refused("llama", "gemma", "its architecture is 'gemma'; llama, qwen2 and qwen3");
    refused("llama.block_count", "llama.block_cound", "it has no llama.block_count");
    refused("blk.1.ffn_up.weight", "blk.1.ffn_op.weight", "it has no tensor blk.1.ffn_up.weight");
    refused("blk.1.attn_k.weight", "blk.1.attn_q.weigh_", "it has no tensor blk.1.attn_k.weight");
}

TEST(attention_that_is_not_full_and_turns_that_are_scaled_are_refused)
{
    static const struct {
        struct fake_model model;
        const char *reason;
    } each[] = { { { .window = FAKE_CONTEXT / 2 }, "a window of 48 tokens" },
                 { { .scaled = true }, "rope_freqs.weight" } };
    for (size_t i = 0; i < COUNT(each); i++) {
        fake_model(&bytes, &each[i].model);
        assert_int_equal(ha_gguf_parse(&file, "x.gguf", bytes.bytes, bytes.count, &why), HA_OK);
        assert_int_equal(ha_transformer_open(&model, file, &why), HA_ERROR);
        assert_contains(why.text, each[i].reason);
        end();
    }
    begin(&(struct fake_model){ .window = FAKE_CONTEXT }); /* no token is farther away */
    end();
}
