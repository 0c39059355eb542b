#include "harness/base/file.h"
#include "harness/base/safetensors.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are handed out as they lie in the file");

enum { PREFIX_BYTES = 8, DATA_ALIGN = 64 };
#define HEADER_BYTES_MAX ((uint64_t)100 << 20)
#define METADATA         "__metadata__"

static const struct type {
    const char *name;
    enum ha_tensor_type type;
    size_t bytes;
} TYPES[] = {
    { "F64", HA_T_F64, 8 },    { "F32", HA_T_F32, 4 },         { "F16", HA_T_F16, 2 },         { "BF16", HA_T_BF16, 2 },
    { "I64", HA_T_I64, 8 },    { "I32", HA_T_I32, 4 },         { "U32", HA_T_U32, 4 },         { "U8", HA_T_U8, 1 },
    { "U64", HA_T_OTHER, 8 },  { "I16", HA_T_OTHER, 2 },       { "U16", HA_T_OTHER, 2 },       { "I8", HA_T_OTHER, 1 },
    { "BOOL", HA_T_OTHER, 1 }, { "F8_E4M3", HA_T_F8_E4M3, 1 }, { "F8_E5M2", HA_T_F8_E5M2, 1 }, { "C64", HA_T_OTHER, 8 },
};
enum { TYPES_COUNT = sizeof TYPES / sizeof *TYPES };

struct ha_safetensors {
    void *map; /* NULL where the bytes are the caller's */
    size_t map_bytes;
    json_t *header; /* owns the names and the metadata */
    const json_t *meta;
    struct ha_tensor *tensor; /* in the order of their data */
    size_t count;
};

/* What a reason quotes from a file or a path: one line, of printable characters, the end if it is long. */
struct quote {
    char text[320];
};

static struct quote quote(const char *s)
{
    struct quote q = { "..." };
    size_t length = strlen(s), room = sizeof q.text - 1, at = length > room ? 3 : 0;
    if (at) s += length - (room - at);
    for (; *s; s++) q.text[at++] = (unsigned char)*s < ' ' || *s == 0x7f ? '?' : *s;
    q.text[at] = '\0';
    return q;
}

/* ---- reading -------------------------------------------------------------------------- */

/* Reasons are without the name of the file. */
struct parser {
    const unsigned char *data;
    uint64_t data_bytes;
    struct ha_why *why;
};

static bool dim_read(const json_t *value, size_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (size_t)json_integer_value(value);
    return true;
}

/* info: an object. Its reasons are without the name of the tensor. */
static enum ha_status tensor_read(const struct parser *p, const char *key, const json_t *info, struct ha_tensor *t)
{
    const json_t *dtype = json_object_get(info, "dtype"), *shape = json_object_get(info, "shape");
    const json_t *offsets = json_object_get(info, "data_offsets");
    if (!json_is_string(dtype)) return ha_why(p->why, HA_ERROR, "dtype is missing or not a string");
    const struct type *type = TYPES;
    while (type < TYPES + TYPES_COUNT && strcmp(type->name, json_string_value(dtype)) != 0) type++;
    if (type == TYPES + TYPES_COUNT)
        return ha_why(p->why, HA_ERROR, "unknown dtype '%s'", quote(json_string_value(dtype)).text);
    if (!json_is_array(shape) || json_array_size(shape) > HA_TENSOR_DIMS_MAX)
        return ha_why(p->why, HA_ERROR, "shape is missing or not an array of at most %d numbers", HA_TENSOR_DIMS_MAX);
    *t = (struct ha_tensor){ .name = key, .type = type->type, .dims = json_array_size(shape), .bytes = type->bytes };
    for (size_t i = 0; i < t->dims; i++) {
        if (!dim_read(json_array_get(shape, i), &t->dim[i]))
            return ha_why(p->why, HA_ERROR, "shape[%zu] is not an integer >= 0", i);
        if (__builtin_mul_overflow(t->bytes, t->dim[i], &t->bytes))
            return ha_why(p->why, HA_ERROR, "its shape has more than 2^64 bytes");
    }
    size_t begin, end;
    if (json_array_size(offsets) != 2 || !dim_read(json_array_get(offsets, 0), &begin)
        || !dim_read(json_array_get(offsets, 1), &end))
        return ha_why(p->why, HA_ERROR, "data_offsets is missing or not two integers >= 0");
    if (begin > end) return ha_why(p->why, HA_ERROR, "data_offsets [%zu, %zu] run backwards", begin, end);
    if (end > p->data_bytes)
        return ha_why(p->why, HA_ERROR,
                      "data_offsets [%zu, %zu] are past the end of the data (%llu bytes): is the file complete?", begin,
                      end, (unsigned long long)p->data_bytes);
    if (end - begin != t->bytes)
        return ha_why(p->why, HA_ERROR, "shape and dtype need %zu bytes, data_offsets hold %zu", t->bytes, end - begin);
    t->data = p->data + begin;
    return HA_OK;
}

