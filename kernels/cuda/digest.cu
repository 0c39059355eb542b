/* Digests of blocks of keys, and their scores, in the layout of struct ha_digest (harness/api/kernels.h): the blocks of
 * a group lie side by side, so that the lanes of a warp are the blocks of a group. */

#include "kernels/cuda/simt.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/operand.h"

enum { GROUP = HA_PACK_KEYS };
static_assert(int(GROUP) == int(HA_WARP), "a lane for each block of a group");

template <enum ha_dtype T> static constexpr size_t bytes_of = T == HA_F32 ? 4 : 2;

/* ---- digests */

enum { DIGEST_THREADS = 256 };

struct digest_args {
    size_t dim, unit, tiles; /* tiles of HA_WARP dimensions */
    bool mean;
    struct ha_device_digest_seq seq[HA_CUDA_BATCH];
};
struct digest_shared {
    float least[HA_WARP][GROUP + 1], most[HA_WARP][GROUP + 1]; /* [dimension][block] */
};

/* A warp reads the rows of a block, a lane for each dimension; the group's numbers are then turned round. */
template <enum ha_dtype T>
static __global__ void __launch_bounds__(DIGEST_THREADS) digest_group(HA_ARGS(struct digest_args) a)
{
    typedef struct ha_cuda_piece<T, false> element;
    HA_SHARED(struct digest_shared, s);
    const unsigned lane = threadIdx.x % HA_WARP, warp = threadIdx.x / HA_WARP, warps = DIGEST_THREADS / HA_WARP;
    const struct ha_device_digest_seq &seq = a.seq[blockIdx.z];
    const size_t first_dim = blockIdx.x % a.tiles * HA_WARP, d = first_dim + lane, end = seq.first + seq.blocks,
                 group = seq.first / GROUP + blockIdx.x / a.tiles;
    if (group * GROUP >= end) return;
    const char *k = (const char *)seq.rows.k + blockIdx.y * seq.k_head_bytes + d * bytes_of<T>;
    for (unsigned j = warp; j < GROUP; j += warps) {
        const size_t b = group * GROUP + j;
        float least = 0, most = 0;
        if (d < a.dim && b >= seq.first && b < end) {
            const size_t from = min((b - seq.first) * a.unit, seq.rows.keys),
                         to = from + min(a.unit, seq.rows.keys - from);
            for (size_t i = from; i < to; i++) {
                element e;
                e.load(k + (seq.rows.index ? seq.rows.index[i] : i) * seq.rows.k_stride_bytes);
                const float x = e.get(0);
                const bool taken = i == from || !(x == x); /* a NaN stays: nothing is less or more */
                least = a.mean ? least + x : taken || x < least ? x : least;
                most = taken || x > most ? x : most;
            }
            if (a.mean) least = most = to > from ? least / (float)(to - from) : 0;
        }
        s.least[lane][j] = least;
        s.most[lane][j] = most;
    }
    __syncthreads();
    if (group * GROUP + lane < seq.first) return;
    for (unsigned i = warp; i < HA_WARP && first_dim + i < a.dim; i += warps) {
        char *to = (char *)seq.digests + blockIdx.y * seq.head_bytes
                   + ((group * a.dim + first_dim + i) * 2 * GROUP + lane) * bytes_of<T>;
        element e;
        e.set(&s.least[i][lane]);
        e.store(to);
        e.set(&s.most[i][lane]);
        e.store(to + GROUP * bytes_of<T>);
    }
}

size_t ha_cuda_digest_check(struct ha_cuda_check *c, const struct ha_device_digest *d)
{
    const size_t key = d->head_dim * ha_dtype_bytes(d->dtype), heads = d->kv_heads;
    if (!ha_cuda_type_fits(c, "K", d->dtype)) return 0;
    if (d->unit == 0) return ha_cuda_refuse(c, "blocks of 0 rows");
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_digest_seq *seq = &d->seqs[b];
        const struct ha_rows *rows = &seq->rows;
        const size_t bytes = ha_digest_bytes(seq->first + seq->blocks, d->head_dim, d->dtype), keys = rows->keys,
                     index = keys * sizeof(uint32_t),
                     k = extent(heads, seq->k_head_bytes, extent(rows->index ? 1 : keys, rows->k_stride_bytes, key));
        ha_cuda_takes(c, "digests", seq->digests, bytes ? extent(heads, seq->head_bytes, bytes) : 0, 0);
        ha_cuda_takes_rows(c, "K", rows->k, rows->index, keys ? k : 0, heads * keys * key);
        if (rows->index) ha_cuda_takes(c, "index", rows->index, index, heads * index);
    }
    return d->batch * heads;
}

cudaError_t ha_cuda_digest(cudaStream_t stream, const struct ha_device_digest *args)
{
    struct digest_args a = {};
    a.dim = args->head_dim;
    a.unit = args->unit;
    a.tiles = (args->head_dim + HA_WARP - 1) / HA_WARP;
    a.mean = args->kind == HA_DIGEST_MEAN;
    return ha_cuda_launch_batch(
        a.seq, args->seqs, args->batch, args->kv_heads,
        [&](const struct ha_device_digest_seq &seq) {
            return ((seq.first + seq.blocks + GROUP - 1) / GROUP - seq.first / GROUP) * a.tiles;
        },
        [&](dim3 grid) {
            const dim3 block(DIGEST_THREADS);
            return args->dtype == HA_F32   ? ha_launch(digest_group<HA_F32>, grid, block, stream, a)
                   : args->dtype == HA_F16 ? ha_launch(digest_group<HA_F16>, grid, block, stream, a)
                                           : ha_launch(digest_group<HA_BF16>, grid, block, stream, a);
        });
}

