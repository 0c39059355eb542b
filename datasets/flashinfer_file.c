#include "datasets/flashinfer_file.h"

#include "harness/base/file.h"
#include "harness/base/why.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE_SIZE_MAX = 1 << 20 };

/* ---- the name --------------------------------------------------------------------------------------------------- */

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

enum ha_status ha_fi_name_parse(struct ha_fi_name *name, const char *text, struct ha_why *why)
{
    const char *slash = strrchr(text, '/'), *at = is_file(text) ? NULL : strrchr(slash ? slash : text, '@');
    const size_t path = at ? (size_t)(at - text) : strlen(text), word = at ? strcspn(at + 1, ":") : 0;
    *name = (struct ha_fi_name){ .workload = "1" };
    if (path >= HA_FI_PATH_MAX || (at && strlen(at) >= HA_FI_WORD_MAX))
        return ha_why(why, HA_ERROR, "the name is longer than %d bytes", HA_FI_WORD_MAX);
    memcpy(name->path, text, path);
    if (at && (word == 0 || (at[1 + word] && !at[2 + word])))
        return ha_why(why, HA_ERROR,
                      "behind the @ comes a line or a uuid, and perhaps :SEQUENCES: FILE@1, FILE@1:0-3+7");
    if (at) snprintf(name->workload, sizeof name->workload, "%.*s", (int)word, at + 1);
    if (at && at[1 + word]) snprintf(name->sequences, sizeof name->sequences, "%s", at + 2 + word);
    if (access(name->path, F_OK) != 0) return ha_why(why, HA_ERROR, "there is no such file: '%.200s'", name->path);
    const int fd = ha_file_open(name->path, why);
    return fd >= 0 && close(fd) == 0 ? HA_OK : ha_why_prefix(why, HA_ERROR, "'%.200s'", name->path);
}

/* ---- a line of the workload file --------------------------------------------------------------------------------- */

static enum ha_status line_parse(const char *text, size_t bytes, size_t number, json_t **line, struct ha_why *why)
{
    json_error_t error;
    *line = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!*line)
        return ha_why(why, HA_ERROR, "line %zu is not JSON: byte %d: %.100s", number, error.position, error.text);
    if (json_is_string(json_object_get(*line, "definition")) && json_is_object(json_object_get(*line, "workload")))
        return HA_OK;
    json_decref(*line);
    *line = NULL;
    return ha_why(why, HA_ERROR, "line %zu is no workload: an object with definition (a word) and workload (an object)",
                  number);
}

/* *line: the workload that is named, which the caller gives back */
static enum ha_status line_find(const struct ha_fi_name *name, FILE *in, json_t **line, struct ha_why *why)
{
    const bool by_number = !name->workload[strspn(name->workload, "0123456789")];
    const unsigned long long wanted = by_number ? strtoull(name->workload, NULL, 10) : 0;
    char *text = NULL;
    size_t room = 0, number = 0;
    ssize_t bytes;
    enum ha_status status = HA_OK;
    while (status == HA_OK && !*line && (bytes = getline(&text, &room, in)) >= 0) {
        number++;
        if (by_number ? number != wanted : strspn(text, " \t\r\n") == (size_t)bytes) continue;
        status = line_parse(text, (size_t)bytes, number, line, why);
        if (status != HA_OK || by_number) continue;
        const char *uuid = json_string_value(json_object_get(json_object_get(*line, "workload"), "uuid"));
        if (uuid && !strcmp(uuid, name->workload)) continue;
        json_decref(*line);
        *line = NULL;
    }
    free(text);
    if (status != HA_OK || *line) return status;
    if (by_number)
        return ha_why(why, HA_ERROR, "there is no line %.40s: it has %zu, and the first is 1", name->workload, number);
    return ha_why(why, HA_ERROR, "no workload has the uuid '%.100s' (%zu lines)", name->workload, number);
}

/* ---- the definition ---------------------------------------------------------------------------------------------- */

struct reader {
    struct ha_fi_file *file;
    json_t *line, *definition;
    char folder[HA_FI_PATH_MAX], root[HA_FI_PATH_MAX]; /* of the workload file; where paths of tensors start */
    struct ha_why *why;
};

