#ifndef HA_API_DEVICE_H
#define HA_API_DEVICE_H

/* The device contract. A device is one const table. A plugin is a shared object that exports it as the data symbol
 * `ha_device_api`; kernels/null is the annotated skeleton to copy. Fields are only ever appended; the program reads no
 * further than struct_bytes.
 *
 * Rules. Streams run their operations in order; two streams run side by side. Every enqueue copies its argument struct
 * (and the arrays that the struct says are copied) before it returns and does not block on earlier work. Pinned and
 * mapped memory is addressed by the same pointer from both sides; only mapped memory may be read by a kernel
 * (zero-copy). Any entry may be called from any thread; one stream is fed from one thread at a time. An operation that
 * is NULL is not offered: the case is WAIVED with the operation's name.
 * Operations do not write what they read. An entry returns with the floating-point control, signal mask and handlers,
 * working directory, locale and umask as they were when it was called: a case in which one differs is an ERROR.
 *
 * A library that only merges (or only attends) fills in info and merge (attend) and leaves every other entry NULL: it
 * is called with dev and stream NULL, on host memory, and is done when it returns. `habench check lse_merge --device
 * ./it.so` judges it; docs/merging.md. */

#include "harness/api/base.h"
#include "harness/api/features.h"
#include "harness/api/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HA_DEVICE_ABI    13u
#define HA_DEVICE_SYMBOL "ha_device_api"

struct ha_device;
struct ha_stream;
struct ha_event;
struct ha_graph;

enum ha_memory { HA_MEM_DEVICE, HA_MEM_PINNED, HA_MEM_MAPPED };
enum ha_direction { HA_H2D, HA_D2H, HA_D2D };

/* What a lane did from begin to end; times are CLOCK_MONOTONIC_RAW nanoseconds. */
enum ha_span_kind { HA_SPAN_KERNEL, HA_SPAN_H2D, HA_SPAN_D2H, HA_SPAN_D2D, HA_SPAN_WAIT, HA_SPAN_CPU, HA_SPAN_LAUNCH };
struct ha_span {
    uint64_t begin_ns, end_ns;
    uint64_t bytes;           /* moved by a copy; 0 for what is not one */
    uint64_t zero_copy_bytes; /* read by a kernel through mapped memory, over the link, or moved there: not in bytes */
    enum ha_span_kind kind;
    const char *lane;    /* stream, copy engine or worker; lives as long as the device */
    const char *name;    /* operation; static */
    uint64_t enqueue_ns; /* when the host had enqueued what a stream ran; it may be when the call returned, even if it
                          * ran by then; 0: the device cannot say */
};
/* Called from any thread, possibly concurrently. */
struct ha_span_sink {
    void *self;
    void (*span)(void *self, const struct ha_span *span);
};

struct ha_device_config {
    const struct ha_kernels *kernels; /* for devices that compute on the host; others ignore it */
    uint64_t wait_limit_ns;           /* a stream that waits longer on a flag ends the device with an
                                       * error that names every waiting operation; 0: 30 s */
};

struct ha_device_info {
    char name[96];
    uint64_t memory_bytes, memory_free_bytes;
    uint32_t compute_threads;                   /* host threads that the device itself uses; 0 for a real one */
    struct ha_profile profile[HA_DTYPE_COUNT];  /* of attend, by the type of K and V; see kernels.h */
    struct ha_profile products[HA_DTYPE_COUNT]; /* of attend_products */
    struct ha_merge_traits merge;               /* see merge.h */
    char no_products[160]; /* why attend_products and product are not to be had on this machine; empty: they are */
    char driver[64];       /* driver and runtime, or empty */
    char spans[32];      /* what spans are stamped by: "CUPTI", "CUDA events", "the device"; may change with tracing */
    uint64_t spans_lost; /* since open: spans that were owed to a sink and could not be delivered */
    size_t head_dim_max; /* of attend and attend_products: cases with longer heads are waived; 0: any */
};

