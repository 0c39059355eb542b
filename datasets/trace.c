#include "datasets/trace.h"

#include "datasets/trace_file.h"
#include "harness/base/numeric.h"
#include "harness/base/program.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct layer {
    const char *k, *v, *q, *x; /* in the mapped file, at any alignment; x may be NULL */
};

struct ha_source {
    struct ha_shape shape;
    size_t files;
    struct ha_trace *trace;           /* [files]; sequence b reads file b mod files */
    struct layer *layer;              /* [files][shape.layers] */
    struct ha_projection *projection; /* [shape.layers]; its arrays lie in the next two */
    float *inv_freq, *weights;
};

/* ---- what the case asks --------------------------------------------------------------- */

static enum ha_status shape_fill(const struct ha_trace *t, struct ha_shape *s, struct ha_why *why)
{
    const struct {
        const char *key;
        size_t *asked, has;
    } fixed[] = {
        { "query heads", &s->q_heads, t->q_heads },
        { "KV heads", &s->kv_heads, t->kv_heads },
        { "head_dim", &s->head_dim, t->head_dim },
        { "model_dim", &s->model_dim, t->model_dim },
    };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        if (*fixed[i].asked && *fixed[i].asked != fixed[i].has)
            return ha_why(why, HA_ERROR, "trace %s: %s is %zu here, the case asks for %zu: leave that key out", t->name,
                          fixed[i].key, fixed[i].has, *fixed[i].asked);
        *fixed[i].asked = fixed[i].has;
    }
    if (s->layers > t->layers)
        return ha_why(why, HA_ERROR, "trace %s: has %zu layers, the case asks for %zu: lower layers or leave it out",
                      t->name, t->layers, s->layers);
    if (s->layers == 0) s->layers = t->layers;
    if (s->scale != 0 && !(s->scale == (float)t->scale))
        return ha_why(why, HA_ERROR, "trace %s: scale is %g, the case asks for %g", t->name, t->scale,
                      (double)s->scale);
    s->scale = (float)t->scale;
    return HA_OK;
}