/* Its folder is definitions/OP_TYPE where the workload's is workloads/OP_TYPE, or that of the workload. */
static enum ha_status definition_read(struct reader *r)
{
    const char *name = json_string_value(json_object_get(r->line, "definition"));
    char path[2 * HA_FI_PATH_MAX];
    if (!*name || *name == '.' || strchr(name, '/') || strlen(name) > HA_FI_WORD_MAX)
        return ha_why(r->why, HA_ERROR, "definition '%.100s' is not the name of a file", name);
    strcpy(r->root, r->folder);
    char *op = strrchr(r->root, '/'), *above;
    *op = 0;
    if ((above = strrchr(r->root, '/'))) *above = 0;
    snprintf(path, sizeof path, "%s/definitions/%s/%s.json", r->root, strrchr(r->folder, '/') + 1, name);
    if (!above || !is_file(path)) {
        strcpy(r->root, r->folder);
        snprintf(path, sizeof path, "%s/%s.json", r->folder, name);
    }
    if (!is_file(path))
        return ha_why(r->why, HA_ERROR,
                      "definition %.100s is neither in ../../definitions/%.40s, seen from the workload, nor beside it",
                      name, strrchr(r->folder, '/') + 1);
    json_error_t error;
    r->definition = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!r->definition)
        return ha_why(r->why, HA_ERROR, "definition %.120s is not JSON: line %d: %.100s", name, error.line, error.text);
    const char *type = json_string_value(json_object_get(r->definition, "op_type"));
    if (!type || (strcmp(type, "gqa_paged") != 0 && strcmp(type, "gqa_ragged") != 0))
        return ha_why(r->why, HA_ERROR, "definition %.120s: op_type '%.40s' is neither gqa_paged nor gqa_ragged", name,
                      type ? type : "");
    r->file->is_paged = !strcmp(type, "gqa_paged");
    return HA_OK;
}

/* An axis is a constant of the definition or a variable of the workload; HA_FI_COUNT_MAX: it is neither. */
static enum ha_status axis_read(const struct reader *r, const char *name, size_t *out)
{
    const json_t *of_definition = json_object_get(json_object_get(r->definition, "axes"), name),
                 *value = json_object_get(of_definition, "value");
    if (!value) value = json_object_get(json_object_get(json_object_get(r->line, "workload"), "axes"), name);
    *out = HA_FI_COUNT_MAX;
    if (!value) return HA_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0
        || (unsigned long long)json_integer_value(value) >= HA_FI_COUNT_MAX)
        return ha_why(r->why, HA_ERROR, "axis %.60s is not a whole number below 2^31", name);
    *out = (size_t)json_integer_value(value);
    return HA_OK;
}

static enum ha_status sizes_read(const struct reader *r)
{
    struct ha_fi_file *f = r->file;
    const struct {
        const char *axis;
        size_t max, *to;
    } sizes[] = {
        { "num_qo_heads", 1024, &f->q_heads },
        { "num_kv_heads", 1024, &f->kv_heads },
        { "head_dim", 1024, &f->head_dim },
        { "page_size", PAGE_SIZE_MAX, &f->page_size },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        *sizes[i].to = 1;
        if (!f->is_paged && sizes[i].to == &f->page_size) continue;
        HA_TRY(axis_read(r, sizes[i].axis, sizes[i].to));
        if (*sizes[i].to == HA_FI_COUNT_MAX)
            return ha_why(r->why, HA_ERROR, "the definition has no constant axis %s", sizes[i].axis);
        if (*sizes[i].to < 1 || *sizes[i].to > sizes[i].max)
            return ha_why(r->why, HA_ERROR, "axis %s is %zu; from 1 to %zu is possible", sizes[i].axis, *sizes[i].to,
                          sizes[i].max);
    }
    return HA_OK;
}

/* ---- its inputs -------------------------------------------------------------------------------------------------- */

enum need { FREE, PAGED, RAGGED, ALWAYS };

/* The shape of each, by the names of its axes, * for any; "": a scalar. */
static const struct form {
    const char *ragged, *paged; /* names */
    const char *ragged_shape, *paged_shape;
    enum need need; /* what has to have it */
} forms[HA_FI_INPUTS] = {
    [HA_FI_Q] = { "q", "q", "* num_qo_heads head_dim", "* num_qo_heads head_dim", ALWAYS },
    [HA_FI_K] = { "k", "k_cache", "* num_kv_heads head_dim", "* page_size num_kv_heads head_dim", ALWAYS },
    [HA_FI_V] = { "v", "v_cache", "* num_kv_heads head_dim", "* page_size num_kv_heads head_dim", ALWAYS },
    [HA_FI_QO_INDPTR] = { "qo_indptr", "qo_indptr", "*", "*", RAGGED },
    [HA_FI_KV_INDPTR] = { "kv_indptr", "kv_indptr", "*", "*", ALWAYS },
    [HA_FI_KV_INDICES] = { NULL, "kv_indices", NULL, "*", PAGED },
    [HA_FI_LAST_PAGE_LEN] = { NULL, "kv_last_page_len", NULL, "*", FREE },
    [HA_FI_SCALE] = { "sm_scale", "sm_scale", "", "", FREE },
};

