#include "datasets/trace.h"

#include "datasets/trace_file.h"
#include "harness/base/numeric.h"
#include "harness/base/program.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct layer {
    const char *k, *v, *q, *x; /* in the mapped file, at any alignment; x may be NULL */
};

struct ha_source {
    struct ha_shape shape;
    struct ha_trace trace;
    struct layer *layer;              /* [shape.layers] */
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

static enum ha_status tokens_check(const struct ha_trace *t, const struct ha_shape *s, struct ha_why *why)
{
    char has[160];
    snprintf(has, sizeof has, "trace %.60s: has %zu tokens, and queries of tokens %zu to %zu", t->name, t->tokens,
             t->q_first, t->tokens - 1);
    if (s->batch < 1 || s->batch > HA_BATCH_MAX)
        return ha_why(why, HA_ERROR, "trace %s: batch is %zu; from 1 to %d is possible", t->name, s->batch,
                      HA_BATCH_MAX);
    for (size_t b = 0; b < s->batch; b++) {
        size_t added, needed, context = s->ctx[b], observed = s->observed < context ? s->observed : context;
        if (__builtin_mul_overflow(s->steps, s->q_len, &added) || __builtin_add_overflow(context, added, &needed)
            || needed > t->tokens)
            return ha_why(why, HA_ERROR, "%s; ctx=%zu and %zu steps of q_len %zu need more: lower ctx or steps", has,
                          context, s->steps, s->q_len);
        if (observed + added > 0 && context - observed < t->q_first)
            return ha_why(why, HA_ERROR,
                          "%s; ctx=%zu with observed=%zu needs that of token %zu: raise ctx to at least "
                          "%zu or lower observed",
                          has, context, s->observed, context - observed, t->q_first + observed);
    }
    return HA_OK;
}

/* ---- the source ----------------------------------------------------------------------- */

static void trace_close(struct ha_source *src)
{
    if (!src) return;
    free(src->layer);
    free(src->projection);
    free(src->inv_freq);
    free(src->weights);
    ha_safetensors_close(src->trace.file);
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

static enum ha_status source_fill(struct ha_source *src, struct ha_why *why)
{
    const struct ha_trace *t = &src->trace;
    const size_t layers = src->shape.layers, weights = weights_count(t);
    src->layer = calloc(layers, sizeof *src->layer);
    src->projection = calloc(layers, sizeof *src->projection);
    src->inv_freq = calloc(t->rotary / 2 + 1, sizeof *src->inv_freq);
    src->weights = calloc(layers, (weights + 1) * sizeof *src->weights);
    if (!src->layer || !src->projection || !src->inv_freq || !src->weights)
        return ha_why(why, HA_ERROR, "trace %s: out of memory", t->name);
    ha_trace_inv_freq(t, src->inv_freq);
    for (size_t i = 0; i < layers; i++) {
        src->layer[i] = (struct layer){ .k = ha_trace_data(t, i, HA_TRACE_K),
                                        .v = ha_trace_data(t, i, HA_TRACE_V),
                                        .q = ha_trace_data(t, i, HA_TRACE_Q),
                                        .x = t->has[HA_TRACE_X] ? ha_trace_data(t, i, HA_TRACE_X) : NULL };
        HA_TRY(projection_read(t, i, src->weights + i * weights, t->rotary ? src->inv_freq : NULL, &src->projection[i],
                               why));
    }
    return HA_OK;
}

enum ha_status ha_trace_open(struct ha_source **src, struct ha_shape *shape, const char *name,
                             struct ha_safetensors *file, struct ha_why *why)
{
    size_t length = strlen(name);
    struct ha_source *s = calloc(1, sizeof *s);
    *src = NULL;
    if (!s) {
        ha_safetensors_close(file);
        return ha_why(why, HA_ERROR, "trace: out of memory");
    }
    s->shape = *shape;
    s->trace = (struct ha_trace){ .name = length > 120 ? name + length - 120 : name, .file = file };
    enum ha_status status = ha_trace_read(&s->trace, shape->dtype, why);
    if (status == HA_OK) status = shape_fill(&s->trace, &s->shape, why);
    if (status == HA_OK) status = tokens_check(&s->trace, &s->shape, why);
    if (status == HA_OK) status = source_fill(s, why);
    if (status != HA_OK) {
        trace_close(s);
        return status;
    }
    *shape = s->shape;
    *src = s;
    return HA_OK;
}

/* ---- the file --------------------------------------------------------------------------- */

enum { PATH_BYTES = 4096 };

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

static bool ends_with(const char *s, const char *end)
{
    size_t a = strlen(s), b = strlen(end);
    return a >= b && strcmp(s + a - b, end) == 0;
}

enum ha_status ha_trace_find(const char *name, char path[PATH_BYTES], struct ha_why *why)
{
    char folder[PATH_BYTES];
    const char *end = ends_with(name, ".safetensors") ? "" : ".safetensors";
    if (strlen(name) >= PATH_BYTES)
        return ha_why(why, HA_ERROR, "trace: the path is longer than %d bytes", PATH_BYTES - 1);
    snprintf(path, PATH_BYTES, "%s", name);
    if (is_file(path)) return HA_OK;
    if (strchr(name, '/')) /* what else is wrong with a path, open says */
        return access(path, F_OK) == 0 ? HA_OK : ha_why(why, HA_ERROR, "trace %.400s: there is no such file", name);
    snprintf(path, PATH_BYTES, "datasets/traces/%.1024s%s", name, end);
    if (is_file(path)) return HA_OK;
    char *cut = ha_program_folder(folder, sizeof folder) ? folder + strlen(folder) : NULL;
    for (; cut; cut = strrchr(folder, '/')) {
        *cut = '\0';
        static const char *const below[] = { "", "/share/habench" }; /* the source tree; PREFIX of what is installed */
        for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
            int n = snprintf(path, PATH_BYTES, "%s%s/datasets/traces/%.1024s%s", folder, below[i], name, end);
            if (n > 0 && n < PATH_BYTES && is_file(path)) return HA_OK;
        }
    }
    return ha_why(why, HA_ERROR,
                  "trace %.128s: no such file, and no datasets/traces/%.128s%s here or beside the program", name, name,
                  end);
}

static enum ha_status trace_open(const struct ha_dataset *self, struct ha_source **src, struct ha_shape *shape,
                                 size_t total_tokens, uint64_t seed, const char *file, struct ha_why *why)
{
    char path[PATH_BYTES];
    struct ha_safetensors *tensors;
    *src = NULL;
    if (!file || !*file) return ha_why(why, HA_ERROR, "dataset trace needs a file: dataset=trace/NAME or trace/PATH");
    HA_TRY(ha_trace_find(file, path, why));
    HA_TRY(ha_safetensors_open(&tensors, path, why));
    return ha_trace_open(src, shape, file, tensors, why);
}

static enum ha_status trace_find(const char *file, struct ha_why *why)
{
    char path[PATH_BYTES];
    return ha_trace_find(file, path, why);
}

/* n elements from element `first` of a tensor, stored as shape.dtype */
static void convert(const struct ha_source *src, const char *data, size_t first, size_t n, void *out)
{
    size_t from = ha_dtype_bytes(src->trace.stored), to = ha_dtype_bytes(src->shape.dtype);
    data += first * from;
    if (src->trace.stored == src->shape.dtype) {
        memcpy(out, data, n * to);
        return;
    }
    float piece[1024];
    const size_t most = sizeof piece / sizeof *piece;
    for (size_t done = 0, some; done < n; done += some) {
        some = n - done < most ? n - done : most;
        ha_load_row(data + done * from, some, src->trace.stored, piece);
        ha_store_row((char *)out + done * to, some, src->shape.dtype, piece);
    }
}

static void trace_kv(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t first, size_t count, void *k,
                     void *v)
{
    size_t d = src->shape.head_dim, start = (head * src->trace.tokens + first) * d;
    if (k) convert(src, src->layer[layer].k, start, count * d, k);
    if (v) convert(src, src->layer[layer].v, start, count * d, v);
}

static void trace_query(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token, float *q)
{
    size_t d = src->shape.head_dim, rows = src->trace.tokens - src->trace.q_first;
    size_t start = (head * rows + token - src->trace.q_first) * d;
    ha_load_row(src->layer[layer].q + start * ha_dtype_bytes(src->trace.stored), d, src->trace.stored, q);
    for (size_t j = 0; j < d; j++) q[j] = ha_round(q[j], src->shape.dtype);
}

static void trace_input(struct ha_source *src, size_t seq, size_t layer, size_t token, float *x)
{
    size_t n = src->shape.model_dim;
    const char *row = src->layer[layer].x + (token - src->trace.q_first) * n * ha_dtype_bytes(src->trace.stored);
    double sum = 0;
    ha_load_row(row, n, src->trace.stored, x);
    for (size_t j = 0; j < n; j++) sum += (double)x[j] * (double)x[j];
    double mean = sum / (double)n + src->trace.norm_eps;
    double factor = mean > 0 ? 1 / sqrt(mean) : 0;
    for (size_t j = 0; j < n; j++) x[j] = (float)((double)x[j] * factor);
}

static struct ha_projection trace_projection(struct ha_source *src, size_t layer) { return src->projection[layer]; }

const struct ha_dataset ha_dataset_trace = {
    .name = "trace",
    .doc =
        "queries, keys and values of a real model, from a safetensors file; the file fixes heads, head_dim and scale",
    .needs_file = "a path, or a name of datasets/traces: english, code",
    .find = trace_find,
    .open = trace_open,
    .close = trace_close,
    .kv = trace_kv,
    .query = trace_query,
    .input = trace_input,
    .projection = trace_projection,
};
