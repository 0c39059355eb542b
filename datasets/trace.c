#include "datasets/trace.h"

#include "harness/base/numeric.h"
#include "harness/base/program.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The format is defined in datasets/README.md, section "Traces". */

struct layer {
    const char *k, *v, *q, *x; /* in the mapped file, at any alignment; x may be NULL */
    float *wq;                 /* [q_heads*head_dim][model_dim], columns multiplied by the norm's weight */
};

struct ha_source {
    struct ha_shape shape;
    struct ha_safetensors *file;
    enum ha_dtype stored;
    size_t tokens, q_first; /* of the file */
    double norm_eps;
    float *inv_freq;     /* [shape.head_dim / 2], or NULL */
    struct layer *layer; /* [shape.layers] */
};

/* What the metadata says. */
struct facts {
    size_t tokens, q_first, layers, q_heads, kv_heads, head_dim, model_dim;
    double rope_theta, norm_eps, scale;
    bool has_inputs;
    enum ha_dtype stored;
};

struct reader {
    const char *name;
    const struct ha_safetensors *file;
    struct facts facts;
    struct ha_why *why;
};

#define SIZE_LIMIT ((size_t)1 << 40)

/* ---- what the file says --------------------------------------------------------------- */

static enum ha_status meta_text(const struct reader *r, const char *key, const char **text)
{
    *text = ha_safetensors_meta(r->file, key);
    return *text ? HA_OK : ha_why(r->why, HA_ERROR, "trace %s: metadata key '%s' is missing", r->name, key);
}

static enum ha_status meta_size(const struct reader *r, const char *key, size_t least, size_t *out)
{
    const char *text;
    HA_TRY(meta_text(r, key, &text));
    unsigned long long value = strtoull(text, NULL, 10); /* too large gives the largest */
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || text[digits] || value < least || value > SIZE_LIMIT)
        return ha_why(r->why, HA_ERROR, "trace %s: metadata %s='%.40s' is not an integer from %zu to %zu", r->name, key,
                      text, least, SIZE_LIMIT);
    *out = (size_t)value;
    return HA_OK;
}

static enum ha_status meta_number(const struct reader *r, const char *key, double *out)
{
    const char *text;
    HA_TRY(meta_text(r, key, &text));
    char *end;
    *out = strtod(text, &end);
    if (end == text || *end || !isfinite(*out))
        return ha_why(r->why, HA_ERROR, "trace %s: metadata %s='%.40s' is not a finite number", r->name, key, text);
    return HA_OK;
}

static enum ha_status facts_read(struct reader *r)
{
    struct facts *f = &r->facts;
    const char *format, *version, *text;
    const struct {
        const char *key;
        size_t least, *to;
    } sizes[] = {
        { "tokens", 1, &f->tokens },       { "q_first", 0, &f->q_first },   { "layers", 1, &f->layers },
        { "q_heads", 1, &f->q_heads },     { "kv_heads", 1, &f->kv_heads }, { "head_dim", 1, &f->head_dim },
        { "model_dim", 1, &f->model_dim },
    };
    const struct {
        const char *key;
        double *to;
    } numbers[] = { { "rope_theta", &f->rope_theta }, { "norm_eps", &f->norm_eps }, { "scale", &f->scale } };
    const char *const texts[] = { "model", "source", "licence" };

