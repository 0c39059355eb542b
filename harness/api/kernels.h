#ifndef HA_API_KERNELS_H
#define HA_API_KERNELS_H

/* The CPU kernels of one instruction set. A null pointer means "not written here": the
 * registry fills it from the next table down, ending at kernels/c, which has everything.
 * Kernels are single-threaded (but attend_all), allocate nothing, and touch only what the arguments name. */

#include "harness/api/base.h"
#include "harness/api/merge.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ha_pool; /* harness/base/pool.h */

enum ha_cpu_bit {
    HA_CPU_C = 1,
    HA_CPU_AVX2 = 2,
    HA_CPU_AVX512 = 4,
    HA_CPU_AVX512_BF16 = 8,
    HA_CPU_AMX = 16, /* x86-64; avx2 stands for FMA and F16C too */
    HA_CPU_NEON = 32,
    HA_CPU_SVE256 = 64,
    HA_CPU_SVE512 = 128,           /* AArch64 */
    HA_CPU_AVX512_VPOPCNTDQ = 256, /* x86-64 */
    HA_CPU_AVX512_YMM = 512,       /* AVX512 by another name, so that it can be masked alone */
};

/* Keys per chunk at most: attend_chunk is two-pass over one chunk, attend joins chunks. */
enum { HA_CHUNK_KEYS = 2048 };
/* Query rows per call of attend_packed at most. */
enum { HA_CHUNK_ROWS = 64 };

/* The numeric profile that the error bound is computed from. A sum of n terms is claimed
 * to have at most ceil(n / lanes) + extra additions on its longest path. */
struct ha_profile {
    unsigned dot_lanes, dot_extra;    /* q.k over head_dim terms */
    unsigned sum_lanes, sum_extra;    /* sums over the keys of one chunk: weights, weighted V */
    double exp_eps, log_eps;          /* relative error of exp on [-104, 0], of log */
    unsigned join_keys, joins_max;    /* keys of a chunk, 0: HA_CHUNK_KEYS; a weight takes part in at most so many
                                       * joins of chunks, however many keys there are, 0: no such limit */
    enum ha_dtype weight_type;        /* that weights are rounded to before they meet V */
    enum ha_dtype out_type, lse_type; /* that o and the LSE are rounded to in the end; they are handed over as floats */
    bool sum_rounded;                 /* the denominator sums the weights as weight_type has them, too */
    bool truncates; /* products are summed without rounding to nearest, as by tensor cores: an addition counts twice */
    bool exact_joins; /* what joins chunks scales by powers of two: a join costs an addition and no rounding besides */
    double operand_eps;       /* that each number is off by, of itself, which a product takes: q and K, weights and V;
                               * TF32 is 2^-11, or 2^-10 where bits are cut; 0: they are taken as they are */
    enum ha_dtype logit_type; /* that a score is rounded to before its exponential; beyond the type no bound holds */
    bool varies; /* The same input may give other bits another time, as where sums are made in the order in which
                  * parts arrive. False promises the same bits, wherever in memory the operands lie, whatever it
                  * held before, and however busy the machine is. */

    /* Of a state of a variant's own alone (struct ha_part); a device's attention has neither. */
    enum ha_dtype score_type; /* that the terms of a score are rounded to before they are added up: as in a table of
                               * what the query makes of centroids */
    double sum_least; /* 0: what the weights make of V is divided by their sum. Else weights are exp(s - L), rounded to
                       * weight_type, L the LSE that softmax found over more keys than these, or as many, and those of
                       * this state add up to so much at least; it need not be divided by that */
};

/* Rows that attention reads. Row i of K starts at (char *)k + (index ? index[i] : i) * k_stride_bytes. */
struct ha_rows {
    const void *k, *v;
    size_t k_stride_bytes, v_stride_bytes;
    const uint32_t *index; /* [keys] or NULL: rows 0 .. keys-1 */
    size_t keys;
};

