#include "harness/base/fit.h"

#include "harness/base/array.h"
#include "harness/base/numeric.h"
#include "harness/base/program.h"
#include "harness/base/why.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };
static const char format[] = "habench-fit", version[] = "1";

static const char *const keys[HA_FIT_KEYS] = {
    [HA_FIT_VARIANT] = "variant",   [HA_FIT_PARAMS] = "params",       [HA_FIT_MODEL] = "model",
    [HA_FIT_LAYERS] = "layers",     [HA_FIT_Q_HEADS] = "q_heads",     [HA_FIT_KV_HEADS] = "kv_heads",
    [HA_FIT_HEAD_DIM] = "head_dim", [HA_FIT_MODEL_DIM] = "model_dim", [HA_FIT_DATASET] = "dataset",
    [HA_FIT_SEED] = "seed",         [HA_FIT_CASE] = "case",           [HA_FIT_HABENCH] = "habench",
};

/* What a tensor of a fit may have. */
static const struct type {
    enum ha_tensor_type type;
    const char *name;
    size_t bytes;
} types[] = { { HA_T_F32, "F32", 4 }, { HA_T_F16, "F16", 2 }, { HA_T_BF16, "BF16", 2 }, { HA_T_I32, "I32", 4 } };
enum { TYPES = sizeof types / sizeof *types };

static const struct type *type_of(const struct ha_tensor *t)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].type == t->type) return &types[i];
    return NULL;
}

static enum ha_status tensor_check(const struct ha_tensor *t, struct ha_why *why)
{
    enum ha_dtype dtype;
    if (!type_of(t)) return ha_why(why, HA_ERROR, "tensor %.80s is not F32, F16, BF16 or I32", t->name);
    return ha_tensor_dtype(t, &dtype) ? ha_tensor_finite(t, dtype, why) : HA_OK;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* F16 and BF16 are read as F32. */
static enum ha_tensor_type read_as(const struct ha_tensor *t)
{
    enum ha_dtype dtype;
    return ha_tensor_dtype(t, &dtype) ? HA_T_F32 : t->type;
}

static size_t bytes_read(const struct ha_tensor *t) { return t->bytes / type_of(t)->bytes * 4; }

struct ha_fit {
    struct ha_safetensors *file;
    char name[128];       /* the end of a long one */
    unsigned char **data; /* of each tensor, aligned: in `block` */
    unsigned char *block;
};

static size_t padded(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static enum ha_status meta_check(const struct ha_fit *f, struct ha_why *why)
{
    const struct {
        const char *key, *wanted;
    } first[] = { { "format", format }, { "version", version } };
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        const char *is = ha_safetensors_meta(f->file, first[i].key);
        if (!is || strcmp(is, first[i].wanted) != 0)
            return ha_why(why, HA_ERROR, "%s is '%.40s', and '%s' in what this program reads: `habench fit` writes it",
                          first[i].key, is ? is : "", first[i].wanted);
    }
    for (size_t k = 0; k < HA_FIT_KEYS; k++)
        if (!ha_safetensors_meta(f->file, keys[k]))
            return ha_why(why, HA_ERROR, "metadata key '%s' is missing: `habench fit` writes it", keys[k]);
    return HA_OK;
}

/* What to do about a file that is damaged, or of something else. */
static enum ha_status damaged(struct ha_why *why)
{
    const struct ha_why is = *why;
    return ha_why(why, HA_ERROR, "%s (`habench fit CASE -o FILE` makes another)", is.text);
}

/* Checks all tensors, and copies them to where they are aligned, in 4 bytes an element. */
static enum ha_status tensors_read(struct ha_fit *f, struct ha_why *why)
{
    const size_t count = ha_safetensors_count(f->file);
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (tensor_check(ha_safetensors_at(f->file, i), why) != HA_OK) return damaged(why);
        bytes += padded(bytes_read(ha_safetensors_at(f->file, i)));
    }
    f->data = calloc(count + 1, sizeof *f->data);
    f->block = aligned_alloc(ALIGN, bytes + ALIGN);
    if (!f->data || !f->block) return ha_why(why, HA_ERROR, "out of memory");
    unsigned char *next = f->block;
    for (size_t i = 0; i < count; i++) {
        const struct ha_tensor *t = ha_safetensors_at(f->file, i);
        enum ha_dtype dtype;
        f->data[i] = next;
        if (ha_tensor_dtype(t, &dtype)) ha_load_row(t->data, bytes_read(t) / 4, dtype, (float *)(void *)next);
        else if (t->bytes) memcpy(next, t->data, t->bytes);
        next += padded(bytes_read(t));
    }
    return HA_OK;
}