/* What sequences of one batch have in common, and what one projection of a layer is of. */
static enum ha_status same_check(const struct ha_trace *a, const struct ha_trace *b, struct ha_why *why)
{
    const struct {
        const char *what;
        double a, b;
    } same[] = {
        { "query heads", (double)a->q_heads, (double)b->q_heads },
        { "KV heads", (double)a->kv_heads, (double)b->kv_heads },
        { "head_dim", (double)a->head_dim, (double)b->head_dim },
        { "model_dim (0: no x)", (double)a->model_dim, (double)b->model_dim },
        { "scale", a->scale, b->scale },
        { "rope_scale", a->rope_scale, b->rope_scale },
        { "rope_pairing=adjacent", a->adjacent, b->adjacent },
        { "rotary dimensions", (double)a->rotary, (double)b->rotary },
        { "q_norm_eps", a->q_norm_eps, b->q_norm_eps },
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (!(same[i].a == same[i].b))
            return ha_why(why, HA_ERROR, "trace %s: %s is %.10g, and %.10g in %s: what + joins must agree", a->name,
                          same[i].what, same[i].a, same[i].b, b->name);
    for (size_t p = 0; p < HA_TRACE_PARTS; p++)
        if (a->has[p] != b->has[p])
            return ha_why(why, HA_ERROR, "trace %s: has tensors layers.*.%s, and %s has none: what + joins must agree",
                          a->has[p] ? a->name : b->name, ha_trace_part_name(p), a->has[p] ? b->name : a->name);
    return HA_OK;
}

/* How a context and its observed queries fit the queries that there are, which begin at q_first. */
static void say_fit(const struct ha_trace *t, const struct ha_shape *s, size_t context, size_t added, char out[96])
{
    const size_t all = s->observed < t->tokens ? t->q_first + s->observed : t->tokens;
    const bool raise = added <= t->tokens && all <= t->tokens - added, lower = context >= t->q_first;
    if (raise && lower)
        snprintf(out, 96, "raise ctx to at least %zu or lower observed to %zu", all, context - t->q_first);
    else if (raise) snprintf(out, 96, "raise ctx to at least %zu", all);
    else if (lower) snprintf(out, 96, "lower observed to %zu", context - t->q_first);
    else snprintf(out, 96, "raise ctx to at least %zu, and lower observed or steps", t->q_first);
}

/* Has the file what sequence b reads? */
static enum ha_status tokens_check(const struct ha_trace *t, const struct ha_shape *s, size_t b, struct ha_why *why)
{
    char has[200], fit[96];
    size_t added, needed, context = s->ctx[b], observed = s->observed < context ? s->observed : context;
    snprintf(has, sizeof has, "trace %s: has %zu tokens, and queries of tokens %zu to %zu", t->name, t->tokens,
             t->q_first, t->tokens - 1);
    if (__builtin_mul_overflow(s->steps, s->q_len, &added) || __builtin_add_overflow(context, added, &needed)
        || needed > t->tokens)
        return ha_why(why, HA_ERROR, "%s; ctx=%zu and %zu steps of q_len %zu need more: lower ctx or steps", has,
                      context, s->steps, s->q_len);
    if (observed + added == 0 || context - observed >= t->q_first) return HA_OK;
    say_fit(t, s, context, added, fit);
    return ha_why(why, HA_ERROR,
                  "%s; ctx=%zu with observed=%zu (queries ahead of the first step) needs that of token %zu: %s", has,
                  context, s->observed, context - observed, fit);
}

/* ---- the source ----------------------------------------------------------------------- */

static void trace_close(struct ha_source *src)
{
    free(src->layer);
    free(src->projection);
    free(src->inv_freq);
    free(src->weights);
    for (size_t i = 0; i < src->files; i++) ha_safetensors_close(src->trace[i].file);
    free(src->trace);
    free(src);
}

/* What a file holds of the projection of a layer. W_O is not given without x, where no model_dim is. */
static const enum ha_trace_part WEIGHTS[] = { HA_TRACE_WQ, HA_TRACE_Q_BIAS, HA_TRACE_Q_NORM, HA_TRACE_WO };

static size_t weights_count(const struct ha_trace *t)
{
    size_t n = 0;
    for (size_t i = 0; t->has[HA_TRACE_X] && i < sizeof WEIGHTS / sizeof *WEIGHTS; i++)
        n += ha_trace_elements(t, WEIGHTS[i]);
    return n;
}

/* puts a part at *at and moves that behind it */
static const float *weights_read(const struct ha_trace *t, size_t layer, enum ha_trace_part part, float **at)
{
    float *to = *at;
    if (!t->has[HA_TRACE_X] || !t->has[part]) return NULL;
    *at += ha_trace_elements(t, part);
    ha_load_row(ha_trace_data(t, layer, part), (size_t)(*at - to), t->stored, to);
    return to;
}

/* at: [weights_count], where its arrays are then */
static enum ha_status projection_read(const struct ha_trace *t, size_t layer, float *at, const float *inv_freq,
                                      struct ha_projection *p, struct ha_why *why)
{
    float *wq = at;
    *p = (struct ha_projection){ .wq = weights_read(t, layer, HA_TRACE_WQ, &at),
                                 .norm_eps = (float)t->q_norm_eps,
                                 .inv_freq = inv_freq,
                                 .rotary = t->rotary,
                                 .adjacent = t->adjacent,
                                 .rope_scale = (float)t->rope_scale };
    p->bias = weights_read(t, layer, HA_TRACE_Q_BIAS, &at);
    p->norm = weights_read(t, layer, HA_TRACE_Q_NORM, &at);
    p->wo = weights_read(t, layer, HA_TRACE_WO, &at);
    if (!p->wq) return HA_OK;
    const void *norm = ha_trace_data(t, layer, HA_TRACE_NORM);
    const size_t n = ha_trace_elements(t, HA_TRACE_WQ);
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        wq[i] *= ha_load(norm, i % t->model_dim, t->stored);
        finite = finite && isfinite(wq[i]);
    }
    return finite ? HA_OK
                  : ha_why(why, HA_ERROR, "trace %s: layers.%zu.wq times layers.%zu.norm overflows", t->name, layer,
                           layer);
}

