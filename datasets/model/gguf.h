#ifndef HA_DATASETS_MODEL_GGUF_H
#define HA_DATASETS_MODEL_GGUF_H

/* A language model in one GGUF file (versions 2 and 3, little-endian): typed metadata and tensors, most of them
 * quantised in blocks. The reader maps the file and believes nothing: every length, count and offset is checked before
 * it is used. Source: the GGUF specification, ggml-org/ggml, docs/gguf.md. */

#include "harness/api/base.h"

enum { HA_GGUF_DIMS_MAX = 4 };

struct ha_gguf;

enum ha_status ha_gguf_open(struct ha_gguf **file, const char *path, struct ha_why *why);
/* The same from memory that outlives the reader. */
enum ha_status ha_gguf_parse(struct ha_gguf **file, const char *name, const void *data, size_t bytes,
                             struct ha_why *why);
void ha_gguf_close(struct ha_gguf *file);

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

/* A piece of the file; no zero byte ends it. */
struct ha_gguf_text {
    const char *text;
    size_t length;
};

/* A number or a bool. false: the file has no such key, or its value is something else. */
bool ha_gguf_number(const struct ha_gguf *file, const char *key, double *out);
bool ha_gguf_text(const struct ha_gguf *file, const char *key, struct ha_gguf_text *out);
/* An array of texts, on the heap. NULL: there is no such array, or no memory. */
struct ha_gguf_text *ha_gguf_texts(const struct ha_gguf *file, const char *key, size_t *count);

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

struct ha_gguf_tensor {
    struct ha_gguf_text name;
    size_t dims,
        dim[HA_GGUF_DIMS_MAX]; /* dim[0] is the one whose elements lie beside each other; those beyond dims are 1 */
    size_t type;               /* an index of the reader's own table of block types */
    const unsigned char *data;
};

const struct ha_gguf_tensor *ha_gguf_find(const struct ha_gguf *file, const char *name);
/* Row `row` of dim[0] numbers, in binary32. */
void ha_gguf_row(const struct ha_gguf_tensor *tensor, size_t row, float *out);

#endif
