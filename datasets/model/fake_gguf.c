#include "datasets/model/fake_gguf.h"

#include "harness/base/array.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 32 };

static void put(struct fake_gguf *g, const void *data, size_t bytes)
{
    if (!ha_array_room(&g->bytes, &g->room, g->count + bytes, 1)) abort();
    memcpy(g->bytes + g->count, data, bytes);
    g->count += bytes;
}
static void put32(struct fake_gguf *g, uint32_t x) { put(g, &x, sizeof x); }
static void put64(struct fake_gguf *g, uint64_t x) { put(g, &x, sizeof x); }
static void put_text(struct fake_gguf *g, const char *text)
{
    put64(g, strlen(text));
    put(g, text, strlen(text));
}

void fake_gguf_begin(struct fake_gguf *g, uint64_t tensors, uint64_t keys)
{
    *g = (struct fake_gguf){ 0 };
    put(g, "GGUF", 4);
    put32(g, 3);
    put64(g, tensors);
    put64(g, keys);
}

void fake_gguf_text(struct fake_gguf *g, const char *key, const char *value)
{
    put_text(g, key);
    put32(g, 8);
    put_text(g, value);
}

void fake_gguf_u32(struct fake_gguf *g, const char *key, uint32_t value)
{
    put_text(g, key);
    put32(g, 4);
    put32(g, value);
}

void fake_gguf_f32(struct fake_gguf *g, const char *key, float value)
{
    put_text(g, key);
    put32(g, 6);
    put(g, &value, sizeof value);
}

void fake_gguf_texts(struct fake_gguf *g, const char *key, const char *const *value, size_t count)
{
    put_text(g, key);
    put32(g, 9);
    put32(g, 8);
    put64(g, count);
    for (size_t i = 0; i < count; i++) put_text(g, value[i]);
}

void fake_gguf_tensor(struct fake_gguf *g, const char *name, size_t rows, size_t columns, uint32_t type,
                      const void *data, size_t bytes)
{
    const size_t end = (g->data + bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    put_text(g, name);
    put32(g, rows ? 2 : 1); /* rows 0: a vector */
    put64(g, columns);
    if (rows) put64(g, rows);
    put32(g, type);
    put64(g, g->data);
    if (!ha_array_room(&g->tensor, &g->tensor_room, end, 1)) abort();
    memset(g->tensor + g->data, 0, end - g->data);
    if (data) memcpy(g->tensor + g->data, data, bytes);
    g->data = end;
}

void fake_gguf_end(struct fake_gguf *g)
{
    static const char zeros[ALIGNMENT];
    if (g->data) put(g, zeros, (ALIGNMENT - g->count % ALIGNMENT) % ALIGNMENT);
    if (g->data) put(g, g->tensor, g->data);
    free(g->tensor);
    g->tensor = NULL;
}

/* ---- a model ----------------------------------------------------------------------------------------------------- */

static const char *const merges[] = { "t h", "th e", "\304\240 the", "i n", "\304\240 a", "e r", "\304\212 \304\212" };
enum { MERGES = sizeof merges / sizeof *merges, VOCABULARY = 256 + MERGES + 1, TEXT = 16 };

/* Bytes that print are themselves, the others U+0100 and on; then what merges make, and a first token. */
static void put_vocabulary(struct fake_gguf *g)
{
    static char text[VOCABULARY][TEXT];
    const char *list[VOCABULARY];
    unsigned next = 0x100;
    for (unsigned b = 0; b < 256; b++) {
        const bool prints = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        const unsigned c = prints ? b : next++;
        if (c < 128) snprintf(text[b], TEXT, "%c", (char)c);
        else snprintf(text[b], TEXT, "%c%c", (char)(0xc0 | c >> 6), (char)(0x80 | (c & 63)));
    }
    for (size_t i = 0; i < MERGES; i++) {
        const char *blank = strchr(merges[i], ' ');
        snprintf(text[256 + i], TEXT, "%.*s%s", (int)(blank - merges[i]), merges[i], blank + 1);
    }
    snprintf(text[VOCABULARY - 1], TEXT, "<|first|>");
    for (size_t i = 0; i < VOCABULARY; i++) list[i] = text[i];
    fake_gguf_texts(g, "tokenizer.ggml.tokens", list, VOCABULARY);
    fake_gguf_texts(g, "tokenizer.ggml.merges", merges, MERGES);
}

/* Numbers of about 1 / sqrt(columns) in each type: nothing grows from layer to layer. */
static void put_weights(struct fake_gguf *g, const char *name, size_t rows, size_t columns, uint32_t type, float offset)
{
    static uint64_t stream;
    const size_t n = (rows ? rows : 1) * columns;
    float *x = malloc(n * sizeof *x);
    unsigned char *out = calloc(n, 4);
    size_t bytes = 0;
    if (!x || !out) abort();
    ha_rng_normals(45, ++stream, 0, n, x);
    for (size_t i = 0; i < n; i++) x[i] = offset + x[i] / (offset > 0 ? 8 : sqrtf((float)columns));
    for (size_t i = 0; i < n && type == 0; i++, bytes += 4) memcpy(out + bytes, &x[i], 4);
    for (size_t i = 0; i < n && type == 1; i++, bytes += 2) ha_store(out, i, HA_F16, x[i]);
    const size_t block = type == 2 ? 18 : 34; /* a scale as f16, and 32 numbers of 4 or 8 bits */
    for (size_t i = 0; i < n && type > 1; i += 32, bytes += block) {
        const float d = type == 2 ? 0.4F / sqrtf((float)columns) : 0.03F / sqrtf((float)columns);
        ha_store(out + bytes, 0, HA_F16, d);
        for (size_t k = 0; k < 32; k++) {
            const long q = lrintf(fmaxf(-8, fminf(7, x[i + k] / d)));
            if (type == 2) out[bytes + 2 + k % 16] |= (unsigned char)((q + 8) << (k < 16 ? 0 : 4));
            else out[bytes + 2 + k] = (unsigned char)(signed char)lrintf(fmaxf(-127, fminf(127, x[i + k] / d)));
        }
    }
    fake_gguf_tensor(g, name, rows, columns, type, out, bytes);
    free(x);
    free(out);
}

static void put_layer(struct fake_gguf *g, const struct fake_model *of, size_t layer)
{
    enum { Q = FAKE_Q_HEADS * FAKE_HEAD_DIM, KV = FAKE_KV_HEADS * FAKE_HEAD_DIM };
    const struct {
        const char *name;
        size_t rows, columns; /* rows 0: a vector, which is F32 */
        bool there;
    } weights[] = {
        { "attn_norm.weight", 0, FAKE_MODEL_DIM, true },
        { "ffn_norm.weight", 0, FAKE_MODEL_DIM, true },
        { "attn_q.weight", Q, FAKE_MODEL_DIM, true },
        { "attn_k.weight", KV, FAKE_MODEL_DIM, true },
        { "attn_v.weight", KV, FAKE_MODEL_DIM, true },
        { "attn_output.weight", FAKE_MODEL_DIM, Q, true },
        { "ffn_gate.weight", FAKE_FEED, FAKE_MODEL_DIM, true },
        { "ffn_up.weight", FAKE_FEED, FAKE_MODEL_DIM, true },
        { "ffn_down.weight", FAKE_MODEL_DIM, FAKE_FEED, true },
        { "attn_q.bias", 0, Q, of->bias },
        { "attn_k.bias", 0, KV, of->bias },
        { "attn_v.bias", 0, KV, of->bias },
        { "attn_q_norm.weight", 0, FAKE_HEAD_DIM, of->norm },
        { "attn_k_norm.weight", 0, FAKE_HEAD_DIM, of->norm },
    };
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%zu.%s", layer, weights[i].name);
        const bool is_norm = strstr(name, "norm") != NULL;
        if (weights[i].there)
            put_weights(g, name, weights[i].rows, weights[i].columns, weights[i].rows ? of->type : 0, is_norm ? 1 : 0);
    }
}

