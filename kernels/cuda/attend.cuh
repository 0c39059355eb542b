#ifndef HA_KERNELS_CUDA_ATTEND_CUH
#define HA_KERNELS_CUDA_ATTEND_CUH

/* What the kernels of attention share. Flash-decoding: a block takes one unit (a KV head, or one of its lists), one
 * tile of query rows and one split of the keys; its warps take keys each by itself, keep (reference, sum, sum of
 * weighted V) and merge them at the end. A second kernel joins the splits.
 *
 * Scores are in units of ln 2: s = (scale log2 e) q.k, weights are 2^(s - M). The reference M of a row is the smallest
 * integer not below any score so far, so that every change of reference is a product with a power of two: exact. */

#include "kernels/cuda/simt.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"

/* sequences in the arguments of the kernels themselves; more come in a table in the workspace */
enum { HA_CUDA_SEQS_INLINE = 16, HA_CUDA_SPLITS_MAX = 512 };

struct ha_cuda_run {
    const char *k, *v;     /* row 0 of KV head 0 */
    const uint32_t *index; /* or NULL */
    size_t k_stride, v_stride;
    unsigned keys, first; /* first: position of its first key in run order */
};

struct ha_cuda_seq {
    const float *q;
    float *o, *lse, *weights;
    size_t weights_stride, k_head_bytes, v_head_bytes;
    struct ha_cuda_run run[HA_RUNS_MAX];
    unsigned runs, keys;
    unsigned steps; /* each run is cut into steps of so many keys as the path says, the last shorter */
    unsigned splits, split_steps;
    unsigned partial; /* number of its first partial; of no meaning where there is one split */
    bool listed;      /* run 0 is lists; list_keys may be NULL all the same */
    size_t list_stride;
    const uint32_t *list_keys;
};

struct ha_cuda_call {
    unsigned batch, q_len, dim, block;
    unsigned units;                   /* that have keys of their own: KV heads, or lists; a grid has each */
    unsigned group;                   /* query heads of a unit */
    unsigned head_lists;              /* units of a KV head; 0: no lists, and a unit is one */
    unsigned rows;                    /* q_len * group: row r is query head r % group of token r / group */
    unsigned tiles;                   /* of rows, and so many partials for each split and unit */
    unsigned stacks;                  /* blocks that the tiles of one split and unit take */
    size_t token_stride, head_stride; /* of q and o */
    bool causal;
    bool vectors;                    /* rows of K and V are in pieces of 16 bytes */
    float scale;                     /* to units of ln 2 */
    float *partial;                  /* [partials][rows of a tile][dim] */
    float2 *state;                   /* [partials][rows of a tile]: M, sum */
    float2 *whole;                   /* [batch][q_len][q_heads]: of all keys, where weights are wanted; else NULL */
    const struct ha_cuda_seq *table; /* [batch], or NULL: seq */
    unsigned first_block[HA_CUDA_SEQS_MAX];
    struct ha_cuda_seq seq[HA_CUDA_SEQS_INLINE];
};

/* A kernel and what the host must know of it. */
struct ha_cuda_path {
    unsigned rows;                      /* of a tile */
    unsigned tiles;                     /* of a block */
    unsigned warps;                     /* that share a tile's keys */
    unsigned keys;                      /* of a step */
    unsigned blocks_per_multiprocessor; /* as the driver says, at least 1 */
    cudaError_t (*launch)(const struct ha_cuda_call *call, unsigned blocks, cudaStream_t stream);
};

static inline struct ha_cuda_path ha_cuda_path_at(const struct ha_cuda_path *like, const struct ha_cuda_kernel *kernel)
{
    struct ha_cuda_path path = *like;
    path.blocks_per_multiprocessor = max(1u, __atomic_load_n(&kernel->resident, __ATOMIC_RELAXED));
    return path;
}

