#include "datasets/model/capture.h"

#include "datasets/model/tokenizer.h"
#include "datasets/model/transformer.h"
#include "harness/base/file.h"
#include "harness/base/numeric.h"
#include "harness/base/pool.h"
#include "harness/base/safetensors.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ROWS = 128 }; /* tokens of a task */

/* The model over the text: a layer's parts for all tokens, one behind the other. */
struct forward {
    struct ha_transformer model;
    struct ha_pool *pool;
    size_t tokens, layer;
    uint32_t *token;
    size_t *position;
    float *x, *q, *k, *v, *o; /* [tokens][model_dim], [tokens][heads][head_dim] */
    float *scratch, *loss;    /* [workers][scratch_size], [tokens - 1] */
    size_t scratch_size;
};

/* The tokens of a task. */
struct rows {
    size_t first, count;
};
static struct rows rows_of(const struct forward *f, size_t task)
{
    const size_t first = task * ROWS, left = f->tokens - first;
    return (struct rows){ first, left < ROWS ? left : ROWS };
}
static size_t tasks(const struct forward *f) { return (f->tokens + ROWS - 1) / ROWS; }

static void before(void *arg, size_t task, size_t worker)
{
    const struct forward *f = arg;
    const struct ha_transformer_sizes *s = &f->model.sizes;
    const struct rows r = rows_of(f, task);
    const size_t q = r.first * s->q_heads * s->head_dim, kv = r.first * s->kv_heads * s->head_dim;
    ha_transformer_before(&f->model, f->layer, f->x + r.first * s->model_dim, f->position + r.first, r.count, f->q + q,
                          f->k + kv, f->v + kv, f->scratch + worker * f->scratch_size);
}

static void attend(void *arg, size_t task, size_t worker)
{
    const struct forward *f = arg;
    const struct rows r = rows_of(f, tasks(f) - 1 - task); /* those that see most first */
    const size_t q = r.first * f->model.sizes.q_heads * f->model.sizes.head_dim;
    ha_transformer_attend(&f->model, f->q + q, f->k, f->v, r.first, r.count, f->o + q,
                          f->scratch + worker * f->scratch_size);
}

static void behind(void *arg, size_t task, size_t worker)
{
    const struct forward *f = arg;
    const struct ha_transformer_sizes *s = &f->model.sizes;
    const struct rows r = rows_of(f, task);
    ha_transformer_behind(&f->model, f->layer, f->o + r.first * s->q_heads * s->head_dim, r.count,
                          f->x + r.first * s->model_dim, f->scratch + worker * f->scratch_size);
}

/* -log p of each token that follows one of these */
static void lose(void *arg, size_t task, size_t worker)
{
    const struct forward *f = arg;
    const struct ha_transformer_sizes *s = &f->model.sizes;
    const struct rows r = rows_of(f, task);
    float *const scratch = f->scratch + worker * f->scratch_size, *const logits = scratch + ROWS * s->model_dim;
    ha_transformer_logits(&f->model, f->x + r.first * s->model_dim, r.count, logits, scratch);
    for (size_t i = 0; i < r.count && r.first + i + 1 < f->tokens; i++) {
        const float *const row = logits + i * s->vocabulary;
        float most = row[0];
        double sum = 0;
        for (size_t t = 1; t < s->vocabulary; t++) most = fmaxf(most, row[t]);
        for (size_t t = 0; t < s->vocabulary; t++) sum += exp((double)row[t] - (double)most);
        f->loss[r.first + i] = (float)(log(sum) + (double)most - (double)row[f->token[r.first + i + 1]]);
    }
}

static double mean_loss(const struct forward *f, size_t first)
{
    double sum = 0;
    for (size_t t = first; t + 1 < f->tokens; t++) sum += (double)f->loss[t];
    return sum / (double)(f->tokens - 1 - first);
}

/* ---- the trace -----------------------------------------------------------------------------------------------------
 */

enum { PARTS = 9, NAME = 40 };

struct written {
    const struct ha_capture *c;
    const struct forward *f;
    struct ha_tensor *tensor; /* [count], which own their data */
    char (*name)[NAME];
    size_t count;
    struct ha_why *why;
};

