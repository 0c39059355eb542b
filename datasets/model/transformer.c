#include "datasets/model/transformer.h"

#include "harness/base/blas.h"
#include "harness/base/why.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

/* GGUF files of the first kind have rows of W_Q and W_K put into another order, so that neighbours turn together. */
static const struct architecture {
    const char *name;
    bool adjacent;
} architectures[] = { { "llama", true }, { "qwen2", false }, { "qwen3", false } };
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

static bool number_of(const struct ha_gguf *file, const char *architecture, const char *key, double *out)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", architecture, key);
    return ha_gguf_number(file, name, out);
}

enum { SIZE_MAX_READ = 1 << 24, LAYERS_MAX = 4096 };

/* A whole number above 0. */
static enum ha_status size_of(const struct ha_gguf *file, const char *architecture, const char *key, size_t *out,
                              struct ha_why *why)
{
    double x = (double)*out;
    const bool has = number_of(file, architecture, key, &x);
    if (!has && !*out) return ha_why(why, HA_ERROR, "it has no %s.%s", architecture, key);
    if (!(x >= 1 && x <= SIZE_MAX_READ && x == floor(x)))
        return ha_why(why, HA_ERROR, "%s.%s is %g, and not a number of them", architecture, key, x);
    *out = (size_t)x;
    return HA_OK;
}

static void copy_text(char out[64], const struct ha_gguf *file, const char *key)
{
    struct ha_gguf_text text = { "unknown", 7 };
    ha_gguf_text(file, key, &text);
    snprintf(out, 64, "%.*s", (int)(text.length & 63), text.text);
}

static enum ha_status take_architecture(struct ha_transformer_sizes *s, const struct ha_gguf *file, struct ha_why *why)
{
    struct ha_gguf_text name = { "", 0 };
    ha_gguf_text(file, "general.architecture", &name);
    for (size_t i = 0; i < ARCHITECTURES; i++) {
        if (name.length != strlen(architectures[i].name) || memcmp(name.text, architectures[i].name, name.length) != 0)
            continue;
        s->adjacent = architectures[i].adjacent;
        snprintf(s->architecture, sizeof s->architecture, "%s", architectures[i].name);
        copy_text(s->name, file, "general.name");
        copy_text(s->licence, file, "general.license");
        return HA_OK;
    }
    return ha_why(why, HA_ERROR, "its architecture is '%.*s'; llama, qwen2 and qwen3 are read here",
                  (int)(name.length & 63), name.text);
}