static int by_place(const void *left, const void *right)
{
    const struct ha_tensor *a = left, *b = right;
    const char *pa = a->data, *pb = b->data;
    if (pa != pb) return pa < pb ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* The format allows no overlap, no hole and nothing after the last tensor. */
static enum ha_status layout_check(const struct parser *p, const struct ha_safetensors *f)
{
    const unsigned char *next = p->data;
    for (size_t i = 0; i < f->count; i++) {
        const struct ha_tensor *t = &f->tensor[i];
        const unsigned char *begin = t->data;
        if (begin < next)
            return ha_why(p->why, HA_ERROR, "tensors '%s' and '%s' overlap", quote(f->tensor[i - 1].name).text,
                          quote(t->name).text);
        if (begin > next)
            return ha_why(p->why, HA_ERROR, "%zu bytes before tensor '%s' belong to no tensor", (size_t)(begin - next),
                          quote(t->name).text);
        next = begin + t->bytes;
    }
    size_t left = (size_t)(p->data + p->data_bytes - next);
    if (left) return ha_why(p->why, HA_ERROR, "%zu bytes at the end belong to no tensor", left);
    return HA_OK;
}

static enum ha_status header_read(const struct parser *p, struct ha_safetensors *f)
{
    f->tensor = malloc((json_object_size(f->header) + 1) * sizeof *f->tensor);
    if (!f->tensor) return ha_why(p->why, HA_ERROR, "out of memory");
    const char *key;
    json_t *value;
    json_object_foreach(f->header, key, value)
    {
        if (strcmp(key, METADATA) != 0) {
            if (!json_is_object(value))
                return ha_why(p->why, HA_ERROR, "tensor '%s' is not described by a JSON object", quote(key).text);
            if (tensor_read(p, key, value, &f->tensor[f->count++]) == HA_OK) continue;
            return ha_why_prefix(p->why, HA_ERROR, "tensor '%s'", quote(key).text);
        }
        if (!json_is_object(value)) return ha_why(p->why, HA_ERROR, METADATA " is not a JSON object");
        f->meta = value;
        const char *name;
        json_t *text;
        json_object_foreach(value, name, text) if (!json_is_string(text)) return ha_why(
            p->why, HA_ERROR, METADATA " '%s' is not a string", quote(name).text);
    }
    qsort(f->tensor, f->count, sizeof *f->tensor, by_place);
    return layout_check(p, f);
}

static enum ha_status parse(struct ha_safetensors *f, const void *data, size_t bytes, struct ha_why *why)
{
    struct parser p = { .why = why };
    uint64_t length;
    if (bytes == 0) return ha_why(why, HA_ERROR, "empty file");
    if (bytes < PREFIX_BYTES)
        return ha_why(why, HA_ERROR, "truncated: %zu bytes, a safetensors file starts with 8 bytes of length", bytes);
    static const char pointer[] = "version https://git-lfs";
    if (bytes >= sizeof pointer && !memcmp(data, pointer, sizeof pointer - 1))
        return ha_why(why, HA_ERROR, "a pointer of Git LFS in place of the file: git lfs pull fetches it");
    memcpy(&length, data, sizeof length);
    if (length > HEADER_BYTES_MAX)
        return ha_why(why, HA_ERROR, "not a safetensors file: header length %llu is over the limit of %llu",
                      (unsigned long long)length, (unsigned long long)HEADER_BYTES_MAX);
    if (length > bytes - PREFIX_BYTES)
        return ha_why(why, HA_ERROR, "truncated: the header has %llu bytes, the file only %zu",
                      (unsigned long long)length, bytes);
    const char *text = (const char *)data + PREFIX_BYTES;
    p.data = (const unsigned char *)text + length;
    p.data_bytes = bytes - PREFIX_BYTES - length;
    json_error_t error;
    f->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!f->header)
        return ha_why(why, HA_ERROR, "the header is not JSON: byte %d: %s", error.position, quote(error.text).text);
    if (!json_is_object(f->header)) return ha_why(why, HA_ERROR, "the header is not a JSON object");
    return header_read(&p, f);
}