/* Attention of one sequence of a batch; arrays in device (or mapped) memory, layouts as below. An array, a head and a
 * row of K or V begin at any multiple of the size of their numbers; for attend_products heads and runs begin at
 * multiples of 16 bytes. K and V need not have strides in common. A NaN or +inf among the scores of the keys that a
 * query sees makes all of its o and its LSE NaN, a NaN in V of such a key its element of o; an infinity in V its
 * element that, or NaN; a score of -inf weighs 0, and a query that sees no other has what one without keys has, weights
 * of 0 among it; what a key holds that is not seen does not matter (attend_products: its K). */
struct ha_device_seq {
    const float *q;                   /* [q_len][q_heads][head_dim] */
    struct ha_rows runs[HA_RUNS_MAX]; /* of KV head 0; head h starts h * k_head_bytes, h * v_head_bytes
                                       * further on, and reads the same rows; index in device or mapped memory */
    size_t runs_count, k_head_bytes, v_head_bytes;
    float *o;       /* [q_len][q_heads][head_dim] */
    float *lse;     /* [q_len][q_heads] */
    float *weights; /* NULL or [q_heads][weights_stride], as ha_attend.weights; NULL with list_keys */
    size_t weights_stride;

    /* Where ha_device_attend.lists is not 0: list h of runs[0] begins at index + h * list_stride. */
    size_t list_stride;
    const uint32_t *list_keys; /* NULL, or [lists] in device or mapped memory: so many keys, runs[0].keys at most, does
                                * list h have; read when the kernel runs */
};
struct ha_device_attend {
    size_t batch, q_len, q_heads, kv_heads, head_dim; /* head_dim: a multiple of 8; of all operations at most 1024 */
    enum ha_dtype dtype;
    float scale; /* of the scores: finite, above 0 */
    bool causal;
    const struct ha_device_seq *seqs; /* [batch]; copied */
    size_t block; /* an index names blocks of so many rows: key i is row index[i / block] * block + i % block;
                   * 0 as 1: rows. A row that it names twice is two keys */
    /* 0: all heads read the same rows. Else kv_heads or q_heads: each has a list of its own in runs[0], which has an
     * index and, with causal, is not the last run. A query head reads its own KV head's rows all the same.
     * attend_products takes none; a device that cannot says so when it is called, and is waived. One that was compiled
     * before there were lists, of ABI 6, is not opened. */
    size_t lists;
    size_t q_token_stride, q_head_stride; /* of q and o, in floats; 0: dense, as in ha_device_seq */
};

/* y = a * y + b * x over [rows][cols] floats; a = 0 does not read y, and b = 0 need not read x */
struct ha_device_blend {
    float *y;
    const float *x;
    size_t rows, cols, y_stride, x_stride;
    float a, b;
};

/* Rows of row_bytes from src to dst, by a kernel: row i goes from row src_index[i] (NULL: i) to row dst_index[i]
 * (NULL: i). Either side may be device or mapped memory, the indices too; dst rows differ, src rows may be the
 * same or overlap. Appends tokens to their slots, evicts blocks, gathers over the link. */
struct ha_device_move {
    void *dst;
    const void *src;
    const uint32_t *dst_index, *src_index; /* [rows] */
    size_t rows, row_bytes, dst_stride_bytes, src_stride_bytes;
};

/* y = x w^T: x [m][k], w [n][k], y [m][n], dense, all of one type, in device memory at multiples of 16 bytes; k at
 * least 1; sums in binary32. */
struct ha_device_product {
    void *y;
    const void *x, *w;
    size_t m, n, k;
    enum ha_dtype dtype;
};

/* Digests of one sequence's blocks, as struct ha_digest makes them: of KV head 0; head h starts h * head_bytes,
 * h * k_head_bytes further on. All of it in device memory, the rows in device or mapped memory. */
struct ha_device_digest_seq {
    void *digests;
    size_t head_bytes;
    size_t first, blocks; /* of each head; rows: of block `first` on */
    struct ha_rows rows;  /* v is not read */
    size_t k_head_bytes;
};
struct ha_device_digest {
    size_t batch, kv_heads, head_dim, unit;
    enum ha_digest_kind kind;
    enum ha_dtype dtype;
    const struct ha_device_digest_seq *seqs; /* [batch]; copied */
};