static enum ha_status take_sizes(struct ha_transformer_sizes *s, const struct ha_gguf *file, struct ha_why *why)
{
    char scaling[96];
    struct ha_gguf_text text;
    *s = (struct ha_transformer_sizes){ .rope_theta = 10000 };
    HA_TRY(take_architecture(s, file, why));
    const char *const a = s->architecture;
    HA_TRY(size_of(file, a, "block_count", &s->layers, why));
    HA_TRY(size_of(file, a, "embedding_length", &s->model_dim, why));
    HA_TRY(size_of(file, a, "feed_forward_length", &s->feed_forward, why));
    HA_TRY(size_of(file, a, "context_length", &s->context, why));
    HA_TRY(size_of(file, a, "attention.head_count", &s->q_heads, why));
    s->kv_heads = s->q_heads;
    HA_TRY(size_of(file, a, "attention.head_count_kv", &s->kv_heads, why));
    s->head_dim = s->model_dim / s->q_heads;
    HA_TRY(size_of(file, a, "attention.key_length", &s->head_dim, why));
    s->rotary = s->head_dim;
    HA_TRY(size_of(file, a, "rope.dimension_count", &s->rotary, why));
    if (s->layers > LAYERS_MAX) return ha_why(why, HA_ERROR, "%zu layers are more than can be", s->layers);
    if (s->q_heads % s->kv_heads || s->rotary > s->head_dim || s->rotary % 2)
        return ha_why(why, HA_ERROR,
                      "%zu query heads over %zu KV heads, or %zu of %zu dimensions that turn: neither can be",
                      s->q_heads, s->kv_heads, s->rotary, s->head_dim);
    number_of(file, a, "rope.freq_base", &s->rope_theta);
    if (!number_of(file, a, "attention.layer_norm_rms_epsilon", &s->norm_eps))
        return ha_why(why, HA_ERROR, "it has no %s.attention.layer_norm_rms_epsilon", a);
    double window = 0;
    number_of(file, a, "attention.sliding_window", &window);
    if (window > 0 && window < (double)s->context)
        return ha_why(why, HA_ERROR, "its attention has a window of %g tokens; full causal attention is run here",
                      window);
    if (ha_gguf_find(file, "rope_freqs.weight"))
        return ha_why(why, HA_ERROR, "its rotary embedding is scaled (rope_freqs.weight), which is not read here");
    snprintf(scaling, sizeof scaling, "%s.rope.scaling.type", a);
    if (ha_gguf_text(file, scaling, &text) && (text.length != 4 || memcmp(text.text, "none", 4) != 0))
        return ha_why(why, HA_ERROR, "its rotary embedding is scaled (%.*s), which is not read here",
                      (int)(text.length & 63), text.text);
    s->q_bias = ha_gguf_find(file, "blk.0.attn_q.bias") != NULL;
    s->q_norm = ha_gguf_find(file, "blk.0.attn_q_norm.weight") != NULL;
    return HA_OK;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

enum size { ONE, MODEL, QUERIES, KEYS, HEAD, FEED, VOCABULARY };

static size_t size_in(const struct ha_transformer_sizes *s, enum size of)
{
    switch (of) {
    case MODEL: return s->model_dim;
    case QUERIES: return s->q_heads * s->head_dim;
    case KEYS: return s->kv_heads * s->head_dim;
    case HEAD: return s->head_dim;
    case FEED: return s->feed_forward;
    case VOCABULARY: return s->vocabulary;
    default: return 1;
    }
}

enum wanted { ALWAYS, WITH_BIAS, WITH_NORM };
#define AT(member) offsetof(struct ha_transformer_layer, member)
static const struct weight {
    const char *name; /* blk.LAYER.NAME */
    size_t at;        /* of its pointer in struct ha_transformer_layer */
    enum size rows, columns;
    enum wanted wanted;
} weights[] = {
    { "attn_norm.weight", AT(attn_norm), ONE, MODEL, ALWAYS },
    { "attn_q.weight", AT(wq), QUERIES, MODEL, ALWAYS },
    { "attn_k.weight", AT(wk), KEYS, MODEL, ALWAYS },
    { "attn_v.weight", AT(wv), KEYS, MODEL, ALWAYS },
    { "attn_q.bias", AT(q_bias), ONE, QUERIES, WITH_BIAS },
    { "attn_k.bias", AT(k_bias), ONE, KEYS, WITH_BIAS },
    { "attn_v.bias", AT(v_bias), ONE, KEYS, WITH_BIAS },
    { "attn_q_norm.weight", AT(q_norm), ONE, HEAD, WITH_NORM },
    { "attn_k_norm.weight", AT(k_norm), ONE, HEAD, WITH_NORM },
    { "attn_output.weight", AT(wo), MODEL, QUERIES, ALWAYS },
    { "ffn_norm.weight", AT(ffn_norm), ONE, MODEL, ALWAYS },
    { "ffn_gate.weight", AT(gate), FEED, MODEL, ALWAYS },
    { "ffn_up.weight", AT(up), FEED, MODEL, ALWAYS },
    { "ffn_down.weight", AT(down), MODEL, FEED, ALWAYS },
};
#undef AT
enum { WEIGHTS = sizeof weights / sizeof *weights };

static bool wants(const struct ha_transformer_sizes *s, const struct weight *w)
{
    return w->wanted == ALWAYS || (w->wanted == WITH_BIAS && s->q_bias) || (w->wanted == WITH_NORM && s->q_norm);
}

/* Where the next numbers go. */
struct loader {
    const struct ha_gguf *file;
    float *next;
    size_t left;
    struct ha_why *why;
};

static enum ha_status load(struct loader *l, const char *name, size_t rows, size_t columns, const float **out)
{
    const struct ha_gguf_tensor *t = ha_gguf_find(l->file, name);
    if (!t) return ha_why(l->why, HA_ERROR, "it has no tensor %s", name);
    if (t->dim[0] != columns || t->dim[1] != rows || t->dim[2] != 1 || t->dim[3] != 1)
        return ha_why(l->why, HA_ERROR, "%s is %zu by %zu, and not %zu by %zu", name, t->dim[1], t->dim[0], rows,
                      columns);
    if (rows > l->left / columns) return ha_why(l->why, HA_ERROR, "%s is larger than the file says", name);
    for (size_t r = 0; r < rows; r++) ha_gguf_row(t, r, l->next + r * columns);
    *out = l->next;
    l->next += rows * columns;
    l->left -= rows * columns;
    return HA_OK;
}

static enum ha_status load_layer(struct loader *l, struct ha_transformer *m, size_t layer)
{
    for (const struct weight *w = weights; w < weights + WEIGHTS; w++) {
        char name[64];
        const float *numbers;
        if (!wants(&m->sizes, w)) continue;
        snprintf(name, sizeof name, "blk.%zu.%s", layer, w->name);
        HA_TRY(load(l, name, size_in(&m->sizes, w->rows), size_in(&m->sizes, w->columns), &numbers));
        memcpy((char *)&m->layer[layer] + w->at, &numbers, sizeof numbers);
    }
    return HA_OK;
}

/* How many numbers all weights are; 0: more than there can be. */
static size_t count_numbers(const struct ha_transformer_sizes *s, bool head)
{
    double count = (double)s->vocabulary * (double)s->model_dim * (head ? 2 : 1) + (double)s->model_dim;
    for (const struct weight *w = weights; w < weights + WEIGHTS; w++)
        if (wants(s, w)) count += (double)s->layers * (double)size_in(s, w->rows) * (double)size_in(s, w->columns);
    return count < 0x1p40 ? (size_t)count : 0;
}

static enum ha_status load_all(struct ha_transformer *m, const struct ha_gguf *file, struct ha_why *why)
{
    struct ha_transformer_sizes *s = &m->sizes;
    const struct ha_gguf_tensor *embedding = ha_gguf_find(file, "token_embd.weight");
    const bool head = ha_gguf_find(file, "output.weight") != NULL;
    if (!embedding) return ha_why(why, HA_ERROR, "it has no tensor token_embd.weight");
    s->vocabulary = embedding->dim[1];
    struct loader l = { .file = file, .left = count_numbers(s, head), .why = why };
    m->layer = calloc(s->layers, sizeof *m->layer);
    m->inv_freq = malloc((s->rotary / 2 + 1) * sizeof *m->inv_freq);
    m->numbers = l.next = l.left ? malloc(l.left * sizeof(float)) : NULL;
    if (!m->layer || !m->inv_freq || !l.next)
        return ha_why(why, HA_ERROR, "out of memory: its weights take %.1f GB", (double)l.left * 4e-9);
    HA_TRY(load(&l, "token_embd.weight", s->vocabulary, s->model_dim, &m->embedding));
    HA_TRY(load(&l, "output_norm.weight", 1, s->model_dim, &m->norm));
    m->head = m->embedding;
    if (head) HA_TRY(load(&l, "output.weight", s->vocabulary, s->model_dim, &m->head));
    for (size_t i = 0; i < s->layers; i++) HA_TRY(load_layer(&l, m, i));
    for (size_t j = 0; j < s->rotary / 2; j++)
        m->inv_freq[j] = (float)pow(s->rope_theta, -2 * (double)j / (double)s->rotary);
    return HA_OK;
}

enum ha_status ha_transformer_open(struct ha_transformer *m, const struct ha_gguf *file, struct ha_why *why)
{
    *m = (struct ha_transformer){ 0 };
    if (!ha_blas()->sgemm) return ha_why(why, HA_ERROR, "%s", ha_blas()->no_blas);
    enum ha_status status = take_sizes(&m->sizes, file, why);
    if (status == HA_OK) status = load_all(m, file, why);
    if (status != HA_OK) ha_transformer_close(m);
    return status;
}

void ha_transformer_close(struct ha_transformer *m)
{
    free(m->layer);
    free(m->inv_freq);
    free(m->numbers);
    *m = (struct ha_transformer){ 0 };
}

/* ---- one part after the other ------------------------------------------------------------------------------------ */

/* out [rows][to] (+)= x [rows][from] W^T, W [to][from] */
static void product(const float *x, const float *w, size_t rows, size_t from, size_t to, float onto, float *out)
{
    ha_blas()->sgemm(HA_CBLAS_ROWS, HA_CBLAS_AS_IS, HA_CBLAS_TRANSPOSED, (int)rows, (int)to, (int)from, 1, x, (int)from,
                     w, (int)from, onto, out, (int)to);
}

/* Rows of n numbers, each over its root mean square, times the weight. out may be x. */
static void norm(const float *x, const float *weight, size_t rows, size_t n, double eps, float *out)
{
    for (size_t r = 0; r < rows; r++) {
        double sum = 0;
        for (size_t i = 0; i < n; i++) sum += (double)x[r * n + i] * (double)x[r * n + i];
        const float scale = (float)(1 / sqrt(sum / (double)n + eps));
        for (size_t i = 0; i < n; i++) out[r * n + i] = x[r * n + i] * scale * weight[i];
    }
}

static void add_bias(float *x, const float *bias, size_t rows, size_t n)
{
    for (size_t i = 0; bias && i < rows * n; i++) x[i] += bias[i % n];
}

/* Turns the pairs of each head by the angle of the row's position. */
static void rotate(const struct ha_transformer *m, float *x, const size_t *position, size_t rows, size_t heads)
{
    const struct ha_transformer_sizes *s = &m->sizes;
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < s->rotary / 2; j++) {
            const double angle = (double)position[r] * (double)m->inv_freq[j];
            const float c = (float)cos(angle), sine = (float)sin(angle);
            const size_t first = s->adjacent ? 2 * j : j, second = s->adjacent ? 2 * j + 1 : j + s->rotary / 2;
            for (size_t h = 0; h < heads; h++) {
                float *const head = x + (r * heads + h) * s->head_dim, a = head[first], b = head[second];
                head[first] = a * c - b * sine;
                head[second] = b * c + a * sine;
            }
        }
}

