/* Attention without tensor cores: binary32 K and V, one query row, rows at any address. */

#include "kernels/cuda/attend_fma.cuh"
#include "kernels/cuda/attend_ring.cuh"

namespace
{

/* C: head_dim / 128, rounded up; R: query rows of a tile, so that C R pieces of 16 bytes are at most 128 in binary32.
 * A step has SLOTS rows for each half (or the whole) of a warp. Its scores are taken PARTS times, N of them at once:
 * the score of row r and slot k of a part is number r GROUP + k, and of the lanes that have a row, lane l has number
 * l / COPIES. */
template <enum ha_dtype T, unsigned C, unsigned R> struct shape : spread<T> {
    static constexpr unsigned WARPS = 4 * C, STAGES = 2 / C;
    static constexpr unsigned SLOTS = 8 / C, KEYS = SLOTS * spread<T>::AT_ONCE, PIECES = SLOTS * C;
    static constexpr unsigned GROUP = SLOTS * R > spread<T>::LANES ? spread<T>::LANES / R : SLOTS;
    static constexpr unsigned PARTS = SLOTS / GROUP, N = GROUP * R, COPIES = spread<T>::LANES / N;
    static constexpr unsigned BLOCKS = C == 1 ? 3
                                       : R * spread<T>::IN_PIECE <= 8
                                           ? 2
                                           : 1; /* of a multiprocessor, whose registers they share */
    typedef ha_cuda_steps<KEYS, STAGES> steps;
    typedef uint4 pieces[PIECES][32]; /* [slot][c] */
    typedef float piece[spread<T>::IN_PIECE];
};

template <enum ha_dtype T, unsigned C, unsigned R> struct shared {
    using S = shape<T, C, R>;
    struct ha_cuda_seq seq;
    float4 total[S::WARPS][R][C][32];
    float2 state[S::WARPS][R];
    struct ha_cuda_ring<S::PIECES, S::STAGES> ring[S::WARPS];
};

template <enum ha_dtype T, unsigned C, unsigned R> struct warp {
    typename shape<T, C, R>::piece q[R][C], acc[R][C];
    float m, sum; /* of this lane's row; sum: of this lane's keys */
};

/* K or V of a step. VECTORS: rows are in pieces of 16 bytes, which are copied by themselves; else element by element.
 */
template <enum ha_dtype T, unsigned C, bool VECTORS, class S>
__device__ __forceinline__ void ask(typename S::pieces &to, const struct ha_cuda_rows &rows, unsigned dim)
{
    const unsigned lane = threadIdx.x % 32;
    HA_UNROLL
    for (unsigned slot = 0; slot < S::SLOTS; slot++) {
        const unsigned key = slot * S::AT_ONCE + lane / S::LANES;
        const char *row = rows.row(key);
        HA_UNROLL
        for (unsigned c = 0; c < C; c++) {
            const unsigned d = first_dim<T>(c);
            const bool real = rows.real(key) && d < dim;
            uint4 &piece = to[slot * C + c][lane];
            if (VECTORS) ha_copy16<false>(&piece, row + d * S::BYTES, real);
            else piece = real ? gather<T>(row + d * S::BYTES) : make_uint4(0, 0, 0, 0);
        }
    }
}

template <enum ha_dtype T, unsigned C, unsigned R>
__device__ __forceinline__ void score(const struct warp<T, C, R> &w, const typename shape<T, C, R>::pieces &k,
                                      float (&s)[shape<T, C, R>::PARTS])
{
    using S = shape<T, C, R>;
    HA_UNROLL
    for (unsigned part = 0; part < S::PARTS; part++) {
        float x[S::N];
        HA_UNROLL
        for (unsigned slot = 0; slot < S::GROUP; slot++) {
            HA_UNROLL
            for (unsigned r = 0; r < R; r++) x[r * S::GROUP + slot] = 0;
            HA_UNROLL
            for (unsigned c = 0; c < C; c++) {
                typename S::piece y;
                widen<T>(y, k[(part * S::GROUP + slot) * C + c][threadIdx.x % 32]);
                HA_UNROLL
                for (unsigned r = 0; r < R; r++) x[r * S::GROUP + slot] = dot(w.q[r][c], y, x[r * S::GROUP + slot]);
            }
        }
        s[part] = lane_sums<S::N, S::LANES / 2>(x);
    }
}

/* over the lanes that have keys of the same row */
template <class S, class Join> __device__ __forceinline__ float over_keys(float x, Join join)
{
    HA_UNROLL
    for (unsigned bit = S::COPIES; bit < S::COPIES * S::GROUP; bit *= 2)
        x = join(x, __shfl_xor_sync(HA_ALL_LANES, x, int(bit)));
    return S::AT_ONCE == 2 ? join(x, __shfl_xor_sync(HA_ALL_LANES, x, 16)) : x;
}

/* Scores become weights 2^(s - m), m and what was summed up before following the largest. */
template <enum ha_dtype T, unsigned C, unsigned R>
__device__ __forceinline__ void soften(struct warp<T, C, R> &w, float (&s)[shape<T, C, R>::PARTS])
{
    using S = shape<T, C, R>;
    float top = s[0];
    HA_UNROLL
    for (unsigned part = 1; part < S::PARTS; part++) top = fmaxf(top, s[part]);
    top = over_keys<S>(top, [](float x, float y) { return fmaxf(x, y); });
    const float m = fmaxf(w.m, ha_cuda_ceil(top));
    if (__any_sync(HA_ALL_LANES, m != w.m)) {
        const float own = ha_cuda_shift(w.m, m);
        w.sum *= own;
        HA_UNROLL
        for (unsigned r = 0; r < R; r++) {
            const float x = __shfl_sync(HA_ALL_LANES, own, int(r * S::GROUP * S::COPIES));
            HA_UNROLL
            for (unsigned c = 0; c < C; c++) HA_UNROLL
            for (unsigned i = 0; i < S::IN_PIECE; i++) w.acc[r][c][i] *= x;
        }
        w.m = m;
    }
    const float reference = m == -INFINITY ? 0 : m;
    float sum = 0;
    HA_UNROLL
    for (unsigned part = 0; part < S::PARTS; part++) {
        s[part] = ha_exp2(s[part] - reference);
        sum += s[part];
    }
    w.sum += sum;
}

/* The weight -0 of a key that the row does not see, and whose V may be NaN. One that weighs 0 is seen. */
constexpr unsigned UNSEEN = 0x80000000u;

/* a step's weighted V is added up by itself before it is added to the rest: shorter sums */
template <enum ha_dtype T, unsigned C, unsigned R>
__device__ __forceinline__ void weigh(struct warp<T, C, R> &w, const typename shape<T, C, R>::pieces &v,
                                      const float (&p)[shape<T, C, R>::PARTS])
{
    using S = shape<T, C, R>;
    const unsigned lane = threadIdx.x % 32;
    typename S::piece sum[R][C] = {};
    HA_UNROLL
    for (unsigned slot = 0; slot < S::SLOTS; slot++) {
        typename S::piece y[C];
        HA_UNROLL
        for (unsigned c = 0; c < C; c++) widen<T>(y[c], v[slot * C + c][lane]);
        HA_UNROLL
        for (unsigned r = 0; r < R; r++) {
            const unsigned from = lane / S::LANES * S::LANES + (r * S::GROUP + slot % S::GROUP) * S::COPIES;
            const float x = __shfl_sync(HA_ALL_LANES, p[slot / S::GROUP], int(from));
            if (__float_as_uint(x) == UNSEEN) continue;
            HA_UNROLL
            for (unsigned c = 0; c < C; c++) HA_UNROLL
            for (unsigned i = 0; i < S::IN_PIECE; i++) sum[r][c][i] = fmaf(x, y[c][i], sum[r][c][i]);
        }
    }
    HA_UNROLL
    for (unsigned r = 0; r < R; r++) HA_UNROLL
    for (unsigned c = 0; c < C; c++) HA_UNROLL
    for (unsigned i = 0; i < S::IN_PIECE; i++) w.acc[r][c][i] += sum[r][c][i];
}

/* sums and weighted V of a warp to where the block's are joined */
template <enum ha_dtype T, unsigned C, unsigned R>
__device__ __forceinline__ void put(struct shared<T, C, R> &sh, struct warp<T, C, R> &w, unsigned number)
{
    using S = shape<T, C, R>;
    const unsigned lane = threadIdx.x % 32;
    w.sum = over_keys<S>(w.sum, [](float x, float y) { return x + y; });
    if (lane < S::LANES && lane % (S::COPIES * S::GROUP) == 0)
        sh.state[number][lane / S::COPIES / S::GROUP] = make_float2(w.m, w.sum);
    HA_UNROLL
    for (unsigned r = 0; r < R; r++) HA_UNROLL
    for (unsigned c = 0; c < C; c++) {
        typename S::piece &x = w.acc[r][c];
        HA_UNROLL
        for (unsigned i = 0; i < S::IN_PIECE && S::AT_ONCE == 2; i++) x[i] += __shfl_xor_sync(HA_ALL_LANES, x[i], 16);
        HA_UNROLL
        for (unsigned i = 0; i < S::IN_PIECE && lane < S::LANES; i += 4)
            sh.total[number][r][c][(lane * S::IN_PIECE + i) / 4] = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
    }
}

template <enum ha_dtype T, unsigned C, unsigned R>
__device__ __forceinline__ void finish(const struct ha_cuda_call &a, const struct shared<T, C, R> &sh,
                                       const struct ha_cuda_target &to)
{
    using S = shape<T, C, R>;
    for (unsigned i = threadIdx.x; i < R * C * 32; i += S::WARPS * 32) {
        const unsigned lane = i % 32, c = i / 32 % C, r = i / 32 / C, dim = 4 * lane + 128 * c;
        if (to.tile * R + r >= a.rows || dim >= a.dim) continue;
        float m = -INFINITY, sum = 0;
        for (unsigned w = 0; w < S::WARPS; w++) m = fmaxf(m, sh.state[w][r].x);
        float4 x = make_float4(0, 0, 0, 0);
        for (unsigned w = 0; w < S::WARPS; w++) {
            const float by = ha_cuda_shift(sh.state[w][r].x, m);
            const float4 y = sh.total[w][r][c][lane];
            sum = fmaf(sh.state[w][r].y, by, sum);
            x = make_float4(fmaf(y.x, by, x.x), fmaf(y.y, by, x.y), fmaf(y.z, by, x.z), fmaf(y.w, by, x.w));
        }
        ha_cuda_put(a, sh.seq, to, r, dim, m, sum, x);
    }
}

template <enum ha_dtype T, unsigned C, unsigned R, bool VECTORS>
__global__ void __launch_bounds__(shape<T, C, R>::WARPS * 32, shape<T, C, R>::BLOCKS)
    attend_fma(HA_ARGS(struct ha_cuda_call) a)
{
    using S = shape<T, C, R>;
    using block_shared = shared<T, C, R>;
    HA_SHARED_DYNAMIC(block_shared, sh);
    unsigned within;
    const unsigned b = ha_cuda_find(a, &within);
    const unsigned unit = within % a.units;
    if (threadIdx.x == 0) {
        sh.seq = a.table ? a.table[b] : a.seq[b];
        if (a.head_lists) ha_cuda_own(a, sh.seq, unit, S::KEYS, S::WARPS);
    }
    __syncthreads();

    const struct ha_cuda_seq &seq = sh.seq;
    const unsigned lane = threadIdx.x % 32, number = threadIdx.x / 32;
    const unsigned tile = within / a.units % a.stacks, split = within / a.units / a.stacks;
    const unsigned last = a.rows - 1, row = tile * R;
    const unsigned mine = lane % S::LANES / S::COPIES / S::GROUP;
    const unsigned key = lane % S::LANES / S::COPIES % S::GROUP * S::AT_ONCE + lane / S::LANES;
    const unsigned own = ha_cuda_visible(a, seq.keys, min(row + mine, last));
    const size_t k_head = unit * seq.k_head_bytes, v_head = unit * seq.v_head_bytes;

    struct ha_cuda_ring<S::PIECES, S::STAGES> &ring = sh.ring[number];
    typename S::steps steps = { seq,
                                split * seq.split_steps + number,
                                S::WARPS,
                                min(seq.steps, (split + 1) * seq.split_steps),
                                ha_cuda_visible(a, seq.keys, min(row + R - 1, last)),
                                a.block,
                                0,
                                {},
                                {},
                                {} };
    const auto ask_k = [&](unsigned i, typename S::pieces &to) {
        if (steps.there[i]) ask<T, C, VECTORS, S>(to, steps.k_rows(i, k_head), a.dim);
        ha_copy_commit();
    };
    const auto ask_v = [&](unsigned i, typename S::pieces &to) {
        if (steps.there[i]) ask<T, C, VECTORS, S>(to, steps.v_rows(i, v_head), a.dim);
        ha_copy_commit();
    };
    HA_UNROLL
    for (unsigned i = 0; i <= S::STAGES; i++) steps.look(i);
    HA_UNROLL
    for (unsigned i = 0; i < S::STAGES; i++) {
        ask_k(i, ring.k[i]);
        ask_v(i, ring.v[i]);
    }

    struct warp<T, C, R> w = {
    };
    w.m = -INFINITY;
    HA_UNROLL
    for (unsigned r = 0; r < R; r++)
        load_query<T, C>(w.q[r], seq.q + ha_cuda_q_at(a, unit, min(row + r, last)), row + r <= last, a.dim);

    while (steps.there[0]) {
        typename S::pieces &k = ring.k[steps.stage], &v = ring.v[steps.stage];
        float s[S::PARTS];
        ha_copy_wait<2 * S::STAGES - 1>();
        score<T, C, R>(w, k, s);
        ask_k(S::STAGES, k);
        steps.look(S::STAGES + 1);

        const unsigned shown = ha_cuda_shown(steps.at[0], own);
        HA_UNROLL
        for (unsigned part = 0; part < S::PARTS; part++)
            s[part] = part * S::GROUP * S::AT_ONCE + key < shown ? s[part] * a.scale : -INFINITY;
        soften<T, C, R>(w, s);
        HA_UNROLL
        for (unsigned part = 0; part < S::PARTS; part++)
            if (part * S::GROUP * S::AT_ONCE + key >= shown) s[part] = __uint_as_float(UNSEEN);
        ha_copy_wait<2 * S::STAGES - 1>();
        weigh<T, C, R>(w, v, s);
        ask_v(S::STAGES, v);
        steps.next();
    }

    put<T, C, R>(sh, w, number);
    __syncthreads();
    finish<T, C, R>(a, sh, ha_cuda_target{ b, unit, split, tile, R });
}

template <enum ha_dtype T, unsigned C, unsigned R, bool VECTORS>
cudaError_t launch(const struct ha_cuda_call *call, unsigned blocks, cudaStream_t stream)
{
    return ha_launch_dynamic(sizeof(struct shared<T, C, R>), attend_fma<T, C, R, VECTORS>, dim3(blocks),
                             dim3(shape<T, C, R>::WARPS * 32), stream, *call);
}

/* The kernels: type, C, R, VECTORS; of a C, the R in their order. Several rows of 16 bits in pieces go to tensor cores.
 */
#define OF_F32(X, V)                                                                                    \
    X(HA_F32, 1, 1, V), X(HA_F32, 1, 2, V), X(HA_F32, 1, 4, V), X(HA_F32, 1, 8, V), X(HA_F32, 2, 1, V), \
        X(HA_F32, 2, 2, V), X(HA_F32, 2, 4, V)
#define OF_16(X, T)                                                                                                  \
    X(T, 1, 1, false), X(T, 1, 2, false), X(T, 1, 4, false), X(T, 2, 1, false), X(T, 2, 2, false), X(T, 1, 1, true), \
        X(T, 2, 1, true)
#define EACH(X) OF_F32(X, false), OF_F32(X, true), OF_16(X, HA_F16), OF_16(X, HA_BF16)
#define KERNEL(T, C, R, V)                                                                  \
    {                                                                                       \
        reinterpret_cast<const void *>(attend_fma<T, C, R, V>), shape<T, C, R>::WARPS * 32, \
            sizeof(struct shared<T, C, R>), 0                                               \
    }
#define PATH(T, C, R, V)                                                                      \
    {                                                                                         \
        T, C, V, { R, 1, shape<T, C, R>::WARPS, shape<T, C, R>::KEYS, 0, launch<T, C, R, V> } \
    }

const struct {
    enum ha_dtype dtype;
    unsigned c;
    bool vectors;
    struct ha_cuda_path path;
} kernel[] = { EACH(PATH) };

} // namespace

HA_CUDA_KERNELS(attend_fma, EACH(KERNEL));

/* the first that has a row's number of rows, or else the last, of which a unit takes several */
struct ha_cuda_path ha_cuda_path_fma(enum ha_dtype dtype, size_t dim, size_t rows, bool vectors)
{
    size_t best = 0;
    for (size_t i = 0, few = 0; i < ha_cuda_kernels_attend_fma.count; i++) {
        if (kernel[i].dtype != dtype || kernel[i].c != (dim + 127) / 128 || kernel[i].vectors != vectors || few >= rows)
            continue;
        few = kernel[i].path.rows;
        best = i;
    }
    return ha_cuda_path_at(&kernel[best].path, &ha_cuda_kernels_attend_fma.list[best]);
}