/* many: the rows fill several tiles, which then share what they read */
struct ha_cuda_path ha_cuda_path_mma_f16(size_t dim, bool many);
struct ha_cuda_path ha_cuda_path_mma_bf16(size_t dim, bool many);
/* vectors: rows of K and V are in pieces of 16 bytes */
struct ha_cuda_path ha_cuda_path_fma(enum ha_dtype dtype, size_t dim, size_t rows, bool vectors);
cudaError_t ha_cuda_attend_combine(const struct ha_cuda_call *call, unsigned tile_rows, cudaStream_t stream);
/* for the sequences that want weights; longest: keys of the longest sequence */
cudaError_t ha_cuda_attend_weights(const struct ha_cuda_call *call, enum ha_dtype dtype, unsigned longest,
                                   cudaStream_t stream);

/* ---- inside the kernels */

/* what is indexed by such a loop's variable stays in registers */
#ifdef __CUDACC__
#define HA_PRAGMA(text)     _Pragma(#text)
#define HA_UNROLL           HA_PRAGMA(unroll)
#define HA_UNROLL_BY(times) HA_PRAGMA(unroll times)
#else
#define HA_UNROLL
#define HA_UNROLL_BY(times)
#endif

/* sequence of this block, and the block's number within it; every thread of the block calls it, 64 at least */
static __device__ __forceinline__ unsigned ha_cuda_find(const struct ha_cuda_call &a, unsigned *within)
{
    const bool begun = threadIdx.x < a.batch && a.first_block[threadIdx.x % HA_CUDA_SEQS_MAX] <= blockIdx.x;
    const unsigned b = unsigned(__syncthreads_count(begun)) - 1;
    *within = blockIdx.x - a.first_block[b];
    return b;
}

/* Where there are lists, a block's copy of a sequence becomes one unit's: of its KV head and its list, with as many
 * keys and steps as that has. Of each split there is still a block, of one behind the last step without keys. */
static __device__ __forceinline__ void ha_cuda_own(const struct ha_cuda_call &a, struct ha_cuda_seq &seq, unsigned unit,
                                                   unsigned step_keys, unsigned warps)
{
    const unsigned head = unit / a.head_lists;
    for (unsigned r = 0; r < seq.runs; r++) {
        seq.run[r].k += head * seq.k_head_bytes;
        seq.run[r].v += head * seq.v_head_bytes;
    }
    seq.k_head_bytes = seq.v_head_bytes = 0;
    if (!seq.listed) return;
    struct ha_cuda_run &list = seq.run[0];
    list.index += unit * seq.list_stride;
    if (!seq.list_keys) return;
    const unsigned keys = min(__ldg(seq.list_keys + unit), list.keys), fewer = list.keys - keys;
    seq.steps -= (list.keys + step_keys - 1) / step_keys - (keys + step_keys - 1) / step_keys;
    const unsigned each = (seq.steps + seq.splits - 1) / seq.splits;
    seq.split_steps = (each + warps - 1) / warps * warps;
    list.keys = keys;
    seq.keys -= fewer;
    for (unsigned r = 1; r < seq.runs; r++) seq.run[r].first -= fewer;
}

/* where a step's keys are */
struct ha_cuda_stretch {
    const struct ha_cuda_run *run;
    unsigned first; /* key of the run */
};
static __device__ __forceinline__ struct ha_cuda_stretch ha_cuda_stretch_at(const struct ha_cuda_seq &seq,
                                                                            unsigned step, unsigned keys)
{
    unsigned r = 0;
    for (; r + 1 < seq.runs; r++) {
        const unsigned steps = (seq.run[r].keys + keys - 1) / keys;
        if (step < steps) break;
        step -= steps;
    }
    return ha_cuda_stretch{ &seq.run[r], step * keys };
}

static __device__ __forceinline__ unsigned long long ha_cuda_row(const struct ha_cuda_run &run, unsigned key,
                                                                 unsigned block)
{
    return run.index ? (unsigned long long)(__ldg(run.index + key / block)) * block + key % block : key;
}

/* row of key first + lane % KEYS, or of the last one */
template <unsigned KEYS>
static __device__ __forceinline__ unsigned long long ha_cuda_row_ahead(const struct ha_cuda_stretch &at, unsigned block)
{
    return ha_cuda_row(*at.run, min(at.first + threadIdx.x % KEYS, at.run->keys - 1), block);
}