    format = ha_safetensors_meta(r->file, "format");
    if (!format || strcmp(format, "habench-trace") != 0)
        return ha_why(r->why, HA_ERROR, "trace %s: not a trace: metadata format is '%.40s', not 'habench-trace'",
                      r->name, format ? format : "");
    HA_TRY(meta_text(r, "version", &version));
    if (strcmp(version, "1") != 0)
        return ha_why(r->why, HA_ERROR, "trace %s: version '%.40s'; this program reads version 1", r->name, version);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) HA_TRY(meta_text(r, texts[i], &text));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        HA_TRY(meta_size(r, sizes[i].key, sizes[i].least, sizes[i].to));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) HA_TRY(meta_number(r, numbers[i].key, numbers[i].to));
    if (f->q_first >= f->tokens)
        return ha_why(r->why, HA_ERROR, "trace %s: q_first=%zu leaves no query among %zu tokens", r->name, f->q_first,
                      f->tokens);
    if (f->q_heads % f->kv_heads)
        return ha_why(r->why, HA_ERROR, "trace %s: %zu query heads are not a multiple of %zu KV heads", r->name,
                      f->q_heads, f->kv_heads);
    const float scale = (float)f->scale; /* what scores are multiplied by: it must not round to 0 or to infinity */
    if (!(scale > 0 && isfinite(scale)))
        return ha_why(r->why, HA_ERROR, "trace %s: scale=%g is not a binary32 number above 0", r->name, f->scale);
    if (!(f->norm_eps >= 0 && f->norm_eps <= 1))
        return ha_why(r->why, HA_ERROR, "trace %s: norm_eps=%g is not a number from 0 to 1", r->name, f->norm_eps);
    if (!(f->rope_theta >= 0))
        return ha_why(r->why, HA_ERROR, "trace %s: rope_theta=%g is negative", r->name, f->rope_theta);
    return HA_OK;
}

/* ---- its tensors ---------------------------------------------------------------------- */

static const struct ha_tensor *tensor_find(const struct reader *r, size_t layer, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "layers.%zu.%s", layer, part);
    return ha_safetensors_find(r->file, name);
}

static bool dtype_of(const struct ha_tensor *t, enum ha_dtype *dtype)
{
    *dtype = t->type == HA_T_F16 ? HA_F16 : t->type == HA_T_BF16 ? HA_BF16 : HA_F32;
    return t->type == HA_T_F16 || t->type == HA_T_BF16 || t->type == HA_T_F32;
}

/* "[1][17][3]" */
struct place {
    char text[80];
};

static struct place place(const size_t *dim, size_t dims)
{
    struct place p = { "" };
    for (size_t i = 0, at = 0; i < dims && at < sizeof p.text; i++)
        at += (size_t)snprintf(p.text + at, sizeof p.text - at, "[%zu]", dim[i]);
    return p;
}

static struct place place_of(const struct ha_tensor *t, size_t element)
{
    size_t index[HA_TENSOR_DIMS_MAX];
    for (size_t i = t->dims; i-- > 0; element /= t->dim[i]) index[i] = element % t->dim[i];
    return place(index, t->dims);
}

/* Every number of the tensor, rounded to `dtype`, is finite. */
static enum ha_status finite_check(const struct reader *r, const struct ha_tensor *t, enum ha_dtype dtype)
{
    float piece[1024];
    const size_t most = sizeof piece / sizeof *piece, bytes = ha_dtype_bytes(r->facts.stored), count = t->bytes / bytes;
    for (size_t done = 0, n; done < count; done += n) {
        n = count - done < most ? count - done : most;
        ha_load_row((const char *)t->data + done * bytes, n, r->facts.stored, piece);
        for (size_t i = 0; i < n; i++) {
            if (!isfinite(piece[i]))
                return ha_why(r->why, HA_ERROR, "trace %s: tensor %s%s is %s", r->name, t->name,
                              place_of(t, done + i).text, isnan(piece[i]) ? "NaN" : "infinite");
            if (!isfinite(ha_round(piece[i], dtype)))
                return ha_why(r->why, HA_ERROR, "trace %s: tensor %s%s is %g, too large for %s: use another dtype",
                              r->name, t->name, place_of(t, done + i).text, (double)piece[i], ha_dtype_name(dtype));
        }
    }
    return HA_OK;
}

