/* Codes of keys by product quantisation, and scores by them. Codes are read and written as words of 32 bits: those of a
 * group of a block of keys are as many words as a code has bits. */

#include "kernels/cuda/simt.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/operand.h"

static_assert(unsigned(HA_PQ_KEYS) == unsigned(HA_WARP) && HA_PQ_ROWS == 4, "a warp has the keys of a block");

/* ---- pq_encode */

enum { ENCODE_THREADS = 128, ENCODE_WARPS = ENCODE_THREADS / HA_WARP, BOOK = 4096 };

struct encode_args {
    struct ha_pq pq;
    struct ha_device_pq_encode_seq seq[HA_CUDA_BATCH];
};
struct encode_shared {
    alignas(16) float centroid[BOOK];
};

/* Distances in the order of the integers: NaN above all others. */
static __device__ __forceinline__ unsigned distance_key(float sum)
{
    return min(__float_as_uint(sum) & 0x7fffffffu, 0x7f800001u);
}

/* Keys [first, end) of a block are the warp's own: of a word that has bits of others, too, the bytes that have own ones
 * are written, with those of others as they were. */
static __device__ __forceinline__ void put_codes(uint32_t *group, unsigned bits, unsigned code, unsigned first,
                                                 unsigned end)
{
    const unsigned lane = threadIdx.x % HA_WARP;
    uint32_t word = 0, mask = 0;
    for (unsigned key = 0; key < HA_WARP; key++) {
        const unsigned of = __shfl_sync(HA_ALL_LANES, code, int(key));
        const int shift = int(key * bits) - int(lane * HA_WARP);
        if (key < first || key >= end || shift <= -int(bits) || shift >= HA_WARP) continue;
        const uint32_t all = (1u << bits) - 1;
        word |= shift >= 0 ? of << shift : of >> -shift;
        mask |= shift >= 0 ? all << shift : all >> -shift;
    }
    if (lane >= bits) return;
    if (mask == 0xffffffffu) group[lane] = word;
    else
        for (unsigned i = 0; i < 4; i++) {
            unsigned char *byte = (unsigned char *)(group + lane) + i;
            const unsigned own = mask >> 8 * i & 0xff;
            if (own) *byte = (unsigned char)((*byte & ~own) | (word >> 8 * i & 0xff));
        }
}

/* A block of threads has a group of 128 keys: a lane a key, whose distances from all centroids it makes one after the
 * other. DIMS: a group has no more dimensions, and those behind are zeros; 0: any number, read where they lie. */
template <enum ha_dtype T, unsigned DIMS>
static __global__ void __launch_bounds__(ENCODE_THREADS) pq_encode_keys(HA_ARGS(struct encode_args) a)
{
    constexpr unsigned STEP = BOOK / (DIMS ? DIMS : 1);
    HA_SHARED(struct encode_shared, s);
    const struct ha_device_pq_encode_seq &seq = a.seq[blockIdx.z];
    const unsigned lane = threadIdx.x % HA_WARP, warp = threadIdx.x / HA_WARP, dims = unsigned(a.pq.dims),
                   count = unsigned(a.pq.count);
    const size_t head = blockIdx.y, g = blockIdx.x % a.pq.groups,
                 block = seq.first / HA_PQ_KEYS + blockIdx.x / a.pq.groups * ENCODE_WARPS + warp,
                 key = block * HA_PQ_KEYS + lane, end = seq.first + seq.rows.keys;
    if ((block - warp) * HA_PQ_KEYS >= end || seq.rows.keys == 0) return;
    const bool own = key >= seq.first && key < end;
    const size_t i = own ? key - seq.first : 0;
    const char *k = (const char *)seq.rows.k + head * seq.k_head_bytes
                    + (seq.rows.index ? seq.rows.index[i] : i) * seq.rows.k_stride_bytes;
    const float *book = a.pq.centroid + (head * a.pq.books + (a.pq.books == 1 ? 0 : g)) * a.pq.dims * a.pq.count;
    float x[DIMS ? DIMS : 1] = {};
    if constexpr (DIMS > 0)
        for (unsigned d = 0; d < DIMS; d++) x[d] = d < dims ? ha_cuda_number_at<T>(k, g * dims + d) : 0;
    unsigned least = 0xffffffffu, found = 0;
    for (unsigned first = 0; first < count; first += STEP) {
        const unsigned here = min(STEP, count - first);
        if constexpr (DIMS > 0) {
            __syncthreads();
            for (unsigned j = threadIdx.x; j < here; j += ENCODE_THREADS)
                for (unsigned d = 0; d < DIMS; d++)
                    s.centroid[j * DIMS + d] = d < dims ? book[size_t(d) * count + first + j] : 0;
            __syncthreads();
        }
        for (unsigned j = 0; j < here; j++) {
            float sum = 0;
            if constexpr (DIMS > 0) {
                for (unsigned d = 0; d < DIMS; d++) {
                    const float off = x[d] - s.centroid[j * DIMS + d];
                    sum = fmaf(off, off, sum);
                }
            } else {
                for (unsigned d = 0; d < dims; d++) {
                    const float off = ha_cuda_number_at<T>(k, g * dims + d) - book[size_t(d) * count + first + j];
                    sum = fmaf(off, off, sum);
                }
            }
            const unsigned at = distance_key(sum);
            if (at < least) least = at, found = first + j;
        }
    }
    const size_t before = block * HA_PQ_KEYS;
    if (before >= end) return;
    const unsigned bits = unsigned(a.pq.bits);
    put_codes((uint32_t *)((char *)seq.codes + head * seq.code_head_bytes) + (block * a.pq.groups + g) * bits, bits,
              found, unsigned(seq.first > before ? min(seq.first - before, size_t(HA_PQ_KEYS)) : 0),
              unsigned(min(end - before, size_t(HA_PQ_KEYS))));
}

