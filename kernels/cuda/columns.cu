/* Rows times the matrix of their head, and scores of rows. Both go through the dimensions TERMS at a time, which a warp
 * reads side by side: rows begin at any multiple of the element size, and may be shorter than that. */

#include "kernels/cuda/simt.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/operand.h"

enum { TERMS = HA_WARP };

/* ---- columns */

enum { COLUMNS_THREADS = 256, COLUMNS_WARPS = COLUMNS_THREADS / HA_WARP, X_ROWS = 32, OWN = X_ROWS / COLUMNS_WARPS };

struct columns_args {
    size_t heads, group, dim, columns, tiles; /* group: heads of a KV head; tiles: of HA_WARP columns */
    const float *a;
    struct ha_device_columns_seq seq[HA_CUDA_BATCH];
};
struct columns_shared {
    float x[X_ROWS][TERMS], a[HA_WARP][TERMS + 1];
};

/* X_ROWS rows of the heads that share a matrix, of token r / group and head r % group, and a lane for each of HA_WARP
 * columns; a warp has OWN of the rows. */
template <enum ha_dtype X, enum ha_dtype Y>
static __global__ void __launch_bounds__(COLUMNS_THREADS) columns_of_rows(HA_ARGS(struct columns_args) a)
{
    HA_SHARED(struct columns_shared, s);
    const unsigned lane = threadIdx.x % HA_WARP, warp = threadIdx.x / HA_WARP;
    const struct ha_device_columns_seq &seq = a.seq[blockIdx.z];
    const size_t rows = seq.tokens * a.group, first = blockIdx.x / a.tiles * X_ROWS, kv = blockIdx.y,
                 column = blockIdx.x % a.tiles * HA_WARP;
    if (first >= rows) return;
    float sum[OWN] = {};
    for (size_t d = 0; d < a.dim; d += TERMS) {
        const bool in = d + lane < a.dim;
        __syncthreads();
        for (unsigned i = warp; i < X_ROWS; i += COLUMNS_WARPS) {
            const size_t r = first + i, row = r / a.group * a.heads + kv * a.group + r % a.group;
            s.x[i][lane] = in && r < rows ? ha_cuda_number_at<X>(seq.x, row * a.dim + d + lane) : 0;
        }
        for (unsigned j = warp; j < HA_WARP; j += COLUMNS_WARPS)
            s.a[j][lane] = in && column + j < a.columns ? a.a[(kv * a.columns + column + j) * a.dim + d + lane] : 0;
        __syncthreads();
        const unsigned terms = unsigned(min(size_t(TERMS), a.dim - d));
        for (unsigned t = 0; t < terms; t++)
            for (unsigned i = 0; i < OWN; i++) sum[i] = fmaf(s.x[warp + i * COLUMNS_WARPS][t], s.a[lane][t], sum[i]);
    }
    for (unsigned i = 0; i < OWN; i++) {
        const size_t r = first + warp + i * COLUMNS_WARPS;
        if (r >= rows || column + lane >= a.columns) continue;
        struct ha_cuda_piece<Y, false> e;
        e.set(&sum[i]);
        e.store((char *)seq.y
                + (r / a.group * seq.y_token_stride + (kv * a.group + r % a.group) * seq.y_head_stride + column + lane)
                      * (Y == HA_F32 ? 4 : 2));
    }
}

template <enum ha_dtype X, enum ha_dtype Y>
static cudaError_t columns_launch(cudaStream_t stream, const struct ha_device_columns *args)
{
    struct columns_args a = {};
    a.heads = args->heads;
    a.group = args->heads / args->kv_heads;
    a.dim = args->head_dim;
    a.columns = args->columns;
    a.tiles = (args->columns + HA_WARP - 1) / HA_WARP;
    a.a = args->a;
    return ha_cuda_launch_batch(
        a.seq, args->seqs, args->batch, args->kv_heads,
        [&](const struct ha_device_columns_seq &seq) { return (seq.tokens * a.group + X_ROWS - 1) / X_ROWS * a.tiles; },
        [&](dim3 grid) { return ha_launch(columns_of_rows<X, Y>, grid, dim3(COLUMNS_THREADS), stream, a); });
}

template <enum ha_dtype X> static cudaError_t columns_of(cudaStream_t stream, const struct ha_device_columns *args)
{
    return args->y_type == HA_F32   ? columns_launch<X, HA_F32>(stream, args)
           : args->y_type == HA_F16 ? columns_launch<X, HA_F16>(stream, args)
                                    : columns_launch<X, HA_BF16>(stream, args);
}