/* The projection that the first file says. */
static enum ha_status projection_fill(struct ha_source *src, struct ha_why *why)
{
    const struct ha_trace *t = src->trace;
    const size_t layers = src->shape.layers, weights = weights_count(t);
    src->projection = calloc(layers, sizeof *src->projection);
    src->inv_freq = calloc(t->rotary / 2 + 1, sizeof *src->inv_freq);
    src->weights = calloc(layers, (weights + 1) * sizeof *src->weights);
    if (!src->projection || !src->inv_freq || !src->weights)
        return ha_why(why, HA_ERROR, "trace %s: out of memory", t->name);
    ha_trace_inv_freq(t, src->inv_freq);
    for (size_t i = 0; i < layers; i++)
        HA_TRY(projection_read(t, i, src->weights + i * weights, t->rotary ? src->inv_freq : NULL, &src->projection[i],
                               why));
    return HA_OK;
}

/* The projection is the same in file t. room: [rotary/2 + weights_count] */
static enum ha_status projection_check(const struct ha_source *src, const struct ha_trace *t, float *room,
                                       struct ha_why *why)
{
    const size_t weights = weights_count(t), pairs = t->rotary / 2;
    struct ha_projection p;
    ha_trace_inv_freq(t, room);
    if (memcmp(room, src->inv_freq, pairs * sizeof *room) != 0)
        return ha_why(why, HA_ERROR, "trace %s: its rotary frequencies are not those of %s: + joins texts of one model",
                      src->trace->name, t->name);
    for (size_t i = 0; i < src->shape.layers; i++) {
        HA_TRY(projection_read(t, i, room + pairs, room, &p, why));
        if (memcmp(room + pairs, src->weights + i * weights, weights * sizeof *room) != 0)
            return ha_why(why, HA_ERROR,
                          "trace %s: the weights of layer %zu are not those of %s: + joins texts of one "
                          "model",
                          src->trace->name, i, t->name);
    }
    return HA_OK;
}

/* src->shape is what the case asks for, and becomes complete. */
static enum ha_status source_fill(struct ha_source *src, struct ha_why *why)
{
    struct ha_shape *s = &src->shape;
    const bool all_layers = s->layers == 0;
    for (size_t f = 0; f < src->files; f++) {
        HA_TRY(ha_trace_read(&src->trace[f], s->dtype, why));
        if (f > 0) HA_TRY(same_check(src->trace, &src->trace[f], why));
        if (all_layers && src->trace[f].layers < s->layers) s->layers = src->trace[f].layers;
        HA_TRY(shape_fill(&src->trace[f], s, why));
    }
    if (s->batch < 1 || s->batch > HA_BATCH_MAX)
        return ha_why(why, HA_ERROR, "trace %s: batch is %zu; from 1 to %d is possible", src->trace->name, s->batch,
                      HA_BATCH_MAX);
    for (size_t b = 0; b < s->batch; b++) HA_TRY(tokens_check(&src->trace[b % src->files], s, b, why));
    HA_TRY(projection_fill(src, why));

    struct layer *l = src->layer = calloc(src->files * s->layers, sizeof *src->layer);
    float *room = calloc(src->trace->rotary / 2 + weights_count(src->trace) + 1, sizeof *room);
    enum ha_status status = l && room ? HA_OK : ha_why(why, HA_ERROR, "trace %s: out of memory", src->trace->name);
    for (size_t f = 0; f < src->files && status == HA_OK; f++) {
        const struct ha_trace *t = &src->trace[f];
        if (f > 0) status = projection_check(src, t, room, why);
        for (size_t i = 0; i < s->layers; i++)
            *l++ = (struct layer){ .k = ha_trace_data(t, i, HA_TRACE_K),
                                   .v = ha_trace_data(t, i, HA_TRACE_V),
                                   .q = ha_trace_data(t, i, HA_TRACE_Q),
                                   .x = t->has[HA_TRACE_X] ? ha_trace_data(t, i, HA_TRACE_X) : NULL };
    }
    free(room);
    return status;
}