/* The packed layout of one KV head's keys: blocks of HA_PACK_KEYS keys, one after the other without gaps, each K
 * then V,
 * HA_PACK_KEYS * head_dim elements both, so that a head is one linear stream. head_dim is a multiple of 8, at most
 * 256.
 *   f32:  K is [head_dim][HA_PACK_KEYS]; V is panels of HA_PACK_COLS columns (the last one may have fewer),
 *     [HA_PACK_KEYS][columns].
 *   f16:  K is [head_dim / 2][2][2][HA_PACK_KEYS / 2]: of two elements, for each half of the keys, all of the first
 *     and then all of the
 *         second; V is as in f32.
 *   bf16: pairs in 32 bits: K is [head_dim / 2][HA_PACK_KEYS][2], a panel of V [HA_PACK_KEYS / 2][columns][2].
 * So no cache line has keys of both halves of a block, and two elements of K take 128 bytes (f32: 256).
 * The last block may hold fewer keys: the rest of it is zeros. */
enum { HA_PACK_KEYS = 32, HA_PACK_COLS = 32, HA_PACK_DIM_MAX = 256 };

static inline size_t ha_packed_block_bytes(size_t head_dim, enum ha_dtype t)
{
    return 2 * HA_PACK_KEYS * head_dim * ha_dtype_bytes(t);
}
static inline bool ha_packs(size_t head_dim)
{
    return head_dim % 8 == 0 && head_dim > 0 && head_dim <= HA_PACK_DIM_MAX;
}

/* Packed keys that attention reads: all of them, or a list of logical blocks. */
struct ha_packed {
    const void *blocks;    /* 64-byte aligned */
    size_t keys;           /* that the blocks hold */
    const uint32_t *index; /* NULL, or [units]: unit u is keys [u * unit, (u + 1) * unit) as far as there are any; each
                              at most once */
    size_t unit, units;    /* unit: 16, 32, 64 or 128 */
};

/* Where work may be cut: positions in the order of the keys' list that are multiples of this. */
enum { HA_SPLIT_KEYS = 128 };

/* keys of the whole list */
static inline size_t ha_packed_listed(const struct ha_packed *p)
{
    if (!p->index) return p->keys;
    size_t keys = p->units * p->unit;
    const size_t ragged = p->keys % p->unit;
    for (size_t i = 0; ragged && i < p->units; i++) keys -= p->index[i] == p->keys / p->unit ? p->unit - ragged : 0;
    return keys;
}

/* The state of some keys, not yet normalised: sum = sum of w, acc = sum of w v with w = 2^(s log2 e - level), s the
 * scaled score. The level is an integer, at most 8 below the largest s log2 e and less than 1 above it, so that states
 * are joined by powers of two, exactly. No visible key: level = -inf, sum = 0, acc = 0. A NaN or +inf among the scores:
 * sum is NaN, acc and the level anything. */

/* The query rows that share one KV head, over one chunk of rows. */
struct ha_chunk {
    const float *q; /* [q_rows][head_dim], row stride q_stride floats */
    size_t q_rows, q_stride, head_dim;
    struct ha_rows rows; /* rows.keys <= HA_CHUNK_KEYS */
    size_t block, skip;  /* rows.index names blocks of so many rows; 0 as 1: rows. Key i is row (skip + i) % block of
                          * block  index[(skip + i) / block]; skip < block, and 0 without an index */
    enum ha_dtype dtype;
    float scale;             /* of the scores: 1/sqrt(head_dim) unless a model says otherwise */
    const uint32_t *visible; /* [q_rows] row r sees the first visible[r] keys; NULL: all */
    float *weights;          /* [q_rows][weights_stride]: w, 0 where not visible */
    size_t weights_stride;   /* >= rows.keys */
    float *level, *sum;      /* [q_rows] */
    float *acc;              /* [q_rows][head_dim] */
};

