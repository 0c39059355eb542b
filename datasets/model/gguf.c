#include "datasets/model/gguf.h"

#include "harness/base/file.h"
#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are read as they lie in the file");

enum { MAGIC = 0x46554747, ALIGNMENT = 32 };

/* ---- types of metadata ------------------------------------------------------------------------------------------- */

enum value_type { U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, ARRAY, U64, I64, F64, VALUE_TYPES };
static const size_t value_bytes[VALUE_TYPES] = { [U8] = 1,  [I8] = 1,   [U16] = 2, [I16] = 2, [U32] = 4, [I32] = 4,
                                                 [F32] = 4, [BOOL] = 1, [U64] = 8, [I64] = 8, [F64] = 8 };

struct entry {
    struct ha_gguf_text key;
    enum value_type type; /* of an array that of its elements */
    bool array;
    uint64_t count;            /* of elements; 1 where it is no array */
    const unsigned char *data; /* of the first */
};

struct ha_gguf {
    void *map; /* NULL where the bytes are the caller's */
    size_t map_bytes;
    struct entry *entry; /* by key */
    size_t entries;
    struct ha_gguf_tensor *tensor; /* by name */
    size_t tensors;
};

/* ---- blocks of numbers ----------------------------------------------------------------------------------------------
 * A tensor is rows of dim[0] numbers, a row is blocks of `elements` numbers in `bytes` bytes. */

static float f16(const unsigned char *at)
{
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return ha_f32_from_f16(bits);
}

static void read_f32(const unsigned char *block, float *out) { memcpy(out, block, sizeof *out); }
static void read_f16(const unsigned char *block, float *out) { *out = f16(block); }

static void read_bf16(const unsigned char *block, float *out)
{
    uint16_t bits;
    memcpy(&bits, block, sizeof bits);
    *out = ha_f32_from_bf16(bits);
}

/* 32 numbers of 4 bits: the low halves of 16 bytes, then the high ones; each is d q + m */
static void nibbles(const unsigned char *q, float d, float m, float *out)
{
    for (size_t i = 0; i < 16; i++) {
        out[i] = (float)(q[i] & 15) * d + m;
        out[i + 16] = (float)(q[i] >> 4) * d + m;
    }
}

static void read_q4_0(const unsigned char *block, float *out) { nibbles(block + 2, f16(block), -8 * f16(block), out); }
static void read_q4_1(const unsigned char *block, float *out) { nibbles(block + 4, f16(block), f16(block + 2), out); }

static void read_q8_0(const unsigned char *block, float *out)
{
    for (size_t i = 0; i < 32; i++) out[i] = (float)(int8_t)block[2 + i] * f16(block);
}

/* 256 numbers of 6 bits: 128 bytes of low nibbles, 64 bytes of the two bits above, 16 scales, each of 16 numbers, and
 * d. Each half has its own: 128 numbers as four runs of 32, of which runs 0 and 1 are low nibbles, 2 and 3 high ones.
 */
static void read_q6_k(const unsigned char *block, float *out)
{
    const float d = f16(block + 208);
    for (size_t i = 0; i < 256; i++) {
        const size_t half = i / 128, run = i / 32 % 4, at = i % 32;
        const unsigned low = block[64 * half + 32 * (run % 2) + at] >> 4 * (run / 2) & 15;
        const unsigned high = block[128 + 32 * half + at] >> 2 * run & 3;
        out[i] = d * (float)(int8_t)block[192 + i / 16] * (float)((int)(low | high << 4) - 32);
    }
}

static const struct block_type {
    const char *name;
    uint32_t id;
    size_t elements, bytes;
    void (*read)(const unsigned char *block, float *out);
} types[] = {
    { "F32", 0, 1, 4, read_f32 },     { "F16", 1, 1, 2, read_f16 },     { "Q4_0", 2, 32, 18, read_q4_0 },
    { "Q4_1", 3, 32, 20, read_q4_1 }, { "Q8_0", 8, 32, 34, read_q8_0 }, { "Q6_K", 14, 256, 210, read_q6_k },
    { "BF16", 30, 1, 2, read_bf16 },
};
enum { TYPES = sizeof types / sizeof *types };