template <enum ha_dtype T, unsigned DIMS>
static cudaError_t encode_launch(cudaStream_t stream, const struct ha_device_pq_encode *args)
{
    struct encode_args a = {};
    a.pq = args->pq;
    return ha_cuda_launch_batch(
        a.seq, args->seqs, args->batch, args->kv_heads,
        [&](const struct ha_device_pq_encode_seq &seq) {
            const size_t blocks = seq.rows.keys
                                      ? (seq.first + seq.rows.keys - 1) / HA_PQ_KEYS - seq.first / HA_PQ_KEYS + 1
                                      : 0;
            return (blocks + ENCODE_WARPS - 1) / ENCODE_WARPS * a.pq.groups;
        },
        [&](dim3 grid) { return ha_launch(pq_encode_keys<T, DIMS>, grid, dim3(ENCODE_THREADS), stream, a); });
}

template <enum ha_dtype T> static cudaError_t encode_of(cudaStream_t stream, const struct ha_device_pq_encode *args)
{
    return args->pq.dims <= 4    ? encode_launch<T, 4>(stream, args)
           : args->pq.dims <= 16 ? encode_launch<T, 16>(stream, args)
                                 : encode_launch<T, 0>(stream, args);
}

static bool pq_fits(struct ha_cuda_check *c, const struct ha_pq *pq, size_t kv_heads, bool codes, bool book)
{
    if (!pq->groups || !pq->dims || !pq->count || pq->count > UINT32_MAX || pq->dims > UINT32_MAX
        || pq->groups > INT32_MAX)
        return ha_cuda_refuse(c, "%zu groups of %zu dimensions, %zu centroids", pq->groups, pq->dims, pq->count);
    if (pq->books != 1 && pq->books != pq->groups)
        return ha_cuda_refuse(c, "%zu books for %zu groups, not 1 or as many", pq->books, pq->groups);
    if (codes && (pq->bits < 1 || pq->bits > HA_PQ_BITS_MAX || pq->count > size_t(1) << pq->bits))
        return ha_cuda_refuse(c, "%zu centroids in codes of %zu bits", pq->count, pq->bits);
    const size_t bytes = times(kv_heads, ha_pq_book_floats(pq) * sizeof(float));
    if (book) ha_cuda_takes(c, "centroids", pq->centroid, bytes, bytes);
    return true;
}

size_t ha_cuda_pq_encode_check(struct ha_cuda_check *c, const struct ha_device_pq_encode *e)
{
    if (!ha_cuda_type_fits(c, "rows", e->dtype) || !pq_fits(c, &e->pq, e->kv_heads, true, true)) return 0;
    const size_t row = e->pq.groups * e->pq.dims * ha_dtype_bytes(e->dtype);
    for (size_t b = 0; b < e->batch; b++) {
        const struct ha_device_pq_encode_seq *seq = &e->seqs[b];
        const struct ha_rows *rows = &seq->rows;
        const size_t keys = rows->keys, index = keys * sizeof *rows->index,
                     k = extent(e->kv_heads, seq->k_head_bytes,
                                extent(rows->index && keys ? 1 : keys, rows->k_stride_bytes, row)),
                     codes = extent(e->kv_heads, seq->code_head_bytes, ha_pq_code_bytes(&e->pq, seq->first + keys));
        ha_cuda_takes_rows(c, "K", rows->k, rows->index, keys ? k : 0, e->kv_heads * keys * row);
        if (rows->index) ha_cuda_takes(c, "index", rows->index, index, index);
        ha_cuda_takes(c, "codes", seq->codes, keys ? codes : 0, 0);
    }
    return e->batch * e->kv_heads;
}