/* Scores of a sequence's blocks by their digests, as struct ha_digest_score makes them. */
struct ha_device_score_seq {
    const float *q;      /* [q_len][q_heads][head_dim] */
    const void *digests; /* of KV head 0 */
    size_t head_bytes, blocks;
    float *s; /* [q_heads][q_len][s_stride] */
    size_t s_stride;
};
struct ha_device_digest_score {
    size_t batch, q_len, q_heads, kv_heads, head_dim;
    enum ha_dtype dtype; /* of the digests */
    float scale;
    const struct ha_device_score_seq *seqs; /* [batch]; copied */
};

/* Of each list the k largest of n, as struct ha_topk chooses them, plus `first` each; of several rows that share a list
 * an element is their largest: not the NaN among them, unless all are. */
struct ha_device_topk_seq {
    const float *x; /* [lists][rows][stride] */
    size_t n, k, stride;
    uint32_t first;
    uint32_t *index; /* [lists][index_stride]: min(n, k) each, rising */
    size_t index_stride;
    /* NULL, or [lists]: so many of them are written. Then those alone are taken that are not below the largest element
     * less `within`, a binary32 difference; a NaN is below everything, and nothing else below a difference that is
     * none, of two infinities. What is behind them in index, up to min(n, k), is anything. */
    uint32_t *keys;
    float within;         /* not negative */
    size_t keys_unit;     /* keys is times that, as list_keys of attention over blocks wants it; 0 as 1 */
    const uint32_t *only; /* NULL, or [lists] in device or mapped memory, read when the kernel runs: of a list with 0
                           * nothing is read or written */
};
struct ha_device_topk {
    size_t batch, lists, rows;
    const struct ha_device_topk_seq *seqs; /* [batch]; copied */
};

/* Of lists of blocks those that a cache has, as its slots, and the others, each in the order of the list (struct
 * ha_residency, suites/block_sparse/residency.h, is such a cache). All in device or mapped memory. */
#define HA_SLOT_NONE UINT32_MAX
struct ha_device_split_seq {
    const uint32_t *index; /* [lists][index_stride]: `count` blocks each, all below `blocks` */
    size_t count, index_stride;
    const uint32_t *slot; /* [tables][slot_stride]: the slot of each block, or HA_SLOT_NONE */
    size_t blocks, slot_stride;
    /* [lists][out_stride], and how many: [lists]. What is behind them, up to `count`, is anything. missing and its
     * count, or one of these, may be NULL. */
    uint32_t *here, *here_count, *missing, *missing_count;
    size_t out_stride; /* at least count */
    size_t here_unit;  /* here_count is times that, as list_keys of attention want it; 0 as 1 */
};
struct ha_device_split {
    size_t batch, lists, tables;            /* list l has table l * tables / lists */
    const struct ha_device_split_seq *seqs; /* [batch]; copied */
};

/* y = A x for each row x, by the matrix of its KV head, which has fewer rows than x has elements: keys and queries
 * turned into columns of which few say much, and cut there (InfiniGen, section 4.3). Sums in binary32, in any order; y
 * is rounded to its type. All in device or mapped memory. */
struct ha_device_columns_seq {
    const void *x; /* [tokens][heads][head_dim] of x_type */
    void *y;       /* token t of head h is [columns] of y_type at t * y_token_stride + h * y_head_stride */
    size_t tokens, y_token_stride, y_head_stride; /* in elements */
};
struct ha_device_columns {
    size_t batch, heads, kv_heads, head_dim, columns; /* heads: a multiple of kv_heads */
    enum ha_dtype x_type, y_type;
    const float *a;                           /* [kv_heads][columns][head_dim] */
    const struct ha_device_columns_seq *seqs; /* [batch]; copied */
};

/* Scores of rows: s = scale q.k, sums in binary32. q and s in device memory, rows there or in mapped memory. */
struct ha_device_rows_seq {
    const float *q;      /* [q_len][q_heads][head_dim] */
    struct ha_rows rows; /* of KV head 0; head h starts h * k_head_bytes further on; v is not read */
    size_t k_head_bytes;
    float *s; /* [q_heads][q_len][s_stride] */
    size_t s_stride;
};
struct ha_device_score {
    size_t batch, q_len, q_heads, kv_heads, head_dim;
    enum ha_dtype dtype; /* of the rows */
    float scale;
    const struct ha_device_rows_seq *seqs; /* [batch]; copied */
};