enum ha_status ha_trace_open(struct ha_source **src, struct ha_shape *shape, const struct ha_trace *trace, size_t files,
                             struct ha_why *why)
{
    struct ha_source *s = calloc(1, sizeof *s);
    *src = NULL;
    if (s) s->trace = calloc(files, sizeof *s->trace);
    if (!s || !s->trace) {
        for (size_t i = 0; i < files; i++) ha_safetensors_close(trace[i].file);
        free(s);
        return ha_why(why, HA_ERROR, "trace %s: out of memory", trace->name);
    }
    s->shape = *shape;
    s->files = files;
    memcpy(s->trace, trace, files * sizeof *trace);
    const enum ha_status status = source_fill(s, why);
    if (status != HA_OK) {
        trace_close(s);
        return status;
    }
    *shape = s->shape;
    *src = s;
    return HA_OK;
}

/* ---- the file --------------------------------------------------------------------------- */

enum { PATH_BYTES = HA_PATH_BYTES };

enum ha_status ha_trace_find(const char *name, char path[PATH_BYTES], struct ha_why *why)
{
    return ha_program_find(path, "trace", "datasets/traces", name, ".safetensors", why);
}

/* What + joins: one name where there is such a file, +s and all. */
struct names {
    char text[PATH_BYTES];
    size_t count;
    const char *name[HA_BATCH_MAX];
};

static enum ha_status names_read(struct names *n, const char *file, struct ha_why *why)
{
    char path[PATH_BYTES];
    n->count = 0;
    if (!file || !*file) return ha_why(why, HA_ERROR, "dataset trace needs a file: dataset=trace/NAME or trace/PATH");
    const enum ha_status whole = ha_trace_find(file, path, why);
    if (whole == HA_OK || !strchr(file, '+') || strlen(file) >= PATH_BYTES) {
        n->name[n->count++] = file;
        return whole;
    }
    strcpy(n->text, file);
    for (char *at = n->text, *next; at; at = next) {
        next = strchr(at, '+');
        if (next) *next++ = '\0';
        if (!*at)
            return ha_why(why, HA_ERROR, "trace %.128s: there is no such file, and no name on one side of a +", file);
        if (n->count == HA_BATCH_MAX)
            return ha_why(why, HA_ERROR, "trace %.128s...: + joins more than %d files", file, HA_BATCH_MAX);
        n->name[n->count++] = at;
        HA_TRY(ha_trace_find(at, path, why));
    }
    return HA_OK;
}

static enum ha_status trace_open(const struct ha_dataset *self, struct ha_source **src, struct ha_shape *shape,
                                 size_t total_tokens, uint64_t seed, const char *file, struct ha_why *why)
{
    char path[PATH_BYTES];
    struct names names;
    struct ha_trace trace[HA_BATCH_MAX];
    enum ha_status status = names_read(&names, file, why);
    size_t files = 0;
    *src = NULL;
    for (; files < names.count && status == HA_OK; files++) {
        trace[files] = (struct ha_trace){ .name = names.name[files] };
        status = ha_trace_find(names.name[files], path, why);
        if (status == HA_OK) status = ha_safetensors_open(&trace[files].file, path, why);
    }
    if (status == HA_OK) return ha_trace_open(src, shape, trace, files, why);
    while (files-- > 0) ha_safetensors_close(trace[files].file);
    return status;
}

static enum ha_status trace_find(const char *file, struct ha_why *why)
{
    struct names names;
    return names_read(&names, file, why);
}