cudaError_t ha_cuda_pq_encode(cudaStream_t stream, const struct ha_device_pq_encode *args)
{
    return args->dtype == HA_F32   ? encode_of<HA_F32>(stream, args)
           : args->dtype == HA_F16 ? encode_of<HA_F16>(stream, args)
                                   : encode_of<HA_BF16>(stream, args);
}

/* ---- pq_table */

enum { TABLE_THREADS = 128 };

struct table_args {
    size_t q_len, q_heads, group, tiles; /* tiles: of TABLE_THREADS centroids */
    struct ha_pq pq;
    struct ha_device_pq_table_seq seq[HA_CUDA_BATCH];
};

/* A thread has a centroid of a group, and four rows, whose numbers stand side by side. */
template <enum ha_dtype T>
static __global__ void __launch_bounds__(TABLE_THREADS) pq_table_rows(HA_ARGS(struct table_args) a)
{
    const struct ha_device_pq_table_seq &seq = a.seq[blockIdx.z];
    const size_t head = blockIdx.y, j = blockIdx.x % a.tiles * TABLE_THREADS + threadIdx.x,
                 g = blockIdx.x / a.tiles % a.pq.groups, quad = blockIdx.x / a.tiles / a.pq.groups,
                 rows = a.group * a.q_len, dim = a.pq.groups * a.pq.dims;
    if (j >= a.pq.count) return;
    const float *book = a.pq.centroid + (head * a.pq.books + (a.pq.books == 1 ? 0 : g)) * a.pq.dims * a.pq.count + j,
                *q[HA_PQ_ROWS];
    float sum[HA_PQ_ROWS] = {};
    for (unsigned i = 0; i < HA_PQ_ROWS; i++) {
        const size_t r = min(quad * HA_PQ_ROWS + i, rows - 1);
        q[i] = seq.q + (r % a.q_len * a.q_heads + head * a.group + r / a.q_len) * dim + g * a.pq.dims;
    }
    for (size_t d = 0; d < a.pq.dims; d++) {
        const float x = book[d * a.pq.count];
        for (unsigned i = 0; i < HA_PQ_ROWS; i++) sum[i] = fmaf(q[i][d], x, sum[i]);
    }
    for (unsigned i = 0; i < HA_PQ_ROWS; i++)
        if (quad * HA_PQ_ROWS + i >= rows) sum[i] = 0;
    void *to = (char *)seq.table + head * seq.table_head_bytes
               + ((quad * a.pq.groups + g) * a.pq.count + j) * HA_PQ_ROWS * (T == HA_F32 ? 4 : 2);
    if constexpr (T == HA_F32) ha_at<float4>(to) = make_float4(sum[0], sum[1], sum[2], sum[3]);
    else
        ha_at<uint2>(to) = make_uint2(ha_f32_to_f16(sum[0]) | uint32_t(ha_f32_to_f16(sum[1])) << 16,
                                      ha_f32_to_f16(sum[2]) | uint32_t(ha_f32_to_f16(sum[3])) << 16);
}

size_t ha_cuda_pq_table_check(struct ha_cuda_check *c, const struct ha_device_pq_table *t)
{
    if (!ha_cuda_heads_fit(c, "query heads", t->q_heads, t->kv_heads) || !ha_cuda_half_fits(c, t->type)
        || !pq_fits(c, &t->pq, t->kv_heads, false, true))
        return 0;
    if (t->q_heads == 0) return ha_cuda_refuse(c, "no query heads");
    const size_t rows = t->q_len * t->q_heads, q = times(rows, t->pq.groups * t->pq.dims * sizeof(float)),
                 table = ha_pq_table_bytes(&t->pq, rows / t->kv_heads, t->type);
    for (size_t b = 0; b < t->batch; b++) {
        const struct ha_device_pq_table_seq *seq = &t->seqs[b];
        ha_cuda_takes(c, "q", seq->q, q, q);
        ha_cuda_takes(c, "table", seq->table, extent(t->kv_heads, seq->table_head_bytes, table), 0);
    }
    return t->batch * t->q_len;
}