enum ha_status ha_safetensors_parse(struct ha_safetensors **file, const char *name, const void *data, size_t bytes,
                                    struct ha_why *why)
{
    struct ha_safetensors *f = *file = calloc(1, sizeof *f);
    const enum ha_status status = f ? parse(f, data, bytes, why) : ha_why(why, HA_ERROR, "out of memory");
    if (status == HA_OK) return HA_OK;
    ha_safetensors_close(f);
    *file = NULL;
    return ha_why_prefix(why, status, "%s", quote(name).text);
}

enum ha_status ha_safetensors_open(struct ha_safetensors **file, const char *path, struct ha_why *why)
{
    void *map = NULL;
    size_t bytes = 0;
    *file = NULL;
    enum ha_status status = ha_file_map(path, &map, &bytes, why);
    if (status != HA_OK) return ha_why_prefix(why, status, "%s", quote(path).text);
    status = ha_safetensors_parse(file, path, map, bytes, why);
    if (status != HA_OK) {
        munmap(map, bytes);
        return status;
    }
    (*file)->map = map;
    (*file)->map_bytes = bytes;
    return HA_OK;
}

const struct ha_tensor *ha_safetensors_find(const struct ha_safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->tensor[i].name, name) == 0) return &file->tensor[i];
    return NULL;
}

size_t ha_safetensors_count(const struct ha_safetensors *file) { return file->count; }
const struct ha_tensor *ha_safetensors_at(const struct ha_safetensors *file, size_t i) { return &file->tensor[i]; }

const char *ha_safetensors_meta(const struct ha_safetensors *file, const char *key)
{
    return json_string_value(json_object_get(file->meta, key));
}

void ha_safetensors_close(struct ha_safetensors *file)
{
    if (!file) return;
    free(file->tensor);
    json_decref(file->header);
    if (file->map) munmap(file->map, file->map_bytes);
    free(file);
}

/* ---- writing -------------------------------------------------------------------------- */

static const struct type *type_of(enum ha_tensor_type type)
{
    for (size_t i = 0; i < TYPES_COUNT; i++)
        if (TYPES[i].type == type && type != HA_T_OTHER) return &TYPES[i];
    return NULL;
}

/* Adds one tensor to the header; its data starts at *offset, which moves on. Reasons are without the name of the
 * tensor. */
static enum ha_status describe(json_t *header, const struct ha_tensor *t, size_t *offset, struct ha_why *why)
{
    const struct type *type = type_of(t->type);
    if (!type || t->dims > HA_TENSOR_DIMS_MAX)
        return ha_why(why, HA_ERROR, "its type or its number of dimensions cannot be written");
    if (!strcmp(t->name, METADATA) || json_object_get(header, t->name))
        return ha_why(why, HA_ERROR, "the name is taken");
    size_t bytes = type->bytes, begin = *offset;
    json_t *shape = json_array();
    bool ok = shape != NULL;
    for (size_t i = 0; i < t->dims; i++) {
        ok = ok && !__builtin_mul_overflow(bytes, t->dim[i], &bytes);
        ok = ok && json_array_append_new(shape, json_integer((json_int_t)t->dim[i])) == 0;
    }
    if (!ok || bytes != t->bytes || __builtin_add_overflow(begin, bytes, offset)) {
        json_decref(shape);
        return ha_why(why, HA_ERROR, "its shape does not make %zu bytes", t->bytes);
    }
    json_t *info = json_pack("{s:s, s:o, s:[I,I]}", "dtype", type->name, "shape", shape, "data_offsets",
                             (json_int_t)begin, (json_int_t)*offset);
    if (json_object_set_new(header, t->name, info) != 0)
        return ha_why(why, HA_ERROR, "the name is not UTF-8, or there is no memory");
    return HA_OK;
}

static enum ha_status header_make(const struct ha_tensor *tensors, size_t count, const char *const *meta, char **text,
                                  struct ha_why *why)
{
    json_t *header = json_object(), *map = json_object();
    enum ha_status status = HA_OK;
    size_t offset = 0;
    bool ok = header && map;
    for (; ok && meta && *meta; meta += 2) ok = json_object_set_new(map, meta[0], json_string(meta[1])) == 0;
    ok = json_object_set_new(header, METADATA, map) == 0 && ok;
    if (!ok) status = ha_why(why, HA_ERROR, "the metadata is not UTF-8, or there is no memory");
    for (size_t i = 0; status == HA_OK && i < count; i++) {
        status = describe(header, &tensors[i], &offset, why);
        if (status != HA_OK) ha_why_prefix(why, status, "tensor '%s'", quote(tensors[i].name).text);
    }
    *text = status == HA_OK ? json_dumps(header, JSON_COMPACT) : NULL;
    if (status == HA_OK && !*text) status = ha_why(why, HA_ERROR, "out of memory");
    json_decref(header);
    return status;
}