/* Queries from what W_Q x is, in place: plus the bias; each head divided by its root mean square and multiplied by the
 * norm; then turned by its token's rotary position, as struct ha_projection (harness/api/dataset.h) says. What is NULL
 * is left out. All in device or mapped memory. */
struct ha_device_rotate {
    float *q; /* [tokens][heads][head_dim] */
    size_t tokens, heads, head_dim;
    const float *bias, *norm; /* [heads][head_dim], [head_dim] */
    float norm_eps;
    const float *turn; /* [tokens][rotary/2][2]: cosine and sine of each pair's angle, times the scale */
    size_t rotary;     /* the first so many dimensions of each head are turned; even, at most head_dim */
    bool adjacent;     /* pairs are (2j, 2j + 1), not (j, j + rotary/2) */
};

/* The features of each query head of a sequence, standardised (features.h): the known ones as they are given, those
 * that change with the query from q. Norms, products of q and the mean of K or the anchor are sums of binary32 in any
 * order, exp and ln are within 2^-22 of their value, and the squares of q and of the anchor add up to a normal number
 * or to 0. The o of a state without keys, whose LSE is -inf, counts as zeros. A NaN is met by what is made of it, by
 * O_NORM_MAX of all heads. All of it in device or mapped memory. */
struct ha_device_features_seq {
    const float *q;             /* [q_heads][head_dim] */
    const float *known;         /* [q_heads][HA_FEATURES]; of the ones that change with the query nothing is read */
    const float *anchor;        /* [q_heads][head_dim] */
    const float *mean_k;        /* [kv_heads][head_dim] */
    const float *o[2], *lse[2]; /* attention over sink and over local: [q_heads][head_dim], [q_heads] */
    size_t device_keys;         /* DEVICE_KEYS */
    float *x;                   /* [q_heads][HA_FEATURES] */
};
struct ha_device_features {
    size_t batch, q_heads, kv_heads, head_dim; /* q_heads: a multiple of kv_heads */
    float scale;
    const float *mean, *inv;                   /* [HA_FEATURES]; inv is not negative */
    const struct ha_device_features_seq *seqs; /* [batch]; copied */
};

/* Codes of rows, as struct ha_hash makes them, by the matrix of their KV head: of keys, or of the queries that share
 * one. All in device or mapped memory. */
struct ha_device_hash_seq {
    const void *x; /* [tokens][kv_heads][group][head_dim]; token t begins t * token_stride elements on */
    size_t tokens, token_stride;
    void *codes;                   /* of KV head 0; head h begins h * code_head_bytes further on */
    size_t code_head_bytes, first; /* of the g-th of token t: row first + t * group + g */
};
struct ha_device_hash {
    size_t batch, kv_heads, group, head_dim, bits; /* group: 1 for keys */
    enum ha_dtype dtype;                           /* of x */
    const float *a;                                /* [kv_heads][bits][head_dim] */
    const struct ha_device_hash_seq *seqs;         /* [batch]; copied */
};

/* Scores of keys by their codes and those of the `rows` queries of their KV head, as struct ha_hamming makes them. All
 * in device or mapped memory. */
struct ha_device_hamming_seq {
    const void *q, *codes; /* of KV head 0; head h begins h * q_head_bytes, h * code_head_bytes further on */
    size_t q_head_bytes, code_head_bytes, keys;
    float *s; /* [kv_heads][rows][s_stride] */
    size_t s_stride;
    const uint32_t *only; /* NULL, or [kv_heads]: as in ha_device_topk_seq */
};
struct ha_device_hamming {
    size_t batch, kv_heads, rows, bits;
    const struct ha_device_hamming_seq *seqs; /* [batch]; copied */
};

/* Is a query so similar to one before that what that one read serves it too? Look-up and update of a cache's labels in
 * one (CLO, sections 3.1, 3.2 and 5). The similarity of a query head is the least cosine of one of the step's queries
 * and its label; that of a KV head the least of its query heads', or their harmonic mean weighted by importance, sum(s)
 * / sum(s / similarity), and where one of them is not positive the least; where one is NaN, so is the least. Sums of
 * binary32 in any order, but the same for all three of a cosine: a query equal to its label in all bits, whose squares
 * add up to a normal number, has similarity 1, and so has a KV head of such queries alone. A KV head hits if its
 * similarity is at least the threshold and, of the harmonic mean, all of its query heads' are positive; a NaN, as of a
 * label of zeros, does not; with a threshold below -1 it always hits. Where a KV head does not, the labels of its query
 * heads become the queries of the step's last token. All in device or mapped memory. */
