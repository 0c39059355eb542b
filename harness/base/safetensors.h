#ifndef HA_BASE_SAFETENSORS_H
#define HA_BASE_SAFETENSORS_H

/* The safetensors format: 8 bytes little-endian header length, a JSON header, then the data.
 * The reader maps the file and believes nothing: lengths, offsets, overlaps, products of
 * shapes, dtypes and duplicate names are checked before a pointer is handed out. */

#include "harness/api/base.h"

enum { HA_TENSOR_DIMS_MAX = 8 };

enum ha_tensor_type {
    HA_T_F64,
    HA_T_F32,
    HA_T_F16,
    HA_T_BF16,
    HA_T_I64,
    HA_T_I32,
    HA_T_U32,
    HA_T_U8,
    HA_T_F8_E4M3,
    HA_T_F8_E5M2,
    HA_T_OTHER
};

struct ha_tensor {
    const char *name;
    enum ha_tensor_type type;
    size_t dims, dim[HA_TENSOR_DIMS_MAX];
    const void *data; /* row-major, at any address */
    size_t bytes;
};

/* Whether its numbers are of a type that keys and values have, and which. */
bool ha_tensor_dtype(const struct ha_tensor *tensor, enum ha_dtype *dtype);
/* A shape, or where an element lies: "[1][17][3]". */
struct ha_tensor_place {
    char text[80];
};
struct ha_tensor_place ha_tensor_place(const size_t *dim, size_t dims);
/* Of such a type: every number, rounded to `dtype`, is finite. HA_ERROR with the first that is not. */
enum ha_status ha_tensor_finite(const struct ha_tensor *tensor, enum ha_dtype dtype, struct ha_why *why);

struct ha_safetensors;

enum ha_status ha_safetensors_open(struct ha_safetensors **file, const char *path, struct ha_why *why);
/* the same from memory that outlives the reader, for the fuzzer */
enum ha_status ha_safetensors_parse(struct ha_safetensors **file, const char *name, const void *data, size_t bytes,
                                    struct ha_why *why);
const struct ha_tensor *ha_safetensors_find(const struct ha_safetensors *file, const char *name);
size_t ha_safetensors_count(const struct ha_safetensors *file);
const struct ha_tensor *ha_safetensors_at(const struct ha_safetensors *file, size_t i);
/* value of a key of __metadata__, or NULL */
const char *ha_safetensors_meta(const struct ha_safetensors *file, const char *key);
void ha_safetensors_close(struct ha_safetensors *file);

/* Writes all tensors at once; data starts 64-byte aligned in the file. meta: pairs key, value, ..., NULL. */
enum ha_status ha_safetensors_write(const char *path, const struct ha_tensor *tensors, size_t count,
                                    const char *const *meta, struct ha_why *why);

#endif