static bool put(FILE *out, const void *data, size_t bytes) { return bytes == 0 || fwrite(data, bytes, 1, out) == 1; }

static enum ha_status write_file(const char *path, const char *header, const struct ha_tensor *tensors, size_t count,
                                 struct ha_why *why)
{
    static const char spaces[DATA_ALIGN + 1] = "                                                                ";
    const size_t length = strlen(header), padding = (DATA_ALIGN - (PREFIX_BYTES + length) % DATA_ALIGN) % DATA_ALIGN;
    const uint64_t prefix = length + padding;
    FILE *out = fopen(path, "wb");
    if (!out) return ha_why(why, HA_ERROR, "cannot create: %s", strerror(errno));
    bool ok = put(out, &prefix, sizeof prefix) && put(out, header, length) && put(out, spaces, padding);
    for (size_t i = 0; ok && i < count; i++) ok = put(out, tensors[i].data, tensors[i].bytes);
    int cause = errno;
    if (fclose(out) != 0 && ok) {
        ok = false;
        cause = errno;
    }
    return ok ? HA_OK : ha_why(why, HA_ERROR, "cannot write: %s; what is there is incomplete", strerror(cause));
}

enum ha_status ha_safetensors_write(const char *path, const struct ha_tensor *tensors, size_t count,
                                    const char *const *meta, struct ha_why *why)
{
    char *header;
    enum ha_status status = header_make(tensors, count, meta, &header, why);
    if (status == HA_OK) status = write_file(path, header, tensors, count, why);
    free(header);
    return status == HA_OK ? HA_OK : ha_why_prefix(why, status, "%s", quote(path).text);
}

bool ha_tensor_dtype(const struct ha_tensor *t, enum ha_dtype *dtype)
{
    *dtype = t->type == HA_T_F16 ? HA_F16 : t->type == HA_T_BF16 ? HA_BF16 : HA_F32;
    return t->type == HA_T_F16 || t->type == HA_T_BF16 || t->type == HA_T_F32;
}

struct ha_tensor_place ha_tensor_place(const size_t *dim, size_t dims)
{
    struct ha_tensor_place p = { "" };
    for (size_t i = 0, at = 0; i < dims && at < sizeof p.text; i++)
        at += (size_t)snprintf(p.text + at, sizeof p.text - at, "[%zu]", dim[i]);
    return p;
}

static struct ha_tensor_place place_of(const struct ha_tensor *x, size_t element)
{
    size_t index[HA_TENSOR_DIMS_MAX];
    for (size_t i = x->dims; i-- > 0; element /= x->dim[i]) index[i] = element % x->dim[i];
    return ha_tensor_place(index, x->dims);
}

enum ha_status ha_tensor_finite(const struct ha_tensor *x, enum ha_dtype dtype, struct ha_why *why)
{
    float piece[1024];
    enum ha_dtype stored;
    if (!ha_tensor_dtype(x, &stored))
        return ha_why(why, HA_ERROR, "tensor %s is not F16, BF16 or F32", quote(x->name).text);
    size_t bytes = ha_dtype_bytes(stored), count = x->bytes / bytes, n;
    const size_t most = sizeof piece / sizeof *piece;
    for (size_t done = 0; done < count; done += n) {
        n = count - done < most ? count - done : most;
        ha_load_row((const char *)x->data + done * bytes, n, stored, piece);
        for (size_t i = 0; i < n; i++) {
            if (!isfinite(piece[i]))
                return ha_why(why, HA_ERROR, "tensor %s%s is %s", quote(x->name).text, place_of(x, done + i).text,
                              isnan(piece[i]) ? "NaN" : "infinite");
            if (!isfinite(ha_round(piece[i], dtype)))
                return ha_why(why, HA_ERROR, "tensor %s%s is %g, too large for %s: use another dtype",
                              quote(x->name).text, place_of(x, done + i).text, (double)piece[i], ha_dtype_name(dtype));
        }
    }
    return HA_OK;
}