enum ha_similar { HA_SIMILAR_LEAST, HA_SIMILAR_HARMONIC };
struct ha_device_similarity_seq {
    const float *q;    /* [q_len][q_heads][head_dim] */
    float *label;      /* [q_heads][head_dim] */
    float *similarity; /* [kv_heads] */
    uint32_t *missed;  /* [kv_heads]: 0 a hit, 1 a miss */
};
struct ha_device_similarity {
    size_t batch, q_len, q_heads, kv_heads, head_dim;
    enum ha_similar group;
    const float *importance, *threshold;         /* [q_heads] positive, read by HA_SIMILAR_HARMONIC; [kv_heads] */
    const struct ha_device_similarity_seq *seqs; /* [batch]; copied */
};

/* Codes of keys by product quantisation, and scores by them, as struct ha_pq_encode, ha_pq_table and ha_pq_score make
 * them: pq has the book of KV head 0, and head h's is h * ha_pq_book_floats(pq) floats further on. Codes and tables of
 * each head begin at a multiple of 64 bytes. All in device or mapped memory. */
struct ha_device_pq_encode_seq {
    struct ha_rows rows; /* of KV head 0; head h starts h * k_head_bytes further on; v is not read */
    size_t k_head_bytes;
    void *codes; /* of KV head 0 */
    size_t code_head_bytes, first;
};
struct ha_device_pq_encode {
    size_t batch, kv_heads;
    struct ha_pq pq;
    enum ha_dtype dtype;
    const struct ha_device_pq_encode_seq *seqs; /* [batch]; copied */
};
struct ha_device_pq_table_seq {
    const float *q; /* [q_len][q_heads][head_dim] */
    void *table;    /* of KV head 0; head h begins h * table_head_bytes further on */
    size_t table_head_bytes;
};
struct ha_device_pq_table {
    size_t batch, q_len, q_heads, kv_heads;
    struct ha_pq pq;
    enum ha_dtype type;                        /* of the table */
    const struct ha_device_pq_table_seq *seqs; /* [batch]; copied */
};
struct ha_device_pq_score_seq {
    const void *table, *codes; /* of KV head 0 */
    size_t table_head_bytes, code_head_bytes, keys;
    float *s; /* [kv_heads][rows][s_stride]; rows: of a KV head, head by head, of each the query tokens */
    size_t s_stride;
};
struct ha_device_pq_score {
    size_t batch, kv_heads, rows;
    struct ha_pq pq; /* its centroids are not read */
    enum ha_dtype type;
    float scale;
    const struct ha_device_pq_score_seq *seqs; /* [batch]; copied */
};

/* Scores to weights in place, as struct ha_softmax makes them, of query heads and tokens. */
struct ha_device_softmax_seq {
    float *x; /* [heads][q_len][stride] */
    size_t n, stride;
    float *lse; /* NULL, or [q_len][lse_stride]: of the heads one behind the other */
    size_t lse_stride;
};
struct ha_device_softmax {
    size_t batch, heads, q_len;
    const struct ha_device_softmax_seq *seqs; /* [batch]; copied */
};

/* Of each list the fewest elements of largest weight that reach p in the mean over its rows, as struct ha_topp chooses
 * them. keys, index and w may be in mapped memory. */
struct ha_device_topp_seq {
    const float *x; /* [lists][rows][stride] */
    size_t n, stride;
    uint32_t *keys;  /* [lists] */
    uint32_t *index; /* [lists][index_stride] */
    void *w;         /* [lists][rows][w_stride] of w_type; index_stride, w_stride >= n */
    size_t index_stride, w_stride;
};
struct ha_device_topp {
    size_t batch, lists, rows;
    double p;
    enum ha_dtype w_type;
    const struct ha_device_topp_seq *seqs; /* [batch]; copied */
};

/* Sums of V by lists and their weights, as topp writes them and struct ha_weighted_sum makes them; all in device or
 * mapped memory. */