/* file: taken over, also on failure */
static enum ha_status fit_read(struct ha_fit **fit, const char *name, struct ha_safetensors *file, struct ha_why *why)
{
    struct ha_fit *f = calloc(1, sizeof *f);
    if (!f) {
        ha_safetensors_close(file);
        return ha_why(why, HA_ERROR, "out of memory");
    }
    const size_t length = strlen(name), most = sizeof f->name - 1;
    f->file = file;
    memcpy(f->name, length > most ? name + length - most : name, length > most ? most : length);
    enum ha_status status = meta_check(f, why);
    if (status == HA_OK) status = tensors_read(f, why);
    if (status == HA_OK) {
        *fit = f;
        return HA_OK;
    }
    ha_why_prefix(why, status, "fit %s", f->name);
    ha_fit_close(f);
    return status;
}

enum ha_status ha_fit_path(char path[HA_PATH_BYTES], const char *name, struct ha_why *why)
{
    return ha_program_find(path, "fit", "datasets/fits", name, ".safetensors", why);
}

enum ha_status ha_fit_open(struct ha_fit **fit, const char *path, struct ha_why *why)
{
    struct ha_safetensors *file;
    *fit = NULL;
    if (ha_safetensors_open(&file, path, why) != HA_OK) {
        ha_why_prefix(why, HA_ERROR, "fit");
        return damaged(why);
    }
    return fit_read(fit, path, file, why);
}

enum ha_status ha_fit_parse(struct ha_fit **fit, const char *name, const void *data, size_t bytes, struct ha_why *why)
{
    struct ha_safetensors *file;
    *fit = NULL;
    HA_TRY(ha_safetensors_parse(&file, name, data, bytes, why));
    return fit_read(fit, name, file, why);
}

void ha_fit_close(struct ha_fit *f)
{
    if (!f) return;
    ha_safetensors_close(f->file);
    free(f->data);
    free(f->block);
    free(f);
}

enum ha_status ha_fit_check(const struct ha_fit *f, const struct ha_fit_about *of, struct ha_why *why)
{
    for (size_t k = 0; k < HA_FIT_AGREES; k++) {
        const char *is = ha_safetensors_meta(f->file, keys[k]);
        if (of->value[k] && strcmp(is, of->value[k]) != 0)
            return ha_why(
                why, HA_ERROR,
                "fit %s was made for %s '%.80s', the case has '%.80s': `habench fit CASE -o FILE` makes another",
                f->name, keys[k], is, of->value[k]);
    }
    return HA_OK;
}

struct origin_key {
    char text[24];
};
static struct origin_key origin_key(const char *what, size_t i)
{
    struct origin_key key;
    snprintf(key.text, sizeof key.text, "%s.%zu", what, i);
    return key;
}
static struct origin_key hash_text(uint64_t hash)
{
    struct origin_key text;
    snprintf(text.text, sizeof text.text, "%016" PRIx64, hash);
    return text;
}

bool ha_fit_shares(const struct ha_fit *f, const struct ha_fit_about *with)
{
    const char *text, *hash;
    for (size_t i = 0; (text = ha_safetensors_meta(f->file, origin_key("text", i).text)); i++) {
        hash = ha_safetensors_meta(f->file, origin_key("hash", i).text);
        for (size_t k = 0; k < with->origins; k++)
            if (!strcmp(text, with->origin[k].text)
                || (hash && with->origin[k].hash && !strcmp(hash, hash_text(with->origin[k].hash).text)))
                return true;
    }
    return false;
}

/* the index of a tensor, or the number of them */
static size_t find(const struct ha_fit *f, const char *name)
{
    size_t i = 0;
    while (i < ha_safetensors_count(f->file) && strcmp(ha_safetensors_at(f->file, i)->name, name) != 0) i++;
    return i;
}

bool ha_fit_has(const struct ha_fit *f, const char *name) { return find(f, name) < ha_safetensors_count(f->file); }

static enum ha_status agrees(const struct ha_fit *f, const struct ha_tensor *t, const struct ha_tensor *wanted,
                             struct ha_why *why)
{
    if (read_as(t) != wanted->type)
        return ha_why(why, HA_ERROR, "fit %s: tensor %s is %s, and %s is wanted", f->name, t->name, type_of(t)->name,
                      wanted->type == HA_T_F32 || wanted->type == HA_T_I32 ? type_of(wanted)->name
                                                                           : "a type that no fit is read as");
    if (t->dims != wanted->dims || memcmp(t->dim, wanted->dim, t->dims * sizeof *t->dim) != 0)
        return ha_why(why, HA_ERROR, "fit %s: tensor %s has shape %s, and %s is wanted", f->name, t->name,
                      ha_tensor_place(t->dim, t->dims).text, ha_tensor_place(wanted->dim, wanted->dims).text);
    return HA_OK;
}

