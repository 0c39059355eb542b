#include "datasets/model/capture.h"

#include "datasets/model/forward.h"
#include "harness/base/file.h"
#include "harness/base/numeric.h"
#include "harness/base/safetensors.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- the trace --------------------------------------------------------------------------------------------------- */

enum { PARTS = 9, NAME = 40 };

struct written {
    const struct ha_capture *c;
    const struct ha_forward *f;
    size_t layers;            /* that are written */
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
    const struct ha_forward *f = w->f;
    const struct ha_transformer_sizes *s = &f->model->sizes;
    const struct ha_transformer_layer *l = &f->model->layer[f->layer];
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

/* Pairs of key and text, as ha_safetensors_write takes them. */
struct meta {
    const char *pair[2 * 18 + 1];
    char text[18][256];
    size_t count;
};

__attribute__((format(printf, 3, 4))) static void say(struct meta *m, const char *key, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(m->text[m->count], sizeof *m->text, format, args);
    va_end(args);
    m->pair[2 * m->count] = key;
    m->pair[2 * m->count + 1] = m->text[m->count];
    m->count++;
}

static enum ha_status write_trace(struct written *w)
{
    const struct ha_transformer_sizes *s = &w->f->model->sizes;
    const struct ha_capture *c = w->c;
    const struct part turns = { "rope.inv_freq", w->f->model->inv_freq, 1, { s->rotary / 2 }, false, 0 };
    HA_TRY(add(w, &turns, HA_F32));
    struct meta m = { .count = 0 };
    say(&m, "format", "habench-trace");
    say(&m, "version", "2");
    say(&m, "model", "%s", s->name);
    say(&m, "source", "%s", file_name(c->text));
    say(&m, "tokens", "%zu", c->tokens);
    say(&m, "q_first", "%zu", c->tokens - c->queries);
    say(&m, "layers", "%zu", w->layers);
    say(&m, "q_heads", "%zu", s->q_heads);
    say(&m, "kv_heads", "%zu", s->kv_heads);
    say(&m, "head_dim", "%zu", s->head_dim);
    say(&m, "model_dim", "%zu", s->model_dim);
    say(&m, "rope_theta", "%.9g", s->rope_theta);
    say(&m, "rope_pairing", s->adjacent ? "adjacent" : "half");
    say(&m, "norm_eps", "%.9g", s->norm_eps);
    say(&m, "scale", "%.17g", 1 / sqrt((double)s->head_dim));
    say(&m, "licence", "%s", s->licence);
    say(&m, "model_layers", "%zu to %zu", c->first_layer, c->first_layer + w->layers - 1);
    if (s->q_norm) say(&m, "q_norm_eps", "%.9g", s->norm_eps);
    char part[4096], path[4096];
    HA_TRY(ha_file_place(part, path, c->out, w->why));
    enum ha_status status = ha_safetensors_write(part, w->tensor, w->count, m.pair, w->why);
    if (status == HA_OK) status = ha_file_take_name(part, path, w->why);
    if (status != HA_OK) ha_file_drop(part, path);
    return status;
}

/* ---- from the text to the end ------------------------------------------------------------------------------------ */

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

static enum ha_status keep_layer(void *arg, struct ha_forward *f, struct ha_why *why)
{
    struct written *w = arg;
    return f->layer >= w->c->first_layer && f->layer - w->c->first_layer < w->layers ? add_layer(w) : HA_OK;
}

static enum ha_status run(struct written *w, struct ha_forward *f, struct ha_captured *out, struct ha_why *why)
{
    w->layers = w->c->layers ? w->c->layers : f->model->sizes.layers - w->c->first_layer;
    w->tensor = calloc(w->layers * PARTS + 1, sizeof *w->tensor);
    w->name = calloc(w->layers * PARTS + 1, sizeof *w->name);
    if (!w->tensor || !w->name) return ha_why(why, HA_ERROR, "out of memory");
    HA_TRY(ha_forward_run(f, why));
    ha_forward_lose(f);
    *out = (struct ha_captured){ ha_forward_loss(f, 0), ha_forward_loss(f, f->tokens - 1 - f->tokens / 4) };
    return write_trace(w);
}

static enum ha_status capture(const struct ha_capture *c, const struct ha_gguf *file,
                              const struct ha_transformer *model, struct ha_captured *out, struct ha_why *why)
{
    uint32_t *token;
    HA_TRY(check_sizes(c, &model->sizes, why));
    HA_TRY(ha_forward_tokens(&token, c->tokens, model, file, c->text, why));
    struct written w = { .c = c, .why = why };
    struct ha_forward f = {
        .model = model, .token = token, .tokens = c->tokens, .made = keep_layer, .arg = &w, .progress = c->progress
    };
    w.f = &f;
    const enum ha_status status = run(&w, &f, out, why);
    for (size_t i = 0; i < w.count; i++) free((void *)(uintptr_t)w.tensor[i].data);
    free(w.tensor);
    free(w.name);
    ha_forward_free(&f);
    free(token);
    return status;
}

enum ha_status ha_capture(const struct ha_capture *c, struct ha_captured *out, struct ha_why *why)
{
    struct ha_gguf *file;
    struct ha_transformer model;
    HA_TRY(ha_gguf_open(&file, c->model, why));
    enum ha_status status = ha_transformer_open(&model, file, why);
    if (status != HA_OK) ha_why_prefix(why, status, "%s", c->model);
    else status = capture(c, file, &model, out, why);
    ha_transformer_close(&model);
    ha_gguf_close(file);
    return status;
}