struct ha_device_weighted_sum_seq {
    const void *v; /* of KV head 0; head h starts h * v_head_bytes further on */
    size_t v_stride_bytes, v_head_bytes;
    const uint32_t *keys, *index; /* [q_heads], [q_heads][index_stride]: rising, no row twice */
    const void *w;                /* [q_heads][q_len][w_stride] of w_type */
    size_t index_stride, w_stride;
    float *o; /* [q_len][q_heads][head_dim] */
};
struct ha_device_weighted_sum {
    size_t batch, q_len, q_heads, kv_heads, head_dim;
    enum ha_dtype dtype, w_type;
    const struct ha_device_weighted_sum_seq *seqs; /* [batch]; copied */
};

/* Copies that are handed over in one call: piece i has bytes[i] bytes, of sources that may overlap each other. The
 * arrays are copied. */
struct ha_device_pieces {
    void *const *dst;
    const void *const *src;
    const size_t *bytes;
    size_t count;
};

/* What can be read of the device's state now, without disturbing it. NaN, or an empty text: not readable. */
struct ha_device_meters {
    bool want_link_GBps; /* in: read link_rx and link_tx too, which takes the driver some 40 ms; else they are NaN */
    double sm_clock_MHz, sm_clock_max_MHz, memory_clock_MHz, memory_clock_max_MHz;
    double temperature_C, power_W, energy_J; /* energy: since some point in the past */
    double link_gen, link_gen_max, link_width, link_width_max;
    double link_rx_GBps, link_tx_GBps; /* hardware counters, over the driver's own window */
    char throttle[96];                 /* why clocks are held down now, comma separated; "none" */
    char bus_id[32];
};
/* none of it is readable */
static inline struct ha_device_meters ha_device_meters_none(bool want_link_GBps)
{
    const double none = __builtin_nan("");
    const struct ha_device_meters m = { want_link_GBps, none, none, none, none, none, none, none,
                                        none,           none, none, none, none, none, "",   "" };
    return m;
}

/* What of the device is no meter and may make figures worthless: modes, errors, limits, who else is on it. value is a
 * number, "on" or "off", "yes" or "no", a version, or of a process "PID BYTES" (or "PID ?"). */
struct ha_device_fact {
    char name[24], value[72];
};
/* The names that `habench doctor` asks for (docs/doctor.md); others are left alone:
 *   ecc ecc_pending              mode now and after the next reset
 *   ecc_corrected ecc_uncorrected  errors since the driver was loaded
 *   rows_pending rows_failed     are rows of memory to be remapped at the next reset; could one not be?
 *   persistence mig              modes
 *   power_limit_W power_default_W
 *   link_gen_device              the most that the device can, whatever the slot
 *   busy_percent                 of the driver's last window: others, where the caller has not used the device
 *   process                      one for each process that has memory there, this one too; "?": nobody says which
 *   driver driver_module         versions of the driver's library, and of its module in the kernel
 *   driver_api runtime_api       the interface that the driver offers, and the one that was compiled for, as 12.8
 * The probe asks for l2_bytes, what the cache of the device's memory holds. */
enum { HA_DEVICE_FACTS_MOST = 64 };

/* The operations whose arguments are one struct: X(entry of the table, struct) */
#define HA_DEVICE_OPERATIONS(X)             \
    X(attend, ha_device_attend)             \
    X(attend_products, ha_device_attend)    \
    X(merge, ha_merge)                      \
    X(blend, ha_device_blend)               \
    X(product, ha_device_product)           \
    X(move, ha_device_move)                 \
    X(digest, ha_device_digest)             \
    X(digest_score, ha_device_digest_score) \
    X(topk, ha_device_topk)                 \
    X(split, ha_device_split)               \
    X(rotate, ha_device_rotate)             \
    X(columns, ha_device_columns)           \
    X(score, ha_device_score)               \
    X(features, ha_device_features)         \
    X(net, ha_net)                          \
    X(hash, ha_device_hash)                 \
    X(hamming, ha_device_hamming)           \
    X(similarity, ha_device_similarity)     \
    X(pq_encode, ha_device_pq_encode)       \
    X(pq_table, ha_device_pq_table)         \
    X(pq_score, ha_device_pq_score)         \
    X(softmax, ha_device_softmax)           \
    X(topp, ha_device_topp)                 \
    X(weighted_sum, ha_device_weighted_sum)

