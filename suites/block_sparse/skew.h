#ifndef HA_BLOCK_SPARSE_SKEW_H
#define HA_BLOCK_SPARSE_SKEW_H

/* What InfiniGen learns from a prefill (sections 4.2 and 4.3), of each KV head: turned by A, the right singular vectors
 * of its observed queries, queries and keys have the same products, and few of their columns say most of them; and
 * which columns these are. */

#include "suites/parts/kv.h"

/* The columns that a share of head_dim are, at least one. */
size_t ha_skew_columns(size_t head_dim, double share);
/* What is learnt of a KV head, as numbers: A, [head_dim][head_dim], a row for each column of what it turns; then which
 * columns are kept, rising. */
static inline size_t ha_skew_numbers(size_t head_dim, size_t columns) { return head_dim * head_dim + columns; }

struct ha_skew {
    const struct ha_context *ctx;
    size_t columns, rows_max; /* observed queries of a KV head, at least head_dim */
    struct ha_skew_layer {
        float *a;         /* device: [kv_heads][columns][head_dim], the rows of A that are kept, rounded to binary32 */
        double *numbers;  /* [kv_heads][ha_skew_numbers], its own where selections are recorded */
    } * layer;            /* [layers] */
    float *a;             /* pinned: of a layer, on its way to the device */
    unsigned char *stage; /* device: keys of a context on their way to columns */
    int lwork;            /* what LAPACK asks for */
    struct ha_skew_work {
        double *q, *singular, *vt, *work, *sum; /* [rows_max][head_dim], [head_dim], as q, [lwork], [head_dim] */
        float *a;                               /* [head_dim][head_dim] */
        int *iwork;                             /* [8 * head_dim] */
    } * work;                                   /* [threads] */
    const char **wrong;                         /* [kv_heads] NULL, or why nothing was learnt */
};

/* HA_WAIVED with words where there are queries to learn from and no LAPACK. */
enum ha_status ha_skew_create(struct ha_skew *skew, const struct ha_context *ctx, size_t columns, struct ha_why *why);
/* Of a layer, by the pool's workers, of all sequences together. No observed query: A is the identity; fewer than
 * head_dim, or dependent ones: the rest of A is any orthonormal one. Columns are kept by the largest sums of magnitudes
 * over the observed queries and the context's keys, turned; of equals the first. HA_ERROR: a query or key is not
 * finite. */
enum ha_status ha_skew_learn(struct ha_skew *skew, size_t layer, const struct ha_prefill *in, struct ha_why *why);

/* Partial keys of a sequence of a layer, in device memory: [cap][kv_heads][columns] of K's type. */
enum ha_status ha_skew_keys_create(const struct ha_skew *skew, size_t cap, unsigned char **partial, struct ha_why *why);
struct ha_rows ha_skew_keys(const struct ha_skew *skew, const unsigned char *partial, size_t tokens);
size_t ha_skew_keys_head_bytes(const struct ha_skew *skew);
/* Enqueues, on the main stream, those of the first tokens of a store in host memory. */
enum ha_status ha_skew_keys_load(struct ha_skew *skew, size_t layer, const struct ha_kv *store, size_t tokens,
                                 unsigned char *partial);
/* Enqueues rows of `heads` KV or query heads cut to their columns, in device memory: keys to the partial ones of token
 * `first` and on, binary32 queries to [tokens][heads][columns]. */
struct ha_device_columns_seq ha_skew_keys_from(const struct ha_skew *skew, const void *keys, size_t count,
                                               unsigned char *partial, size_t first);
struct ha_device_columns_seq ha_skew_queries_from(const struct ha_skew *skew, const float *q, size_t count, float *to);
enum ha_status ha_skew_cut(const struct ha_skew *skew, size_t layer, struct ha_stream *stream, size_t heads,
                           enum ha_dtype type, const struct ha_device_columns_seq *seqs, size_t batch);

#endif