/* ---- scores */

/* TERMS are summed before they meet the others, as harness/api/kernels.h says. */
enum { SCORE_THREADS = 128, TERMS = 32 };

struct score_args {
    size_t q_len, q_heads, group, dim, tiles; /* group: query heads of a KV head; tiles: of query rows */
    float scale;
    struct ha_device_score_seq seq[HA_CUDA_BATCH];
};
template <unsigned ROWS> struct score_shared {
    float q[ROWS][TERMS];
};

/* A block a thread, ROWS of the query rows that share its KV head: row r is token r % q_len of head r / q_len. */
template <enum ha_dtype T, unsigned ROWS>
static __global__ void __launch_bounds__(SCORE_THREADS) digest_score_blocks(HA_ARGS(struct score_args) a)
{
    typedef struct ha_cuda_piece<T, false> element;
    HA_SHARED(struct score_shared<ROWS>, s);
    const struct ha_device_score_seq &seq = a.seq[blockIdx.z];
    const size_t rows = a.group * a.q_len, row = blockIdx.x % a.tiles * ROWS, head = blockIdx.y,
                 begin = blockIdx.x / a.tiles * SCORE_THREADS, b = begin + threadIdx.x;
    if (begin >= seq.blocks) return;
    const char *digest = (const char *)seq.digests + head * seq.head_bytes
                         + (b / GROUP * a.dim * 2 * GROUP + b % GROUP) * bytes_of<T>;
    float sum[ROWS] = {};
    for (size_t first = 0; first < a.dim; first += TERMS) {
        const unsigned terms = unsigned(min(size_t(TERMS), a.dim - first));
        __syncthreads();
        for (unsigned i = threadIdx.x; i < ROWS * TERMS; i += SCORE_THREADS) {
            const size_t r = row + i / TERMS, t = i % TERMS;
            s.q[i / TERMS][t] =
                r < rows && t < terms
                    ? seq.q[(r % a.q_len * a.q_heads + head * a.group + r / a.q_len) * a.dim + first + t]
                    : 0;
        }
        __syncthreads();
        float part[ROWS] = {};
        for (unsigned t = 0; t < terms && b < seq.blocks; t++) {
            element least, most;
            least.load(digest + (first + t) * 2 * GROUP * bytes_of<T>);
            most.load(digest + ((first + t) * 2 + 1) * GROUP * bytes_of<T>);
            for (unsigned r = 0; r < ROWS; r++) {
                const float q = s.q[r][t], x = q < 0 ? least.get(0) : most.get(0);
                /* an infinity whose factor is 0 adds nothing */
                part[r] = fmaf(q, q == 0 && fabsf(x) == INFINITY ? 0 : x, part[r]);
            }
        }
        for (unsigned r = 0; r < ROWS; r++) sum[r] += part[r];
    }
    for (unsigned r = 0; r < ROWS && row + r < rows && b < seq.blocks; r++)
        seq.s[(head * rows + row + r) * seq.s_stride + b] = a.scale * sum[r];
}

template <enum ha_dtype T, unsigned ROWS>
static cudaError_t score_launch(cudaStream_t stream, const struct ha_device_digest_score *args)
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
        [&](const struct ha_device_score_seq &seq) {
            return (seq.blocks + SCORE_THREADS - 1) / SCORE_THREADS * a.tiles;
        },
        [&](dim3 grid) { return ha_launch(digest_score_blocks<T, ROWS>, grid, dim3(SCORE_THREADS), stream, a); });
}

template <enum ha_dtype T> static cudaError_t score_of(cudaStream_t stream, const struct ha_device_digest_score *args)
{
    return args->q_len * (args->q_heads / args->kv_heads) == 1 ? score_launch<T, 1>(stream, args)
                                                               : score_launch<T, 4>(stream, args);
}

size_t ha_cuda_digest_score_check(struct ha_cuda_check *c, const struct ha_device_digest_score *d)
{
    const size_t rows = d->q_len * d->q_heads, q = rows * d->head_dim * sizeof(float), heads = d->kv_heads;
    if (!ha_cuda_type_fits(c, "digests", d->dtype) || !ha_cuda_heads_fit(c, "query heads", d->q_heads, heads)) return 0;
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_score_seq *seq = &d->seqs[b];
        const size_t digests = ha_digest_bytes(seq->blocks, d->head_dim, d->dtype),
                     scores = times(extent(rows, seq->s_stride, seq->blocks), sizeof(float));
        ha_cuda_takes(c, "q", seq->q, q, q);
        ha_cuda_takes(c, "digests", seq->digests, digests ? extent(heads, seq->head_bytes, digests) : 0,
                      heads * digests);
        ha_cuda_takes(c, "scores", seq->s, seq->blocks ? scores : 0, 0);
    }
    return d->batch * rows;
}

cudaError_t ha_cuda_digest_score(cudaStream_t stream, const struct ha_device_digest_score *args)
{
    return args->dtype == HA_F32   ? score_of<HA_F32>(stream, args)
           : args->dtype == HA_F16 ? score_of<HA_F16>(stream, args)
                                   : score_of<HA_BF16>(stream, args);
}

#define OF(T) HA_KERNEL(digest_group<T>), HA_KERNEL(digest_score_blocks<T, 1>), HA_KERNEL(digest_score_blocks<T, 4>)
HA_CUDA_KERNELS(digest, OF(HA_F32), OF(HA_F16), OF(HA_BF16));