struct ha_device_api {
    uint32_t abi;           /* HA_DEVICE_ABI this was compiled against */
    uint32_t struct_bytes;  /* sizeof(struct ha_device_api) then */
    const char *name;       /* "host", "null", "cuda", ... */
    const char *kind;       /* column device_kind: host | null | cuda | plugin */
    const char *built_with; /* compiler and version */

    /* HA_WAIVED with a reason where there is no such device */
    enum ha_status (*open)(struct ha_device **dev, const struct ha_device_config *config, struct ha_why *why);
    void (*close)(struct ha_device *dev); /* after all streams are destroyed */
    void (*info)(struct ha_device *dev, struct ha_device_info *info);
    /* the first asynchronous failure, or NULL; every later sync returns HA_ERROR */
    const char *(*failure)(struct ha_device *dev);
    /* spans of everything enqueued from now on go to sink (which must outlive the tracing);
     * NULL ends tracing and returns when the last span has been delivered */
    void (*trace)(struct ha_device *dev, const struct ha_span_sink *sink);

    enum ha_status (*mem_alloc)(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                struct ha_why *why);
    void (*mem_free)(struct ha_device *dev, enum ha_memory kind, void *ptr);

    enum ha_status (*stream_create)(struct ha_device *dev, const char *name, struct ha_stream **stream,
                                    struct ha_why *why);
    void (*stream_destroy)(struct ha_stream *stream); /* waits for its work */
    enum ha_status (*stream_sync)(struct ha_stream *stream);
    enum ha_status (*event_create)(struct ha_device *dev, struct ha_event **event, struct ha_why *why);
    void (*event_destroy)(struct ha_event *event);
    enum ha_status (*event_record)(struct ha_event *event, struct ha_stream *stream);
    /* waits for the latest record enqueued before this call; none: no wait */
    enum ha_status (*stream_wait)(struct ha_stream *stream, struct ha_event *event);
    enum ha_status (*event_sync)(struct ha_event *event);

    /* One contiguous copy. It runs on the link's engine for its direction, in stream order. */
    enum ha_status (*copy)(struct ha_stream *stream, void *dst, const void *src, size_t bytes, enum ha_direction dir);
    /* rows of row_bytes; strides in bytes, no less than that where there are several rows */
    enum ha_status (*copy_2d)(struct ha_stream *stream, void *dst, size_t dst_stride, const void *src,
                              size_t src_stride, size_t row_bytes, size_t rows, enum ha_direction dir);

    /* 32-bit flags in mapped memory. The host reads and writes them with acquire and release. A flag that is waited
     * for, and what is waited for, are less than 2^31: a GPU's wait may take their difference as a signed number. */
    enum ha_status (*flag_write)(struct ha_stream *stream, uint32_t *flag, uint32_t value);
    enum ha_status (*flag_wait)(struct ha_stream *stream, const uint32_t *flag, uint32_t at_least);
    /* fn(arg) on a host thread, in stream order; it must not call the device */
    enum ha_status (*host_fn)(struct ha_stream *stream, void (*fn)(void *arg), void *arg);

    enum ha_status (*attend)(struct ha_stream *stream, const struct ha_device_attend *args);
    /* states may lie in mapped memory; the states array is copied */
    enum ha_status (*merge)(struct ha_stream *stream, const struct ha_merge *args);
    enum ha_status (*blend)(struct ha_stream *stream, const struct ha_device_blend *args);

    /* What is enqueued on the stream between begin and end is kept and not run; launch enqueues all of it again,
     * on any stream that keeps nothing itself, as often as wanted: the same arguments, and memory as it is then.
     * Launches of one graph run in turn, in the order of their calls, on whichever streams; two graphs side by side. */
    enum ha_status (*graph_begin)(struct ha_stream *stream);
    enum ha_status (*graph_end)(struct ha_stream *stream, struct ha_graph **graph, struct ha_why *why);
    enum ha_status (*graph_launch)(struct ha_graph *graph, struct ha_stream *stream);
    void (*graph_destroy)(struct ha_graph *graph); /* after its launches are done */