/* How a kernel asks for keys that it will read later: of two lines of a stream both, into L2 or into L1, or into L2 and
 * again a little ahead into L1, or one into L2, or none, so many bytes ahead; or into L1 in several streams: lines of
 * the four quarters of the block that lies so far ahead in turns, so that several pages are read at once. No kernel can
 * know which is best: it differs by CPU, and a plan says it (docs/kernels.md#plans). It changes no bit of a result. Of
 * a list, what it names next is asked for, whatever the distance; there, and with several passes of query rows, twice,
 * one and none are as HA_REACH_L2. */
enum ha_reach_kind {
    HA_REACH_L2,
    HA_REACH_L1,
    HA_REACH_STREAMS,
    HA_REACH_TWICE,
    HA_REACH_ONE,
    HA_REACH_NONE,
    HA_REACH_KINDS
};
struct ha_reach {
    enum ha_reach_kind kind;
    uint32_t bytes; /* ahead, at most HA_REACH_MOST */
};
enum { HA_REACH_MOST = 1 << 20 };
/* What is read differs in it: keys in order with at most HA_PATTERN_ROWS query rows, which take one pass; a list; keys
 * in order with more rows, which pass over them several times. */
enum ha_pattern { HA_PATTERN_LINEAR, HA_PATTERN_LIST, HA_PATTERN_PASSES, HA_PATTERNS };
enum { HA_PATTERN_ROWS = 4 };

/* The same over packed keys; every row sees all of them. */
struct ha_packed_chunk {
    const float *q;                    /* [q_rows][head_dim], row stride q_stride floats */
    size_t q_rows, q_stride, head_dim; /* q_rows <= HA_CHUNK_ROWS, ha_packs(head_dim) */
    struct ha_packed packed;
    size_t first, keys; /* of the list, by position; first is a multiple of HA_SPLIT_KEYS; so is keys, or the list ends
                         * there. attend asks for at most HA_CHUNK_KEYS at once, and joins; packed_profile speaks of
                         * such calls */
    float scale;
    float *weights;        /* NULL, or [q_rows][weights_stride]: w by position from first, all at the level returned */
    size_t weights_stride; /* >= keys */
    float *level, *sum;    /* [q_rows] */
    float *acc;            /* [q_rows][head_dim] */
    struct ha_reach reach;
    void *scratch; /* HA_PACKED_SCRATCH bytes, 64-byte aligned */
};
/* queries prepared, scores and weights of a block, sums: each [HA_CHUNK_ROWS] of at most this many floats */
enum { HA_PACKED_SCRATCH = HA_CHUNK_ROWS * (4 * HA_PACK_DIM_MAX + 2 * HA_PACK_KEYS) * 4 };

/* Rows into a packed store: they become its keys [at, at + rows.keys). What the last block had behind them becomes
 * zeros. */
struct ha_pack {
    void *blocks;
    size_t at;
    struct ha_rows rows; /* index: rows */
    size_t head_dim;
    enum ha_dtype dtype;
};

/* Keys of a packed store as rows: key index[i] (NULL: first + i) becomes row i. */
struct ha_unpack {
    const void *blocks;
    const uint32_t *index;
    size_t first, keys, head_dim;
    enum ha_dtype dtype;
    void *k, *v;
    size_t k_stride_bytes, v_stride_bytes;
};

enum { HA_RUNS_MAX = 4 };

/* Attention of one KV head's group of query heads over packed keys and then runs of rows, in order:
 * o and LSE = ln sum exp(scale q.k), natural log, scaled scores.
 * No visible key gives (0, -inf). With causal set, the last q_len keys of the last run are
 * the query tokens themselves and query token t does not see those after itself; there is such a run. */