void fake_model(struct fake_gguf *g, const struct fake_model *of)
{
    static const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {
        { "block_count", FAKE_LAYERS },           { "embedding_length", FAKE_MODEL_DIM },
        { "feed_forward_length", FAKE_FEED },     { "context_length", FAKE_CONTEXT },
        { "attention.head_count", FAKE_Q_HEADS }, { "attention.head_count_kv", FAKE_KV_HEADS },
    };
    enum { NUMBERS = sizeof numbers / sizeof *numbers };
    const char *architecture = of->architecture ? of->architecture : "llama";
    char key[64];
    const size_t of_layer = 9U + (of->bias ? 3 : 0) + (of->norm ? 2 : 0);
    fake_gguf_begin(g, 2U + (of->head ? 1 : 0) + (of->scaled ? 1 : 0) + FAKE_LAYERS * of_layer,
                    NUMBERS + 8U + (of->first ? 2 : 0) + (of->window ? 1 : 0));
    fake_gguf_text(g, "general.architecture", architecture);
    fake_gguf_text(g, "general.name", "a fake");
    for (size_t i = 0; i < NUMBERS; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, numbers[i].key);
        fake_gguf_u32(g, key, numbers[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", architecture);
    fake_gguf_f32(g, key, 1e-3F);
    snprintf(key, sizeof key, "%s.attention.sliding_window", architecture);
    if (of->window) fake_gguf_u32(g, key, of->window);
    snprintf(key, sizeof key, "%s.rope.freq_base", architecture);
    fake_gguf_f32(g, key, 100);
    fake_gguf_text(g, "tokenizer.ggml.model", "gpt2");
    fake_gguf_text(g, "tokenizer.ggml.pre", "smollm");
    put_vocabulary(g);
    if (of->first) fake_gguf_u32(g, "tokenizer.ggml.add_bos_token", 1);
    if (of->first) fake_gguf_u32(g, "tokenizer.ggml.bos_token_id", VOCABULARY - 1);
    put_weights(g, "token_embd.weight", VOCABULARY, FAKE_MODEL_DIM, of->type, 0);
    put_weights(g, "output_norm.weight", 0, FAKE_MODEL_DIM, 0, 1);
    if (of->scaled) put_weights(g, "rope_freqs.weight", 0, FAKE_HEAD_DIM / 2, 0, 1);
    if (of->head) put_weights(g, "output.weight", VOCABULARY, FAKE_MODEL_DIM, of->type, 0);
    for (size_t i = 0; i < FAKE_LAYERS; i++) put_layer(g, of, i);
    fake_gguf_end(g);
}