    /* attention as batched products with a softmax between, by the vendor's library: what attend is compared with. Of a
     * shape the first call of this, and of product, may wait for all that is enqueued: the library loads its kernels */
    enum ha_status (*attend_products)(struct ha_stream *stream, const struct ha_device_attend *args);
    enum ha_status (*product)(struct ha_stream *stream, const struct ha_device_product *args);
    enum ha_status (*move)(struct ha_stream *stream, const struct ha_device_move *args);
    enum ha_status (*copy_pieces)(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                  enum ha_direction dir);

    /* for measuring: a kernel that reads device or mapped memory once, as fast as it can, and adds the 32-bit
     * words up (wrapping) into *sum; one that keeps one multiprocessor busy for so long, and is work, not waiting: its
     * span is a KERNEL */
    enum ha_status (*read)(struct ha_stream *stream, const void *ptr, size_t bytes, uint32_t *sum);
    enum ha_status (*spin)(struct ha_stream *stream, uint64_t ns);
    void (*meters)(struct ha_device *dev, struct ha_device_meters *out);

    /* Makes device memory from mem_alloc writable by CPU stores at *host, until unmapped: GDRCopy and its like.
     * HA_WAIVED with a reason where the machine has none. Stores are seen by work enqueued after the thread that stored
     * has fenced them (write-combining memory). Whoever stores says how much, to be counted (harness/base/stores.h). */
    enum ha_status (*map_device)(struct ha_device *dev, void *ptr, size_t bytes, void **host, struct ha_why *why);
    void (*unmap_device)(struct ha_device *dev, void *host);

    /* what selects keys: digests of blocks, their scores, the largest of these; and a query that is predicted:
     * `product` gives W_Q x, rotate the rest */
    enum ha_status (*digest)(struct ha_stream *stream, const struct ha_device_digest *args);
    enum ha_status (*digest_score)(struct ha_stream *stream, const struct ha_device_digest_score *args);
    enum ha_status (*topk)(struct ha_stream *stream, const struct ha_device_topk *args);
    enum ha_status (*rotate)(struct ha_stream *stream, const struct ha_device_rotate *args);

    /* what a cache of blocks has; partial keys and queries, and the scores of rows */
    enum ha_status (*split)(struct ha_stream *stream, const struct ha_device_split *args);
    enum ha_status (*columns)(struct ha_stream *stream, const struct ha_device_columns *args);
    enum ha_status (*score)(struct ha_stream *stream, const struct ha_device_score *args);

    /* what predicts budgets: features of query heads, and a net's answer to them, arrays in device or mapped memory */
    enum ha_status (*features)(struct ha_stream *stream, const struct ha_device_features *args);
    enum ha_status (*net)(struct ha_stream *stream, const struct ha_net *args);

    /* what finds keys by codes, and a cache that is labelled with queries */
    enum ha_status (*hash)(struct ha_stream *stream, const struct ha_device_hash *args);
    enum ha_status (*hamming)(struct ha_stream *stream, const struct ha_device_hamming *args);
    enum ha_status (*similarity)(struct ha_stream *stream, const struct ha_device_similarity *args);

    /* attention over keys that are codes: product quantisation, weights by the least prefix, their sum of V */
    enum ha_status (*pq_encode)(struct ha_stream *stream, const struct ha_device_pq_encode *args);
    enum ha_status (*pq_table)(struct ha_stream *stream, const struct ha_device_pq_table *args);
    enum ha_status (*pq_score)(struct ha_stream *stream, const struct ha_device_pq_score *args);
    enum ha_status (*softmax)(struct ha_stream *stream, const struct ha_device_softmax *args);
    enum ha_status (*topp)(struct ha_stream *stream, const struct ha_device_topp *args);
    enum ha_status (*weighted_sum)(struct ha_stream *stream, const struct ha_device_weighted_sum *args);

    /* Fills at most `room` facts and returns how many; what cannot be read has none. Also of a device whose streams are
     * at work; it may take as long as the driver does. */
    size_t (*facts)(struct ha_device *dev, struct ha_device_fact *facts, size_t room);
};

#ifdef __cplusplus
}
#endif
#endif