struct ha_attend {
    const float *q; /* [q_len][group][head_dim] with the two strides below, in floats */
    size_t q_len, group, head_dim, q_token_stride, q_head_stride;
    struct ha_packed packed; /* .keys = 0: none */
    const struct ha_rows *runs;
    size_t runs_count; /* <= HA_RUNS_MAX */
    size_t block; /* the runs' indices name blocks of so many rows: key i is row index[i / block] * block + i % block; 0
                     as 1 */
    enum ha_dtype dtype;
    float scale;
    bool causal;
    float *o;   /* [q_len][group][head_dim], strides as q */
    float *lse; /* [q_len][group], strides below, in floats */
    size_t lse_token_stride, lse_head_stride;
    float *weights;        /* NULL, or [group][weights_stride]: the softmax weight of each key in
                            * list order (packed, then runs), averaged over the q_len query tokens */
    size_t weights_stride; /* >= total keys */
    void *scratch;         /* attend_scratch_bytes(), 64-byte aligned */
};

/* Work on one attention by several threads: parts of its keys, each into a state of its own, then one join. */
struct ha_attend_part {
    const struct ha_attend *attend; /* its scratch is not used */
    size_t first,
        keys; /* of all keys in list order; cut at multiples of HA_SPLIT_KEYS of that order, and anywhere at the end */
    void *state;   /* attend_state_bytes(), 64-byte aligned */
    void *scratch; /* attend_scratch_bytes() */
};
struct ha_attend_join {
    const struct ha_attend *attend;
    const struct ha_attend_part *parts; /* [count], in order, all keys; their scratch is not used */
    size_t count;
};

/* s[i] = scale * q.k_i for every row. */
struct ha_score {
    const float *q;
    size_t head_dim;
    struct ha_rows rows; /* v is not read */
    enum ha_dtype dtype;
    float scale;
    float *s; /* [rows.keys] */
};

/* The k largest of x, ties to the smaller index: their indices in increasing order. NaN is smaller than everything,
 * -0 equals 0. */
struct ha_topk {
    const float *x; /* [n], n < 2^32 */
    size_t n, k;
    uint32_t *index; /* [min(n, k)] */
};

/* Summaries of logical blocks of keys: per dimension the smallest and the largest value of a block, as Quest has them,
 * or the mean in the place of both, as MoBA has it, so that one score serves either. They are kept as
 * [blocks / HA_PACK_KEYS][head_dim][2][HA_PACK_KEYS] numbers of the type of K: of each dimension the minima of so many
 * blocks, then their maxima; zeros behind the last block, which first + blocks says anew each time. A NaN in a block
 * makes both NaN; a block without rows is zeros. A mean is a sum in binary32, divided, and rounded to the type. */
enum ha_digest_kind { HA_DIGEST_RANGE, HA_DIGEST_MEAN };
struct ha_digest {
    enum ha_digest_kind kind;
    void *digests;        /* 64-byte aligned */
    size_t first, blocks; /* block first + i is made of rows [i * unit, (i + 1) * unit) as far as there are any */
    size_t unit;
    struct ha_rows rows; /* v is not read */
    size_t head_dim;
    enum ha_dtype dtype;
};
static inline size_t ha_digest_bytes(size_t blocks, size_t head_dim, enum ha_dtype t)
{
    return (blocks + HA_PACK_KEYS - 1) / HA_PACK_KEYS * HA_PACK_KEYS * 2 * head_dim * ha_dtype_bytes(t);
}

/* s[r][b] = scale * sum over d of max(q_d min_d, q_d max_d): not less than the score of any key of the block, but for
 * rounding: 32 terms are summed at a time, and these sums one after the other. A NaN in a digest makes its scores NaN,
 * whatever q; an infinity adds nothing where q_d is 0, and nothing where the other of the two is meant. */
struct ha_digest_score {
    const float *q; /* [q_rows][head_dim], row stride q_stride floats */
    size_t q_rows, q_stride, head_dim;
    const void *digests;
    size_t blocks;
    enum ha_dtype dtype;
    float scale;
    float *s; /* [q_rows][s_stride] */
    size_t s_stride;
    bool streams; /* digests are asked for as HA_REACH_STREAMS asks for keys; no bit depends on it */
};