void ha_transformer_embed(const struct ha_transformer *m, const uint32_t *token, size_t rows, float *x)
{
    const size_t n = m->sizes.model_dim;
    for (size_t r = 0; r < rows; r++) memcpy(x + r * n, m->embedding + token[r] * n, n * sizeof *x);
}

/* W x + bias, each head over its norm, and turned. */
static void project(const struct ha_transformer *m, const float *y, const float *w, const float *bias,
                    const float *weight, const size_t *position, size_t rows, size_t heads, float *out)
{
    const struct ha_transformer_sizes *s = &m->sizes;
    product(y, w, rows, s->model_dim, heads * s->head_dim, 0, out);
    add_bias(out, bias, rows, heads * s->head_dim);
    if (weight) norm(out, weight, rows * heads, s->head_dim, s->norm_eps, out);
    if (position) rotate(m, out, position, rows, heads);
}

void ha_transformer_before(const struct ha_transformer *m, size_t layer, const float *x, const size_t *position,
                           size_t rows, float *q, float *k, float *v, float *scratch)
{
    const struct ha_transformer_sizes *s = &m->sizes;
    const struct ha_transformer_layer *l = &m->layer[layer];
    norm(x, l->attn_norm, rows, s->model_dim, s->norm_eps, scratch);
    project(m, scratch, l->wq, l->q_bias, l->q_norm, position, rows, s->q_heads, q);
    project(m, scratch, l->wk, l->k_bias, l->k_norm, position, rows, s->kv_heads, k);
    project(m, scratch, l->wv, l->v_bias, NULL, NULL, rows, s->kv_heads, v);
}

