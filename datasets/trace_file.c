#include "datasets/trace_file.h"

#include "harness/base/numeric.h"
#include "harness/base/text.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INV_FREQ   "rope.inv_freq"
#define SIZE_LIMIT ((size_t)1 << 40)

struct reader {
    struct ha_trace *t;
    struct ha_why *why;
};

/* ---- what the file says --------------------------------------------------------------- */

static enum ha_status meta_text(const struct reader *r, const char *key, const char **text)
{
    *text = ha_safetensors_meta(r->t->file, key);
    return *text ? HA_OK : ha_why(r->why, HA_ERROR, "trace %s: metadata key '%s' is missing", r->t->name, key);
}

static enum ha_status meta_size(const struct reader *r, const char *key, size_t least, size_t *out)
{
    const char *text;
    HA_TRY(meta_text(r, key, &text));
    unsigned long long value = strtoull(text, NULL, 10); /* too large gives the largest */
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || text[digits] || value < least || value > SIZE_LIMIT)
        return ha_why(r->why, HA_ERROR, "trace %s: metadata %s='%.40s' is not an integer from %zu to %zu", r->t->name,
                      key, text, least, SIZE_LIMIT);
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
        return ha_why(r->why, HA_ERROR, "trace %s: metadata %s='%.40s' is not a finite number", r->t->name, key, text);
    return HA_OK;
}

static enum ha_status meta_read(struct reader *r)
{
    struct ha_trace *t = r->t;
    const char *format = ha_safetensors_meta(t->file, "format"), *version, *text;
    const struct {
        const char *key;
        size_t least, *to;
    } sizes[] = {
        { "tokens", 1, &t->tokens },       { "q_first", 0, &t->q_first },   { "layers", 1, &t->layers },
        { "q_heads", 1, &t->q_heads },     { "kv_heads", 1, &t->kv_heads }, { "head_dim", 1, &t->head_dim },
        { "model_dim", 1, &t->model_dim },
    };
    const struct {
        const char *key;
        double *to;
    } numbers[] = { { "rope_theta", &t->rope_theta }, { "norm_eps", &t->norm_eps }, { "scale", &t->scale } };
    const char *const texts[] = { "model", "source", "licence" };

    if (!format || strcmp(format, "habench-trace") != 0)
        return ha_why(r->why, HA_ERROR, "trace %s: not a trace: metadata format is '%.40s', not 'habench-trace'",
                      t->name, format ? format : "");
    HA_TRY(meta_text(r, "version", &version));
    if (strcmp(version, "1") != 0 && strcmp(version, "2") != 0)
        return ha_why(r->why, HA_ERROR, "trace %s: version '%.40s'; this program reads versions 1 and 2", t->name,
                      version);
    t->version = (size_t)(*version - '0');
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) HA_TRY(meta_text(r, texts[i], &text));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        HA_TRY(meta_size(r, sizes[i].key, sizes[i].least, sizes[i].to));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) HA_TRY(meta_number(r, numbers[i].key, numbers[i].to));
    if (t->q_first >= t->tokens)
        return ha_why(r->why, HA_ERROR, "trace %s: q_first=%zu leaves no query among %zu tokens", t->name, t->q_first,
                      t->tokens);
    if (t->q_heads % t->kv_heads)
        return ha_why(r->why, HA_ERROR, "trace %s: %zu query heads are not a multiple of %zu KV heads", t->name,
                      t->q_heads, t->kv_heads);
    if (!(t->rope_theta >= 0))
        return ha_why(r->why, HA_ERROR, "trace %s: rope_theta=%g is negative", t->name, t->rope_theta);
    return HA_OK;
}

/* What scores or queries are multiplied by must not round to 0 or to infinity. */
static enum ha_status factor_check(const struct reader *r, const char *key, double factor)
{
    const float rounded = (float)factor;
    return rounded > 0 && isfinite(rounded)
               ? HA_OK
               : ha_why(r->why, HA_ERROR, "trace %s: %s=%g is not a binary32 number above 0", r->t->name, key, factor);
}

static enum ha_status eps_check(const struct reader *r, const char *key, double eps)
{
    return eps >= 0 && eps <= 1
               ? HA_OK
               : ha_why(r->why, HA_ERROR, "trace %s: %s=%g is not a number from 0 to 1", r->t->name, key, eps);
}

/* What version 2 adds. */
static enum ha_status meta_read_2(struct reader *r)
{
    static const char *const pairings[] = { "half", "adjacent", NULL };
    struct ha_trace *t = r->t;
    const char *pairing = ha_safetensors_meta(t->file, "rope_pairing");
    size_t index = 0;
    if (pairing && ha_word_find("rope_pairing", pairing, pairings, &index, r->why) != HA_OK)
        return ha_why_prefix(r->why, HA_ERROR, "trace %s", t->name);
    t->adjacent = index == 1;
    if (ha_safetensors_meta(t->file, "rope_scale")) HA_TRY(meta_number(r, "rope_scale", &t->rope_scale));
    HA_TRY(factor_check(r, "rope_scale", t->rope_scale));
    if ((t->adjacent || t->rope_scale != 1) && !ha_safetensors_find(t->file, INV_FREQ))
        return ha_why(r->why, HA_ERROR, "trace %s: metadata %s is without effect, for tensor " INV_FREQ " is missing",
                      t->name, t->adjacent ? "rope_pairing=adjacent" : "rope_scale");
    if (t->has[HA_TRACE_Q_NORM] || ha_safetensors_meta(t->file, "q_norm_eps"))
        HA_TRY(meta_number(r, "q_norm_eps", &t->q_norm_eps));
    return eps_check(r, "q_norm_eps", t->q_norm_eps);
}