/* Codes of rows (HATA, Gong et al., arXiv 2506.02572, section 3): bit i of a row's code says whether a_i . x is
 * positive, a sum of binary32 in any order; of a NaN it is not. Beside the code stands the row's norm, the root of a
 * sum of squares. They are kept as blocks of HA_CODE_KEYS rows, each [bits / 32][HA_CODE_KEYS] words of the codes, then
 * [HA_CODE_KEYS] norms in binary32, so that words of so many rows fill whole vectors: row j has word w at
 * [j / HA_CODE_KEYS][w][j % HA_CODE_KEYS], and bit i of its code is bit i % 32 of word i / 32. */
enum { HA_CODE_KEYS = 16, HA_CODE_BITS_MAX = 256 };
static inline size_t ha_code_bytes(size_t rows, size_t bits)
{
    return (rows + HA_CODE_KEYS - 1) / HA_CODE_KEYS * HA_CODE_KEYS * (bits / 32 + 1) * 4;
}
struct ha_hash {
    const float *a;      /* [bits][head_dim] */
    size_t bits;         /* a multiple of 32, at most HA_CODE_BITS_MAX */
    struct ha_rows rows; /* v is not read */
    size_t head_dim;
    enum ha_dtype dtype; /* of the rows */
    void *codes;         /* 64-byte aligned */
    size_t first;        /* row i becomes row first + i of the codes; of other rows nothing is written */
};

/* s[r][i] = norm_i (bits - 2 h), h being the bits in which the codes of row i and of query row r differ: an integer,
 * and one rounded product. */
struct ha_hamming {
    const void *q; /* codes of q_rows rows, whose norms are not read; 64-byte aligned, as are codes */
    size_t q_rows, bits;
    const void *codes;
    size_t keys; /* rows 0 to keys - 1 */
    float *s;    /* [q_rows][s_stride] */
    size_t s_stride;
    bool streams; /* as of ha_digest_score */
};

/* Product quantisation (Jegou et al., IEEE TPAMI 33(1), 2011; HCAttention, section 3.1): a key is cut into groups of
 * so many dimensions, and of each group the number of the nearest of `count` centroids is kept. Codes are blocks of
 * HA_PQ_KEYS keys, each [groups][HA_PQ_KEYS * bits / 8] bytes: bit j of the code of key i is bit i % HA_PQ_KEYS * bits
 * + j of them, the lowest of a byte first. A code is below `count`. */
enum { HA_PQ_KEYS = 32, HA_PQ_BITS_MAX = 16, HA_PQ_ROWS = 4, HA_PQ_DIMS_MAX = 1024 };
struct ha_pq {
    const float *centroid; /* [books][dims][count] */
    size_t groups, dims;   /* groups * dims is the length of a key; dims: 1 to HA_PQ_DIMS_MAX */
    size_t count, books;   /* count: at most 2^bits; books: 1, which all groups share, or one for each of `groups` */
    size_t bits;           /* 1 to HA_PQ_BITS_MAX */
};
static inline size_t ha_pq_block_bytes(const struct ha_pq *pq) { return pq->groups * HA_PQ_KEYS / 8 * pq->bits; }
static inline size_t ha_pq_code_bytes(const struct ha_pq *pq, size_t keys)
{
    return (keys + HA_PQ_KEYS - 1) / HA_PQ_KEYS * ha_pq_block_bytes(pq);
}
static inline size_t ha_pq_book_floats(const struct ha_pq *pq) { return pq->books * pq->dims * pq->count; }

/* Codes of rows: of each group the centroid of the least sum of squared differences, a sum of binary32 in the order of
 * the dimensions, each difference and each square rounded, or squared and added in one; the smaller number of equals. A
 * distance that is NaN is above every other. */
struct ha_pq_encode {
    struct ha_pq pq;
    struct ha_rows rows; /* v is not read */
    enum ha_dtype dtype; /* of the rows */
    void *codes;         /* 64-byte aligned */
    size_t first;        /* row i becomes key first + i; of other keys nothing is changed */
};