/* Does the definition lay it out as we read it, and has a tensor this shape? The first dimension is its count. */
static enum ha_status shape_check(const struct reader *r, struct ha_fi_value *v, const char *form)
{
    const json_t *shape = json_object_get(json_object_get(json_object_get(r->definition, "inputs"), v->name), "shape");
    const size_t dims = json_array_size(shape);
    size_t i = 0;
    v->count = HA_FI_COUNT_MAX;
    if (v->tensor && v->tensor->dims != dims)
        return ha_why(r->why, HA_ERROR, "tensor %s has %zu dimensions, the definition %zu", v->name, v->tensor->dims,
                      dims);
    for (const char *word = form; *word; i++) {
        const char *axis = json_string_value(json_array_get(shape, i));
        const size_t length = strcspn(word, " ");
        size_t value;
        if (!axis || (*word != '*' && (strlen(axis) != length || strncmp(axis, word, length) != 0)))
            return ha_why(r->why, HA_ERROR, "the definition's shape of %s is not [%s], * for any axis", v->name, form);
        HA_TRY(axis_read(r, axis, &value));
        if (v->tensor && value != HA_FI_COUNT_MAX && v->tensor->dim[i] != value)
            return ha_why(r->why, HA_ERROR, "tensor %s has %zu in dimension %zu, axis %.60s says %zu", v->name,
                          v->tensor->dim[i], i, axis, value);
        if (i == 0) v->count = v->tensor ? v->tensor->dim[0] : value;
        word += length + (word[length] == ' ');
    }
    if (dims != i)
        return ha_why(r->why, HA_ERROR, "the definition's shape of %s has %zu axes, not %zu", v->name, dims, i);
    return HA_OK;
}

/* A path that stays below the root: relative, and never up. */
static bool stays_below(const char *path)
{
    if (*path == '/') return false;
    for (; path; path = strchr(path, '/'), path = path ? path + 1 : NULL)
        if (!strncmp(path, "..", 2) && (path[2] == '/' || !path[2])) return false;
    return true;
}

static enum ha_status tensor_open(const struct reader *r, enum ha_fi_input i, const json_t *from)
{
    struct ha_fi_value *v = &r->file->input[i];
    const char *relative = json_string_value(json_object_get(from, "path")),
               *key = json_string_value(json_object_get(from, "tensor_key"));
    char path[2 * HA_FI_PATH_MAX];
    if (!relative || !key || !*relative)
        return ha_why(r->why, HA_ERROR, "input %s: a tensor has a path and a tensor_key", v->name);
    if (!stays_below(relative) || strlen(relative) >= HA_FI_PATH_MAX)
        return ha_why(r->why, HA_ERROR, "input %s: path '%.100s' leaves the folder of the dataset", v->name, relative);
    snprintf(path, sizeof path, "%s/%s", r->root, relative);
    HA_TRY(ha_safetensors_open(&v->file, path, r->why));
    v->tensor = ha_safetensors_find(v->file, key);
    if (!v->tensor)
        return ha_why(r->why, HA_ERROR, "input %s: there is no tensor '%.60s' in %.100s", v->name, key, relative);
    v->kind = HA_FI_TENSOR;
    const enum ha_tensor_type t = v->tensor->type;
    const bool is_index = i >= HA_FI_QO_INDPTR;
    enum ha_dtype dtype;
    if (is_index ? t != HA_T_I32 && t != HA_T_I64 : !ha_tensor_dtype(v->tensor, &dtype))
        return ha_why(r->why, HA_ERROR, "tensor %s is not of %s", v->name, is_index ? "I32 or I64" : "F16, BF16, F32");
    return HA_OK;
}