enum ha_status ha_fit_get(const struct ha_fit *f, struct ha_tensor *tensor, struct ha_why *why)
{
    if (!f)
        return ha_why(why, HA_WAIVED,
                      "needs a fit, for tensor %s: `habench fit CASE -o FILE` learns it, fit=FILE reads it",
                      tensor->name);
    const size_t i = find(f, tensor->name);
    if (i == ha_safetensors_count(f->file)) {
        ha_why(why, HA_ERROR, "fit %s: tensor %s is missing: it was made by another version of the variant", f->name,
               tensor->name);
        return damaged(why);
    }
    if (agrees(f, ha_safetensors_at(f->file, i), tensor, why) != HA_OK) return damaged(why);
    tensor->data = f->data[i];
    tensor->bytes = bytes_read(ha_safetensors_at(f->file, i));
    return HA_OK;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

enum ha_status ha_fit_put(struct ha_fit_writer *to, const struct ha_tensor *tensor, struct ha_why *why)
{
    const struct type *type = type_of(tensor);
    struct ha_tensor t = *tensor;
    t.bytes = type ? type->bytes : 0;
    if (t.dims > HA_TENSOR_DIMS_MAX)
        return ha_why(why, HA_ERROR, "tensor %s: more than %d dimensions", t.name, HA_TENSOR_DIMS_MAX);
    for (size_t i = 0; i < t.dims; i++)
        if (__builtin_mul_overflow(t.bytes, t.dim[i], &t.bytes))
            return ha_why(why, HA_ERROR, "tensor %s: its shape has more than 2^64 bytes", t.name);
    HA_TRY(tensor_check(&t, why));
    if (!ha_array_room(&to->tensor, &to->capacity, to->count + 1, sizeof *to->tensor))
        return ha_why(why, HA_ERROR, "out of memory");
    void *data = malloc(t.bytes ? t.bytes : 1);
    t.name = strdup(t.name);
    if (!data || !t.name) {
        free(data);
        free((char *)(uintptr_t)t.name);
        return ha_why(why, HA_ERROR, "out of memory");
    }
    if (t.bytes) memcpy(data, t.data, t.bytes);
    t.data = data;
    to->tensor[to->count++] = t;
    return HA_OK;
}

enum ha_status ha_fit_write(const struct ha_fit_writer *from, const char *path, const struct ha_fit_about *about,
                            struct ha_why *why)
{
    struct origin {
        struct origin_key text, hash, value;
    } *origin = calloc(about->origins + 1, sizeof *origin);
    const size_t pairs = 2 + HA_FIT_KEYS + 2 * about->origins;
    const char **meta = calloc(2 * pairs + 1, sizeof *meta), **next = meta;
    enum ha_status status = from->count ? HA_OK : ha_why(why, HA_ERROR, "nothing was learnt");
    if (!origin || !meta) status = ha_why(why, HA_ERROR, "out of memory");
    if (status == HA_OK) {
        *next++ = "format";
        *next++ = format;
        *next++ = "version";
        *next++ = version;
        for (size_t k = 0; k < HA_FIT_KEYS; k++) {
            *next++ = keys[k];
            *next++ = about->value[k];
        }
        for (size_t i = 0; i < about->origins; i++) {
            origin[i] = (struct origin){ origin_key("text", i), origin_key("hash", i),
                                         hash_text(about->origin[i].hash) };
            *next++ = origin[i].text.text;
            *next++ = about->origin[i].text;
            if (!about->origin[i].hash) continue;
            *next++ = origin[i].hash.text;
            *next++ = origin[i].value.text;
        }
        status = ha_safetensors_write(path, from->tensor, from->count, meta, why);
    }
    free(meta);
    free(origin);
    return status;
}

void ha_fit_writer_free(struct ha_fit_writer *w)
{
    for (size_t i = 0; i < w->count; i++) {
        free((char *)(uintptr_t)w->tensor[i].name);
        free((void *)(uintptr_t)w->tensor[i].data);
    }
    free(w->tensor);
    *w = (struct ha_fit_writer){ .tensor = NULL };
}