cudaError_t ha_cuda_pq_table(cudaStream_t stream, const struct ha_device_pq_table *args)
{
    struct table_args a = {};
    a.q_len = args->q_len;
    a.q_heads = args->q_heads;
    a.group = args->q_heads / args->kv_heads;
    a.pq = args->pq;
    a.tiles = (args->pq.count + TABLE_THREADS - 1) / TABLE_THREADS;
    return ha_cuda_launch_batch(
        a.seq, args->seqs, args->batch, args->kv_heads,
        [&](const struct ha_device_pq_table_seq &) {
            return (a.group * a.q_len + HA_PQ_ROWS - 1) / HA_PQ_ROWS * a.pq.groups * a.tiles;
        },
        [&](dim3 grid) {
            return args->type == HA_F32 ? ha_launch(pq_table_rows<HA_F32>, grid, dim3(TABLE_THREADS), stream, a)
                                        : ha_launch(pq_table_rows<HA_F16>, grid, dim3(TABLE_THREADS), stream, a);
        });
}

/* ---- pq_score */

enum { SCORE_THREADS = 256, SCORE_SHARED = 32768, FEW = SCORE_SHARED / HA_PQ_ROWS / 4 / 8 };

struct score_args {
    size_t rows, quads; /* quads: of rows */
    struct ha_pq pq;
    float scale;
    struct ha_device_pq_score_seq seq[HA_CUDA_BATCH];
};
struct score_shared {
    uint4 table[SCORE_SHARED / 16];
};

/* four rows' numbers for a code */
template <enum ha_dtype T> struct numbers;
template <> struct numbers<HA_F32> {
    typedef float4 stored;
    static __device__ __forceinline__ float4 of(float4 x) { return x; }
};
template <> struct numbers<HA_F16> {
    typedef uint2 stored;
    static __device__ __forceinline__ float4 of(uint2 x)
    {
        const float2 a = ha_f16x2_to_f32(x.x), b = ha_f16x2_to_f32(x.y);
        return make_float4(a.x, a.y, b.x, b.y);
    }
};

static __device__ __forceinline__ unsigned code_at(const uint32_t *group, unsigned bits, unsigned key)
{
    const unsigned at = key * bits, word = at / 32, shift = at % 32;
    uint32_t x = group[word] >> shift;
    if (shift + bits > 32) x |= group[word + 1] << (32 - shift);
    return x & ((1u << bits) - 1);
}

/* Four rows and KEYS keys a thread, which follow each other at SCORE_THREADS: a warp has a block of keys each time. The
 * table of as many groups as fit is in shared memory where it is NEAR: gathered there, and through L2 where the
 * centroids are many. */
template <enum ha_dtype T, bool NEAR, unsigned KEYS>
static __global__ void __launch_bounds__(SCORE_THREADS) pq_score_keys(HA_ARGS(struct score_args) a)
{
    typedef typename numbers<T>::stored stored;
    HA_SHARED(struct score_shared, s);
    const struct ha_device_pq_score_seq &seq = a.seq[blockIdx.z];
    const size_t head = blockIdx.y, quad = blockIdx.x % a.quads,
                 begin = blockIdx.x / a.quads * SCORE_THREADS * KEYS + threadIdx.x;
    if (begin - threadIdx.x >= seq.keys) return;
    const unsigned bits = unsigned(a.pq.bits), count = unsigned(a.pq.count), groups = unsigned(a.pq.groups),
                   lane = threadIdx.x % HA_WARP;
    const stored *table = (const stored *)((const char *)seq.table + head * seq.table_head_bytes)
                          + quad * groups * count;
    const uint32_t *codes = (const uint32_t *)((const char *)seq.codes + head * seq.code_head_bytes);
    const unsigned fit = NEAR ? min(unsigned(SCORE_SHARED / sizeof(stored)) / count, groups) : groups;
    float sum[KEYS][HA_PQ_ROWS] = {};
    for (unsigned first = 0; first < groups; first += fit) {
        const unsigned here = min(fit, groups - first);
        if constexpr (NEAR) {
            __syncthreads();
            for (unsigned i = threadIdx.x; i < here * count; i += SCORE_THREADS)
                ((stored *)s.table)[i] = table[size_t(first) * count + i];
            __syncthreads();
        }
        const stored *from = NEAR ? (const stored *)s.table : table + size_t(first) * count;
        for (unsigned g = 0; g < here; g++)
            for (unsigned k = 0; k < KEYS; k++) {
                const size_t key = begin + k * SCORE_THREADS;
                if (key >= seq.keys) break;
                const unsigned code = code_at(codes + (key / HA_PQ_KEYS * groups + first + g) * bits, bits, lane);
                const float4 x = numbers<T>::of(from[size_t(g) * count + code]);
                sum[k][0] += x.x, sum[k][1] += x.y, sum[k][2] += x.z, sum[k][3] += x.w;
            }
    }
    for (unsigned k = 0; k < KEYS; k++)
        for (unsigned i = 0; i < HA_PQ_ROWS; i++) {
            const size_t key = begin + k * SCORE_THREADS, r = quad * HA_PQ_ROWS + i;
            if (key < seq.keys && r < a.rows) seq.s[(head * a.rows + r) * seq.s_stride + key] = a.scale * sum[k][i];
        }
}

