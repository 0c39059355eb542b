#ifndef HA_DATASETS_FLASHINFER_FILE_H
#define HA_DATASETS_FLASHINFER_FILE_H

/* A workload of FlashInfer Trace, as its files say it: which they are and what is read of them stands in
 * datasets/README.md, section "FlashInfer workloads". Reasons are without the name of the dataset. */

#include "harness/base/safetensors.h"

enum { HA_FI_PATH_MAX = 4096, HA_FI_WORD_MAX = 256 };

/* FILE, FILE@WORKLOAD or FILE@WORKLOAD:SEQUENCES */
struct ha_fi_name {
    char path[HA_FI_PATH_MAX];
    char workload[HA_FI_WORD_MAX];  /* a line, from 1, or a uuid; "1" where it is left out */
    char sequences[HA_FI_WORD_MAX]; /* "0-3+7"; "": all */
};
/* HA_ERROR: it is not of this form, or there is no such file. */
enum ha_status ha_fi_name_parse(struct ha_fi_name *name, const char *text, struct ha_why *why);

/* The inputs of a definition. K and V are [rows][KV heads][head_dim], q is [rows][query heads][head_dim]; in a paged
 * cache row p * page_size + i is that of slot i of page p. The others but the scale are [count]. */
enum ha_fi_input {
    HA_FI_Q,
    HA_FI_K,
    HA_FI_V,
    HA_FI_QO_INDPTR, /* where a sequence's queries begin; absent: each has one */
    HA_FI_KV_INDPTR, /* where its keys begin, or, paged, its pages in HA_FI_KV_INDICES */
    HA_FI_KV_INDICES,
    HA_FI_LAST_PAGE_LEN, /* tokens in its last page */
    HA_FI_SCALE,
    HA_FI_INPUTS
};

/* how many a dimension has that the files do not say: what its index of 32 bits can name */
#define HA_FI_COUNT_MAX ((size_t)1 << 31)

struct ha_fi_value {
    const char *name; /* as the definition calls it */
    enum { HA_FI_ABSENT, HA_FI_RANDOM, HA_FI_NUMBER, HA_FI_TENSOR } kind;
    double number;
    const struct ha_tensor *tensor;
    struct ha_safetensors *file; /* the tensor's */
    size_t count;                /* of its first dimension; HA_FI_COUNT_MAX: the files do not say */
};

struct ha_fi_file {
    bool is_paged;
    size_t q_heads, kv_heads, head_dim, page_size; /* page_size: 1 where it is not paged */
    struct ha_fi_value input[HA_FI_INPUTS];
};

/* The tensors are mapped, and of the declared shapes and a type that is read; no value is looked at. On failure nothing
 * is left to close. */
enum ha_status ha_fi_file_open(struct ha_fi_file *file, const struct ha_fi_name *name, struct ha_why *why);
void ha_fi_file_close(struct ha_fi_file *file);

#endif