/* ---- its tensors ---------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t version; /* from which on */
    bool needs_x;   /* x, wq and norm come together, and with what makes a query of them */
} PARTS[HA_TRACE_PARTS] = {
    [HA_TRACE_K] = { "k", 1, false },          [HA_TRACE_V] = { "v", 1, false },
    [HA_TRACE_Q] = { "q", 1, false },          [HA_TRACE_X] = { "x", 1, true },
    [HA_TRACE_WQ] = { "wq", 1, true },         [HA_TRACE_NORM] = { "norm", 1, true },
    [HA_TRACE_Q_BIAS] = { "q_bias", 2, true }, [HA_TRACE_Q_NORM] = { "q_norm", 2, true },
    [HA_TRACE_WO] = { "wo", 2, false },
};

const char *ha_trace_part_name(size_t part) { return PARTS[part].name; }

struct name {
    char text[64];
};

static struct name name_of(size_t layer, size_t part)
{
    struct name name;
    snprintf(name.text, sizeof name.text, "layers.%zu.%s", layer, PARTS[part].name);
    return name;
}

/* Which part of which layer it is; HA_TRACE_PARTS: none that the version and the number of layers allow. */
static size_t part_of(const struct ha_trace *t, const char *name)
{
    const char *number = strncmp(name, "layers.", 7) == 0 ? name + 7 : "";
    const unsigned long long layer = strtoull(number, NULL, 10);
    size_t part = 0;
    if (strspn(number, "0123456789") == 0 || layer >= t->layers) return HA_TRACE_PARTS;
    while (part < HA_TRACE_PARTS
           && (PARTS[part].version > t->version || strcmp(name_of((size_t)layer, part).text, name) != 0))
        part++;
    return part;
}

/* Which parts there are: those of any layer, and what they need. A tensor that is none of them is refused. */
static enum ha_status parts_find(struct reader *r)
{
    struct ha_trace *t = r->t;
    bool x = false;
    t->has[HA_TRACE_K] = t->has[HA_TRACE_V] = t->has[HA_TRACE_Q] = true;
    for (size_t i = 0; i < ha_safetensors_count(t->file); i++) {
        const char *name = ha_safetensors_at(t->file, i)->name;
        const size_t part = part_of(t, name);
        if (part < HA_TRACE_PARTS) {
            t->has[part] = true;
            x = x || PARTS[part].needs_x;
        } else if (t->version < 2 || strcmp(name, INV_FREQ) != 0) {
            char clean[80];
            snprintf(clean, sizeof clean, "%s", name);
            return ha_why(r->why, HA_ERROR, "trace %s: version %zu with %zu layers has no tensor %s: take it out",
                          t->name, t->version, t->layers, ha_text_clean(clean));
        }
    }
    if (x) t->has[HA_TRACE_X] = t->has[HA_TRACE_WQ] = t->has[HA_TRACE_NORM] = true;
    return HA_OK;
}

/* dtype: what its numbers must fit */
static enum ha_status tensor_check(const struct reader *r, const char *name, size_t dims, const size_t *dim,
                                   enum ha_dtype dtype)
{
    const struct ha_tensor *x = ha_safetensors_find(r->t->file, name);
    enum ha_dtype stored;
    if (!x) return ha_why(r->why, HA_ERROR, "trace %s: tensor %s is missing", r->t->name, name);
    if (!ha_tensor_dtype(x, &stored) || stored != r->t->stored)
        return ha_why(r->why, HA_ERROR, "trace %s: tensor %s has another dtype than layers.0.k", r->t->name, name);
    if (x->dims != dims || memcmp(x->dim, dim, dims * sizeof *dim) != 0)
        return ha_why(r->why, HA_ERROR, "trace %s: tensor %s has shape %s, the metadata says %s", r->t->name, name,
                      ha_tensor_place(x->dim, x->dims).text, ha_tensor_place(dim, dims).text);
    return ha_tensor_finite(x, dtype, r->why) == HA_OK ? HA_OK
                                                       : ha_why_prefix(r->why, HA_ERROR, "trace %s", r->t->name);
}