void ha_gguf_row(const struct ha_gguf_tensor *t, size_t row, float *out)
{
    const struct block_type *type = &types[t->type];
    const size_t blocks = t->dim[0] / type->elements;
    for (size_t b = 0; b < blocks; b++)
        type->read(t->data + (row * blocks + b) * type->bytes, out + b * type->elements);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* The part of the file that has not been read yet. Reasons leave the file's name out. */
struct rest {
    const unsigned char *at;
    uint64_t left;
    struct ha_why *why;
};

static enum ha_status truncated(const struct rest *r)
{
    return ha_why(r->why, HA_ERROR, "truncated: it ends within its header; is the download complete?");
}

static enum ha_status take(struct rest *r, void *out, size_t bytes)
{
    memset(out, 0, bytes);
    if (r->left < bytes) return truncated(r);
    memcpy(out, r->at, bytes);
    r->at += bytes;
    r->left -= bytes;
    return HA_OK;
}

static enum ha_status pass_over(struct rest *r, uint64_t count, size_t bytes)
{
    if (count > r->left / bytes) return truncated(r);
    r->at += count * bytes;
    r->left -= count * bytes;
    return HA_OK;
}

static enum ha_status take_text(struct rest *r, struct ha_gguf_text *out)
{
    uint64_t length;
    HA_TRY(take(r, &length, sizeof length));
    *out = (struct ha_gguf_text){ (const char *)r->at, (size_t)length };
    return pass_over(r, length, 1);
}

static enum ha_status take_type(struct rest *r, enum value_type *out)
{
    uint32_t type;
    HA_TRY(take(r, &type, sizeof type));
    if (type >= VALUE_TYPES) return ha_why(r->why, HA_ERROR, "a value of type %u, which GGUF does not have", type);
    *out = (enum value_type)type;
    return HA_OK;
}

static enum ha_status take_entry(struct rest *r, struct entry *e)
{
    e->count = 1;
    HA_TRY(take_text(r, &e->key));
    HA_TRY(take_type(r, &e->type));
    e->array = e->type == ARRAY;
    if (e->array) {
        HA_TRY(take_type(r, &e->type));
        HA_TRY(take(r, &e->count, sizeof e->count));
        if (e->type == ARRAY) return ha_why(r->why, HA_ERROR, "an array of arrays");
    }
    e->data = r->at;
    if (e->type != TEXT) return pass_over(r, e->count, value_bytes[e->type]);
    for (uint64_t i = 0; i < e->count; i++) {
        struct ha_gguf_text text;
        HA_TRY(take_text(r, &text));
    }
    return HA_OK;
}

static enum ha_status find_type(const struct rest *r, struct ha_gguf_tensor *t, uint32_t id)
{
    for (t->type = 0; t->type < TYPES; t->type++)
        if (types[t->type].id == id) return HA_OK;
    return ha_why(r->why, HA_ERROR, "type %u; F32, F16, BF16, Q4_0, Q4_1, Q8_0 and Q6_K can be read", id);
}

/* The bytes of a tensor's data. 0: no tensor has this shape, and r->why says why. */
static uint64_t bytes_of(const struct rest *r, const struct ha_gguf_tensor *t)
{
    const struct block_type *type = &types[t->type];
    uint64_t bytes = t->dim[0] / type->elements * type->bytes;
    if (t->dim[0] % type->elements) bytes = 0;
    if (t->dim[0] / type->elements > UINT64_MAX / type->bytes) bytes = 0;
    for (size_t i = 1; i < t->dims; i++)
        if (__builtin_mul_overflow(bytes, t->dim[i], &bytes)) bytes = 0;
    if (!bytes)
        ha_why(r->why, HA_ERROR, "%zu numbers in a row of %s, or no or too many numbers", t->dim[0], type->name);
    return bytes;
}

/* *offset: from the beginning of the data */
static enum ha_status take_tensor(struct rest *r, struct ha_gguf_tensor *t, uint64_t *offset)
{
    uint32_t dims, type;
    HA_TRY(take_text(r, &t->name));
    HA_TRY(take(r, &dims, sizeof dims));
    if (dims == 0 || dims > HA_GGUF_DIMS_MAX) return ha_why(r->why, HA_ERROR, "a tensor of %u dimensions", dims);
    t->dims = dims;
    for (size_t i = 0; i < HA_GGUF_DIMS_MAX; i++) {
        uint64_t n = 1;
        if (i < dims) HA_TRY(take(r, &n, sizeof n));
        t->dim[i] = (size_t)n;
    }
    HA_TRY(take(r, &type, sizeof type));
    HA_TRY(take(r, offset, sizeof *offset));
    return find_type(r, t, type);
}

/* ---- looking up -------------------------------------------------------------------------------------------------- */

static int compare(const struct ha_gguf_text *a, const struct ha_gguf_text *b)
{
    const int order = memcmp(a->text, b->text, a->length < b->length ? a->length : b->length);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

/* Keys and names stand first in what they belong to. */
static int by_text(const void *a, const void *b) { return compare(a, b); }

static const void *find(const void *list, size_t count, size_t size, const char *name)
{
    const struct ha_gguf_text text = { name, strlen(name) };
    return bsearch(&text, list, count, size, by_text);
}

const struct ha_gguf_tensor *ha_gguf_find(const struct ha_gguf *g, const char *name)
{
    return find(g->tensor, g->tensors, sizeof *g->tensor, name);
}

static const struct entry *entry_of(const struct ha_gguf *g, const char *key)
{
    return find(g->entry, g->entries, sizeof *g->entry, key);
}

#define AS(type_)                   \
    {                               \
        type_ x_;                   \
        memcpy(&x_, at, sizeof x_); \
        *out = (double)x_;          \
        return true;                \
    }
static bool number_at(const unsigned char *at, enum value_type type, double *out)
{
    switch (type) {
    case U8:
    case BOOL: AS(uint8_t)
    case I8: AS(int8_t)
    case U16: AS(uint16_t)
    case I16: AS(int16_t)
    case U32: AS(uint32_t)
    case I32: AS(int32_t)
    case U64: AS(uint64_t)
    case I64: AS(int64_t)
    case F32: AS(float)
    case F64: AS(double)
    default: return false;
    }
}
#undef AS

bool ha_gguf_number(const struct ha_gguf *g, const char *key, double *out)
{
    const struct entry *e = entry_of(g, key);
    return e && !e->array && number_at(e->data, e->type, out);
}

/* A text that has been read once; what follows it. */
static const unsigned char *text_at(const unsigned char *at, struct ha_gguf_text *out)
{
    uint64_t length;
    memcpy(&length, at, sizeof length);
    *out = (struct ha_gguf_text){ (const char *)at + sizeof length, (size_t)length };
    return at + sizeof length + length;
}

bool ha_gguf_text(const struct ha_gguf *g, const char *key, struct ha_gguf_text *out)
{
    const struct entry *e = entry_of(g, key);
    if (!e || e->array || e->type != TEXT) return false;
    text_at(e->data, out);
    return true;
}

struct ha_gguf_text *ha_gguf_texts(const struct ha_gguf *g, const char *key, size_t *count)
{
    const struct entry *e = entry_of(g, key);
    if (!e || !e->array || e->type != TEXT) return NULL;
    struct ha_gguf_text *text = malloc((e->count + 1) * sizeof *text);
    const unsigned char *at = e->data;
    for (size_t i = 0; text && i < e->count; i++) at = text_at(at, &text[i]);
    *count = (size_t)e->count;
    return text;
}

/* ---- the whole file ---------------------------------------------------------------------------------------------- */

/* Sorts them by their texts. HA_ERROR: two have the same. */
static enum ha_status sort(void *list, size_t count, size_t size, const char *what, struct ha_why *why)
{
    char *at = list;
    qsort(list, count, size, by_text);
    for (size_t i = 1; i < count; i++) {
        const struct ha_gguf_text *text = (const void *)(at + i * size);
        if (by_text(at + (i - 1) * size, text) == 0)
            return ha_why(why, HA_ERROR, "%s '%.*s' is there twice", what, (int)(text->length & 127), text->text);
    }
    return HA_OK;
}

/* *list: `count` elements that hold zeros. Each takes at least 16 bytes of the file, so that no count is too large for
 * memory. */
static enum ha_status make_list(const struct rest *r, void *list, uint64_t count, size_t size)
{
    if (count > r->left / 16) return truncated(r);
    void *made = calloc(count + 1, size);
    if (!made) return ha_why(r->why, HA_ERROR, "out of memory");
    memcpy(list, &made, sizeof made);
    return HA_OK;
}

static enum ha_status take_metadata(struct rest *r, struct ha_gguf *g, uint64_t count)
{
    HA_TRY(make_list(r, &g->entry, count, sizeof *g->entry));
    for (g->entries = 0; g->entries < count; g->entries++) {
        struct entry *e = &g->entry[g->entries];
        const enum ha_status status = take_entry(r, e);
        if (status != HA_OK)
            return ha_why_prefix(r->why, status, "key %zu, '%.*s'", g->entries, (int)(e->key.length & 127),
                                 e->key.text ? e->key.text : "");
    }
    return sort(g->entry, g->entries, sizeof *g->entry, "key", r->why);
}

/* Where each lies; offset: of each from the first byte behind the header. */
static enum ha_status place(const struct rest *r, struct ha_gguf *g, const uint64_t *offset)
{
    for (size_t i = 0; i < g->tensors; i++) {
        struct ha_gguf_tensor *t = &g->tensor[i];
        const uint64_t bytes = bytes_of(r, t);
        enum ha_status status = bytes ? HA_OK : HA_ERROR;
        if (bytes && (offset[i] > r->left || bytes > r->left - offset[i]))
            status = ha_why(r->why, HA_ERROR, "its data ends behind the end of the file; is the download complete?");
        if (status != HA_OK)
            return ha_why_prefix(r->why, status, "tensor '%.*s'", (int)(t->name.length & 127), t->name.text);
        t->data = r->at + offset[i];
    }
    return HA_OK;
}

/* Passes over the padding between the header and the data. */
static enum ha_status pass_over_padding(struct rest *r, const struct ha_gguf *g, const unsigned char *begin)
{
    double alignment = ALIGNMENT;
    ha_gguf_number(g, "general.alignment", &alignment);
    if (!(alignment >= 1 && alignment <= 1 << 20))
        return ha_why(r->why, HA_ERROR, "general.alignment is %g", alignment);
    const uint64_t step = (uint64_t)alignment, over = (uint64_t)(r->at - begin) % step;
    return g->tensors && over ? pass_over(r, step - over, 1) : HA_OK;
}

static enum ha_status take_tensors(struct rest *r, struct ha_gguf *g, uint64_t count, const unsigned char *begin)
{
    HA_TRY(make_list(r, &g->tensor, count, sizeof *g->tensor));
    uint64_t *offset = calloc(count + 1, sizeof *offset);
    enum ha_status status = offset ? HA_OK : ha_why(r->why, HA_ERROR, "out of memory");
    for (; status == HA_OK && g->tensors < count; g->tensors += status == HA_OK) {
        status = take_tensor(r, &g->tensor[g->tensors], &offset[g->tensors]);
        if (status != HA_OK) ha_why_prefix(r->why, status, "tensor %zu", g->tensors);
    }
    if (status == HA_OK) status = pass_over_padding(r, g, begin);
    if (status == HA_OK) status = place(r, g, offset);
    free(offset);
    return status == HA_OK ? sort(g->tensor, g->tensors, sizeof *g->tensor, "tensor", r->why) : status;
}

static enum ha_status parse(struct ha_gguf *g, const void *data, size_t bytes, struct ha_why *why)
{
    struct rest r = { data, bytes, why };
    uint32_t magic, version;
    uint64_t tensors, entries;
    HA_TRY(take(&r, &magic, sizeof magic));
    if (magic != MAGIC) return ha_why(why, HA_ERROR, "no GGUF file: it does not begin with GGUF");
    HA_TRY(take(&r, &version, sizeof version));
    if (version != 2 && version != 3)
        return ha_why(why, HA_ERROR, "GGUF version %u; 2 and 3 can be read, little-endian", version);
    HA_TRY(take(&r, &tensors, sizeof tensors));
    HA_TRY(take(&r, &entries, sizeof entries));
    HA_TRY(take_metadata(&r, g, entries));
    return take_tensors(&r, g, tensors, data);
}

enum ha_status ha_gguf_parse(struct ha_gguf **file, const char *name, const void *data, size_t bytes,
                             struct ha_why *why)
{
    struct ha_gguf *g = *file = calloc(1, sizeof *g);
    const enum ha_status status = g ? parse(g, data, bytes, why) : ha_why(why, HA_ERROR, "out of memory");
    if (status == HA_OK) return HA_OK;
    ha_gguf_close(g);
    *file = NULL;
    return ha_why_prefix(why, status, "%s", name);
}

enum ha_status ha_gguf_open(struct ha_gguf **file, const char *path, struct ha_why *why)
{
    void *map;
    size_t bytes;
    *file = NULL;
    enum ha_status status = ha_file_map(path, &map, &bytes, why);
    if (status != HA_OK) return ha_why_prefix(why, status, "%s", path);
    status = ha_gguf_parse(file, path, map, bytes, why);
    if (status != HA_OK) {
        munmap(map, bytes);
        return status;
    }
    (*file)->map = map;
    (*file)->map_bytes = bytes;
    return HA_OK;
}

void ha_gguf_close(struct ha_gguf *g)
{
    if (!g) return;
    if (g->map) munmap(g->map, g->map_bytes);
    free(g->entry);
    free(g->tensor);
    free(g);
}