/* A tensor of a layer: numbers that lie as they are written, or, by head, [token][dim[0]][dim[2]] from token `first`
 * on, which are written as [dim[0]][dim[1]][dim[2]]. */
struct part {
    const char *name;
    const float *from; /* NULL: the model has none */
    size_t dims, dim[3];
    bool by_head;
    size_t first;
};

static float number_of(const struct part *p, size_t i)
{
    if (!p->by_head) return p->from[i];
    const size_t d = p->dim[2], head = i / d / p->dim[1], token = p->first + i / d % p->dim[1];
    return p->from[(token * p->dim[0] + head) * d + i % d];
}

static enum ha_status add(struct written *w, const struct part *p, enum ha_dtype dtype)
{
    static const enum ha_tensor_type type[] = { [HA_F32] = HA_T_F32, [HA_F16] = HA_T_F16, [HA_BF16] = HA_T_BF16 };
    struct ha_tensor *t = &w->tensor[w->count];
    size_t n = 1;
    for (size_t i = 0; i < p->dims; i++) n *= p->dim[i];
    void *data = malloc(n * ha_dtype_bytes(dtype));
    if (!data) return ha_why(w->why, HA_ERROR, "out of memory");
    snprintf(w->name[w->count], NAME, "%s", p->name);
    *t = (struct ha_tensor){ w->name[w->count], type[dtype], p->dims, { 0 }, data, n * ha_dtype_bytes(dtype) };
    memcpy(t->dim, p->dim, p->dims * sizeof *p->dim);
    w->count++;
    for (size_t i = 0; i < n; i++) {
        const float x = number_of(p, i);
        ha_store(data, i, dtype, x);
        if (!isfinite(ha_load(data, i, dtype)))
            return ha_why(w->why, HA_ERROR, "%s holds %g, beyond this dtype: --dtype bf16 or f32", p->name, (double)x);
    }
    return HA_OK;
}