size_t ha_cuda_columns_check(struct ha_cuda_check *c, const struct ha_device_columns *d)
{
    if (!ha_cuda_type_fits(c, "rows", d->x_type) || !ha_cuda_type_fits(c, "rows", d->y_type)
        || !ha_cuda_heads_fit(c, "heads", d->heads, d->kv_heads))
        return 0;
    if (d->head_dim == 0) return ha_cuda_refuse(c, "rows of no elements");
    const size_t e = ha_dtype_bytes(d->y_type), a = d->kv_heads * d->columns * d->head_dim * sizeof *d->a;
    ha_cuda_takes(c, "a", d->a, a, a);
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_columns_seq *seq = &d->seqs[b];
        const size_t x = times(seq->tokens, d->heads * d->head_dim * ha_dtype_bytes(d->x_type)),
                     heads = extent(d->heads, times(seq->y_head_stride, e), d->columns * e);
        ha_cuda_takes(c, "x", seq->x, x, x);
        ha_cuda_takes(c, "y", seq->y, d->columns ? extent(seq->tokens, times(seq->y_token_stride, e), heads) : 0, 0);
    }
    return d->batch * d->heads * d->columns;
}

cudaError_t ha_cuda_columns(cudaStream_t stream, const struct ha_device_columns *args)
{
    return args->x_type == HA_F32   ? columns_of<HA_F32>(stream, args)
           : args->x_type == HA_F16 ? columns_of<HA_F16>(stream, args)
                                    : columns_of<HA_BF16>(stream, args);
}

/* ---- scores */

enum { SCORE_THREADS = 128, SCORE_WARPS = SCORE_THREADS / HA_WARP, ROWS_MOST = 16, AT_ONCE = 16 };
/* blocks of a multiprocessor, whose registers they share; 0: as many as the compiler thinks best, which for 4 rows are
 * too many on 8.0: it spills */
template <unsigned ROWS> constexpr unsigned SCORE_BLOCKS = ROWS == 4 ? 7 : 0;

struct score_args {
    size_t q_len, q_heads, group, dim, tiles; /* group: query heads of a KV head; tiles: of query rows */
    float scale;
    struct ha_device_rows_seq seq[HA_CUDA_BATCH];
};
template <unsigned ROWS> struct score_shared {
    float k[SCORE_THREADS][TERMS + 1], q[ROWS][TERMS];
    size_t at[SCORE_THREADS]; /* where a key's row begins */
};

/* A key a thread, and ROWS of the query rows that share its KV head: row r is token r % q_len of head r / q_len. A warp
 * reads the rows of keys one after the other, as many as it can at once. */
template <enum ha_dtype T, unsigned ROWS>
static __global__ void __launch_bounds__(SCORE_THREADS, SCORE_BLOCKS<ROWS>) score_rows(HA_ARGS(struct score_args) a)
{
    HA_SHARED(struct score_shared<ROWS>, s);
    const struct ha_device_rows_seq &seq = a.seq[blockIdx.z];
    const unsigned lane = threadIdx.x % HA_WARP, warp = threadIdx.x / HA_WARP;
    const size_t rows = a.group * a.q_len, row = blockIdx.x % a.tiles * ROWS, head = blockIdx.y, keys = seq.rows.keys,
                 begin = blockIdx.x / a.tiles * SCORE_THREADS, key = begin + threadIdx.x;
    if (begin >= keys) return;
    const unsigned here = unsigned(min(size_t(SCORE_THREADS), keys - begin));
    const char *k = (const char *)seq.rows.k + head * seq.k_head_bytes;
    if (key < keys) s.at[threadIdx.x] = (seq.rows.index ? seq.rows.index[key] : key) * seq.rows.k_stride_bytes;
    float sum[ROWS] = {};
    for (size_t d = 0; d < a.dim; d += TERMS) {
        const bool in = d + lane < a.dim;
        __syncthreads();
        for (unsigned j = 0; j < SCORE_THREADS; j += AT_ONCE * SCORE_WARPS) {
            struct ha_cuda_piece<T, false> x[AT_ONCE]; /* all of them are asked for before the first is needed */
            for (unsigned n = 0; n < AT_ONCE; n++) {
                const unsigned i = j + warp + n * SCORE_WARPS;
                if (in && i < here) x[n].load(k + s.at[i] + (d + lane) * (T == HA_F32 ? 4 : 2));
            }
            for (unsigned n = 0; n < AT_ONCE; n++) s.k[j + warp + n * SCORE_WARPS][lane] = x[n].get(0);
        }
        for (unsigned i = warp; i < ROWS; i += SCORE_WARPS) {
            const size_t r = row + i;
            s.q[i][lane] = in && r < rows
                               ? seq.q[(r % a.q_len * a.q_heads + head * a.group + r / a.q_len) * a.dim + d + lane]
                               : 0;
        }
        __syncthreads();
        const unsigned terms = unsigned(min(size_t(TERMS), a.dim - d));
        for (unsigned t = 0; t < terms; t++) {
            const float x = s.k[threadIdx.x][t];
            for (unsigned r = 0; r < ROWS; r++) sum[r] = fmaf(s.q[r][t], x, sum[r]);
        }
    }
    for (unsigned r = 0; r < ROWS; r++) /* so many times: sum stays in registers */
        if (row + r < rows && key < keys) seq.s[(head * rows + row + r) * seq.s_stride + key] = a.scale * sum[r];
}