void ha_transformer_behind(const struct ha_transformer *m, size_t layer, const float *o, size_t rows, float *x,
                           float *scratch)
{
    const struct ha_transformer_sizes *s = &m->sizes;
    const struct ha_transformer_layer *l = &m->layer[layer];
    float *const y = scratch, *const gate = y + rows * s->model_dim, *const up = gate + rows * s->feed_forward;
    product(o, l->wo, rows, s->q_heads * s->head_dim, s->model_dim, 1, x);
    norm(x, l->ffn_norm, rows, s->model_dim, s->norm_eps, y);
    product(y, l->gate, rows, s->model_dim, s->feed_forward, 0, gate);
    product(y, l->up, rows, s->model_dim, s->feed_forward, 0, up);
    for (size_t i = 0; i < rows * s->feed_forward; i++) gate[i] *= up[i] / (1 + expf(-gate[i]));
    product(gate, l->down, rows, s->feed_forward, s->model_dim, 1, x);
}

void ha_transformer_logits(const struct ha_transformer *m, const float *x, size_t rows, float *logits, float *scratch)
{
    const struct ha_transformer_sizes *s = &m->sizes;
    norm(x, m->norm, rows, s->model_dim, s->norm_eps, scratch);
    product(scratch, m->head, rows, s->model_dim, s->vocabulary, 0, logits);
}

