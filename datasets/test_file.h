#ifndef HA_DATASETS_TEST_FILE_H
#define HA_DATASETS_TEST_FILE_H

/* A trace of noise to write, and to spoil: `trace` is made, changed and written to path(). */

#include "harness/base/safetensors.h"
#include "harness/base/test_folder.h"

enum {
    LAYERS = 2,
    Q_HEADS = 4,
    KV_HEADS = 2,
    HEAD_DIM = 30,
    MODEL_DIM = 10,
    TOKENS = 40,
    Q_FIRST = 24,
    ROWS = TOKENS - Q_FIRST,
    PARTS = 6, /* of a layer of version 1 */
    TENSORS = LAYERS * PARTS,
    TENSORS_MAX = LAYERS * 9 + 1,
    META = 15, /* version 1 */
    META_MAX = 18,
    VALUES_MAX = KV_HEADS * TOKENS * HEAD_DIM
};

/* what it has besides k, v and q; what is not of version 1 makes it version 2 */
enum test_has {
    TEST_NONE = 0,
    TEST_X = 1, /* x, wq and norm */
    TEST_BIAS = 2,
    TEST_NORM = 4, /* q_norm, and q_norm_eps=0.125 */
    TEST_WO = 8,
    TEST_ROPE = 16, /* rope.inv_freq of 1.5 at most, for 12 dimensions, rope_pairing=half and rope_scale=1.25 */
    TEST_ALL = 31
};

extern struct test_trace {
    size_t keys, tensors;
    char key[META_MAX][16], text[META_MAX][32];
    char name[TENSORS_MAX][24];
    struct ha_tensor tensor[TENSORS_MAX];
    float value[TENSORS_MAX][VALUES_MAX]; /* rounded to the file's type */
    char stored[TENSORS_MAX][VALUES_MAX * 4];
} trace;

const char *path(void);
void trace_make(enum ha_tensor_type type, unsigned has);
void trace_write(void);
/* of a key that it has, at most 31 letters */
void trace_meta(const char *key, const char *text);
/* of a tensor that it has; -1: rope.inv_freq */
size_t trace_index(int layer, const char *part);
float *trace_value(int layer, const char *part);

#endif
