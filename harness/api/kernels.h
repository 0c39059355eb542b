#ifndef HA_API_KERNELS_H
#define HA_API_KERNELS_H

/* The CPU kernels of one instruction set. A null pointer means "not written here": the
 * registry fills it from the next table down, ending at kernels/c, which has everything.
 * Kernels are single-threaded, allocate nothing, and touch only what the arguments name. */

#include "harness/api/base.h"
#include "harness/api/merge.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ha_cpu_bit { HA_CPU_C = 1, HA_CPU_AVX2 = 2, HA_CPU_AVX512 = 4 };

/* Keys per chunk at most: attend_chunk is two-pass over one chunk, attend joins chunks. */
enum { HA_CHUNK_KEYS = 2048 };

/* The numeric profile that the error bound is computed from. A sum of n terms is claimed
 * to have at most ceil(n / lanes) + extra additions on its longest path. */
struct ha_profile {
    unsigned dot_lanes, dot_extra;  /* q.k over head_dim terms */
    unsigned sum_lanes, sum_extra;  /* sums over the keys of one chunk: weights, weighted V */
    double exp_eps, log_eps;        /* relative error of exp on [-104, 0], of log */
    unsigned join_keys, joins_max;  /* keys of a chunk, 0: HA_CHUNK_KEYS; a weight takes part in at most so many
                                     * joins of chunks, however many keys there are, 0: no such limit */
    double weight_u, weight_eta;    /* unit and subnormal half of the type that weights are rounded to before they meet V; 0: binary32 */
    bool truncates;                 /* products are summed without rounding to nearest, as by tensor cores: each addition counts twice */
};

/* Rows that attention reads. Row i of K starts at (char *)k + (index ? index[i] : i) * k_stride_bytes. */
struct ha_rows {
    const void *k, *v;
    size_t k_stride_bytes, v_stride_bytes;
    const uint32_t *index;  /* [keys] or NULL: rows 0 .. keys-1 */
    size_t keys;
};

/* Attention of the query rows that share one KV head, over one chunk of rows, not yet
 * normalised: max = largest scaled score, sum = sum of exp(s - max), acc = sum of exp(s - max) v.
 * A row that sees no key gives max = -inf, sum = 0, acc = 0. */
struct ha_chunk {
    const float *q;          /* [q_rows][head_dim], row stride q_stride floats */
    size_t q_rows, q_stride, head_dim;
    struct ha_rows rows;     /* rows.keys <= HA_CHUNK_KEYS */
    enum ha_dtype dtype;
    float scale;             /* of the scores: 1/sqrt(head_dim) unless a model says otherwise */
    const uint32_t *visible; /* [q_rows] row r sees the first visible[r] keys; NULL: all */
    float *weights;          /* [q_rows][weights_stride]: exp(s - max), 0 where not visible */
    size_t weights_stride;   /* >= rows.keys */
    float *max, *sum;        /* [q_rows] */
    float *acc;              /* [q_rows][head_dim] */
};

enum { HA_RUNS_MAX = 4 };

/* Attention of one KV head's group of query heads over several runs of rows, in order:
 * o and LSE = ln sum exp(scale q.k), natural log, scaled scores.
 * No visible key gives (0, -inf). With causal set, the last q_len keys of the last run are
 * the query tokens themselves and query token t does not see those after itself. */
struct ha_attend {
    const float *q;         /* [q_len][group][head_dim] with the two strides below, in floats */
    size_t q_len, group, head_dim, q_token_stride, q_head_stride;
    const struct ha_rows *runs;
    size_t runs_count;      /* <= HA_RUNS_MAX */
    enum ha_dtype dtype;
    float scale;
    bool causal;
    float *o;               /* [q_len][group][head_dim], strides as q */
    float *lse;             /* [q_len][group], strides below, in floats */
    size_t lse_token_stride, lse_head_stride;
    float *weights;         /* NULL, or [group][weights_stride]: the softmax weight of each key in
                             * run order, averaged over the q_len query tokens */
    size_t weights_stride;  /* >= total keys */
    void *scratch;          /* attend_scratch_bytes(), 64-byte aligned */
};

/* s[i] = scale * q.k_i for every row. */
struct ha_score {
    const float *q;
    size_t head_dim;
    struct ha_rows rows;    /* v is not read */
    enum ha_dtype dtype;
    float scale;
    float *s;               /* [rows.keys] */
};

struct ha_kernels {
    const char *name;
    const char *absent;     /* why this table is empty ("not compiled for this target"), or NULL */
    unsigned cpu_bit;       /* the ha_cpu_bit it needs */
    struct ha_profile profile;  /* of attend_chunk; goes with that pointer when tables are joined */
    struct ha_merge_traits traits;  /* of merge; likewise */
    void (*attend_chunk)(const struct ha_chunk *);
    void (*merge)(const struct ha_merge *);
    void (*score)(const struct ha_score *);
    /* joins chunks through self->attend_chunk; written once, in kernels/c */
    void (*attend)(const struct ha_kernels *self, const struct ha_attend *);
    size_t (*attend_scratch_bytes)(const struct ha_attend *);
};

#ifdef __cplusplus
}
#endif
#endif