/* t[r][g][j] = the part of q_r in group g times centroid j, a sum of binary32 in any order; stored as
 * [rows / HA_PQ_ROWS, rounded up][groups][count][HA_PQ_ROWS] numbers of the table's type, row r being
 * [r / HA_PQ_ROWS][][][r % HA_PQ_ROWS]; rows that are not there are zeros, or NaN where a centroid is not finite. Row
 * r is query token r % q_len of head r / q_len of a group. To f16 a number is rounded to nearest even: from 65520 on it
 * is infinity of its sign; nothing is scaled or cut. Of scores with such a part no bound holds (score_type of a
 * profile), and a check refuses them. */
struct ha_pq_table {
    struct ha_pq pq;
    const float *q; /* [q_len][group][head_dim] with the two strides below, in floats */
    size_t q_len, group, q_token_stride, q_head_stride;
    enum ha_dtype type; /* F32 or F16 */
    void *table;        /* 64-byte aligned */
};
static inline size_t ha_pq_table_bytes(const struct ha_pq *pq, size_t rows, enum ha_dtype type)
{
    return (rows + HA_PQ_ROWS - 1) / HA_PQ_ROWS * pq->groups * pq->count * HA_PQ_ROWS * ha_dtype_bytes(type);
}

/* s[r][i] = scale times the sum over the groups of t[r][g][code of key i in g]: at most as many additions as there are
 * groups, of binary32. */
struct ha_pq_score {
    struct ha_pq pq;   /* the centroids are not read */
    const void *table; /* of so many rows */
    enum ha_dtype type;
    size_t rows;
    const void *codes;
    size_t keys; /* 0 to keys - 1 */
    float scale;
    float *s; /* [rows][s_stride] */
    size_t s_stride;
};

/* The fewest elements of largest weight whose weights reach p in the mean over the rows: with W_i the sum over the rows
 * of floor(2^HA_TOPP_BITS w), integers, the shortest prefix of the elements by falling W, of equals the smaller index
 * first, whose W add up to at least rows p 2^HA_TOPP_BITS; all of them where that is never reached. So the choice is
 * the same in whatever order sums are made. Weights are 0 to 1, as softmax makes them; a NaN in a row chooses nothing.
 */
enum { HA_TOPP_BITS = 52, HA_TOPP_ROWS_MAX = 1024 };
struct ha_topp {
    const float *x; /* [rows][stride]; rows: 1 to HA_TOPP_ROWS_MAX */
    size_t rows, n, stride;
    double p;        /* above 0, at most 1 */
    uint32_t *index; /* [n]: those chosen, rising; what is behind them is anything */
    void *w;         /* [rows][w_stride]: their weights, of w_type, F32 or F16 */
    enum ha_dtype w_type;
    size_t w_stride; /* >= n */
    uint32_t *keys;  /* how many */
};

/* o[r] = sum of w[r][i] v_i, not divided by anything. On no path has a sum of binary32 more than HA_SUM_KEYS + keys /
 * HA_SUM_KEYS additions, rounded up. A weight of 0 times a V that is not finite is NaN. */
enum { HA_SUM_KEYS = 256 };
struct ha_weighted_sum {
    struct ha_rows rows; /* k is not read */
    size_t head_dim;
    enum ha_dtype dtype; /* of V */
    const void *w;       /* [q_rows][w_stride] of w_type, F32 or F16 */
    enum ha_dtype w_type;
    size_t q_rows, w_stride;
    float *o; /* [q_rows][o_stride] */
    size_t o_stride;
};

/* Rows of scores to weights in place: exp(x - ln sum exp x). A row of -inf, or none: zeros, of LSE -inf. No weight is
 * -0. NaN and +inf make a row NaN, and its LSE. On no path has the sum more than 320 + n / 1024 additions. */
struct ha_softmax {
    float *x; /* [rows][n], row stride in floats */
    size_t rows, n, stride;
    float *lse; /* [rows], or NULL */
};