/* dtype: what its numbers must fit */
static enum ha_status tensor_check(const struct reader *r, size_t layer, const char *part, size_t dims,
                                   const size_t *dim, enum ha_dtype dtype)
{
    const struct ha_tensor *t = tensor_find(r, layer, part);
    enum ha_dtype stored;
    if (!t) return ha_why(r->why, HA_ERROR, "trace %s: tensor layers.%zu.%s is missing", r->name, layer, part);
    if (!dtype_of(t, &stored) || stored != r->facts.stored)
        return ha_why(r->why, HA_ERROR, "trace %s: tensor %s has another dtype than layers.0.k", r->name, t->name);
    if (t->dims != dims || memcmp(t->dim, dim, dims * sizeof *dim) != 0)
        return ha_why(r->why, HA_ERROR, "trace %s: tensor %s has shape %s, the metadata says %s", r->name, t->name,
                      place(t->dim, t->dims).text, place(dim, dims).text);
    return finite_check(r, t, dtype);
}

static enum ha_status tensors_check(struct reader *r, enum ha_dtype dtype)
{
    struct facts *f = &r->facts;
    const struct ha_tensor *first = tensor_find(r, 0, "k");
    size_t count = ha_safetensors_count(r->file), parts = 3;
    if (!first) return ha_why(r->why, HA_ERROR, "trace %s: tensor layers.0.k is missing", r->name);
    if (!dtype_of(first, &f->stored))
        return ha_why(r->why, HA_ERROR, "trace %s: tensor layers.0.k is not F16, BF16 or F32", r->name);
    f->has_inputs = tensor_find(r, 0, "x") || tensor_find(r, 0, "wq") || tensor_find(r, 0, "norm");
    if (f->has_inputs) parts = 6;
    const size_t rows = f->tokens - f->q_first;
    const struct {
        const char *part;
        size_t dims, dim[3];
        enum ha_dtype dtype;
    } wanted[] = {
        { "k", 3, { f->kv_heads, f->tokens, f->head_dim }, dtype },
        { "v", 3, { f->kv_heads, f->tokens, f->head_dim }, dtype },
        { "q", 3, { f->q_heads, rows, f->head_dim }, dtype },
        { "x", 2, { rows, f->model_dim }, HA_F32 },
        { "wq", 2, { f->q_heads * f->head_dim, f->model_dim }, HA_F32 },
        { "norm", 1, { f->model_dim }, HA_F32 },
    };
    for (size_t layer = 0; layer < f->layers; layer++)
        for (size_t i = 0; i < parts; i++)
            HA_TRY(tensor_check(r, layer, wanted[i].part, wanted[i].dims, wanted[i].dim, wanted[i].dtype));
    if (count != f->layers * parts)
        return ha_why(r->why, HA_ERROR, "trace %s: has %zu tensors; %zu layers with %zu each make %zu", r->name, count,
                      f->layers, parts, f->layers * parts);
    return HA_OK;
}

/* ---- what the case asks --------------------------------------------------------------- */

static enum ha_status shape_fill(const struct reader *r, struct ha_shape *s)
{
    const struct facts *f = &r->facts;
    const struct {
        const char *key;
        size_t *asked, has;
    } fixed[] = {
        { "query heads", &s->q_heads, f->q_heads },
        { "KV heads", &s->kv_heads, f->kv_heads },
        { "head_dim", &s->head_dim, f->head_dim },
        { "model_dim", &s->model_dim, f->has_inputs ? f->model_dim : 0 },
    };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        if (*fixed[i].asked && *fixed[i].asked != fixed[i].has)
            return ha_why(r->why, HA_ERROR, "trace %s: %s is %zu here, the case asks for %zu: leave that key out",
                          r->name, fixed[i].key, fixed[i].has, *fixed[i].asked);
        *fixed[i].asked = fixed[i].has;
    }
    if (s->layers > f->layers)
        return ha_why(r->why, HA_ERROR, "trace %s: has %zu layers, the case asks for %zu: lower layers or leave it out",
                      r->name, f->layers, s->layers);
    if (s->layers == 0) s->layers = f->layers;
    if (s->scale != 0 && !(s->scale == (float)f->scale))
        return ha_why(r->why, HA_ERROR, "trace %s: scale is %g, the case asks for %g", r->name, f->scale,
                      (double)s->scale);
    s->scale = (float)f->scale;
    return HA_OK;
}