static enum ha_status tensors_check(struct reader *r, enum ha_dtype dtype)
{
    struct ha_trace *t = r->t;
    const struct ha_tensor *first = ha_safetensors_find(t->file, "layers.0.k");
    const size_t rows = t->tokens - t->q_first, width = t->q_heads * t->head_dim;
    const struct {
        size_t dims, dim[3];
        enum ha_dtype dtype;
    } wanted[] = {
        [HA_TRACE_K] = { 3, { t->kv_heads, t->tokens, t->head_dim }, dtype },
        [HA_TRACE_V] = { 3, { t->kv_heads, t->tokens, t->head_dim }, dtype },
        [HA_TRACE_Q] = { 3, { t->q_heads, rows, t->head_dim }, dtype },
        [HA_TRACE_X] = { 2, { rows, t->model_dim }, HA_F32 },
        [HA_TRACE_WQ] = { 2, { width, t->model_dim }, HA_F32 },
        [HA_TRACE_NORM] = { 1, { t->model_dim }, HA_F32 },
        [HA_TRACE_Q_BIAS] = { 1, { width }, HA_F32 },
        [HA_TRACE_Q_NORM] = { 1, { t->head_dim }, HA_F32 },
        [HA_TRACE_WO] = { 2, { t->model_dim, width }, HA_F32 },
    };
    if (!first) return ha_why(r->why, HA_ERROR, "trace %s: tensor layers.0.k is missing", t->name);
    if (!ha_tensor_dtype(first, &t->stored))
        return ha_why(r->why, HA_ERROR, "trace %s: tensor layers.0.k is not F16, BF16 or F32", t->name);
    for (size_t layer = 0; layer < t->layers; layer++)
        for (size_t p = 0; p < HA_TRACE_PARTS; p++)
            if (t->has[p])
                HA_TRY(tensor_check(r, name_of(layer, p).text, wanted[p].dims, wanted[p].dim, wanted[p].dtype));
    return HA_OK;
}

/* What is turned: what rope.inv_freq says; else, of a query that x gives, by rope_theta all of a head. */
static enum ha_status rotary_read(struct reader *r)
{
    struct ha_trace *t = r->t;
    const struct ha_tensor *x = t->version < 2 ? NULL : ha_safetensors_find(t->file, INV_FREQ);
    if (!x) {
        t->rotary = t->has[HA_TRACE_X] && t->rope_theta > 0 ? t->head_dim / 2 * 2 : 0;
        return HA_OK;
    }
    t->rope_theta = 0;
    if (x->type != HA_T_F32)
        return ha_why(r->why, HA_ERROR, "trace %s: tensor " INV_FREQ " is not F32, in which it always is", t->name);
    if (x->dims != 1 || x->dim[0] < 1 || x->dim[0] > t->head_dim / 2)
        return ha_why(r->why, HA_ERROR,
                      "trace %s: tensor " INV_FREQ " has shape %s; head_dim %zu has from [1] to [%zu] pairs", t->name,
                      ha_tensor_place(x->dim, x->dims).text, t->head_dim, t->head_dim / 2);
    if (ha_tensor_finite(x, HA_F32, r->why) != HA_OK) return ha_why_prefix(r->why, HA_ERROR, "trace %s", t->name);
    for (size_t i = 0; i < x->dim[0]; i++)
        if (ha_load(x->data, i, HA_F32) < 0)
            return ha_why(r->why, HA_ERROR, "trace %s: tensor " INV_FREQ "[%zu] is %g, below 0", t->name, i,
                          (double)ha_load(x->data, i, HA_F32));
    t->rotary = 2 * x->dim[0];
    return HA_OK;
}

/* ---- the whole ------------------------------------------------------------------------ */

enum ha_status ha_trace_read(struct ha_trace *t, enum ha_dtype dtype, struct ha_why *why)
{
    struct reader r = { t, why };
    const size_t length = strlen(t->name), most = 120; /* the end of a long path */
    *t = (struct ha_trace){ .name = length > most ? t->name + length - most : t->name,
                            .file = t->file,
                            .rope_scale = 1 };
    HA_TRY(meta_read(&r));
    HA_TRY(factor_check(&r, "scale", t->scale));
    HA_TRY(eps_check(&r, "norm_eps", t->norm_eps));
    HA_TRY(parts_find(&r));
    if (t->version >= 2) HA_TRY(meta_read_2(&r));
    HA_TRY(tensors_check(&r, dtype));
    HA_TRY(rotary_read(&r));
    if (!t->has[HA_TRACE_X]) t->model_dim = 0;
    return HA_OK;
}

const void *ha_trace_data(const struct ha_trace *t, size_t layer, enum ha_trace_part part)
{
    return ha_safetensors_find(t->file, name_of(layer, part).text)->data;
}

size_t ha_trace_elements(const struct ha_trace *t, enum ha_trace_part part)
{
    return t->has[part] ? ha_safetensors_find(t->file, name_of(0, part).text)->bytes / ha_dtype_bytes(t->stored) : 0;
}

void ha_trace_inv_freq(const struct ha_trace *t, float *out)
{
    const size_t half = t->rotary / 2;
    const struct ha_tensor *x = t->version < 2 ? NULL : ha_safetensors_find(t->file, INV_FREQ);
    if (x) ha_load_row(x->data, half, HA_F32, out);
    else
        for (size_t j = 0; j < half; j++) out[j] = (float)pow(t->rope_theta, -(double)j / (double)half);
}