/* how many keys a query row sees */
static __device__ __forceinline__ unsigned ha_cuda_visible(const struct ha_cuda_call &a, unsigned keys, unsigned row)
{
    const unsigned hidden = a.causal ? a.q_len - 1 - row / a.group : 0;
    return keys > hidden ? keys - hidden : 0;
}

/* of the keys from a place on, those that are there and that a row sees which sees so many in all */
static __device__ __forceinline__ unsigned ha_cuda_shown(const struct ha_cuda_stretch &at, unsigned visible)
{
    const unsigned position = at.run->first + at.first;
    return visible > position ? min(visible - position, at.run->keys - at.first) : 0;
}

/* smallest integer >= x; -inf and NaN stay */
static __device__ __forceinline__ float ha_cuda_ceil(float x)
{
    const float r = rintf(x);
    return r < x ? r + 1.f : r;
}

/* 2^(from - to) for references from <= to: what takes sums from one to the other. From -inf, nothing: 0. Below
 * 2^-126: 0, too, which is less than the bound's underflow. */
static __device__ __forceinline__ float ha_cuda_shift(float from, float to)
{
    const float d = from - to;
    return d >= -126.f ? __uint_as_float(unsigned(127 + int(d)) << 23) : 0.f;
}

/* row r of a unit, in [q_len][q_heads] */
static __device__ __forceinline__ size_t ha_cuda_q_row(const struct ha_cuda_call &a, unsigned unit, unsigned row)
{
    return (size_t(row / a.group) * a.units + unit) * a.group + row % a.group;
}

/* where it is in q and in o */
static __device__ __forceinline__ size_t ha_cuda_q_at(const struct ha_cuda_call &a, unsigned unit, unsigned row)
{
    return size_t(row / a.group) * a.token_stride + size_t(unit * a.group + row % a.group) * a.head_stride;
}

/* ln(2^m sum) = (m + e) ln 2 + ln(2^-e sum), the second at most 0.41: one rounding of the result and little else.
 * No sum, no key: -inf. NaN stays. */
static __device__ __forceinline__ float ha_cuda_lse(float m, float sum)
{
    if (sum == 0) return -INFINITY;
    const unsigned bits = __float_as_uint(sum);
    float y = __uint_as_float((bits & 0x007fffffu) | 0x3f800000u), e = m + float(int(bits >> 23) - 127);
    if (y > 1.5f) {
        y *= .5f;
        e += 1.f;
    }
    const float nan = sum - sum;
    return fmaf(e, 0x1.62e43p-1f, fmaf(e, -0x1.05c61p-29f, ha_log(y))) + nan;
}

/* What a row's attention is once its keys are through, where it goes. */
struct ha_cuda_target {
    unsigned seq, unit, split, tile, tile_rows;
};

/* sum, and components dim .. dim + 3 of the sum of weighted V, of row `within` of the tile */
static __device__ __forceinline__ void ha_cuda_put(const struct ha_cuda_call &a, const struct ha_cuda_seq &seq,
                                                   const struct ha_cuda_target &to, unsigned within, unsigned dim,
                                                   float m, float sum, const float4 &x)
{
    if (seq.splits > 1) {
        const size_t partial = seq.partial + (size_t(to.split) * a.tiles + to.tile) * a.units + to.unit;
        const size_t at = partial * to.tile_rows + within;
        ha_at<float4>(a.partial + at * a.dim + dim) = x;
        if (dim == 0) a.state[at] = make_float2(m, sum);
        return;
    }
    const size_t row = ha_cuda_q_row(a, to.unit, to.tile * to.tile_rows + within);
    float *o = seq.o + ha_cuda_q_at(a, to.unit, to.tile * to.tile_rows + within) + dim;
    const bool none = sum == 0;
    o[0] = none ? 0 : x.x / sum;
    o[1] = none ? 0 : x.y / sum;
    o[2] = none ? 0 : x.z / sum;
    o[3] = none ? 0 : x.w / sum;
    if (dim) return;
    seq.lse[row] = ha_cuda_lse(m, sum);
    if (a.whole) a.whole[size_t(to.seq) * a.rows * a.units + row] = make_float2(m, sum);
}

#endif