static enum ha_status tokens_check(const struct reader *r, const struct ha_shape *s, size_t total_tokens)
{
    const struct facts *f = &r->facts;
    char has[160];
    snprintf(has, sizeof has, "trace %.60s: has %zu tokens, and queries of tokens %zu to %zu", r->name, f->tokens,
             f->q_first, f->tokens - 1);
    if (s->batch < 1 || s->batch > HA_BATCH_MAX)
        return ha_why(r->why, HA_ERROR, "trace %s: batch is %zu; from 1 to %d is possible", r->name, s->batch,
                      HA_BATCH_MAX);
    for (size_t b = 0; b < s->batch; b++) {
        size_t added, needed, context = s->ctx[b], observed = s->observed < context ? s->observed : context;
        if (__builtin_mul_overflow(s->steps, s->q_len, &added) || __builtin_add_overflow(context, added, &needed)
            || needed > f->tokens)
            return ha_why(r->why, HA_ERROR, "%s; ctx=%zu and %zu steps of q_len %zu need more: lower ctx or steps", has,
                          context, s->steps, s->q_len);
        if (observed + added > 0 && context - observed < f->q_first)
            return ha_why(r->why, HA_ERROR,
                          "%s; ctx=%zu with observed=%zu needs that of token %zu: raise ctx to at least "
                          "%zu or lower observed",
                          has, context, s->observed, context - observed, f->q_first + observed);
    }
    if (total_tokens > f->tokens)
        return ha_why(r->why, HA_ERROR, "%s; the case needs %zu tokens: lower ctx or steps", has, total_tokens);
    return HA_OK;
}

/* ---- the source ----------------------------------------------------------------------- */

static void trace_close(struct ha_source *src)
{
    if (!src) return;
    for (size_t i = 0; src->layer && i < src->shape.layers; i++) free(src->layer[i].wq);
    free(src->layer);
    free(src->inv_freq);
    ha_safetensors_close(src->file);
    free(src);
}

static enum ha_status layer_fill(const struct reader *r, size_t index, struct layer *l)
{
    l->k = tensor_find(r, index, "k")->data;
    l->v = tensor_find(r, index, "v")->data;
    l->q = tensor_find(r, index, "q")->data;
    if (!r->facts.has_inputs) return HA_OK;
    const struct ha_tensor *wq = tensor_find(r, index, "wq"), *norm = tensor_find(r, index, "norm");
    const size_t elements = wq->dim[0] * wq->dim[1];
    bool finite = true;
    l->x = tensor_find(r, index, "x")->data;
    l->wq = malloc(elements * sizeof *l->wq);
    if (!l->wq) return ha_why(r->why, HA_ERROR, "trace %s: out of memory", r->name);
    ha_load_row(wq->data, elements, r->facts.stored, l->wq);
    for (size_t i = 0; i < elements; i++) {
        l->wq[i] *= ha_load(norm->data, i % wq->dim[1], r->facts.stored);
        finite = finite && isfinite(l->wq[i]);
    }
    return finite ? HA_OK
                  : ha_why(r->why, HA_ERROR, "trace %s: layers.%zu.wq times layers.%zu.norm overflows", r->name, index,
                           index);
}

static enum ha_status source_fill(const struct reader *r, struct ha_source *src)
{
    const struct facts *f = &r->facts;
    src->stored = f->stored;
    src->tokens = f->tokens;
    src->q_first = f->q_first;
    src->norm_eps = f->norm_eps;
    src->layer = calloc(src->shape.layers, sizeof *src->layer);
    if (!src->layer) return ha_why(r->why, HA_ERROR, "trace %s: out of memory", r->name);
    for (size_t i = 0; i < src->shape.layers; i++) HA_TRY(layer_fill(r, i, &src->layer[i]));
    if (!f->has_inputs || !(f->rope_theta > 0)) return HA_OK;
    const size_t half = f->head_dim / 2;
    src->inv_freq = malloc((half + 1) * sizeof *src->inv_freq);
    if (!src->inv_freq) return ha_why(r->why, HA_ERROR, "trace %s: out of memory", r->name);
    for (size_t j = 0; j < half; j++) src->inv_freq[j] = (float)pow(f->rope_theta, -(double)j / (double)half);
    return HA_OK;
}