/* score: of tokens [0, n); those behind `last` are not seen. They become weights that sum to 1. */
static void softmax(float *score, size_t n, size_t last)
{
    float most = score[0];
    double sum = 0;
    for (size_t t = 1; t <= last; t++) most = fmaxf(most, score[t]);
    for (size_t t = 0; t <= last; t++) sum += (double)(score[t] = expf(score[t] - most));
    for (size_t t = 0; t < n; t++) score[t] = t <= last ? (float)((double)score[t] / sum) : 0;
}

void ha_transformer_attend(const struct ha_transformer *m, const float *q, const float *k, const float *v, size_t first,
                           size_t rows, float *o, float *scratch)
{
    const struct ha_transformer_sizes *s = &m->sizes;
    const size_t d = s->head_dim, n = first + rows, group = s->q_heads / s->kv_heads;
    const int q_row = (int)(s->q_heads * d), kv_row = (int)(s->kv_heads * d);
    for (size_t h = 0; h < s->q_heads; h++) {
        const float *const keys = k + h / group * d, *const values = v + h / group * d;
        ha_blas()->sgemm(HA_CBLAS_ROWS, HA_CBLAS_AS_IS, HA_CBLAS_TRANSPOSED, (int)rows, (int)n, (int)d,
                         (float)(1 / sqrt((double)d)), q + h * d, q_row, keys, kv_row, 0, scratch, (int)n);
        for (size_t r = 0; r < rows; r++) softmax(scratch + r * n, n, first + r);
        ha_blas()->sgemm(HA_CBLAS_ROWS, HA_CBLAS_AS_IS, HA_CBLAS_AS_IS, (int)rows, (int)d, (int)n, 1, scratch, (int)n,
                         values, kv_row, 0, o + h * d, q_row);
    }
}