/* n elements from element `first` of a tensor, stored as `dtype` */
static void convert(const struct ha_trace *t, const char *data, size_t first, size_t n, enum ha_dtype dtype, void *out)
{
    size_t from = ha_dtype_bytes(t->stored), to = ha_dtype_bytes(dtype);
    data += first * from;
    if (t->stored == dtype) {
        memcpy(out, data, n * to);
        return;
    }
    float piece[1024];
    const size_t most = sizeof piece / sizeof *piece;
    for (size_t done = 0, some; done < n; done += some) {
        some = n - done < most ? n - done : most;
        ha_load_row(data + done * from, some, t->stored, piece);
        ha_store_row((char *)out + done * to, some, dtype, piece);
    }
}

static const struct ha_trace *trace_of(const struct ha_source *src, size_t seq)
{
    return &src->trace[seq % src->files];
}

static const struct layer *layer_of(const struct ha_source *src, size_t seq, size_t layer)
{
    return &src->layer[seq % src->files * src->shape.layers + layer];
}

static void trace_kv(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t first, size_t count, void *k,
                     void *v)
{
    const struct ha_trace *t = trace_of(src, seq);
    const struct layer *l = layer_of(src, seq, layer);
    size_t d = src->shape.head_dim, start = (head * t->tokens + first) * d;
    if (k) convert(t, l->k, start, count * d, src->shape.dtype, k);
    if (v) convert(t, l->v, start, count * d, src->shape.dtype, v);
}

static void trace_query(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token, float *q)
{
    const struct ha_trace *t = trace_of(src, seq);
    size_t d = src->shape.head_dim, start = (head * (t->tokens - t->q_first) + token - t->q_first) * d;
    ha_load_row(layer_of(src, seq, layer)->q + start * ha_dtype_bytes(t->stored), d, t->stored, q);
    for (size_t j = 0; j < d; j++) q[j] = ha_round(q[j], src->shape.dtype);
}

static void trace_input(struct ha_source *src, size_t seq, size_t layer, size_t token, float *x)
{
    const struct ha_trace *t = trace_of(src, seq);
    size_t n = src->shape.model_dim;
    ha_load_row(layer_of(src, seq, layer)->x + (token - t->q_first) * n * ha_dtype_bytes(t->stored), n, t->stored, x);
    ha_over_root_mean_square(x, n, t->norm_eps);
}

static struct ha_projection trace_projection(struct ha_source *src, size_t layer) { return src->projection[layer]; }

/* FNV-1a over the keys of the first tokens in the first layer: there they hang on nothing but these tokens. */
static uint64_t first_keys(const struct ha_trace *t)
{
    enum { FIRST = 64 };
    const size_t row = t->head_dim * ha_dtype_bytes(t->stored), bytes = (t->tokens < FIRST ? t->tokens : FIRST) * row;
    const unsigned char *k = ha_trace_data(t, 0, HA_TRACE_K);
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t head = 0; head < t->kv_heads; head++)
        for (size_t i = 0; i < bytes; i++) hash = (hash ^ k[head * t->tokens * row + i]) * 0x100000001b3;
    return hash;
}

static bool trace_provenance(struct ha_source *src, size_t i, struct ha_provenance *out)
{
    if (i >= src->files) return false;
    const struct ha_trace *t = &src->trace[i];
    *out = (struct ha_provenance){ .model = ha_safetensors_meta(t->file, "model"),
                                   .text = ha_safetensors_meta(t->file, "source"),
                                   .hash = first_keys(t) };
    return true;
}

const struct ha_dataset ha_dataset_trace = {
    .name = "trace",
    .doc =
        "queries, keys and values of a real model, from a safetensors file; the file fixes heads, head_dim and scale",
    .needs_file =
        "a path, or a name of datasets/traces: english, code, deep; english+code: in turn for the sequences of a batch",
    .find = trace_find,
    .open = trace_open,
    .close = trace_close,
    .kv = trace_kv,
    .query = trace_query,
    .input = trace_input,
    .projection = trace_projection,
    .provenance = trace_provenance,
};