enum ha_status ha_trace_open(struct ha_source **src, struct ha_shape *shape, size_t total_tokens, const char *name,
                             struct ha_safetensors *file, struct ha_why *why)
{
    size_t length = strlen(name);
    struct reader r = { .name = length > 120 ? name + length - 120 : name, .file = file, .why = why };
    struct ha_source *s = calloc(1, sizeof *s);
    *src = NULL;
    if (!s) {
        ha_safetensors_close(file);
        return ha_why(why, HA_ERROR, "trace %s: out of memory", r.name);
    }
    s->file = file;
    s->shape = *shape;
    enum ha_status status = facts_read(&r);
    if (status == HA_OK) status = tensors_check(&r, shape->dtype);
    if (status == HA_OK) status = shape_fill(&r, &s->shape);
    if (status == HA_OK) status = tokens_check(&r, &s->shape, total_tokens);
    if (status == HA_OK) status = source_fill(&r, s);
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
    return ha_trace_open(src, shape, total_tokens, file, tensors, why);
}

static enum ha_status trace_find(const char *file, struct ha_why *why)
{
    char path[PATH_BYTES];
    return ha_trace_find(file, path, why);
}

/* n elements from element `first` of a tensor, stored as shape.dtype */
static void convert(const struct ha_source *src, const char *data, size_t first, size_t n, void *out)
{
    size_t from = ha_dtype_bytes(src->stored), to = ha_dtype_bytes(src->shape.dtype);
    data += first * from;
    if (src->stored == src->shape.dtype) {
        memcpy(out, data, n * to);
        return;
    }
    float piece[1024];
    const size_t most = sizeof piece / sizeof *piece;
    for (size_t done = 0, some; done < n; done += some) {
        some = n - done < most ? n - done : most;
        ha_load_row(data + done * from, some, src->stored, piece);
        ha_store_row((char *)out + done * to, some, src->shape.dtype, piece);
    }
}

static void trace_kv(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t first, size_t count, void *k,
                     void *v)
{
    size_t d = src->shape.head_dim, start = (head * src->tokens + first) * d;
    if (k) convert(src, src->layer[layer].k, start, count * d, k);
    if (v) convert(src, src->layer[layer].v, start, count * d, v);
}

static void trace_query(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token, float *q)
{
    size_t d = src->shape.head_dim, rows = src->tokens - src->q_first;
    size_t start = (head * rows + token - src->q_first) * d;
    ha_load_row(src->layer[layer].q + start * ha_dtype_bytes(src->stored), d, src->stored, q);
    for (size_t j = 0; j < d; j++) q[j] = ha_round(q[j], src->shape.dtype);
}

static void trace_input(struct ha_source *src, size_t seq, size_t layer, size_t token, float *x)
{
    size_t n = src->shape.model_dim;
    const char *row = src->layer[layer].x + (token - src->q_first) * n * ha_dtype_bytes(src->stored);
    double sum = 0;
    ha_load_row(row, n, src->stored, x);
    for (size_t j = 0; j < n; j++) sum += (double)x[j] * (double)x[j];
    double mean = sum / (double)n + src->norm_eps;
    double factor = mean > 0 ? 1 / sqrt(mean) : 0;
    for (size_t j = 0; j < n; j++) x[j] = (float)((double)x[j] * factor);
}

static struct ha_projection trace_projection(struct ha_source *src, size_t layer)
{
    return (struct ha_projection){ .wq = src->layer[layer].wq,
                                   .inv_freq = src->inv_freq,
                                   .rotary = src->inv_freq ? src->shape.head_dim / 2 * 2 : 0,
                                   .rope_scale = 1 };
}

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