static enum ha_status input_read(const struct reader *r, enum ha_fi_input i)
{
    struct ha_fi_value *v = &r->file->input[i];
    const bool paged = r->file->is_paged;
    const json_t *declared, *from;
    v->name = paged ? forms[i].paged : forms[i].ragged;
    if (!v->name) return HA_OK;
    declared = json_object_get(json_object_get(r->definition, "inputs"), v->name);
    from = json_object_get(json_object_get(json_object_get(r->line, "workload"), "inputs"), v->name);
    if (!declared && forms[i].need != ALWAYS && forms[i].need != (paged ? PAGED : RAGGED)) return HA_OK;
    if (!declared) return ha_why(r->why, HA_ERROR, "the definition has no input %s", v->name);
    if (!from) return ha_why(r->why, HA_ERROR, "the workload has no input %s", v->name);
    const char *type = json_string_value(json_object_get(from, "type"));
    const json_t *number = json_object_get(from, "value");
    if (type && !strcmp(type, "random") && i < HA_FI_QO_INDPTR) v->kind = HA_FI_RANDOM;
    else if (type && !strcmp(type, "safetensors") && i < HA_FI_SCALE) HA_TRY(tensor_open(r, i, from));
    else if (type && !strcmp(type, "scalar") && i == HA_FI_SCALE && json_is_number(number)) v->kind = HA_FI_NUMBER;
    else
        return ha_why(r->why, HA_ERROR, "input %s is of type '%.40s', and has to be %s", v->name, type ? type : "",
                      i < HA_FI_QO_INDPTR ? "random or safetensors"
                      : i < HA_FI_SCALE   ? "safetensors: without it no length is known"
                                          : "scalar with a number");
    v->number = json_number_value(number);
    return shape_check(r, v, paged ? forms[i].paged_shape : forms[i].ragged_shape);
}

/* What we do not know would change the attention. */
static enum ha_status others_refuse(const struct reader *r)
{
    const char *name;
    json_t *value, *inputs = json_object_get(r->definition, "inputs");
    json_object_foreach(inputs, name, value)
    {
        bool known = false;
        for (size_t i = 0; i < HA_FI_INPUTS; i++)
            known = known || (r->file->input[i].name && !strcmp(r->file->input[i].name, name));
        if (!known) return ha_why(r->why, HA_ERROR, "the definition has an input '%.60s', which is not read", name);
    }
    return HA_OK;
}

static enum ha_status read_all(struct reader *r)
{
    HA_TRY(definition_read(r));
    HA_TRY(sizes_read(r));
    for (size_t i = 0; i < HA_FI_INPUTS; i++) HA_TRY(input_read(r, (enum ha_fi_input)i));
    HA_TRY(others_refuse(r));
    const struct ha_fi_value *scale = &r->file->input[HA_FI_SCALE];
    if (scale->kind == HA_FI_NUMBER && !((float)scale->number > 0 && isfinite((float)scale->number)))
        return ha_why(r->why, HA_ERROR, "sm_scale=%g is not a binary32 number above 0", scale->number);
    if (r->file->page_size > 1 && r->file->input[HA_FI_LAST_PAGE_LEN].kind == HA_FI_ABSENT)
        return ha_why(r->why, HA_ERROR, "pages have %zu tokens, and there is no kv_last_page_len", r->file->page_size);
    return HA_OK;
}

enum ha_status ha_fi_file_open(struct ha_fi_file *file, const struct ha_fi_name *name, struct ha_why *why)
{
    struct reader r = { .file = file, .why = why };
    char folder[HA_FI_PATH_MAX], *real;
    *file = (struct ha_fi_file){ 0 };
    strcpy(folder, name->path);
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0;
    real = realpath(slash ? folder : ".", NULL); /* of the folder alone: the file may be a link into a cache */
    FILE *in = ha_file_read(name->path, why);
    enum ha_status status = in ? HA_OK : HA_ERROR;
    if (in && (!real || strlen(real) >= sizeof r.folder)) status = ha_why(why, HA_ERROR, "cannot open the file");
    else if (in) strcpy(r.folder, real);
    if (status == HA_OK) status = line_find(name, in, &r.line, why);
    if (status == HA_OK) status = read_all(&r);
    if (in) fclose(in);
    free(real);
    json_decref(r.line);
    json_decref(r.definition);
    if (status != HA_OK) ha_fi_file_close(file);
    return status;
}

void ha_fi_file_close(struct ha_fi_file *file)
{
    for (size_t i = 0; i < HA_FI_INPUTS; i++) ha_safetensors_close(file->input[i].file);
    *file = (struct ha_fi_file){ 0 };
}