/* y = W_n relu(... relu(W_1 x + b_1) ...) + b_n of each row (Fluxion, section 5.2). A NaN goes through relu. A sum over
 * inputs has, with its bias, no more than as many additions as there are inputs. */
enum { HA_NET_LAYERS_MAX = 4, HA_NET_WIDTH_MAX = 1024 };
struct ha_net {
    size_t rows, layers;                 /* layers: 1 to HA_NET_LAYERS_MAX */
    size_t width[HA_NET_LAYERS_MAX + 1]; /* inputs of the first layer, then outputs of each: 1 to HA_NET_WIDTH_MAX */
    const float *w;                      /* layer after layer: [width[i]][width[i + 1]], then its bias [width[i + 1]] */
    const float *x;                      /* [rows][width[0]] */
    float *y;                            /* [rows][width[layers]], apart from x */
    float *scratch;                      /* ha_net_scratch() floats; a device has its own */
};
static inline bool ha_net_fits(const struct ha_net *n)
{
    if (n->layers < 1 || n->layers > HA_NET_LAYERS_MAX) return false;
    for (size_t i = 0; i <= n->layers; i++)
        if (n->width[i] < 1 || n->width[i] > HA_NET_WIDTH_MAX) return false;
    return true;
}
/* floats of w */
static inline size_t ha_net_weights(const struct ha_net *n)
{
    size_t count = 0;
    for (size_t i = 0; i < n->layers; i++) count += (n->width[i] + 1) * n->width[i + 1];
    return count;
}
/* two layers' outputs, of the widest that is hidden */
static inline size_t ha_net_scratch(const struct ha_net *n)
{
    size_t widest = 0;
    for (size_t i = 1; i < n->layers; i++) widest = n->width[i] > widest ? n->width[i] : widest;
    return 2 * n->rows * widest;
}

/* Several attentions at once, on the workers of a pool (harness/base/pool.h): cut over context where there are fewer
 * than keep the workers busy, the largest part first. The same units on as many workers give the same bits. Nothing is
 * allocated. */
struct ha_attend_all {
    const struct ha_attend *units; /* [count]; their scratch is not used */
    size_t count;
    struct ha_pool *pool;
    const char *name; /* of the spans; static */
    void *work;       /* attend_all_bytes() of these units and threads, 64-byte aligned */
};

/* Every kernel, once: the table below, the declarations and tables of each instruction set (kernels/table.h) and the
 * list of parts that tables are joined by (harness/base/registry_find.c) are made from this. ONE(isa, result, name,
 * arguments, companion) is a member; TYPED is one for each type of K and V, indexed by it. The companion is the member
 * that goes with the pointer when tables are joined, or `none`. First those that are written for every vector type
 * (kernels/NAME.inc). */
#define HA_KERNELS_OF_VECTORS(ONE, TYPED, isa)                                                                       \
    ONE(isa, void, attend_chunk, (const struct ha_chunk *), profile)                                                 \
    TYPED(isa, void, attend_packed, (const struct ha_packed_chunk *), packed_profile)                                \
    ONE(isa, void, merge, (const struct ha_merge *), traits)                                                         \
    ONE(isa, void, score, (const struct ha_score *), none)                                                           \
    ONE(isa, void, topk, (const struct ha_topk *), none)                                                             \
    ONE(isa, void, digest, (const struct ha_digest *), none)                                                         \
    ONE(isa, void, digest_score, (const struct ha_digest_score *), none)                                             \
    ONE(isa, void, hash, (const struct ha_hash *), none)                                                             \
    ONE(isa, void, hamming, (const struct ha_hamming *), none)                                                       \
    ONE(isa, void, pq_encode, (const struct ha_pq_encode *), none)                                                   \
    ONE(isa, void, pq_table, (const struct ha_pq_table *), none)                                                     \
    ONE(isa, void, pq_score, (const struct ha_pq_score *), none)                                                     \
    ONE(isa, void, softmax, (const struct ha_softmax *), none)                                                       \
    ONE(isa, void, topp, (const struct ha_topp *), none)                                                             \
    ONE(isa, void, weighted_sum, (const struct ha_weighted_sum *), none)                                             \
    ONE(isa, void, net, (const struct ha_net *), none)                                                               \
    /* for ceilings: reads all of it, a multiple of 4 KiB, as fast as this instruction set can, and gives a sum that \
     * depends on it: line after line, and with several pages asked for at once, which some CPUs read faster and     \
     * others slower; spins through so many rounds of independent multiply-adds of binary32 in registers and gives   \
     * the number of floating-point operations */                                                                    \
    ONE(isa, uint64_t, read, (const void *p, size_t bytes), none)                                                    \
    ONE(isa, uint64_t, read_streams, (const void *p, size_t bytes), none)                                            \
    ONE(isa, double, flops, (size_t rounds), none)