template <enum ha_dtype T, unsigned ROWS>
static cudaError_t score_launch(cudaStream_t stream, const struct ha_device_score *args)
{
    struct score_args a = {};
    a.q_len = args->q_len;
    a.q_heads = args->q_heads;
    a.group = args->q_heads / args->kv_heads;
    a.dim = args->head_dim;
    a.tiles = (a.group * a.q_len + ROWS - 1) / ROWS;
    a.scale = args->scale;
    return ha_cuda_launch_batch(
        a.seq, args->seqs, args->batch, args->kv_heads,
        [&](const struct ha_device_rows_seq &seq) {
            return (seq.rows.keys + SCORE_THREADS - 1) / SCORE_THREADS * a.tiles;
        },
        [&](dim3 grid) { return ha_launch(score_rows<T, ROWS>, grid, dim3(SCORE_THREADS), stream, a); });
}

template <enum ha_dtype T> static cudaError_t score_of(cudaStream_t stream, const struct ha_device_score *args)
{
    const size_t rows = args->q_len * (args->q_heads / args->kv_heads);
    return rows == 1   ? score_launch<T, 1>(stream, args)
           : rows <= 4 ? score_launch<T, 4>(stream, args)
                       : score_launch<T, ROWS_MOST>(stream, args);
}

size_t ha_cuda_score_check(struct ha_cuda_check *c, const struct ha_device_score *d)
{
    if (!ha_cuda_type_fits(c, "rows", d->dtype) || !ha_cuda_heads_fit(c, "heads", d->q_heads, d->kv_heads)) return 0;
    if (d->head_dim == 0) return ha_cuda_refuse(c, "rows of no elements");
    const size_t queries = d->q_len * d->q_heads, q = queries * d->head_dim * sizeof(float),
                 key = d->head_dim * ha_dtype_bytes(d->dtype), heads = d->kv_heads;
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_rows_seq *seq = &d->seqs[b];
        const struct ha_rows *rows = &seq->rows;
        const size_t keys = rows->keys, index = keys * sizeof(uint32_t),
                     k = extent(heads, seq->k_head_bytes, extent(rows->index ? 1 : keys, rows->k_stride_bytes, key));
        ha_cuda_takes(c, "q", seq->q, q, q);
        ha_cuda_takes_rows(c, "K", rows->k, rows->index, keys ? k : 0, heads * keys * key);
        if (rows->index) ha_cuda_takes(c, "index", rows->index, index, heads * index);
        ha_cuda_takes(c, "scores", seq->s, keys ? times(extent(queries, seq->s_stride, keys), sizeof(float)) : 0, 0);
    }
    return d->batch * queries;
}

cudaError_t ha_cuda_score(cudaStream_t stream, const struct ha_device_score *args)
{
    return args->dtype == HA_F32   ? score_of<HA_F32>(stream, args)
           : args->dtype == HA_F16 ? score_of<HA_F16>(stream, args)
                                   : score_of<HA_BF16>(stream, args);
}

#define OF(T)                                                                                             \
    HA_KERNEL(columns_of_rows<T, HA_F32>), HA_KERNEL(columns_of_rows<T, HA_F16>),                         \
        HA_KERNEL(columns_of_rows<T, HA_BF16>), HA_KERNEL(score_rows<T, 1>), HA_KERNEL(score_rows<T, 4>), \
        HA_KERNEL(score_rows<T, ROWS_MOST>)
HA_CUDA_KERNELS(columns, OF(HA_F32), OF(HA_F16), OF(HA_BF16));
