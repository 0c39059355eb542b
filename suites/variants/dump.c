#include "suites/variants/check.h"

#include "harness/base/array.h"
#include "harness/base/safetensors.h"
#include "harness/base/why.h"
#include "harness/report/whole_file.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* data: malloc'd, the dump's from here on, also where this fails */
static enum ha_status add(struct ha_dump *d, size_t layer, size_t seq, const char *what, enum ha_tensor_type type,
                          size_t element, const size_t *dim, size_t dims, void *data, struct ha_why *why)
{
    char name[64];
    if (!ha_array_room(&d->tensor, &d->capacity, d->count + 1, sizeof *d->tensor)) goto failed;
    snprintf(name, sizeof name, "layer%zu.seq%zu.%s", layer, seq, what);
    struct ha_tensor t = { .name = strdup(name), .type = type, .dims = dims, .data = data, .bytes = element };
    if (!data || !t.name) {
        free((char *)(uintptr_t)t.name);
        goto failed;
    }
    for (size_t i = 0; i < dims; i++) t.bytes *= t.dim[i] = dim[i];
    d->tensor[d->count++] = t;
    return HA_OK;
failed:
    free(data);
    return ha_why(why, HA_ERROR, "no memory for the dump");
}

static void *copy_of(const void *data, size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);
    if (copy) memcpy(copy, data, bytes);
    return copy;
}

/* [kv_heads][tokens][head_dim] out of heads that lie cap tokens apart */
static void *heads_of(const struct ha_workload *w, const void *data, size_t tokens)
{
    size_t row = w->shape.head_dim * ha_dtype_bytes(w->shape.dtype), bytes = tokens * row;
    unsigned char *copy = malloc(w->shape.kv_heads * bytes);
    for (size_t h = 0; copy && h < w->shape.kv_heads; h++)
        memcpy(copy + h * bytes, (const unsigned char *)data + h * w->cap * row, bytes);
    return copy;
}

static int32_t *offsets_of(const struct ha_chosen *c, size_t heads)
{
    size_t n = heads * (HA_PARTS_MAX + 1);
    int32_t *x = malloc(n * sizeof *x);
    for (size_t i = 0; x && i < n; i++) x[i] = (int32_t)c->offset[i];
    return x;
}

enum ha_status ha_dump_sequence(struct ha_dump *d, const struct ha_pass *pass, const struct ha_chosen *chosen,
                                size_t layer, size_t seq, struct ha_why *why)
{
    static const enum ha_tensor_type type_of[HA_DTYPE_COUNT] = {
        [HA_F32] = HA_T_F32, [HA_F16] = HA_T_F16, [HA_BF16] = HA_T_BF16
    };
    const struct ha_workload *w = pass->session->workload;
    const struct ha_shape *s = &w->shape;
    size_t rows = s->q_len * s->q_heads, at = seq * rows, tokens = ha_workload_tokens(w, seq, 1),
           i = layer * s->batch + seq;
    const size_t q[] = { s->q_len, s->q_heads, s->head_dim }, kv[] = { s->kv_heads, tokens, s->head_dim };
    const size_t offset[] = { s->q_heads, HA_PARTS_MAX + 1 };
    const float *query = ha_session_q(pass->session, layer) + at * s->head_dim,
                *o = ha_session_o(pass->session, layer) + at * s->head_dim;
    const float *lse = ha_session_lse(pass->session, layer) + at;
    enum ha_tensor_type type = type_of[s->dtype];
    /* positions and offsets are written as 32-bit integers */
    if (chosen->count > INT32_MAX)
        return ha_why(why, HA_ERROR, "dump: %zu keys in one layer are more than 2^31 - 1", chosen->count);
    HA_TRY(add(d, layer, seq, "q", HA_T_F32, 4, q, 3, copy_of(query, rows * s->head_dim * 4), why));
    HA_TRY(add(d, layer, seq, "k", type, ha_dtype_bytes(s->dtype), kv, 3, heads_of(w, w->k[i], tokens), why));
    HA_TRY(add(d, layer, seq, "v", type, ha_dtype_bytes(s->dtype), kv, 3, heads_of(w, w->v[i], tokens), why));
    HA_TRY(add(d, layer, seq, "out", HA_T_F32, 4, q, 3, copy_of(o, rows * s->head_dim * 4), why));
    HA_TRY(add(d, layer, seq, "lse", HA_T_F32, 4, q, 2, copy_of(lse, rows * 4), why));
    HA_TRY(add(d, layer, seq, "token", HA_T_I32, 4, &chosen->count, 1, copy_of(chosen->token, chosen->count * 4), why));
    return add(d, layer, seq, "offset", HA_T_I32, 4, offset, 2, offsets_of(chosen, s->q_heads), why);
}

enum ha_status ha_dump_write(const struct ha_dump *d, const char *folder, const char *id, const struct ha_shape *shape,
                             struct ha_why *why)
{
    char path[4096], file[256 - sizeof ".safetensors"], scale[40], heads[24];
    const char *meta[] = { "case", id, "scale", scale, "kv_heads", heads, NULL };
    size_t n = 0;
    if (strlen(id) >= sizeof file) /* cut off, it would be another case's, too */
        return ha_why(why, HA_ERROR, "dump: an id of more than %zu characters names no file", sizeof file - 1);
    HA_TRY(ha_file_folder(folder, why));
    for (; id[n]; n++) file[n] = isalnum((unsigned char)id[n]) || strchr(".-_", id[n]) ? id[n] : '_';
    file[n] = 0;
    snprintf(scale, sizeof scale, "%.17g", (double)shape->scale);
    snprintf(heads, sizeof heads, "%zu", shape->kv_heads);
    HA_TRY(ha_file_path(path, folder, file, ".safetensors", why));
    return ha_safetensors_write(path, d->tensor, d->count, meta, why);
}

void ha_dump_free(struct ha_dump *d)
{
    for (size_t i = 0; i < d->count; i++) {
        free((char *)(uintptr_t)d->tensor[i].name);
        free((void *)(uintptr_t)d->tensor[i].data);
    }
    free(d->tensor);
    *d = (struct ha_dump){ .tensor = NULL };
}