#define HA_KERNELS_OF_ALL(ONE, TYPED, isa)                                                                            \
    HA_KERNELS_OF_VECTORS(ONE, TYPED, isa)                                                                            \
    ONE(isa, void, pack, (const struct ha_pack *), none)                                                              \
    ONE(isa, void, unpack, (const struct ha_unpack *), none)                                                          \
    /* as flops, of operations such as packed bf16 keys are multiplied with, which may be of pairs */                 \
    ONE(isa, double, flops_bf16, (size_t rounds), none)                                                               \
    /* joins chunks through self->attend_chunk and attend_packed; this and the rest are written once, in kernels/c */ \
    ONE(isa, void, attend, (const struct ha_kernels *self, const struct ha_attend *), none)                           \
    ONE(isa, void, attend_part, (const struct ha_kernels *self, const struct ha_attend_part *), none)                 \
    ONE(isa, void, attend_join, (const struct ha_kernels *self, const struct ha_attend_join *), none)                 \
    /* grows with q_len, group and keys; of the list for keys only */                                                 \
    ONE(isa, size_t, attend_scratch_bytes, (const struct ha_attend *), none)                                          \
    ONE(isa, size_t, attend_state_bytes, (const struct ha_attend *), none)                                            \
    /* false: one part only (weights averaged over several query tokens) */                                           \
    ONE(isa, bool, attend_splits, (const struct ha_attend *), none)                                                   \
    ONE(isa, void, attend_all, (const struct ha_kernels *self, const struct ha_attend_all *), none)                   \
    /* enough for so many units each no larger than `largest`, whatever their lengths */                              \
    ONE(isa, size_t, attend_all_bytes, (const struct ha_attend *largest, size_t count, size_t threads), none)

#define HA_KERNEL_MEMBER(isa, result, name, arguments, companion)  result(*name) arguments;
#define HA_KERNEL_MEMBERS(isa, result, name, arguments, companion) result(*name[HA_DTYPE_COUNT]) arguments;

struct ha_kernels {
    const char *name;
    const char *absent;        /* why this table is empty ("not compiled for this target"), or NULL */
    unsigned cpu_bit;          /* the ha_cpu_bit it needs */
    struct ha_profile profile; /* of attend_chunk */
    struct ha_profile packed_profile[HA_DTYPE_COUNT];   /* of attend_packed */
    struct ha_merge_traits traits;                      /* of merge */
    struct ha_reach reach[HA_DTYPE_COUNT][HA_PATTERNS]; /* of attend_packed: a table's own; as planned where resolved */
    bool rows_faster[HA_DTYPE_COUNT]; /* by the plan: attention over natural rows than over packed keys */
    HA_KERNELS_OF_ALL(HA_KERNEL_MEMBER, HA_KERNEL_MEMBERS, )
};

/* by the plan: what is read in order is read faster in several streams */
static inline bool ha_reads_in_streams(const struct ha_kernels *k, enum ha_dtype t)
{
    return k->reach[t][HA_PATTERN_LINEAR].kind == HA_REACH_STREAMS;
}

#ifdef __cplusplus
}
#endif
#endif