/* The layer at hand, of which `before` has run. */
static enum ha_status add_layer(struct written *w)
{
    const struct forward *f = w->f;
    const struct ha_transformer_sizes *s = &f->model.sizes;
    const struct ha_transformer_layer *l = &f->model.layer[f->layer];
    const size_t n = f->tokens, rows = w->c->queries, first = n - rows, d = s->head_dim, of_q = s->q_heads * d;
    const struct part parts[PARTS] = {
        { "k", f->k, 3, { s->kv_heads, n, d }, true, 0 },
        { "v", f->v, 3, { s->kv_heads, n, d }, true, 0 },
        { "q", f->q, 3, { s->q_heads, rows, d }, true, first },
        { "x", f->x + first * s->model_dim, 2, { rows, s->model_dim }, false, 0 },
        { "wq", l->wq, 2, { of_q, s->model_dim }, false, 0 },
        { "norm", l->attn_norm, 1, { s->model_dim }, false, 0 },
        { "q_bias", l->q_bias, 1, { of_q }, false, 0 },
        { "q_norm", l->q_norm, 1, { d }, false, 0 },
        { "wo", l->wo, 2, { s->model_dim, of_q }, false, 0 },
    };
    for (size_t i = 0; i < PARTS; i++) {
        char name[NAME];
        struct part p = parts[i];
        if (!p.from) continue;
        snprintf(name, sizeof name, "layers.%zu.%s", f->layer - w->c->first_layer, p.name);
        p.name = name;
        HA_TRY(add(w, &p, w->c->dtype));
    }
    return HA_OK;
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static enum ha_status write_trace(struct written *w, size_t layers)
{
    const struct ha_transformer_sizes *s = &w->f->model.sizes;
    const struct ha_capture *c = w->c;
    const struct part turns = { "rope.inv_freq", w->f->model.inv_freq, 1, { s->rotary / 2 }, false, 0 };
    HA_TRY(add(w, &turns, HA_F32));
    char text[12][32];
    snprintf(text[0], sizeof text[0], "%zu", c->tokens);
    snprintf(text[1], sizeof text[1], "%zu", c->tokens - c->queries);
    snprintf(text[2], sizeof text[2], "%zu", layers);
    snprintf(text[3], sizeof text[3], "%zu", s->q_heads);
    snprintf(text[4], sizeof text[4], "%zu", s->kv_heads);
    snprintf(text[5], sizeof text[5], "%zu", s->head_dim);
    snprintf(text[6], sizeof text[6], "%zu", s->model_dim);
    snprintf(text[7], sizeof text[7], "%.9g", s->rope_theta);
    snprintf(text[8], sizeof text[8], "%.9g", s->norm_eps);
    snprintf(text[9], sizeof text[9], "%.17g", 1 / sqrt((double)s->head_dim));
    snprintf(text[10], sizeof text[10], "%zu to %zu", c->first_layer, c->first_layer + layers - 1);
    const char *const meta[] = { "format",
                                 "habench-trace",
                                 "version",
                                 "2",
                                 "model",
                                 s->name,
                                 "source",
                                 file_name(c->text),
                                 "tokens",
                                 text[0],
                                 "q_first",
                                 text[1],
                                 "layers",
                                 text[2],
                                 "q_heads",
                                 text[3],
                                 "kv_heads",
                                 text[4],
                                 "head_dim",
                                 text[5],
                                 "model_dim",
                                 text[6],
                                 "rope_theta",
                                 text[7],
                                 "rope_pairing",
                                 s->adjacent ? "adjacent" : "half",
                                 "norm_eps",
                                 text[8],
                                 "scale",
                                 text[9],
                                 "licence",
                                 s->licence,
                                 "model_layers",
                                 text[10],
                                 s->q_norm ? "q_norm_eps" : NULL,
                                 text[8],
                                 NULL };
    char part[4096], path[4096];
    HA_TRY(ha_file_place(part, path, c->out, w->why));
    enum ha_status status = ha_safetensors_write(part, w->tensor, w->count, meta, w->why);
    if (status == HA_OK) status = ha_file_take_name(part, path, w->why);
    if (status != HA_OK) ha_file_drop(part, path);
    return status;
}

/* ---- from the text to the end
 * ---------------------------------------------------------------------------------------- */

static enum ha_status read_tokens(struct forward *f, const struct ha_gguf *file, const char *path, struct ha_why *why)
{
    struct ha_tokenizer *tokenizer;
    void *text;
    size_t bytes, count = 0;
    HA_TRY(ha_tokenizer_open(&tokenizer, file, why));
    enum ha_status status = ha_file_map(path, &text, &bytes, why);
    if (status == HA_OK) {
        status = ha_tokenizer_encode(tokenizer, text, bytes, f->token, f->tokens, &count, why);
        munmap(text, bytes);
    }
    if (status == HA_OK && count < f->tokens)
        status = ha_why(why, HA_ERROR, "has %zu tokens; --tokens asks for %zu", count, f->tokens);
    for (size_t i = 0; status == HA_OK && i < count; i++)
        if (f->token[i] >= f->model.sizes.vocabulary)
            status = ha_why(why, HA_ERROR, "token %u is beyond the model's table of %zu", f->token[i],
                            f->model.sizes.vocabulary);
    ha_tokenizer_close(tokenizer);
    return status == HA_OK ? HA_OK : ha_why_prefix(why, status, "%s", path);
}

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

static enum ha_status make_room(struct forward *f, struct ha_why *why)
{
    const struct ha_transformer_sizes *s = &f->model.sizes;
    const size_t n = f->tokens, of_q = s->q_heads * s->head_dim, of_kv = s->kv_heads * s->head_dim;
    HA_TRY(ha_pool_create(&f->pool, HA_TEAM_DEFAULT, 0, why));
    f->scratch_size = ROWS * most(most(n, s->model_dim + s->vocabulary), s->model_dim + 2 * s->feed_forward);
    f->token = calloc(n, sizeof *f->token);
    f->position = calloc(n, sizeof *f->position);
    f->x = malloc(n * s->model_dim * sizeof *f->x);
    f->q = malloc(n * of_q * sizeof *f->q);
    f->k = malloc(n * of_kv * sizeof *f->k);
    f->v = malloc(n * of_kv * sizeof *f->v);
    f->o = malloc(n * of_q * sizeof *f->o);
    f->loss = calloc(n, sizeof *f->loss);
    f->scratch = malloc(ha_pool_threads(f->pool) * f->scratch_size * sizeof *f->scratch);
    if (!f->token || !f->position || !f->x || !f->q || !f->k || !f->v || !f->o || !f->loss || !f->scratch)
        return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < n; i++) f->position[i] = i;
    return HA_OK;
}