template <enum ha_dtype T, bool NEAR, unsigned KEYS>
static cudaError_t score_launch(cudaStream_t stream, const struct ha_device_pq_score *args)
{
    struct score_args a = {};
    a.rows = args->rows;
    a.quads = (args->rows + HA_PQ_ROWS - 1) / HA_PQ_ROWS;
    a.pq = args->pq;
    a.scale = args->scale;
    return ha_cuda_launch_batch(
        a.seq, args->seqs, args->batch, args->kv_heads,
        [&](const struct ha_device_pq_score_seq &seq) {
            return (seq.keys + SCORE_THREADS * KEYS - 1) / (SCORE_THREADS * KEYS) * a.quads;
        },
        [&](dim3 grid) { return ha_launch(pq_score_keys<T, NEAR, KEYS>, grid, dim3(SCORE_THREADS), stream, a); });
}

/* Few keys are spread over more blocks. */
template <enum ha_dtype T, bool NEAR>
static cudaError_t score_of(cudaStream_t stream, const struct ha_device_pq_score *args)
{
    size_t most = 0;
    for (size_t b = 0; b < args->batch; b++) most = max(most, args->seqs[b].keys);
    return most <= 16 * SCORE_THREADS ? score_launch<T, NEAR, 1>(stream, args) : score_launch<T, NEAR, 8>(stream, args);
}

size_t ha_cuda_pq_score_check(struct ha_cuda_check *c, const struct ha_device_pq_score *d)
{
    if (!ha_cuda_half_fits(c, d->type) || !pq_fits(c, &d->pq, d->kv_heads, true, false)) return 0;
    const size_t heads = d->kv_heads, table = ha_pq_table_bytes(&d->pq, d->rows, d->type), rows = times(heads, d->rows);
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_pq_score_seq *seq = &d->seqs[b];
        const bool any = rows && seq->keys;
        const size_t codes = ha_pq_code_bytes(&d->pq, seq->keys),
                     scores = times(extent(rows, seq->s_stride, seq->keys), sizeof *seq->s);
        ha_cuda_takes(c, "table", seq->table, any ? extent(heads, seq->table_head_bytes, table) : 0, heads * table);
        ha_cuda_takes(c, "codes", seq->codes, any ? extent(heads, seq->code_head_bytes, codes) : 0, heads * codes);
        ha_cuda_takes(c, "scores", seq->s, any ? scores : 0, 0);
    }
    return d->batch * rows;
}

cudaError_t ha_cuda_pq_score(cudaStream_t stream, const struct ha_device_pq_score *args)
{
    const bool near = args->pq.count <= FEW;
    if (args->type == HA_F32)
        return near ? score_of<HA_F32, true>(stream, args) : score_of<HA_F32, false>(stream, args);
    return near ? score_of<HA_F16, true>(stream, args) : score_of<HA_F16, false>(stream, args);
}

#define CODED(T) HA_KERNEL(pq_encode_keys<T, 4>), HA_KERNEL(pq_encode_keys<T, 16>), HA_KERNEL(pq_encode_keys<T, 0>)
#define SCORED(T)                                                                                            \
    HA_KERNEL(pq_table_rows<T>), HA_KERNEL(pq_score_keys<T, true, 1>), HA_KERNEL(pq_score_keys<T, true, 8>), \
        HA_KERNEL(pq_score_keys<T, false, 1>), HA_KERNEL(pq_score_keys<T, false, 8>)
HA_CUDA_KERNELS(pq, CODED(HA_F32), CODED(HA_F16), CODED(HA_BF16), SCORED(HA_F32), SCORED(HA_F16));