static void forward_free(struct forward *f)
{
    void *const all[] = { f->token, f->position, f->x, f->q, f->k, f->v, f->o, f->loss, f->scratch };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    if (f->pool) ha_pool_destroy(f->pool);
    ha_transformer_close(&f->model);
}

static enum ha_status check_sizes(const struct ha_capture *c, const struct ha_transformer_sizes *s, struct ha_why *why)
{
    if (c->tokens < 2 || c->tokens > s->context)
        return ha_why(why, HA_ERROR, "--tokens %zu: this model takes 2 to %zu", c->tokens, s->context);
    if (c->queries < 1 || c->queries > c->tokens)
        return ha_why(why, HA_ERROR, "--queries %zu: 1 to %zu, the tokens", c->queries, c->tokens);
    if (c->first_layer >= s->layers || c->layers > s->layers - c->first_layer)
        return ha_why(why, HA_ERROR, "--layers: the model has 0 to %zu", s->layers - 1);
    return HA_OK;
}

static enum ha_status run_layers(struct forward *f, struct written *w, struct ha_why *why)
{
    const struct ha_capture *c = w->c;
    const size_t layers = c->layers ? c->layers : f->model.sizes.layers - c->first_layer;
    w->tensor = calloc(layers * PARTS + 1, sizeof *w->tensor);
    w->name = calloc(layers * PARTS + 1, sizeof *w->name);
    if (!w->tensor || !w->name) return ha_why(why, HA_ERROR, "out of memory");
    ha_transformer_embed(&f->model, f->token, f->tokens, f->x);
    for (f->layer = 0; f->layer < f->model.sizes.layers && !ha_stop; f->layer++) {
        if (c->progress) fprintf(c->progress, "\rlayer %zu of %zu", f->layer + 1, f->model.sizes.layers);
        ha_pool_run(f->pool, "before attention", tasks(f), before, f);
        if (f->layer >= c->first_layer && f->layer - c->first_layer < layers) HA_TRY(add_layer(w));
        ha_pool_run(f->pool, "attention", tasks(f), attend, f);
        ha_pool_run(f->pool, "behind attention", tasks(f), behind, f);
    }
    if (c->progress) fputs("\n", c->progress);
    if (ha_stop) return ha_why(why, HA_ERROR, "interrupted: nothing is written");
    ha_pool_run(f->pool, "loss", tasks(f), lose, f);
    return write_trace(w, layers);
}

static enum ha_status capture(struct forward *f, struct written *w, const struct ha_gguf *file, struct ha_why *why)
{
    const enum ha_status opened = ha_transformer_open(&f->model, file, why);
    if (opened != HA_OK) return ha_why_prefix(why, opened, "%s", w->c->model);
    HA_TRY(check_sizes(w->c, &f->model.sizes, why));
    HA_TRY(make_room(f, why));
    HA_TRY(read_tokens(f, file, w->c->text, why));
    return run_layers(f, w, why);
}

enum ha_status ha_capture(const struct ha_capture *c, struct ha_captured *out, struct ha_why *why)
{
    struct forward f = { .tokens = c->tokens };
    struct written w = { .c = c, .f = &f, .why = why };
    struct ha_gguf *file;
    HA_TRY(ha_gguf_open(&file, c->model, why));
    const enum ha_status status = capture(&f, &w, file, why);
    if (status == HA_OK) *out = (struct ha_captured){ mean_loss(&f, 0), mean_loss(&f, f.tokens - 1 - f.tokens / 4) };
    for (size_t i = 0; i < w.count; i++) free((void *)(uintptr_t)w.tensor[i].data);
    free(w.tensor);
    free(w.name);
    forward_free(&f);
    ha_gguf_close(file);
    return status;
}
